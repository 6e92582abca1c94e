// SPDX-License-Identifier: Apache-2.0
// The matrix product: blocks of both operands are copied into panels that lie in memory as the
// innermost loop reads them, and a tile of the result stays in registers meanwhile (Goto and van de
// Geijn, Anatomy of high-performance matrix multiplication, 2008).
//
// Invariant: an element of the result is one chain of fused multiply-adds over the inner index, in
// order, wherever it lies in a tile and however wide a vector is. Between two blocks of the inner
// index the chain rests in c. Incomplete tiles are computed whole, on panels padded with zeros.
//
// A part of layers_template.hpp, with its rules: unnamed namespace, no std function.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "zero_gpt/layers.hpp"

#define TUTTI_INLINE inline __attribute__((always_inline))

namespace tutti::gpt {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kTileRows = 14;  // 28 of 32 registers hold the tile
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kVectorBytes = 32, kTileRows = 6;  // 12 of 16
#else
constexpr int kVectorBytes = 16, kTileRows = 4;
#endif
constexpr int kTileVectors = 2;

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::type;
template <typename T>
constexpr int kTileColumns = kTileVectors* kVectorBytes / static_cast<int>(sizeof(T));

// Blocks, in elements: a panel of b (kDepth x kTileColumns) stays in the first-level cache, the
// blocks of a and b in the second. Multiples of each tile's rows (14, 6, 4) or columns.
constexpr int kBlockDepth = 256, kBlockColumns = 512, kBlockRows = 168;
static_assert(kBlockRows % kTileRows == 0 && kBlockColumns % kTileColumns<float> == 0 &&
              kBlockColumns % kTileColumns<double> == 0);
static_assert(kBlockDepth * (kBlockColumns + kBlockRows) <= static_cast<int>(kScratchElements));

constexpr int least(int a, int b) { return a < b ? a : b; }

TUTTI_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TUTTI_INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <typename V>
TUTTI_INLINE V fused_vectors(V a, V b, V c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == sizeof(float)) return _mm512_fmadd_ps(a, b, c);
  if constexpr (sizeof(a[0]) == sizeof(double)) return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (sizeof(a[0]) == sizeof(float)) return _mm256_fmadd_ps(a, b, c);
  if constexpr (sizeof(a[0]) == sizeof(double)) return _mm256_fmadd_pd(a, b, c);
#else
  for (unsigned i = 0; i < sizeof(V) / sizeof(a[0]); ++i) c[i] = fused(a[i], b[i], c[i]);
  return c;
#endif
}

template <typename V, typename T>
TUTTI_INLINE V load_vector(const T* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof(vector));
  return vector;
}

// The tile c = start + a * b; without `start` from 0. `a` and `b` are panels.
template <typename T>
void multiply_tile(int depth, const T* __restrict a, const T* __restrict b, const T* start,
                   std::ptrdiff_t start_stride, T* c, std::ptrdiff_t c_stride) {
  using V = Vector<T>;
  constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(T));
  V tile[kTileRows][kTileVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kTileVectors; ++j)
      tile[i][j] = start != nullptr ? load_vector<V>(start + i * start_stride + j * kWidth) : V{};
  for (int k = 0; k < depth; ++k) {
    const V b0 = load_vector<V>(b), b1 = load_vector<V>(b + kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const V ai = a[i] - V{};  // in all lanes
      tile[i][0] = fused_vectors(ai, b0, tile[i][0]);
      tile[i][1] = fused_vectors(ai, b1, tile[i][1]);
    }
    a += kTileRows;
    b += kTileColumns<T>;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kTileVectors; ++j)
      __builtin_memcpy(c + i * c_stride + j * kWidth, &tile[i][j], sizeof(V));
}

// A tile of which only `rows` x `columns` elements exist.
template <typename T>
void multiply_partial_tile(int depth, const T* a, const T* b, const T* start,
                           std::ptrdiff_t start_stride, T* c, std::ptrdiff_t c_stride, int rows,
                           int columns) {
  T tile[kTileRows * kTileColumns<T>] = {};
  if (start != nullptr)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) tile[i * kTileColumns<T> + j] = start[i * start_stride + j];
  multiply_tile<T>(depth, a, b, tile, kTileColumns<T>, tile, kTileColumns<T>);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) c[i * c_stride + j] = tile[i * kTileColumns<T> + j];
}

