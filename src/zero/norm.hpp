// SPDX-License-Identifier: Apache-2.0
// The norm of all gradients, the same bits wherever shards and units begin and however many ranks
// there are: the sum of squares is a sum of integers, which has no order.
//
// 1. The greatest |g| of all ranks gives an exponent e with 2^e <= max |g| < 2^(e+1).
// 2. Each g^2, exact in double, is multiplied by 2^(48-2e), so that it is below 2^50, and rounded
//    to the nearest integer. The integers are added in 64 bits, then in 128, then over ranks.
// 3. norm = sqrt(sum) * 2^(e-24), in double, then rounded to float.
//
// Error. Each of n squares is off by at most 1/2, of a sum of at least 2^48, so the norm's relative
// error is at most n * 2^-50, beside the roundings of step 3: below half a unit in the last place
// of a float for n up to 2^25 in the worst case, where one element outweighs all others together;
// errors of different signs cancel otherwise. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::zero {

[[nodiscard]] std::uint32_t greatest_magnitude_bits(std::span<const float> values);
[[nodiscard]] bool is_finite(std::uint32_t magnitude_bits);

// An integer below 2^120 in parts of 40 bits, which can be added part by part 2^24 times.
using Limbs = std::array<std::uint64_t, 3>;
// The sum of step 2. `greatest` are the bits of the greatest magnitude: finite and not 0.
[[nodiscard]] Limbs scaled_squares(std::span<const float> values, std::uint32_t greatest);
void add_limbs(Limbs& into, const Limbs& from);
[[nodiscard]] double norm_of(const Limbs& sum, std::uint32_t greatest);

}  // namespace tutti::zero
