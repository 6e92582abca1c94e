// SPDX-License-Identifier: Apache-2.0
// Which device, port and GID is chosen, from tables.
#include "transports/verbs/selection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::verbs {
namespace {

using ::testing::HasSubstr;

Gid ipv4(std::uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, last}; }
constexpr Gid kLinkLocal{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kGlobal{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
constexpr GidType kV1 = GidType::kInfiniBandOrV1, kV2 = GidType::kRoceV2;

TEST(VerbsSelection, RoceV2OverIpv4IsPreferred) {
  // As an adapter of two VLANs lists them.
  const std::vector<GidEntry> table{{0, kLinkLocal, kV1}, {1, kLinkLocal, kV2}, {2, ipv4(1), kV1},
                                    {3, ipv4(1), kV2},    {4, kGlobal, kV2},    {5, ipv4(2), kV2}};
  EXPECT_EQ(choose_gid(table)->index, 3U);
}

TEST(VerbsSelection, WhatIsThereIsTakenInOrderOfWorth) {
  struct Row {
    std::vector<GidEntry> table;
    std::uint32_t index;
  };
  const Row rows[] = {
      {{{0, kLinkLocal, kV2}, {1, kGlobal, kV2}}, 1},
      {{{0, kLinkLocal, kV1}, {1, kLinkLocal, kV2}}, 1},
      {{{0, ipv4(1), kV1}, {1, kLinkLocal, kV2}}, 1},
      {{{0, kLinkLocal, kV1}, {7, ipv4(3), kV1}}, 7},
      {{{2, kLinkLocal, GidType::kUnknown}, {3, ipv4(1), GidType::kUnknown}}, 3},
      {{{6, ipv4(1), kV2}, {4, ipv4(2), kV2}}, 4},
  };
  for (const Row& row : rows) EXPECT_EQ(choose_gid(row.table)->index, row.index);
  EXPECT_FALSE(choose_gid({}));
}

TEST(VerbsSelection, TypesAreReadAsSysfsWritesThem) {
  EXPECT_EQ(gid_type_of("RoCE v2"), kV2);
  EXPECT_EQ(gid_type_of("RoCE v2\n"), kV2);
  EXPECT_EQ(gid_type_of("IB/RoCE v1"), kV1);
  EXPECT_EQ(gid_type_of(""), GidType::kUnknown);
  EXPECT_EQ(text_of(ipv4(1)), "::ffff:10.9.0.1");
}

TEST(VerbsSelection, DevicesAreNamedAsForNccl) {
  struct Row {
    const char* text;
    const char* device;
    std::uint32_t port;
    bool admitted;
  };
  const Row rows[] = {
      {"", "mlx5_0", 1, true},          {"mlx5", "mlx5_3", 2, true},
      {"mlx5_0:1", "mlx5_0", 1, true},  {"mlx5_0:1", "mlx5_0", 2, false},
      {"mlx5_1", "mlx5_10", 1, true},   {"=mlx5_1", "mlx5_10", 1, false},
      {"=mlx5_1", "mlx5_1", 1, true},   {"=a,b:2", "b", 2, true},
      {"=a,b:2", "b", 1, false},        {"^mlx5_2", "mlx5_2", 1, false},
      {"^mlx5_2", "mlx5_3", 1, true},   {"^=mlx5_2", "mlx5_20", 1, true},
      {"^mlx5_2:1", "mlx5_2", 2, true},
  };
  for (const Row& row : rows) {
    const auto filter = parse_hca_filter(row.text);
    ASSERT_TRUE(filter) << filter.error().message;
    EXPECT_EQ(filter->admits(row.device, row.port), row.admitted)
        << row.text << ": " << row.device << ":" << row.port;
  }
}

TEST(VerbsSelection, WhatIsNoDeviceIsNamed) {
  for (const char* text :
       {"mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:256", "a,,b", ":1", "a:1:2"}) {
    const auto filter = parse_hca_filter(text);
    ASSERT_FALSE(filter) << text;
    EXPECT_EQ(filter.error().code, Code::kInvalidArgument);
    EXPECT_THAT(filter.error().message, HasSubstr("TUTTI_IB_HCA=" + std::string(text)));
    EXPECT_THAT(filter.error().message, HasSubstr("DEVICE:PORT"));
  }
}

}  // namespace
}  // namespace tutti::verbs
