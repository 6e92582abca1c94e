// SPDX-License-Identifier: Apache-2.0
// Which device, port and GID a rank uses, from what it may choose among. Knows no verbs. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::verbs {

// TUTTI_IB_HCA, written as NCCL_IB_HCA is: "mlx5_0:1,mlx5_1" (prefixes of names, with a port or
// without), "=mlx5_1" (whole names), "^mlx5_2" (all but these), "^=mlx5_2"; empty: all.
struct HcaFilter {
  struct Item {
    std::string name;
    std::uint32_t port = 0;  // 0: every one
  };
  bool exclude = false, exact = false;
  std::vector<Item> items;
  [[nodiscard]] bool admits(std::string_view device, std::uint32_t port) const;
};
// Error: kInvalidArgument, naming the part that is no device.
[[nodiscard]] Result<HcaFilter> parse_hca_filter(std::string_view text);

using Gid = std::array<std::uint8_t, 16>;
enum class GidType : std::uint8_t { kUnknown, kInfiniBandOrV1, kRoceV2 };
struct GidEntry {
  std::uint32_t index = 0;
  Gid gid{};
  GidType type = GidType::kUnknown;
};
// RoCE v2 first, since it is routed and what switches' congestion control knows; then an address
// that is an IPv4 one, then one that is not link-local; the lowest index among equals. The types
// are those of sysfs, gid_attrs/types (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
// Empty: no entry.
[[nodiscard]] std::optional<GidEntry> choose_gid(std::span<const GidEntry> entries);
// What sysfs says of an entry: "RoCE v2", "IB/RoCE v1".
[[nodiscard]] GidType gid_type_of(std::string_view text);
// "::ffff:10.9.0.1", "fe80::1".
[[nodiscard]] std::string text_of(const Gid& gid);

}  // namespace tutti::verbs
