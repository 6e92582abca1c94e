// SPDX-License-Identifier: Apache-2.0
// A folder for a test's checkpoints, gone with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

namespace tutti::zero::test {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-zero-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(folder_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::filesystem::path path() const { return folder_ / "model"; }
  [[nodiscard]] int entries() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_),
                                          std::filesystem::directory_iterator()));
  }

 protected:
  std::filesystem::path folder_;
};

}  // namespace tutti::zero::test
