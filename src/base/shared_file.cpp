// SPDX-License-Identifier: Apache-2.0
#include "base/shared_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "base/host.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; older kernels answer EINVAL
#endif

namespace tutti {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool resize(const UniqueFd& fd, std::size_t bytes) {
  return ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0;
}

// Reserves the pages of a fallback file: on a full file system they would cause a SIGBUS later.
bool resize_and_reserve(const UniqueFd& fd, std::size_t bytes) {
  if (!resize(fd, bytes)) return false;
  errno = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  return errno == 0;
}

UniqueFd make_memfd(std::string_view purpose, std::size_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const std::string name = fmt::format("tutti-{}", purpose);
  UniqueFd fd(::memfd_create(name.c_str(), kFlags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.reset(::memfd_create(name.c_str(), kFlags));
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

// The name is gone before this returns; the token, which is random, keeps it from being guessed.
UniqueFd make_shm(std::size_t bytes) {
  static std::atomic<unsigned> count{0};  // relaxed: only to differ
  const std::string name = fmt::format("/tutti-{:016x}-{}", process_token(),
                                       count.fetch_add(1, std::memory_order_relaxed));
  UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return {};
  ::shm_unlink(name.c_str());
  return resize_and_reserve(fd, bytes) ? std::move(fd) : UniqueFd();
}

}  // namespace

Result<UniqueFd> make_shared_file(std::string_view purpose, std::size_t bytes,
                                  SharedFileKind kind) {
  TUTTI_TRY(check_file_limit(purpose, bytes));
  UniqueFd fd;
  const bool any = kind == SharedFileKind::kAny;
  if (any || kind == SharedFileKind::kMemfd) fd = make_memfd(purpose, bytes);
  if (!fd && (any || kind == SharedFileKind::kTmpFile)) fd = make_tmpfile(bytes);
  if (!fd && (any || kind == SharedFileKind::kShmOpen)) fd = make_shm(bytes);
  if (!fd)
    return errno_error(fmt::format("cannot make a shared file of {} bytes for the {}; tried memfd, "
                                   "O_TMPFILE and shm_open",
                                   bytes, purpose),
                       errno);
  return fd;
}

Status check_file_limit(std::string_view purpose, std::size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  return make_error(
      Code::kSystemError,
      fmt::format("the {} needs a file of {} bytes, and this process may not create files of more "
                  "than {}: raise 'ulimit -f', which limits shared memory too",
                  purpose, bytes, limit.rlim_cur));
}

// The kernel says which files can be sealed: of the fallbacks, one in tmpfs has F_SEAL_SEAL alone
// from its birth, others answer EINVAL.
bool is_unsealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool cannot_be_sealed = seals < 0 || seals == F_SEAL_SEAL;
  return !cannot_be_sealed && (seals & kSeals) != kSeals;
}

Status check_shared_file(int fd, std::string_view purpose, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return errno_error(fmt::format("cannot examine the shared file of the {}", purpose), errno);
  if (!S_ISREG(info.st_mode) || info.st_nlink != 0)
    return make_error(Code::kRemoteError,
                      fmt::format("the descriptor received for the {} is not a shared file; run "
                                  "the same version of Tutti in all processes",
                                  purpose));
  if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) != bytes)
    return make_error(Code::kRemoteError,
                      fmt::format("the shared file of the {} has {} bytes, this rank expects {}",
                                  purpose, info.st_size, bytes));
  if (is_unsealed(fd))
    return make_error(Code::kRemoteError,
                      fmt::format("the shared file of the {} is not sealed: it could shrink while "
                                  "mapped",
                                  purpose));
  return {};
}

}  // namespace tutti
