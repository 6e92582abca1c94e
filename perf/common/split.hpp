// SPDX-License-Identifier: Apache-2.0
// nccl-tests' NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK: the processes of one color form a group,
// the groups run side by side, and the group of process 0 reports. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::perf {

// How a process's number becomes the color of its group.
struct Split {
  enum class By { kAnd, kOr, kModulo, kDivide };
  By by = By::kAnd;
  std::uint32_t number = 0;

  // At least 0, as tuttiCommSplit wants it.
  [[nodiscard]] int color(int process) const;
  bool operator==(const Split&) const = default;
};

// "AND 3", "&0x3", "or 1", "| 1", "MOD 2", "%2", "DIV 4" or "/4"; nullopt if `text` is none of
// them.
[[nodiscard]] std::optional<Split> parse_split(std::string_view text);
// A mask in hexadecimal digits, with or without 0x.
[[nodiscard]] std::optional<Split> parse_split_mask(std::string_view text);

}  // namespace tutti::perf
