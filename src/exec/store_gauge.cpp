// SPDX-License-Identifier: Apache-2.0
#include "exec/store_gauge.hpp"

#include <cstring>

#include "base/clock.hpp"
#include "kernels/reduce_copy.hpp"

namespace tutti {

void copy_for_reader(StoreGauge& gauge, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (bytes < StoreGauge::kLeastBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  static const ReduceCopyFn kCopy = copy_kernel(1);
  const StoreGauge::Turn turn = gauge.next();
  const std::int64_t began_ns = turn.timed ? now_ns() : 0;
  const void* const source = from;
  void* const destination = to;
  kCopy({.sources = &source,
         .source_count = 1,
         .destinations = &destination,
         .destination_count = 1,
         .elements = bytes,
         .nontemporal_mask = turn.way == StoreGauge::Way::kAround ? 1u : 0u});
  if (turn.timed)
    gauge.took(turn.way, static_cast<double>(now_ns() - began_ns) / static_cast<double>(bytes));
}

}  // namespace tutti
