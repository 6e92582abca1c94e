// SPDX-License-Identifier: Apache-2.0
#include "base/technology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(Technology, EveryRowIsNamedOnceAndSaysWhereItIsFrom) {
  std::set<std::string_view> names;
  for (const Technology& row : all_technologies()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GT(row.GBps, 0) << row.name;
    EXPECT_GT(row.latency_ns, 0) << row.name;
    EXPECT_GT(row.source.size(), 10U) << row.name;
    EXPECT_FALSE(row.per.empty()) << row.name;
  }
}

TEST(Technology, GenerationsGrow) {
  const char* const chains[][3] = {{"nvlink3", "nvlink4", "nvlink5"},
                                   {"edr", "hdr200", "ndr400"},
                                   {"pcie3x16", "pcie4x16", "pcie5x16"},
                                   {"shm-machine", "shm-l3", "shm-core"}};
  for (const auto& chain : chains)
    for (int i = 0; i < 2; ++i)
      EXPECT_LT((*find_technology(chain[i]))->GBps, (*find_technology(chain[i + 1]))->GBps);
}

TEST(Technology, FindsWhateverTheCase) {
  ASSERT_TRUE(find_technology("NDR200"));
  EXPECT_EQ((*find_technology("NDR200"))->GBps, 25);
  EXPECT_EQ((*find_gpu_model("H100"))->intra, "nvlink4");
}

TEST(Technology, UnknownNamesListTheNearest) {
  const auto missing = find_technology("nvlink9");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kInvalidArgument);
  EXPECT_THAT(missing.error().message, HasSubstr("unknown technology 'nvlink9'; the nearest are"));
  EXPECT_THAT(missing.error().message, HasSubstr("nvlink4"));
  EXPECT_THAT(find_gpu_model("h1000").error().message, HasSubstr("h100"));
  EXPECT_THAT(find_technology(std::string(100'000, '\n')).error().message, HasSubstr("'????"));
}

TEST(Technology, PcieByGenerationAndWidth) {
  for (int generation = 1; generation <= 6; ++generation)
    for (const int width : {1, 2, 4, 8, 16}) {
      const Technology* const row = pcie_technology(generation, width);
      ASSERT_NE(row, nullptr) << generation << "x" << width;
      EXPECT_NEAR(row->GBps, pcie_technology(generation, 1)->GBps * width, 1e-9);
    }
  EXPECT_EQ(pcie_technology(7, 16), nullptr);
  EXPECT_EQ(pcie_technology(3, 3), nullptr);
}

TEST(Technology, EveryGpuIsMadeOfKnownTechnologies) {
  for (const GpuModel& gpu : all_gpu_models()) {
    EXPECT_EQ((*find_technology(gpu.memory))->kind, TechnologyKind::kMemory) << gpu.name;
    EXPECT_EQ((*find_technology(gpu.pcie))->kind, TechnologyKind::kPcie) << gpu.name;
    if (!gpu.intra.empty()) {
      EXPECT_EQ((*find_technology(gpu.intra))->kind, TechnologyKind::kDevice) << gpu.name;
    }
  }
}

}  // namespace
}  // namespace tutti
