// SPDX-License-Identifier: Apache-2.0
#include "zero/norm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "zero/kernels.hpp"

namespace tutti::zero {
namespace {

constexpr int kLimbBits = 40;
constexpr std::uint64_t kLimbMask = (std::uint64_t{1} << kLimbBits) - 1;
constexpr int kSquareBits = 50;

__extension__ using Wide = unsigned __int128;

int exponent_of(std::uint32_t greatest) { return std::ilogb(std::bit_cast<float>(greatest)); }

}  // namespace

std::uint32_t greatest_magnitude_bits(std::span<const float> values) {
  return kernels().greatest_bits(values.data(), values.size());
}

bool is_finite(std::uint32_t magnitude_bits) { return magnitude_bits < kInfinityBits; }

Limbs scaled_squares(std::span<const float> values, std::uint32_t greatest) {
  const double scale = std::ldexp(1.0, kSquareBits - 2 - 2 * exponent_of(greatest));
  Wide sum = 0;
  while (!values.empty()) {
    const auto part = values.first(std::min(values.size(), kSquaresAtOnce));
    sum += static_cast<Wide>(kernels().sum_squares(part.data(), part.size(), scale));
    values = values.subspan(part.size());
  }
  return {static_cast<std::uint64_t>(sum) & kLimbMask,
          static_cast<std::uint64_t>(sum >> kLimbBits) & kLimbMask,
          static_cast<std::uint64_t>(sum >> (2 * kLimbBits))};
}

void add_limbs(Limbs& into, const Limbs& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] += from[i];
}

double norm_of(const Limbs& sum, std::uint32_t greatest) {
  const Wide whole = static_cast<Wide>(sum[0]) + (static_cast<Wide>(sum[1]) << kLimbBits) +
                     (static_cast<Wide>(sum[2]) << (2 * kLimbBits));
  return std::ldexp(std::sqrt(static_cast<double>(whole)),
                    exponent_of(greatest) - (kSquareBits - 2) / 2);
}

}  // namespace tutti::zero
