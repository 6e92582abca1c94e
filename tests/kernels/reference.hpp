// SPDX-License-Identifier: Apache-2.0
// What a reduction must give, element by element, computed without any of the kernels' tricks:
// integers in 128 bits, floats as exact wider values that are rounded by frexp and ldexp.
// Elements are bit patterns in the low bytes of 64 bits.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.hpp"

namespace tutti::reference {

// The element that reduce_copy must store for these sources, in this order. average_over as in
// ReduceCopyArgs. One source without average is copied bit for bit; NaN results are canonical.
[[nodiscard]] std::uint64_t reduce(DataType type, ReduceOp op,
                                   std::span<const std::uint64_t> sources,
                                   std::uint32_t average_over);

// The value of a float of 8 to 64 bits, and the float nearest to a value (ties to even).
[[nodiscard]] double decode(DataType type, std::uint64_t element);
[[nodiscard]] std::uint64_t encode(DataType type, double value);

[[nodiscard]] bool is_float(DataType type);
[[nodiscard]] bool is_signed(DataType type);

}  // namespace tutti::reference
