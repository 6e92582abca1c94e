// SPDX-License-Identifier: Apache-2.0
#include "board/flight_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string_view>

#include "base/shared_file.hpp"

namespace tutti::control {
namespace {

constexpr std::string_view kPrefix = "tutti-", kSuffix = ".board";

// Returns the path of a descriptor of this process; empty: the kernel does not say.
std::string path_of(int fd) {
  std::array<char, PATH_MAX> path;
  const ssize_t got =
      ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path.data(), path.size());
  return {path.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

}  // namespace

std::string session_text(const std::array<std::byte, kSessionIdBytes>& session) {
  std::string text;
  for (const std::byte byte : session) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::string flight_file_template(const BoardName& name) {
  std::string host = name.host.substr(0, 64);
  std::ranges::replace_if(
      host, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; }, '_');
  return fmt::format("{}{}-{}-rank{}-XXXXXX{}", kPrefix, session_text(name.session), host,
                     name.first, kSuffix);
}

bool has_flight_name(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  return name.starts_with(kPrefix) && name.ends_with(kSuffix);
}

Result<UniqueFd> make_flight_file(const std::string& folder, const BoardName& name,
                                  std::size_t bytes) {
  TUTTI_TRY(check_file_limit("flight recorder", bytes));
  std::string path = fmt::format("{}/{}", folder, flight_file_template(name));
  // Mode 0600, and a name that no file has: O_CREAT | O_EXCL.
  UniqueFd fd(::mkostemps(path.data(), static_cast<int>(kSuffix.size()), O_CLOEXEC));
  if (!fd)
    return errno_error(fmt::format("cannot make the flight recorder's file {}", path), errno);
  const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (error == 0) return fd;
  ::unlink(path.c_str());
  return errno_error(
      fmt::format("no room for {} bytes in the flight recorder's file {}", bytes, path), error);
}

bool is_flight_file(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink != 0;
}

Status check_flight_file(int fd, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error("cannot examine the status page's file", errno);
  const bool private_file = info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
  if (!S_ISREG(info.st_mode) || info.st_nlink != 1 || !private_file ||
      !has_flight_name(path_of(fd)))
    return make_error(Code::kRemoteError,
                      "the descriptor received for the status page is neither a shared file nor a "
                      "flight recorder's file; run the same version of Tutti in all processes");
  if (static_cast<std::size_t>(info.st_size) != bytes)
    return make_error(Code::kRemoteError,
                      fmt::format("the flight recorder's file has {} bytes, this rank expects {}",
                                  info.st_size, bytes));
  return {};
}

void remove_flight_file(int fd) noexcept try {
  if (!is_flight_file(fd)) return;
  const std::string path = path_of(fd);
  struct stat held {
  }, named{};
  if (!has_flight_name(path) || ::fstat(fd, &held) != 0 || ::lstat(path.c_str(), &named) != 0)
    return;
  if (held.st_dev == named.st_dev && held.st_ino == named.st_ino) ::unlink(path.c_str());
} catch (const std::bad_alloc&) {
  // It stays, and tells of a job that ended in order.
}

}  // namespace tutti::control
