// SPDX-License-Identifier: Apache-2.0
#include "launch/secret_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.hpp"

namespace tutti::launch {
namespace {

tl::unexpected<Error> bad_file(const std::string& path, std::string_view what) {
  return make_error(Code::kInvalidArgument, fmt::format("TUTTI_SECRET_FILE {} {}", path, what));
}

// Checks the open file, so that the file that is checked is the one that is read.
Status check(const std::string& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return bad_file(path, "is not a regular file");
  if (status.st_uid != ::geteuid())
    return bad_file(path, fmt::format("belongs to user {}, but this process runs as {}: its owner "
                                      "knows the secret; use a file of your own",
                                      status.st_uid, ::geteuid()));
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return bad_file(path, fmt::format("has mode {:04o}, so other users can read or change it: run "
                                      "chmod 600, and make a new secret if others may have read it",
                                      status.st_mode & 07777u));
  if (status.st_size < static_cast<off_t>(kLeastSecretBytes) ||
      status.st_size > static_cast<off_t>(kMostSecretBytes))
    return bad_file(
        path,
        fmt::format(
            "has {} bytes, but a secret has {} to {}; make one: head -c 32 /dev/urandom > FILE",
            status.st_size, kLeastSecretBytes, kMostSecretBytes));
  return {};
}

}  // namespace

Result<std::vector<std::byte>> read_secret_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file)
    return errno_error(fmt::format("TUTTI_SECRET_FILE {} cannot be read; make one with (umask 077; "
                                   "head -c 32 /dev/urandom > FILE) and copy it to every host",
                                   path),
                       errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return errno_error(fmt::format("TUTTI_SECRET_FILE {}", path), errno);
  TUTTI_TRY(check(path, status));
  std::vector<std::byte> secret(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < secret.size()) {
    const ssize_t count = ::read(file.get(), secret.data() + done, secret.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(fmt::format("TUTTI_SECRET_FILE {}", path), errno);
    if (count == 0) return bad_file(path, "shrank while it was read");
    done += static_cast<std::size_t>(count);
  }
  return secret;
}

}  // namespace tutti::launch
