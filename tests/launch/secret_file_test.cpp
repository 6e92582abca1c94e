// SPDX-License-Identifier: Apache-2.0
// Each way in which a secret file can be wrong is one line; a good one gives its bytes.
#include "launch/secret_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Zero bytes and line ends are part of a secret.
const std::string kSecret = std::string("0123456789\n\0abcdef", 18) + std::string(14, '\n');

class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    std::string pattern = testing::TempDir() + "tutti-secret-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/secret";
  }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  void expect_refused(Code code, const char* text) const {
    const auto secret = read_secret_file(path_);
    ASSERT_FALSE(secret);
    EXPECT_EQ(secret.error().code, code);
    EXPECT_THAT(secret.error().message,
                AllOf(HasSubstr("TUTTI_SECRET_FILE " + path_), HasSubstr(text),
                      Not(HasSubstr("\n")), Not(HasSubstr(kSecret.substr(0, 8)))));
  }

  std::string folder_, path_;
};

TEST_F(SecretFile, GivesAllItsBytes) {
  ASSERT_EQ(kSecret.size(), kLeastSecretBytes);
  for (const mode_t mode : {0600u, 0400u, 0700u}) {
    std::filesystem::remove(path_);
    write(kSecret, mode);
    const auto secret = read_secret_file(path_);
    ASSERT_TRUE(secret) << secret.error().message;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(secret->data()), secret->size()), kSecret);
  }
}

TEST_F(SecretFile, ThatIsNotThere) { expect_refused(Code::kSystemError, "No such file"); }

TEST_F(SecretFile, ThatOthersCanUse) {
  for (const mode_t mode : {0640u, 0604u, 0620u, 0601u, 0666u}) {
    write(kSecret, mode);
    expect_refused(Code::kInvalidArgument, "chmod 600");
  }
}

TEST_F(SecretFile, OfAWrongLength) {
  write("");
  expect_refused(Code::kInvalidArgument, "has 0 bytes");
  write(kSecret.substr(1));
  expect_refused(Code::kInvalidArgument, "has 31 bytes, but a secret has 32 to 4096");
  write(std::string(kMostSecretBytes + 1, 'x'));
  expect_refused(Code::kInvalidArgument, "has 4097 bytes");
}

TEST_F(SecretFile, ThatIsNoFile) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused(Code::kInvalidArgument, "not a regular file");
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  expect_refused(Code::kInvalidArgument, "not a regular file");
}

TEST_F(SecretFile, OfAnotherUser) {
  write(kSecret);
  constexpr uid_t kNobody = 65534;
  if (::chown(path_.c_str(), kNobody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a file away";
  expect_refused(Code::kInvalidArgument, "belongs to user 65534");
}

}  // namespace
}  // namespace tutti::launch
