// SPDX-License-Identifier: Apache-2.0
#include "algorithms/grouping.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

namespace tutti {

std::vector<std::int32_t> default_groups(std::int32_t p) {
  const auto root = static_cast<std::int32_t>(std::ceil(std::sqrt(p)));
  std::int32_t size = root;
  while (size < 2 * root && p % size != 0) ++size;
  if (p % size != 0) size = root;
  std::vector<std::int32_t> groups(static_cast<std::size_t>(p / size), size);
  if (p % size != 0) groups.push_back(p % size);
  return groups;
}

std::vector<std::int32_t> default_equal_groups(std::int32_t p) {
  auto size = static_cast<std::int32_t>(std::ceil(std::sqrt(p)));
  while (p % size != 0) ++size;
  return std::vector<std::int32_t>(static_cast<std::size_t>(p / size), size);
}

Result<std::vector<std::int32_t>> parse_groups(std::string_view text) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  std::vector<std::int32_t> groups;
  std::int64_t ranks = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (bool more = true; more;) {
    std::int32_t count = 1, size = 0;
    std::from_chars_result read = std::from_chars(at, end, size);
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == 'x') {
      count = size;
      read = std::from_chars(read.ptr + 1, end, size);
    }
    more = read.ptr != end && *read.ptr == '+';
    at = read.ptr + 1;
    if (read.ec != std::errc{} || (!more && read.ptr != end) || size < 1 || count < 1)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("hierarchical: groups={} is not a list of group sizes; examples: 4+4+1, 2x4",
                      text));
    ranks += std::int64_t{count} * size;  // of int32 each: no overflow before the next line
    if (ranks > kMostRanks)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("hierarchical: groups={} adds up to more than {} ranks", text, kMostRanks));
    groups.insert(groups.end(), static_cast<std::size_t>(count), size);
  }
  return groups;
}

}  // namespace tutti
