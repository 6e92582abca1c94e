// SPDX-License-Identifier: Apache-2.0
// The moves of a step of a straight line, for the two files that run one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "exec/host_executor.hpp"

namespace tutti {

// They are one, or do not overlap.
inline void copy_straight(std::byte* to, const std::byte* from, std::size_t bytes) {
  using Half = std::uint64_t;
  if (bytes >= sizeof(Half) && bytes <= 2 * sizeof(Half)) {  // two words that may overlap
    Half first = 0, last = 0;
    std::memcpy(&first, from, sizeof(Half));
    std::memcpy(&last, from + bytes - sizeof(Half), sizeof(Half));
    std::memcpy(to, &first, sizeof(Half));
    std::memcpy(to + bytes - sizeof(Half), &last, sizeof(Half));
  } else if (to != from) {
    std::memcpy(to, from, bytes);
  }
}

// One call of the kernel. Messages are stored through the cache, or around it.
template <bool kAround>
inline void HostExecutor::run_kernel(const StraightLine& line, const StraightMove& move) {
  std::byte* const* const bases = bases_.data();
  auto* const destinations = destination_pointers_.data();
  auto* const sources = source_pointers_.data();
  const StraightPlace* place = line.places.data() + move.first_place;
  std::uint64_t around_mask = 0;
  for (std::uint32_t d = 0; d < move.destinations; ++d, ++place) {
    destinations[d] = bases[place->base] + place->offset;
    if (kAround && place->base >= StraightPlace::kFirstMessage)
      around_mask |= std::uint64_t{1} << d;
  }
  for (std::uint32_t s = 0; s < move.sources; ++s, ++place)
    sources[s] = bases[place->base] + place->offset;
  line.kernel({.sources = sources,
               .source_count = move.sources,
               .destinations = destinations,
               .destination_count = move.destinations,
               .elements = move.elements,
               .nontemporal_mask = around_mask,
               .average_over = move.finish ? line.average_over : 0});
}

template <bool kAround>
inline void HostExecutor::run_moves(const StraightLine& line, const StraightStep& step) {
  const auto address = [bases = bases_.data()](const StraightPlace& place) {
    return bases[place.base] + place.offset;
  };
  const StraightMove* move = line.moves.data() + step.first_move;
  for (const StraightMove* const last = move + step.moves; move != last; ++move) {
    if (!move->copies) {
      run_kernel<kAround>(line, *move);
      continue;
    }
    const StraightPlace* const to = line.places.data() + move->first_place;
    const StraightPlace* const from = to + move->destinations;
    const std::byte* const source = address(*from);
    for (const StraightPlace* each = to; each != from; ++each)
      if (kAround && each->base >= StraightPlace::kFirstMessage)
        copy_around(address(*each), source, move->bytes);
      else
        copy_straight(address(*each), source, move->bytes);
  }
}

}  // namespace tutti
