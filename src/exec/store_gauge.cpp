// SPDX-License-Identifier: Apache-2.0
#include "exec/store_gauge.hpp"

#include "kernels/reduce_copy.hpp"

namespace tutti {

void copy_gauged(StoreGauge& gauge, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  static const ReduceCopyFn kCopy = copy_kernel(1);
  const void* const source = from;
  void* const destination = to;
  store_gauged(gauge, bytes, [&](StoreGauge::Way way) {
    kCopy({.sources = &source,
           .source_count = 1,
           .destinations = &destination,
           .destination_count = 1,
           .elements = bytes,
           .nontemporal_mask = way == StoreGauge::Way::kAround ? 1u : 0u});
  });
}

}  // namespace tutti
