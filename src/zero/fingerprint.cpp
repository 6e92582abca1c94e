// SPDX-License-Identifier: Apache-2.0
#include "zero/fingerprint.hpp"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace tutti::zero {
namespace {

constexpr int kArrays = 3;  // parameters, first and second moments

// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

std::uint64_t key_of(const std::string& name, int array) {
  std::uint64_t key = 0;
  static_assert(sizeof key < crypto_generichash_BYTES_MIN);
  std::array<unsigned char, crypto_generichash_BYTES_MIN> digest{};
  crypto_generichash(digest.data(), digest.size(),
                     reinterpret_cast<const unsigned char*>(name.data()), name.size(), nullptr, 0);
  std::memcpy(&key, digest.data(), sizeof key);
  return mix(key + static_cast<std::uint64_t>(array));
}

std::uint64_t sum_of(const float* values, std::uint64_t first, std::uint64_t count,
                     std::uint64_t key) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i)
    sum += mix(mix(key + first + i) + std::bit_cast<std::uint32_t>(values[i]));
  return sum;
}

std::uint64_t sum_of_unit(const Kept& kept, int unit) {
  const Range range = kept.state.own_part(unit);
  const UnitArrays of_unit = kept.state.arrays(unit);
  const std::array<const float*, kArrays> arrays{of_unit.parameters, of_unit.first_moments,
                                                 of_unit.second_moments};
  std::uint64_t sum = 0;
  for (const Piece& piece : kept.state.pieces(unit)) {
    const std::uint64_t begin = std::max(piece.offset, range.begin);
    const std::uint64_t end = std::min(piece.offset + piece.elements, range.end);
    if (begin >= end) continue;
    const Unit& of = kept.units[static_cast<std::size_t>(unit)];
    const std::string& name = of.parameters[static_cast<std::size_t>(piece.parameter)].name;
    for (int array = 0; array < kArrays; ++array)
      sum += sum_of(arrays[static_cast<std::size_t>(array)] + begin,
                    piece.first + (begin - piece.offset), end - begin, key_of(name, array));
  }
  return sum;
}

}  // namespace

std::uint64_t fingerprint_of(const Kept& kept) {
  std::uint64_t own = 0;
  for (int unit = 0; unit < kept.layout.units(); ++unit) own += sum_of_unit(kept, unit);
  std::uint64_t sum = 0;
  for (const std::uint64_t part : kept.links.collect(std::span(&own, 1))) sum += part;
  return sum;
}

void read_parameter(const Kept& kept, int unit, int parameter, std::span<float> values) {
  const Range whole = kept.layout.parameter(unit, parameter);
  const Range all = kept.state.kept(unit);
  if (whole.elements() == 0) return;
  const UnitArrays of_unit = kept.state.arrays(unit);
  if (kept.plan.whole_state || kept.plan.shard_ranks == 1) {
    std::copy_n(of_unit.parameters + (whole.begin - all.begin), whole.elements(), values.begin());
    return;
  }
  std::vector<std::size_t> counts;
  for (int shard = 0; shard < kept.plan.shard_ranks; ++shard) {
    const Range range = kept.layout.shard(unit, shard);
    const std::uint64_t begin = std::max(range.begin, whole.begin);
    counts.push_back(std::max(begin, std::min(range.end, whole.end)) - begin);
  }
  const std::size_t own = counts[static_cast<std::size_t>(kept.links.shard())];
  const std::uint64_t offset = std::max(all.begin, whole.begin) - all.begin;
  const float* const source = of_unit.parameters + (own == 0 ? 0 : offset);
  const tuttiComm_t comm = kept.links.gathers.get();
  check(tuttiAllGatherv(source, own, values.data(), counts.data(), nullptr, tuttiFloat32, comm,
                        nullptr),
        comm);
  kept.links.usage.other_bytes +=
      own * sizeof(float) * static_cast<std::uint64_t>(kept.plan.shard_ranks - 1);
}

}  // namespace tutti::zero
