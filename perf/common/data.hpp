// SPDX-License-Identifier: Apache-2.0
// Test data whose reduction is exact whatever the order, and the result that must come out.
//
// Element i of rank r is a pure function of (seed, type, op, ranks, r, i), so any rank knows any
// other's input and the expected result costs O(1) for each element, however many ranks there are.
// The trick is a random monotone sequence of cuts 0 = c_0 <= c_1 <= ... <= c_n: rank k contributes
// x_k = c_{k+1} - c_k, so that sums telescope. Per operation:
//
//   sum, floats   sign * x_k * 2^e with c_n <= 2^precision: every partial sum, in any order, is an
//                 integer of at most `precision` bits times 2^e, hence exact; e is random per
//                 element, signs come in two groups, and which rank plays k rotates per element
//   avg, floats   the same; expected is the exact sum divided once by n and rounded once
//   prod, floats  one rank has a random mantissa, the others are signed powers of two whose
//                 exponents telescope within a budget: no partial product over- or underflows
//   min, max      a random winner at a random rank, the others uniformly on the losing side,
//                 over all finite values, both signs
//   integers      random bits that telescope modulo 2^w: sum h_{k+1} - h_k; prod u_{k+1} / u_k with
//                 odd u, times a power of two at one rank; avg is the wrapped sum divided by n,
//                 rounded towards zero
//
// Tolerance is 0: results are compared bit by bit. The idea of exact inputs is nccl-tests' own.
// Pure functions, any thread. Exact data cannot show a loss of accuracy on inexact data.
#pragma once

#include <cstdint>
#include <optional>

#include "common/number.hpp"

namespace tutti::perf {

struct DataSpec {
  tuttiDataType_t type = tuttiFloat32;
  Op op = Op::kSum;
  int ranks = 1;
  std::uint64_t seed = 0;
  std::optional<int> copied_from = {};  // the result is this rank's input; none: the reduction
};

// Writes elements [first, first + count) of `rank`'s input to `out` (element-aligned).
void fill_input(const DataSpec& spec, int rank, std::uint64_t first, std::uint64_t count,
                void* out);

// Writes elements [first, first + count) of the result to `out`.
void fill_expected(const DataSpec& spec, std::uint64_t first, std::uint64_t count, void* out);

}  // namespace tutti::perf
