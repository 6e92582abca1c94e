// SPDX-License-Identifier: Apache-2.0
// The layers of the model as functions on plain arrays, one set for each instruction set.
//
// The rule of bits. A result is a function of its operands alone: a product's elements are chains
// of fused multiply-adds in the order of the inner index, other sums have 16 partial sums whatever
// the machine's vectors hold, and the exponential is a polynomial of fused multiply-adds. So bits
// depend neither on how many rows a call has, nor on the thread that runs it, nor on the
// instruction set. Compiled without contraction and without -ffast-math.
//
// All functions are pure leaves of one thread: the caller divides rows among threads. Matrices are
// row-major; "add" in a name or comment means that the output is accumulated into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::gpt {

// An operand of a product: element (i, k), with k the inner index, at at[i * outer + k * inner].
template <typename T>
struct Operand {
  const T* at;
  std::ptrdiff_t outer, inner;
};

// c[i][j] = start + sum over k of a(i, k) * b(j, k), where start is bias[j], what c holds
// (`add`), or 0.
template <typename T>
struct Product {
  int rows, columns, depth;
  Operand<T> a, b;
  T* c;
  std::ptrdiff_t c_stride;
  const T* bias = nullptr;
  bool add = false;
};

struct Rows {
  int begin, end;
};

// Queries, keys and values of one sequence as rows of 3 * channels; `weights` is [heads][tokens]
// [tokens] and keeps what the softmax gave.
template <typename T>
struct Attention {
  int tokens, channels, heads;
  const T* qkv;
  T* weights;
};

template <typename T>
struct Layers {
  // Rows [rows.begin, rows.end) of the product; scratch has kScratchElements.
  void (*multiply)(const Product<T>& product, Rows rows, T* scratch);
  // d_bias[j] += sum over rows of d_out[row][j].
  void (*bias_gradient)(const T* d_out, int rows, int columns, T* d_bias);

  // out[row] = table[tokens[row]] + positions[row modulo `context`].
  void (*embed)(const T* table, const T* positions, const std::int32_t* tokens, Rows rows,
                int context, int channels, T* out);
  void (*embed_gradient)(const T* d_out, const std::int32_t* tokens, Rows rows, int context,
                         int channels, T* d_table, T* d_positions);

  // stats[row] = {mean, 1 / deviation}; out = (in - mean) / deviation * gain + bias.
  void (*norm)(const T* in, const T* gain, const T* bias, int rows, int channels, T* out, T* stats);
  // Adds to d_in.
  void (*norm_backward)(const T* d_out, const T* in, const T* stats, const T* gain, int rows,
                        int channels, T* d_in);
  void (*norm_gradient)(const T* d_out, const T* in, const T* stats, int rows, int channels,
                        T* d_gain, T* d_bias);

  void (*gelu)(const T* in, std::size_t count, T* out);
  // d_in_out *= gelu'(in).
  void (*gelu_backward)(const T* in, std::size_t count, T* d_in_out);

  // Causal attention of one head: writes its columns of `out` (tokens x channels). Scratch as for
  // multiply.
  void (*attend)(const Attention<T>& attention, int head, T* out, T* scratch);
  // Writes the head's columns of d_qkv; `work` has tokens * tokens elements.
  void (*attend_backward)(const Attention<T>& attention, int head, const T* d_out, T* d_qkv,
                          T* work, T* scratch);

  // sum += in.
  void (*add)(const T* in, std::size_t count, T* sum);

  // Turns rows of logits into probabilities; losses[row] = -log(probability of its target).
  void (*cross_entropy)(const std::int32_t* targets, int rows, int columns, T* logits,
                        double* losses);
  // Turns probabilities into the gradient of factor * loss by the logits.
  void (*cross_entropy_backward)(const std::int32_t* targets, int rows, int columns, T factor,
                                 T* probabilities);

  // out[i] = e^in[i]; for the tests, as what the others use is inlined.
  void (*exponential)(const T* in, std::size_t count, T* out);
};

// Of the scratch memory of multiply: its blocks of both operands.
inline constexpr std::size_t kScratchElements = 256 * 512 + 256 * 192 + 64;

struct LayerSet {
  std::string_view name;  // "avx512", "avx2", "baseline"
  const Layers<float>* floats;
  const Layers<double>* doubles;
  template <typename T>
  [[nodiscard]] const Layers<T>& of() const {
    if constexpr (sizeof(T) == sizeof(float))
      return *floats;
    else
      return *doubles;
  }
};

// Those that this processor runs, the fastest first.
[[nodiscard]] std::span<const LayerSet> layer_sets();

}  // namespace tutti::gpt
