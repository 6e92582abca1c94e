// SPDX-License-Identifier: Apache-2.0
// libFuzzer's name for a target.
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tutti::fuzz::run_one(std::as_bytes(std::span(data, size)));
  return 0;
}
