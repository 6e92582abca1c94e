// SPDX-License-Identifier: Apache-2.0
// Every layer of the model and its backward pass, to be read from top to bottom: embedding, layer
// norm, GELU, causal attention, cross-entropy. The matrix product is in matmul_template.hpp, and
// blocks are put together from layers in gpt.cpp.
//
// One source for every instruction set, included once by each layers_<isa>.cpp. Loops are plain,
// and the compiler makes vectors of them; sums over a row are written as kLanes partial sums, so
// that their bits do not depend on how long a vector is (layers.hpp, the rule of bits).
//
// Invariant: everything is in an unnamed namespace and no std function is called, since a function
// of that name in another file is compiled for other processors.
#pragma once

#include "zero_gpt/matmul_template.hpp"

namespace tutti::gpt {
namespace {

// ---- sums and the exponential -------------------------------------------------------------------

constexpr int kLanes = 16;

// The sum of term(i) over i in [0, count), in kLanes partial sums that are then added in pairs.
template <typename T, typename Term>
TUTTI_INLINE T lane_sum(int count, Term term) {
  T part[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) part[lane] += term(i + lane);
  for (int lane = 0; i + lane < count; ++lane) part[lane] += term(i + lane);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
  return part[0];
}

template <typename T>
struct Exponential;
template <>
struct Exponential<float> {
  using Bits = std::uint32_t;
  static constexpr float kLimit = 80, kMagic = 0x1.8p23F;  // adding it rounds to an integer
  static constexpr float kLog2High = 0x1.62e4p-1F, kLog2Low = 0x1.7f7d1cp-20F;
  static constexpr int kTerms = 8, kMantissaBits = 23;
};
template <>
struct Exponential<double> {
  using Bits = std::uint64_t;
  static constexpr double kLimit = 700, kMagic = 0x1.8p52;
  static constexpr double kLog2High = 0x1.62e42fefa38p-1, kLog2Low = 0x1.ef35793c7673p-45;
  static constexpr int kTerms = 14, kMantissaBits = 52;
};

template <int kTerms>
struct InverseFactorials {
  double at[kTerms] = {};
  constexpr InverseFactorials() {
    double factorial = 1;
    for (int k = 0; k < kTerms; factorial *= ++k) at[k] = 1 / factorial;
  }
};

// e^x = 2^n * e^r, with n = round(x / log 2) and e^r by the first terms of its series; the relative
// error is below 2e-7 (float) and 1e-15 (double). x is limited to [-kLimit, kLimit].
template <typename T>
TUTTI_INLINE T exponential(T x) {
  using E = Exponential<T>;
  x = x < -E::kLimit ? -E::kLimit : x;
  x = x > E::kLimit ? E::kLimit : x;
  const T shifted = fused(x, static_cast<T>(1.4426950408889634), E::kMagic);
  const T n = shifted - E::kMagic;
  const T r = fused(n, -E::kLog2Low, fused(n, -E::kLog2High, x));
  constexpr InverseFactorials<E::kTerms> kSeries;
  T sum = static_cast<T>(kSeries.at[E::kTerms - 1]);
#pragma GCC unroll 16
  for (int k = E::kTerms - 2; k >= 0; --k) sum = fused(sum, r, static_cast<T>(kSeries.at[k]));
  typename E::Bits exponent, magic, bits;
  const T magic_value = E::kMagic;
  __builtin_memcpy(&exponent, &shifted, sizeof(exponent));
  __builtin_memcpy(&magic, &magic_value, sizeof(magic));
  __builtin_memcpy(&bits, &sum, sizeof(bits));
  bits += (exponent - magic) * (typename E::Bits{1} << E::kMantissaBits);
  __builtin_memcpy(&sum, &bits, sizeof(sum));
  return x != x ? x : sum;  // NaN stays NaN
}

template <typename T>
void exponential_all(const T* in, std::size_t count, T* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = exponential(in[i]);
}

// ---- linear layer: its products are in gpt.cpp --------------------------------------------------

template <typename T>
void bias_gradient(const T* d_out, int rows, int columns, T* __restrict d_bias) {
  for (int row = 0; row < rows; ++row)
    for (int j = 0; j < columns; ++j) d_bias[j] += d_out[std::ptrdiff_t{row} * columns + j];
}

template <typename T>
void add(const T* in, std::size_t count, T* __restrict sum) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += in[i];
}

// ---- embedding: a token's row of the table plus its position's ----------------------------------

template <typename T>
void embed(const T* table, const T* positions, const std::int32_t* tokens, Rows rows, int context,
           int channels, T* __restrict out) {
  for (int row = rows.begin; row < rows.end; ++row) {
    const T* const token = table + std::ptrdiff_t{tokens[row]} * channels;
    const T* const position = positions + std::ptrdiff_t{row % context} * channels;
    T* const to = out + std::ptrdiff_t{row} * channels;
    for (int i = 0; i < channels; ++i) to[i] = token[i] + position[i];
  }
}

template <typename T>
void embed_gradient(const T* d_out, const std::int32_t* tokens, Rows rows, int context,
                    int channels, T* __restrict d_table, T* __restrict d_positions) {
  for (int row = rows.begin; row < rows.end; ++row) {
    const T* const from = d_out + std::ptrdiff_t{row} * channels;
    T* const token = d_table + std::ptrdiff_t{tokens[row]} * channels;
    T* const position = d_positions + std::ptrdiff_t{row % context} * channels;
    for (int i = 0; i < channels; ++i) token[i] += from[i];
    for (int i = 0; i < channels; ++i) position[i] += from[i];
  }
}

// ---- layer norm (Ba, Kiros, Hinton 2016) --------------------------------------------------------

template <typename T>
void norm(const T* in, const T* gain, const T* bias, int rows, int channels, T* __restrict out,
          T* __restrict stats) {
  const T share = 1 / static_cast<T>(channels);
  for (int row = 0; row < rows; ++row, in += channels, out += channels, stats += 2) {
    const T mean = share * lane_sum<T>(channels, [&](int i) { return in[i]; });
    const T variance = share * lane_sum<T>(channels, [&](int i) {
                         const T off = in[i] - mean;
                         return off * off;
                       });
    const T inverse = 1 / static_cast<T>(__builtin_sqrt(variance + static_cast<T>(1e-5)));
    for (int i = 0; i < channels; ++i) out[i] = fused((in[i] - mean) * inverse, gain[i], bias[i]);
    stats[0] = mean;
    stats[1] = inverse;
  }
}

// With n = (in - mean) * inverse and d_n = d_out * gain, the gradient by `in` is
// inverse * (d_n - mean(d_n) - n * mean(d_n * n)).
template <typename T>
void norm_backward(const T* d_out, const T* in, const T* stats, const T* gain, int rows,
                   int channels, T* __restrict d_in) {
  const T share = 1 / static_cast<T>(channels);
  for (int row = 0; row < rows; ++row) {
    const T mean = stats[0], inverse = stats[1];
    const T mean_d = share * lane_sum<T>(channels, [&](int i) { return d_out[i] * gain[i]; });
    const T mean_dn = share * lane_sum<T>(channels, [&](int i) {
                        return d_out[i] * gain[i] * ((in[i] - mean) * inverse);
                      });
    for (int i = 0; i < channels; ++i) {
      const T n = (in[i] - mean) * inverse;
      const T centred = d_out[i] * gain[i] - mean_d;
      d_in[i] += inverse * fused(-n, mean_dn, centred);
    }
    d_out += channels, in += channels, d_in += channels, stats += 2;
  }
}

template <typename T>
void norm_gradient(const T* d_out, const T* in, const T* stats, int rows, int channels,
                   T* __restrict d_gain, T* __restrict d_bias) {
  for (int row = 0; row < rows; ++row, d_out += channels, in += channels, stats += 2) {
    const T mean = stats[0], inverse = stats[1];
    for (int i = 0; i < channels; ++i) {
      d_gain[i] = fused(d_out[i], (in[i] - mean) * inverse, d_gain[i]);
      d_bias[i] += d_out[i];
    }
  }
}

// ---- GELU (Hendrycks, Gimpel 2016), in the form with tanh that GPT-2 has ------------------------
// x / 2 * (1 + tanh(u)) = x * s, where s = 1 / (1 + e^(-2 u)) and u = kA * (x + kB * x^3).

constexpr double kA = 0.7978845608028654, kB = 0.044715;  // sqrt(2 / pi)

template <typename T>
TUTTI_INLINE T gelu_gate(T x) {
  const T cubic = fused(static_cast<T>(-2 * kA * kB) * x, x * x, static_cast<T>(-2 * kA) * x);
  return 1 / (1 + exponential(cubic));
}

template <typename T>
void gelu(const T* in, std::size_t count, T* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * gelu_gate(in[i]);
}

// The derivative: s + x * s * (1 - s) * 2 u'.
template <typename T>
void gelu_backward(const T* in, std::size_t count, T* __restrict d_in_out) {
  for (std::size_t i = 0; i < count; ++i) {
    const T x = in[i], s = gelu_gate(x);
    const T slope = fused(static_cast<T>(6 * kA * kB) * x, x, static_cast<T>(2 * kA));
    d_in_out[i] *= fused(x * s * (1 - s), slope, s);
  }
}

// ---- causal attention of one head ---------------------------------------------------------------

// weights = softmax(q * k^T / sqrt(head channels)) below the diagonal, 0 above; out = weights * v.
template <typename T>
void attend(const Attention<T>& attention, int head, T* out, T* scratch) {
  const int t = attention.tokens, c = attention.channels, hc = c / attention.heads;
  const std::ptrdiff_t row = 3 * std::ptrdiff_t{c};
  const T* const q = attention.qkv + std::ptrdiff_t{head} * hc;
  const T *const k = q + c, *const v = k + c;
  T* const weights = attention.weights + std::ptrdiff_t{head} * t * t;
  multiply<T>({t, t, hc, {q, row, 1}, {k, row, 1}, weights, t}, {0, t}, scratch);
  const T scale = 1 / static_cast<T>(__builtin_sqrt(hc));
  for (int i = 0; i < t; ++i) {
    T* const w = weights + std::ptrdiff_t{i} * t;
    T most = w[0];
    for (int j = 1; j <= i; ++j) most = w[j] > most ? w[j] : most;
    for (int j = 0; j <= i; ++j) w[j] = exponential((w[j] - most) * scale);
    const T inverse = 1 / lane_sum<T>(i + 1, [&](int j) { return w[j]; });
    for (int j = 0; j <= i; ++j) w[j] *= inverse;
    for (int j = i + 1; j < t; ++j) w[j] = 0;
  }
  multiply<T>({t, hc, t, {weights, t, 1}, {v, 1, row}, out + std::ptrdiff_t{head} * hc, c}, {0, t},
              scratch);
}

// d_v = weights^T * d_out; d_w = d_out * v^T; of the softmax: d_s = w * (d_w - sum(w * d_w)), times
// the scale; d_q = d_s * k; d_k = d_s^T * q. `work` holds d_w, then d_s.
template <typename T>
void attend_backward(const Attention<T>& attention, int head, const T* d_out, T* d_qkv, T* work,
                     T* scratch) {
  const int t = attention.tokens, c = attention.channels, hc = c / attention.heads;
  const std::ptrdiff_t row = 3 * std::ptrdiff_t{c};
  const T* const q = attention.qkv + std::ptrdiff_t{head} * hc;
  const T *const k = q + c, *const v = k + c;
  T* const d_q = d_qkv + std::ptrdiff_t{head} * hc;
  T *const d_k = d_q + c, *const d_v = d_k + c;
  const T* const weights = attention.weights + std::ptrdiff_t{head} * t * t;
  const T* const d = d_out + std::ptrdiff_t{head} * hc;
  multiply<T>({t, hc, t, {weights, 1, t}, {d, 1, c}, d_v, row}, {0, t}, scratch);
  multiply<T>({t, t, hc, {d, c, 1}, {v, row, 1}, work, t}, {0, t}, scratch);
  const T scale = 1 / static_cast<T>(__builtin_sqrt(hc));
  for (int i = 0; i < t; ++i) {
    const T* const w = weights + std::ptrdiff_t{i} * t;
    T* const d_w = work + std::ptrdiff_t{i} * t;
    const T sum = lane_sum<T>(i + 1, [&](int j) { return w[j] * d_w[j]; });
    for (int j = 0; j <= i; ++j) d_w[j] = w[j] * (d_w[j] - sum) * scale;
    for (int j = i + 1; j < t; ++j) d_w[j] = 0;
  }
  multiply<T>({t, hc, t, {work, t, 1}, {k, 1, row}, d_q, row}, {0, t}, scratch);
  multiply<T>({t, hc, t, {work, 1, t}, {q, 1, row}, d_k, row}, {0, t}, scratch);
}

// ---- cross-entropy of a softmax -----------------------------------------------------------------

template <typename T>
void cross_entropy(const std::int32_t* targets, int rows, int columns, T* logits, double* losses) {
  for (int row = 0; row < rows; ++row, logits += columns) {
    T most = logits[0];
    for (int j = 1; j < columns; ++j) most = logits[j] > most ? logits[j] : most;
    const T target = logits[targets[row]] - most;
    for (int j = 0; j < columns; ++j) logits[j] = exponential(logits[j] - most);
    const T sum = lane_sum<T>(columns, [&](int j) { return logits[j]; });
    losses[row] = __builtin_log(static_cast<double>(sum)) - static_cast<double>(target);
    const T inverse = 1 / sum;
    for (int j = 0; j < columns; ++j) logits[j] *= inverse;
  }
}

template <typename T>
void cross_entropy_backward(const std::int32_t* targets, int rows, int columns, T factor,
                            T* probabilities) {
  for (int row = 0; row < rows; ++row, probabilities += columns) {
    probabilities[targets[row]] -= 1;
    for (int j = 0; j < columns; ++j) probabilities[j] *= factor;
  }
}

// ---- the table ----------------------------------------------------------------------------------

template <typename T>
constexpr Layers<T> kLayers = {.multiply = multiply<T>,
                               .bias_gradient = bias_gradient<T>,
                               .embed = embed<T>,
                               .embed_gradient = embed_gradient<T>,
                               .norm = norm<T>,
                               .norm_backward = norm_backward<T>,
                               .norm_gradient = norm_gradient<T>,
                               .gelu = gelu<T>,
                               .gelu_backward = gelu_backward<T>,
                               .attend = attend<T>,
                               .attend_backward = attend_backward<T>,
                               .add = add<T>,
                               .cross_entropy = cross_entropy<T>,
                               .cross_entropy_backward = cross_entropy_backward<T>,
                               .exponential = exponential_all<T>};

}  // namespace

LayerSet TUTTI_LAYERS() { return {TUTTI_LAYERS_NAME, &kLayers<float>, &kLayers<double>}; }

}  // namespace tutti::gpt
