// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/segment.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <system_error>

#include "base/shared_file.hpp"

namespace tutti::shm {
namespace {

constexpr std::uint64_t kMagic = 0x314d48535f495454;  // "TTI_SHM1"
constexpr std::uint32_t kVersion = 1;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr unsigned kNoExecSeal = 0x0008U;  // MFD_NOEXEC_SEAL, Linux 6.3; older kernels say EINVAL
constexpr int kNameAttempts = 16;

const char* advice(int error_number) {
  switch (error_number) {
    case EMFILE:
      return "raise this process's limit of open files (ulimit -n)";
    case ENFILE:
      return "raise the machine's limit of open files (sysctl fs.file-max)";
    case ENOSPC:
      return "enlarge /dev/shm (docker run --shm-size) or lower TUTTI_ARENA_BYTES";
    case ENOMEM:
      return "free memory, raise the limits of memory and mappings (ulimit -v, sysctl "
             "vm.max_map_count), or lower TUTTI_ARENA_BYTES";
    case EFBIG:
      return "raise the file size limit (ulimit -f) or lower TUTTI_ARENA_BYTES";
    case EACCES:
    case EPERM:
    case ENOSYS:
      return "allow memfd_create or a writable /dev/shm in this container";
    default:
      return "see the system's log";
  }
}

tl::unexpected<Error> refused(std::string what, int error_number) {
  return make_error(Code::kSystemError, fmt::format("{}: {} ({}); {}", what,
                                                    std::generic_category().message(error_number),
                                                    error_number, advice(error_number)));
}

// Segments of this process by key, so that ranks that are threads share one mapping.
struct Registry {
  std::mutex mutex;
  std::uint64_t next_key = 1;                              // guarded by mutex
  std::map<std::uint64_t, std::weak_ptr<Segment>> by_key;  // guarded by mutex
};

Registry& registry() {
  static Registry* const instance = new Registry;  // never destroyed: ranks may outlive main
  return *instance;
}

UniqueFd open_memfd(Rank rank) {
  const std::string name = fmt::format("tutti-inbox-{}", rank);
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal));
  if (!fd && errno == EINVAL) {
    fd.reset(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  return fd;
}

// An unnamed file in memory: O_TMPFILE, or a name that is gone before this returns.
UniqueFd open_unnamed_file(Rank rank) {
  UniqueFd fd(::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  for (int attempt = 0; !fd && attempt < kNameAttempts; ++attempt) {
    const std::string name = fmt::format("/tutti-{}-{}-{}", ::getpid(), rank, attempt);
    fd.reset(::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (fd)
      ::shm_unlink(name.c_str());
    else if (errno != EEXIST)
      break;
  }
  return fd;
}

Status size_and_seal(int fd, std::uint64_t bytes, bool sealed, Rank rank) {
  const auto length = static_cast<off_t>(bytes);
  if (::ftruncate(fd, length) != 0) {
    return refused(fmt::format("rank {}: cannot size a shared segment of {} bytes", rank, bytes),
                   errno);
  }
  if (!sealed) {
    // Pages of a full /dev/shm would be a SIGBUS later: reserve them now.
    if (const int error_number = ::posix_fallocate(fd, 0, length); error_number != 0) {
      return refused(fmt::format("rank {}: cannot reserve {} bytes in /dev/shm", rank, bytes),
                     error_number);
    }
    return {};
  }
  if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    return refused(fmt::format("rank {}: cannot seal its shared segment", rank), errno);
  }
  return {};
}

struct OpenedFd {
  UniqueFd fd;
  bool sealed = false;
};

Result<OpenedFd> open_backing(Rank rank, Backing backing) {
  int memfd_error = 0;
  if (backing != Backing::kFile) {
    UniqueFd fd = open_memfd(rank);
    if (fd) return OpenedFd{std::move(fd), true};
    memfd_error = errno;
    const bool not_allowed = memfd_error == ENOSYS || memfd_error == EPERM || memfd_error == EACCES;
    if (backing == Backing::kMemfd || !not_allowed) {
      return refused(fmt::format("rank {}: cannot create a memfd", rank), memfd_error);
    }
  }
  UniqueFd fd = open_unnamed_file(rank);
  if (fd) return OpenedFd{std::move(fd), false};
  return refused(fmt::format("rank {}: cannot create an unnamed file in /dev/shm (memfd: {})", rank,
                             std::generic_category().message(memfd_error)),
                 errno);
}

// The fd is a file of the right kind and size that cannot shrink under us.
Status check_fd(int fd, const InboxLayout& layout, Rank rank) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return refused("cannot examine a peer's segment", errno);
  if (!S_ISREG(info.st_mode) || info.st_nlink != 0) {
    return make_error(Code::kRemoteError,
                      fmt::format("rank {} sent a descriptor that is not a shared segment; run the "
                                  "same library on all ranks",
                                  rank),
                      rank);
  }
  if (static_cast<std::uint64_t>(info.st_size) != layout.total_bytes()) {
    return make_error(Code::kInvalidUsage,
                      fmt::format("the segment of rank {} has {} bytes, but this rank expects {}: "
                                  "set TUTTI_ARENA_BYTES to the same value on all ranks",
                                  rank, info.st_size, layout.total_bytes()),
                      rank);
  }
  if (is_unsealed(fd)) {
    return make_error(Code::kRemoteError,
                      fmt::format("the segment of rank {} is not sealed: it could shrink while "
                                  "mapped",
                                  rank),
                      rank);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Segment>> Segment::map_fd(int fd, const InboxLayout& layout) {
  void* base = ::mmap(nullptr, layout.total_bytes(), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    return refused(fmt::format("cannot map a shared segment of {} bytes", layout.total_bytes()),
                   errno);
  }
  return std::shared_ptr<Segment>(new Segment(static_cast<std::byte*>(base), layout));
}

Result<std::shared_ptr<Segment>> Segment::create(const InboxLayout& layout, Rank rank,
                                                 Backing backing) {
  TUTTI_TRY_ASSIGN(OpenedFd opened, open_backing(rank, backing));
  TUTTI_TRY(size_and_seal(opened.fd.get(), layout.total_bytes(), opened.sealed, rank));
  TUTTI_TRY_ASSIGN(auto segment, map_fd(opened.fd.get(), layout));
  segment->fd_ = std::make_shared<const UniqueFd>(std::move(opened.fd));
  segment->sealed_ = opened.sealed;
  SegmentHeader& header = segment->header();
  header.magic = kMagic;
  header.version = kVersion;
  header.rank = rank;
  header.ranks = layout.ranks;
  header.arena_bytes = layout.arena_bytes;
  // Everything else is zero, as the kernel gives it: no epoch is 0, and counters start at 0.
  const std::lock_guard lock(registry().mutex);
  segment->key_ = registry().next_key++;
  registry().by_key.emplace(segment->key_, segment);
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::map(int fd, const InboxLayout& layout, Rank rank) {
  TUTTI_TRY(check_fd(fd, layout, rank));
  TUTTI_TRY_ASSIGN(auto segment, map_fd(fd, layout));
  const SegmentHeader& header = segment->header();
  if (header.magic != kMagic || header.version != kVersion || header.rank != rank) {
    return make_error(Code::kRemoteError,
                      fmt::format("the descriptor that rank {} sent is not its own segment of "
                                  "version {}: run the same library on all ranks",
                                  rank, kVersion),
                      rank);
  }
  if (header.ranks != layout.ranks || header.arena_bytes != layout.arena_bytes) {
    return make_error(
        Code::kInvalidUsage,
        fmt::format(
            "rank {} made its segment for {} ranks and a receive buffer of {} bytes, but this rank "
            "expects {} and {}: set TUTTI_ARENA_BYTES to the same value on all ranks",
            rank, header.ranks, header.arena_bytes, layout.ranks, layout.arena_bytes),
        rank);
  }
  return segment;
}

std::shared_ptr<Segment> Segment::find(std::uint64_t key) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().by_key.find(key);
  return found == registry().by_key.end() ? nullptr : found->second.lock();
}

Segment::~Segment() {
  if (key_ != 0) {
    const std::lock_guard lock(registry().mutex);
    registry().by_key.erase(key_);
  }
  ::munmap(base_, layout_.total_bytes());
}

}  // namespace tutti::shm
