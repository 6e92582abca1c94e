// SPDX-License-Identifier: Apache-2.0
// Text that came from elsewhere, made fit for a message. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

// The first bytes of `text`, control characters replaced by '?': an error stays one line, and a
// terminal obeys nobody's variable, file or peer.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t most_bytes = 256) {
  std::string clean(text.substr(0, most_bytes));
  std::ranges::replace_if(
      clean, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return clean;
}

// ASCII alone, whatever the locale.
[[nodiscard]] inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace tutti
