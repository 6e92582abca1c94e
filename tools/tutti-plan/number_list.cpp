// SPDX-License-Identifier: Apache-2.0
#include "number_list.hpp"

#include <fmt/core.h>

#include <charconv>
#include <optional>

namespace tutti {
namespace {

constexpr std::size_t kMaxNumbers = 10'000;

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<std::vector<std::uint32_t>> parse_number_list(const std::string& what,
                                                     const std::string& text, std::uint32_t most) {
  std::vector<std::uint32_t> numbers;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);

    const std::size_t dash = item.find('-');
    const std::optional<std::uint32_t> first = parse_number(item.substr(0, dash));
    const std::optional<std::uint32_t> last =
        dash == std::string_view::npos ? first : parse_number(item.substr(dash + 1));
    if (!first || !last || *first < 1 || *last < *first || *last > most)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{}: '{}' is not a number or range from 1 to {}", what, item, most));
    if (*last - *first >= kMaxNumbers || numbers.size() + (*last - *first) >= kMaxNumbers)
      return make_error(Code::kInvalidArgument,
                        fmt::format("{}: more than {} numbers", what, kMaxNumbers));
    for (std::uint32_t n = *first; n <= *last; ++n) numbers.push_back(n);
  }
  return numbers;
}

}  // namespace tutti
