// SPDX-License-Identifier: Apache-2.0
#include "common/split.hpp"

#include <cctype>
#include <charconv>

namespace tutti::perf {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  for (std::size_t i = 0; i < prefix.size(); ++i)
    if (lower(text[i]) != prefix[i]) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<std::uint32_t> parse_number(std::string_view text, int base) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  if (take_prefix(text, "0x")) base = 16;
  constexpr std::uint32_t kMost = 0x7fffffff;  // a color is a non-negative int
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || rest != end || number > kMost) return std::nullopt;
  return number;
}

}  // namespace

int Split::color(int process) const {
  const auto rank = static_cast<std::uint32_t>(process);
  switch (by) {
    case By::kAnd:
      return static_cast<int>(rank & number);
    case By::kOr:
      return static_cast<int>(rank | number);
    case By::kModulo:
      return static_cast<int>(rank % number);
    case By::kDivide:
      return static_cast<int>(rank / number);
  }
  return 0;
}

std::optional<Split> parse_split(std::string_view text) {
  struct Word {
    std::string_view prefix;
    Split::By by;
  };
  constexpr Word kWords[] = {
      {"and", Split::By::kAnd},    {"&", Split::By::kAnd},      {"or", Split::By::kOr},
      {"|", Split::By::kOr},       {"mod", Split::By::kModulo}, {"%", Split::By::kModulo},
      {"div", Split::By::kDivide}, {"/", Split::By::kDivide},
  };
  for (const Word& word : kWords) {
    std::string_view rest = text;
    if (!take_prefix(rest, word.prefix)) continue;
    const auto number = parse_number(rest, 10);
    const bool divides = word.by == Split::By::kModulo || word.by == Split::By::kDivide;
    if (!number || (divides && *number == 0)) return std::nullopt;
    return Split{word.by, *number};
  }
  return std::nullopt;
}

std::optional<Split> parse_split_mask(std::string_view text) {
  const auto mask = parse_number(text, 16);
  if (!mask) return std::nullopt;
  return Split{Split::By::kAnd, *mask};
}

}  // namespace tutti::perf