// Copies a block of 4 x 4 elements from rows of `from` to columns of `to`.
template <typename T>
TUTTI_INLINE void transpose_block(const T* from, std::ptrdiff_t row, T* to, std::ptrdiff_t column) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));
  Four r[4];
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&r[i], from + i * row, sizeof(Four));
  const Four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Four b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Four c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Four d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
  for (int k = 0; k < 4; ++k) __builtin_memcpy(to + k * column, &r[k], sizeof(Four));
}

// Copies `count` x `depth` elements into panels of kWidth: out[panel][k][i], padded with zeros.
template <int kWidth, typename T>
void pack(const T* at, std::ptrdiff_t outer, std::ptrdiff_t inner, int count, int depth, T* out) {
  for (int first = 0; first < count; first += kWidth, out += kWidth * depth) {
    const T* const from = at + first * outer;
    const int here = least(kWidth, count - first);
    if (here < kWidth)
      for (int i = 0; i < kWidth * depth; ++i) out[i] = 0;
    if (here == kWidth && outer == 1) {
      for (int k = 0; k < depth; ++k)
        __builtin_memcpy(out + k * kWidth, from + k * inner, sizeof(T) * kWidth);
      continue;
    }
    int i = 0;
    for (; inner == 1 && i + 4 <= here; i += 4) {
      int k = 0;
      for (; k + 4 <= depth; k += 4)
        transpose_block(from + i * outer + k, outer, out + k * kWidth + i, kWidth);
      for (; k < depth; ++k)
        for (int j = i; j < i + 4; ++j) out[k * kWidth + j] = from[j * outer + k];
    }
    for (; i < here; ++i)
      for (int k = 0; k < depth; ++k) out[k * kWidth + i] = from[i * outer + k * inner];
  }
}

// A block of a's rows by a block of b's columns, both packed; (i, j) is c's first element.
template <typename T>
void multiply_blocks(const Product<T>& p, const T* a, const T* b, Rows rows, Rows columns,
                     Rows depth) {
  const int steps = depth.end - depth.begin;
  for (int j = columns.begin; j < columns.end; j += kTileColumns<T>) {
    const T* const b_panel = b + (j - columns.begin) * steps;
    for (int i = rows.begin; i < rows.end; i += kTileRows) {
      const T* const a_panel = a + (i - rows.begin) * steps;
      T* const c = p.c + i * p.c_stride + j;
      const bool continues = depth.begin > 0 || p.add;
      const T* const start = continues ? c : p.bias != nullptr ? p.bias + j : nullptr;
      const std::ptrdiff_t start_stride = continues ? p.c_stride : 0;
      const int here = least(kTileRows, rows.end - i), wide = columns.end - j;
      if (here == kTileRows && wide >= kTileColumns<T>)
        multiply_tile<T>(steps, a_panel, b_panel, start, start_stride, c, p.c_stride);
      else
        multiply_partial_tile<T>(steps, a_panel, b_panel, start, start_stride, c, p.c_stride, here,
                                 least(kTileColumns<T>, wide));
    }
  }
}

template <typename T>
void multiply(const Product<T>& p, Rows rows, T* scratch) {
  // Panels begin at cache lines, as far as a panel of `a` allows it.
  constexpr std::size_t kLine = 64;
  const std::size_t off = reinterpret_cast<std::size_t>(scratch) % kLine;
  T* const b = scratch + (off == 0 ? 0 : (kLine - off) / sizeof(T));
  T* const a = b + kBlockDepth * kBlockColumns;
  for (int j = 0; j < p.columns; j += kBlockColumns) {
    const Rows columns{j, least(p.columns, j + kBlockColumns)};
    for (int k = 0; k < p.depth; k += kBlockDepth) {
      const Rows depth{k, least(p.depth, k + kBlockDepth)};
      const int steps = depth.end - k;
      pack<kTileColumns<T>>(p.b.at + j * p.b.outer + k * p.b.inner, p.b.outer, p.b.inner,
                            columns.end - j, steps, b);
      for (int i = rows.begin; i < rows.end; i += kBlockRows) {
        const Rows block{i, least(rows.end, i + kBlockRows)};
        pack<kTileRows>(p.a.at + i * p.a.outer + k * p.a.inner, p.a.outer, p.a.inner, block.end - i,
                        steps, a);
        multiply_blocks(p, a, b, block, columns, depth);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::gpt
