// SPDX-License-Identifier: Apache-2.0
// Elements as the model sees them: the bits of an element, in the low part of a word. Written from
// the definitions of the types, without the library's. Pure.
//
// The values of floating types are small integers, so sums and products are exact in any order.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti::programs {

[[nodiscard]] std::size_t bytes_of(tuttiDataType_t type);
[[nodiscard]] bool is_float(tuttiDataType_t type);
[[nodiscard]] bool is_signed(tuttiDataType_t type);
// Every integer up to this one is a value of the floating type.
[[nodiscard]] double exact_limit(tuttiDataType_t type);
[[nodiscard]] const char* name_of(tuttiDataType_t type);  // as in tutti.h
[[nodiscard]] const char* name_of(tuttiRedOp_t op);
[[nodiscard]] bool has_operation(tuttiDataType_t type, tuttiRedOp_t op);

// Floating types alone. The value must be one of the type's.
[[nodiscard]] std::uint64_t encode(tuttiDataType_t type, double value);
[[nodiscard]] double decode(tuttiDataType_t type, std::uint64_t bits);

// The operation over the elements of all ranks.
[[nodiscard]] std::uint64_t reduce(tuttiDataType_t type, tuttiRedOp_t op,
                                   std::span<const std::uint64_t> elements);
[[nodiscard]] std::uint64_t plus_one(tuttiDataType_t type, std::uint64_t bits);

// A number that looks random and is a function of its arguments.
[[nodiscard]] std::uint32_t mix(std::uint32_t a, std::uint32_t b, std::uint32_t c);
// Element `i` after a fill at `rank`. Of a floating type an integer other than 0 between -bound and
// bound, of the others any.
[[nodiscard]] std::uint64_t fill_value(tuttiDataType_t type, std::uint32_t salt, int rank,
                                       std::size_t i);
[[nodiscard]] double fill_bound(tuttiDataType_t type);

[[nodiscard]] std::uint64_t load(const std::byte* at, std::size_t bytes);
void store(std::byte* at, std::size_t bytes, std::uint64_t bits);
[[nodiscard]] std::string text_of(tuttiDataType_t type, std::uint64_t bits);

}  // namespace tutti::programs
