#include "runtime/control/board_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; older kernels answer EINVAL
#endif

namespace tutti::control {
namespace {

bool resize(const UniqueFd& fd, std::size_t bytes) {
  return ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0;
}

UniqueFd make_memfd(std::size_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create("tutti-board", kFlags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.reset(::memfd_create("tutti-board", kFlags));
  if (!fd || !resize(fd, bytes)) return {};
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return {};
  return fd;
}

UniqueFd make_tmpfile(std::size_t bytes) {
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    UniqueFd fd(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
    if (fd && resize(fd, bytes)) return fd;
  }
  return {};
}

UniqueFd make_shm(std::size_t bytes) {
  std::array<unsigned char, 16> random{};
  ::randombytes_buf(random.data(), random.size());
  std::string name = "/tutti-";
  for (const unsigned char byte : random) name += fmt::format("{:02x}", byte);
  UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return {};
  ::shm_unlink(name.c_str());
  return resize(fd, bytes) ? std::move(fd) : UniqueFd();
}

}  // namespace

Result<UniqueFd> make_segment(std::size_t bytes, SegmentKind kind) {
  UniqueFd fd;
  const bool any = kind == SegmentKind::kAny;
  if (any || kind == SegmentKind::kMemfd) fd = make_memfd(bytes);
  if (!fd && (any || kind == SegmentKind::kTmpFile)) fd = make_tmpfile(bytes);
  if (!fd && (any || kind == SegmentKind::kShmOpen)) fd = make_shm(bytes);
  if (!fd) {
    return errno_error(fmt::format("cannot make a shared segment of {} bytes; tried memfd, "
                                   "O_TMPFILE and shm_open",
                                   bytes),
                       errno);
  }
  return fd;
}

std::shared_ptr<BoardMemory> BoardMemory::alone() {
  const std::size_t bytes = board_bytes(1);
  auto* base = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kCacheLineBytes}));
  std::memset(base, 0, bytes);
  return std::shared_ptr<BoardMemory>(new BoardMemory(base, bytes, false));
}

Result<std::shared_ptr<BoardMemory>> BoardMemory::map(int fd, std::size_t ranks) {
  const std::size_t bytes = board_bytes(ranks);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error("cannot look at the board's segment", errno);
  if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) < bytes) {
    return make_error(Code::kRemoteError, fmt::format("the board's segment has {} bytes, {} ranks "
                                                      "need {}",
                                                      info.st_size, ranks, bytes));
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return errno_error("cannot map the board's segment", errno);
  return std::shared_ptr<BoardMemory>(new BoardMemory(static_cast<std::byte*>(base), bytes, true));
}

BoardMemory::~BoardMemory() {
  if (mapped_) {
    ::munmap(base_, bytes_);
  } else {
    ::operator delete (base_, std::align_val_t{kCacheLineBytes});
  }
}

}  // namespace tutti::control
