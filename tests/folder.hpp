// SPDX-License-Identifier: Apache-2.0
// A folder of a test's own: tests run beside each other, so no two may share a file's name.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::testing {

// For the time of a scope.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "tutti-test-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// A file of that name and text, in a folder of this process, gone with it.
inline std::string file_with(const std::string& name, const std::string& text) {
  static const Folder folder;
  std::ofstream(folder.file(name)) << text;
  return folder.file(name);
}

}  // namespace tutti::testing
