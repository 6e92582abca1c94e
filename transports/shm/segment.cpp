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

#include "base/process_fd.hpp"
#include "base/shared_file.hpp"

namespace tutti::shm {
namespace {

constexpr std::uint64_t kMagic = 0x314d48535f495454;  // "TTI_SHM1"
constexpr std::uint32_t kVersion = 3;                 // 2: short cells of 128 bytes
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

// A machine's pages may be larger than those of the layout.
std::uint64_t whole_pages(std::uint64_t bytes) {
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

std::uint64_t offset_of(const InboxLayout& layout, std::int32_t place) {
  return whole_pages(sizeof(FileHeader)) +
         static_cast<std::uint64_t>(place) * whole_pages(layout.total_bytes());
}

// Mapped files of this process by device and inode, so that ranks that are threads share one
// mapping. The kernel gives an inode's number to another file only once nothing maps it.
using FileKey = std::pair<::dev_t, ::ino_t>;
struct Registry {
  std::map<FileKey, std::weak_ptr<std::byte>> mappings;  // guarded by process_registry_mutex()
};

Registry& registry() {
  static Registry* const instance = new Registry;  // never destroyed: ranks may outlive main
  return *instance;
}

UniqueFd open_memfd(Rank rank) {
  const std::string name = fmt::format("tutti-inboxes-{}", rank);
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

// Of a file of the right kind, which cannot shrink under us: its bytes.
Result<std::uint64_t> bytes_of_file(int fd, Rank rank) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return refused("cannot examine a peer's segment", errno);
  if (!S_ISREG(info.st_mode) || info.st_nlink != 0) {
    return make_error(Code::kRemoteError,
                      fmt::format("rank {} sent a descriptor that is not a shared segment; run the "
                                  "same library on all ranks",
                                  rank),
                      rank);
  }
  if (is_unsealed(fd)) {
    return make_error(Code::kRemoteError,
                      fmt::format("the segment of rank {} is not sealed: it could shrink while "
                                  "mapped",
                                  rank),
                      rank);
  }
  return static_cast<std::uint64_t>(info.st_size);
}

}  // namespace

Result<SegmentFile> SegmentFile::create(const InboxLayout& layout, std::int32_t places, Rank rank,
                                        Backing backing) {
  TUTTI_TRY_ASSIGN(OpenedFd opened, open_backing(rank, backing));
  const int fd = opened.fd.get();
  TUTTI_TRY(size_and_seal(fd, bytes_of(layout, places), opened.sealed, rank));
  // Everything else is zero, as the kernel gives it: no epoch is 0, and counters start at 0.
  const FileHeader header{.magic = kMagic,
                          .version = kVersion,
                          .places = places,
                          .ranks = layout.ranks,
                          .arena_bytes = layout.arena_bytes};
  if (::pwrite(fd, &header, sizeof header, 0) != sizeof header)
    return refused("cannot write the header of the shared segments", errno);
  return map_file(std::move(opened.fd), opened.sealed, layout, places);
}

Result<SegmentFile> SegmentFile::map(UniqueFd fd, const InboxLayout& layout, std::int32_t places,
                                     Rank rank) {
  const auto unlike = [&] {
    return make_error(
        Code::kRemoteError,
        fmt::format("the descriptor that rank {} sent does not hold the {} segments of this host "
                    "of version {}: run the same library on all ranks",
                    rank, places, kVersion),
        rank);
  };
  TUTTI_TRY_ASSIGN(const std::uint64_t bytes, bytes_of_file(fd.get(), rank));
  FileHeader header{};
  const bool read = ::pread(fd.get(), &header, sizeof header, 0) == sizeof header;
  if (!read || header.magic != kMagic || header.version != kVersion || header.places != places)
    return unlike();
  if (header.ranks != layout.ranks || header.arena_bytes != layout.arena_bytes) {
    return make_error(
        Code::kInvalidUsage,
        fmt::format("rank {} made the segments for {} ranks and a receive buffer of {} bytes, but "
                    "this rank expects {} and {}: set TUTTI_ARENA_BYTES to the same value on all "
                    "ranks",
                    rank, header.ranks, header.arena_bytes, layout.ranks, layout.arena_bytes),
        rank);
  }
  if (bytes != bytes_of(layout, places)) return unlike();
  return map_file(std::move(fd), false, layout, places);
}

Result<SegmentFile> SegmentFile::map_file(UniqueFd fd, bool sealed, const InboxLayout& layout,
                                          std::int32_t places) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return refused("cannot examine the shared segments", errno);
  const std::uint64_t bytes = bytes_of(layout, places);
  const std::lock_guard lock(process_registry_mutex());
  std::erase_if(registry().mappings, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<std::byte>& known = registry().mappings[{info.st_dev, info.st_ino}];
  std::shared_ptr<std::byte> base = known.lock();
  if (base == nullptr) {
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
    if (mapped == MAP_FAILED)
      return refused(
          fmt::format("cannot map the shared segments of {} ranks, {} bytes", places, bytes),
          errno);
    base = std::shared_ptr<std::byte>(static_cast<std::byte*>(mapped),
                                      [bytes](std::byte* at) { ::munmap(at, bytes); });
    known = base;
  }
  return SegmentFile(std::move(fd), sealed, layout, std::move(base));
}

std::uint64_t SegmentFile::bytes_of(const InboxLayout& layout, std::int32_t places) {
  return offset_of(layout, places);
}

Segment SegmentFile::at(std::int32_t place) const {
  return {std::shared_ptr<std::byte>(base_, base_.get() + offset_of(layout_, place)), layout_};
}

}  // namespace tutti::shm
