// SPDX-License-Identifier: Apache-2.0
// Files and folders that must be on disk when the call returns. Failures are std::system_error with
// the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace tutti::zero {

// The files of a checkpoint's folder.
[[nodiscard]] inline std::string shard_file(int number) {
  return "rank-" + std::to_string(number) + ".bin";
}
inline constexpr const char* kIndexFile = "index.json";
// A save replaces a checkpoint or an empty folder, and nothing else: throws std::runtime_error if
// something else has that name.
void check_replaceable(const std::filesystem::path& path);
// A name without a separator at its end, so that others can be made from it.
[[nodiscard]] std::filesystem::path plain_path(const std::filesystem::path& path);

class File {
 public:
  [[nodiscard]] static File create(const std::filesystem::path& path);
  [[nodiscard]] static File open(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  // Behind what was written before.
  void write(std::span<const std::byte> bytes);
  // All of `bytes`; std::runtime_error if the file ends before.
  void read(std::span<std::byte> bytes, std::uint64_t offset);
  void sync();

 private:
  File(int fd, std::filesystem::path path);
  int fd_;
  std::filesystem::path path_;
};

void write_file(const std::filesystem::path& path, const std::string& text);
[[nodiscard]] std::string read_file(const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& path);
// False: the file system cannot.
[[nodiscard]] bool exchange_folders(const std::filesystem::path& one,
                                    const std::filesystem::path& other);
// Gives `fresh` the name `path`; a folder that had it is exchanged in one step and then removed.
// Where the file system cannot exchange, the old one is first renamed to `path` + ".old".
void publish_folder(const std::filesystem::path& fresh, const std::filesystem::path& path,
                    bool (*exchange)(const std::filesystem::path& one,
                                     const std::filesystem::path& other) = exchange_folders);

}  // namespace tutti::zero
