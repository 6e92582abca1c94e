// SPDX-License-Identifier: Apache-2.0
// Division by a number that the host knows: two multiplications. A 64-bit division takes a GPU more
// than a hundred cycles, and every chunk of every step needs several.
#pragma once

#include <cstdint>

#include "base/device.hpp"

namespace tutti::device {

// The upper half of a product.
[[nodiscard]] TUTTI_HD inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
#if TUTTI_ON_DEVICE
  return __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{a} * b >> 64);
#endif
}

class Divisor {
 public:
  Divisor() = default;
  // 1 <= number.
  explicit Divisor(std::uint32_t number)
      : reciprocal_(number == 1 ? 0 : ~std::uint64_t{0} / number + 1), number_(number) {}

  [[nodiscard]] TUTTI_HD std::uint32_t number() const { return number_; }
  // floor(x / number), x < 2^63. The reciprocal is rounded up, by less than number / 2^64, so the
  // product is x / number or less than 1 more.
  [[nodiscard]] TUTTI_HD std::uint64_t quotient(std::uint64_t x) const {
    if (number_ == 1) return x;
    const std::uint64_t most = multiply_high(x, reciprocal_);
    return most * number_ > x ? most - 1 : most;
  }
  [[nodiscard]] TUTTI_HD std::uint32_t rest(std::uint64_t x) const {
    return static_cast<std::uint32_t>(x - quotient(x) * number_);
  }

 private:
  std::uint64_t reciprocal_ = 0;  // ceil(2^64 / number), where that is not 2^64
  std::uint32_t number_ = 1;
};

}  // namespace tutti::device
