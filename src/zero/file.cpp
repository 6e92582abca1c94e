// SPDX-License-Identifier: Apache-2.0
#include "zero/file.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "tutti/zero.hpp"

namespace tutti::zero {
namespace {

namespace fs = std::filesystem;

// The most that one call of Linux writes or reads is a little under 2^31.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

[[noreturn]] void fail(const char* what, const fs::path& path) {
  throw std::system_error(errno, std::generic_category(),
                          std::string("cannot ") + what + " " + path.string());
}

}  // namespace

File::File(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}
File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File File::create(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) fail("create", path);
  return {fd, path};
}

File File::open(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  return {fd, path};
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kMostAtOnce));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("write to", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void File::read(std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pread(fd_, bytes.data(), std::min(bytes.size(), kMostAtOnce), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("read", path_);
    if (done == 0) throw std::runtime_error(path_.string() + " is shorter than its index says");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
}

void File::sync() {
  if (::fsync(fd_) != 0) fail("sync", path_);
}

void write_file(const fs::path& path, const std::string& text) {
  File file = File::create(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
}

std::string read_file(const fs::path& path) {
  File file = File::open(path);
  std::string text(fs::file_size(path), '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void sync_folder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  const bool good = ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  errno = error;
  if (!good) fail("sync", path);
}

fs::path plain_path(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

void check_checkpoint_path(const fs::path& given) {
  const fs::path path = plain_path(given), above = path.parent_path();
  const std::string why = !fs::exists(above)         ? "does not exist; make it first"
                          : !fs::is_directory(above) ? "is not a folder"
                          : ::access(above.c_str(), W_OK | X_OK) != 0 ? "cannot be written"
                                                                      : "";
  if (!why.empty())
    throw std::runtime_error(above.string() + ", the folder for the checkpoint " +
                             path.filename().string() + ", " + why);
  check_replaceable(path);
}

void check_replaceable(const fs::path& path) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(path.string() + " is there and is no checkpoint (" + why +
                             "); save to another name");
  };
  const fs::file_status status = fs::symlink_status(path);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) refuse("it is not a folder");
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    const bool known = name == kIndexFile || (name.starts_with("rank-") && name.ends_with(".bin"));
    if (!known) refuse("it holds " + name);
  }
}

bool exchange_folders(const fs::path& one, const fs::path& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0)
    return true;
  if (errno != EINVAL && errno != ENOSYS) fail("exchange the old checkpoint", other);
  return false;
}

void publish_folder(const fs::path& fresh, const fs::path& path,
                    bool (*exchange)(const fs::path&, const fs::path&)) {
  fs::path old = fresh;
  if (!fs::exists(fs::symlink_status(path))) {
    if (::rename(fresh.c_str(), path.c_str()) != 0) fail("rename the new checkpoint to", path);
    old.clear();
  } else if (!exchange(fresh, path)) {
    old = path.string() + ".old";
    check_replaceable(old);
    fs::remove_all(old);
    if (::rename(path.c_str(), old.c_str()) != 0) fail("rename the old checkpoint", path);
    if (::rename(fresh.c_str(), path.c_str()) != 0) fail("rename the new checkpoint to", path);
  }
  sync_folder(path.parent_path());
  if (!old.empty()) fs::remove_all(old);
}

}  // namespace tutti::zero
