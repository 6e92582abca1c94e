// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/products.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

namespace tutti::gpt {

Multiply own_multiply(const Layers<float>& layers, Threads& threads) {
  auto scratch = std::make_shared<std::vector<float>>(kScratchElements *
                                                      static_cast<std::size_t>(threads.count()));
  return [&layers, &threads, scratch](const Product<float>& product) {
    const int parts = std::min(threads.count(), product.rows);
    threads.for_each(parts, [&](int part, int thread) {
      layers.multiply(product, {product.rows * part / parts, product.rows * (part + 1) / parts},
                      scratch->data() + kScratchElements * static_cast<std::size_t>(thread));
    });
  };
}

double measure_flops(const Multiply& multiply, double seconds) {
  constexpr int kRows = 256, kColumns = 256, kDepth = 1024;
  const std::vector<float> a(std::size_t{kRows} * kDepth, 0.5F);
  const std::vector<float> b(std::size_t{kDepth} * kColumns, 0.25F);
  std::vector<float> c(std::size_t{kRows} * kColumns);
  const Product<float> product{
      kRows, kColumns, kDepth, {a.data(), kDepth, 1}, {b.data(), 1, kColumns}, c.data(), kColumns};
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  multiply(product);  // warms caches and threads
  // The best of some parts: others may use the cores meanwhile.
  constexpr int kParts = 4;
  double best = 0;
  for (int part = 0; part < kParts; ++part) {
    const auto begin = Clock::now();
    int runs = 0;
    for (; runs == 0 || elapsed(begin) < seconds / kParts; ++runs) multiply(product);
    best = std::max(best, 2.0 * kRows * kColumns * kDepth * runs / elapsed(begin));
  }
  return best;
}

}  // namespace tutti::gpt
