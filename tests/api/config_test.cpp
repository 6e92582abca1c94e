// SPDX-License-Identifier: Apache-2.0
// What the C API's configuration makes of a communicator's options, where no host shows it.
#include "api/config.hpp"

#include <gtest/gtest.h>

namespace tutti::test {
namespace {

TEST(ApiConfig, BlocksOfAGpuAreBounded) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  const auto usual = make_options({}, &config, "f");
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->blocks.least, 1u);
  EXPECT_EQ(usual->blocks.most, UINT32_MAX);
  config.minCTAs = 4;
  config.maxCTAs = 16;
  const auto bounded = make_options({}, &config, "f");
  ASSERT_TRUE(bounded);
  EXPECT_EQ(bounded->blocks.least, 4u);
  EXPECT_EQ(bounded->blocks.most, 16u);
}

}  // namespace
}  // namespace tutti::test
