// SPDX-License-Identifier: Apache-2.0
#include "exec/store_gauge.hpp"

#include "kernels/reduce_copy.hpp"

namespace tutti {

namespace {

void copy_by_kernel(std::byte* to, const std::byte* from, std::uint64_t bytes,
                    std::uint64_t nontemporal_mask) {
  static const ReduceCopyFn kCopy = copy_kernel(1);
  const void* const source = from;
  void* const destination = to;
  kCopy({.sources = &source,
         .source_count = 1,
         .destinations = &destination,
         .destination_count = 1,
         .elements = bytes,
         .nontemporal_mask = nontemporal_mask});
}

}  // namespace

void copy_around(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  copy_by_kernel(to, from, bytes, 1);
}

void copy_gauged(StoreGauge& gauge, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  store_gauged(gauge, bytes, [&](StoreGauge::Way way) {
    copy_by_kernel(to, from, bytes, way == StoreGauge::Way::kAround ? 1 : 0);
  });
}

}  // namespace tutti
