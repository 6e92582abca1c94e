// SPDX-License-Identifier: Apache-2.0
// Which code computes the products with parameters, and how fast it is here: our own, which keeps
// the rule of bits (layers.hpp), or an installed BLAS, which need not.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "zero_gpt/layers.hpp"
#include "zero_gpt/threads.hpp"

namespace tutti::gpt {

using Multiply = std::function<void(const Product<float>& product)>;

struct Blas {
  std::string name;  // with its version
  Multiply multiply;
};
// Nothing where none was installed when this was built. It uses `threads` threads.
[[nodiscard]] std::optional<Blas> find_blas(int threads);

// Our own product, divided among the threads. They must outlive it.
[[nodiscard]] Multiply own_multiply(const Layers<float>& layers, Threads& threads);

// Operations per second of products of 256 x 256 x 1024 matrices; takes about `seconds`.
[[nodiscard]] double measure_flops(const Multiply& multiply, double seconds);

}  // namespace tutti::gpt
