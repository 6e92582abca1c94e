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

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool resize(const UniqueFd& fd, std::size_t bytes) {
  return ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0;
}

// Of a fallback file: pages of a full file system would be a SIGBUS later.
bool resize_and_reserve(const UniqueFd& fd, std::size_t bytes) {
  if (!resize(fd, bytes)) return false;
  errno = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  return errno == 0;
}

UniqueFd make_memfd(std::size_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create("tutti-board", kFlags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.reset(::memfd_create("tutti-board", kFlags));
  if (!fd || !resize(fd, bytes)) return {};
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return {};
  return fd;
}

UniqueFd make_tmpfile(std::size_t bytes) {
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    UniqueFd fd(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
    if (fd && resize_and_reserve(fd, bytes)) return fd;
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
  return resize_and_reserve(fd, bytes) ? std::move(fd) : UniqueFd();
}

// The fd is a nameless file of just this size that cannot shrink under us. The kernel says which
// files can be sealed: of the fallbacks, one in tmpfs has F_SEAL_SEAL alone from its birth, others
// answer EINVAL.
Status check_fd(int fd, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error("cannot look at the board's segment", errno);
  if (!S_ISREG(info.st_mode) || info.st_nlink != 0) {
    return make_error(Code::kRemoteError, "what was handed out as the board is no segment");
  }
  if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) != bytes) {
    return make_error(
        Code::kRemoteError,
        fmt::format("the board's segment has {} bytes, its ranks need {}", info.st_size, bytes));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool cannot_be_sealed = seals < 0 || seals == F_SEAL_SEAL;
  if (!cannot_be_sealed && (seals & kSeals) != kSeals) {
    return make_error(Code::kRemoteError,
                      "the board's segment is not sealed: it could shrink while mapped");
  }
  return {};
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
  TUTTI_TRY(check_fd(fd, bytes));
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
