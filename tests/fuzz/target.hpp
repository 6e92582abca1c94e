// SPDX-License-Identifier: Apache-2.0
// What every fuzz target provides: one input, and inputs that an honest peer would send.
// A target aborts where a promise is broken; a wrong memory access is the sanitizers' to find.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::fuzz {

using Bytes = std::vector<std::byte>;

void run_one(std::span<const std::byte> input);
[[nodiscard]] std::vector<Bytes> seeds();

// Of which the first byte says what the rest is.
[[nodiscard]] inline Bytes marked(int which, std::span<const std::byte> rest) {
  Bytes bytes(rest.size() + 1);
  bytes[0] = static_cast<std::byte>(which);
  std::ranges::copy(rest, bytes.begin() + 1);
  return bytes;
}
[[nodiscard]] inline Bytes marked(int which, std::string_view text) {
  return marked(which, std::as_bytes(std::span(text)));
}

inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace tutti::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
