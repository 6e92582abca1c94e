// SPDX-License-Identifier: Apache-2.0
#include "sizes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/text.hpp"

namespace tutti::sim {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;
constexpr std::size_t kMostSizes = 10'000;
constexpr std::string_view kUnits = "KMGT";

tl::unexpected<Error> refuse(std::string_view text) {
  return make_error(Code::kInvalidArgument,
                    fmt::format("--sizes: '{}' is neither a size from 1 to {} bytes (8, 1K, 64M, "
                                "1G) nor a range of them (8-64M)",
                                printable(text, 40), kMostBytes));
}

Result<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (failed != std::errc{}) return refuse(text);
  int shift = 0;
  if (!unit.empty()) {
    const char upper = unit[0] >= 'a' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0];
    const std::size_t at = kUnits.find(upper);
    if (at == std::string_view::npos) return refuse(text);
    shift = 10 * (static_cast<int>(at) + 1);
    unit.remove_prefix(1);
    if (unit != "" && unit != "B" && unit != "iB") return refuse(text);
  }
  if (value < 1 || value > (kMostBytes >> shift)) return refuse(text);
  return value << shift;
}

}  // namespace

Result<std::vector<std::uint64_t>> parse_sizes(const std::string& text) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, comma - at);
    const std::size_t dash = item.find('-');
    TUTTI_TRY_ASSIGN(const std::uint64_t first, parse_size(item.substr(0, dash)));
    std::uint64_t last = first;
    if (dash != std::string_view::npos) {
      TUTTI_TRY_ASSIGN(last, parse_size(item.substr(dash + 1)));
    }
    if (last < first) return refuse(item);
    for (std::uint64_t size = first; size <= last; size *= 2) sizes.push_back(size);
    if (sizes.size() > kMostSizes)
      return make_error(Code::kInvalidArgument,
                        fmt::format("--sizes: more than {} sizes", kMostSizes));
    at = comma + 1;
  }
  return sizes;
}

std::string short_size(double bytes) {
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.4g}{}", bytes, unit == 0 ? "" : std::string(1, kUnits[unit - 1]));
}

}  // namespace tutti::sim
