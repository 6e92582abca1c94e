// SPDX-License-Identifier: Apache-2.0
// Shared files: what the limit on file sizes says.
#include "base/shared_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tutti {
namespace {

TEST(SharedFile, LargerThanTheProcessMayMakeIsAnErrorThatNamesTheLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const SharedFileKind kind : {SharedFileKind::kAny, SharedFileKind::kMemfd,
                                    SharedFileKind::kTmpFile, SharedFileKind::kShmOpen}) {
    const auto file = make_shared_file("arena", 100'001, kind);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, Code::kSystemError);
    EXPECT_THAT(file.error().message,
                testing::AllOf(testing::HasSubstr("the arena needs a file of 100001 bytes"),
                               testing::HasSubstr("more than 100000: raise 'ulimit -f'")));
  }
  const auto fits = make_shared_file("arena", 100'000);
  EXPECT_TRUE(fits) << fits.error().message;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace tutti
