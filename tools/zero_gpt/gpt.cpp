// SPDX-License-Identifier: Apache-2.0
// Blocks and the head, put together from layers. Each function names the formula's parts as
// layers_template.hpp does.
#include "zero_gpt/gpt.hpp"

#include <algorithm>
#include <numeric>

namespace tutti::gpt {

template <typename T>
Gpt<T>::Gpt(const Size& size, int most_sequences, const Layers<T>& layers, Threads& threads)
    : size_(size), layers_(layers), threads_(threads) {
  const auto rows = static_cast<std::size_t>(most_sequences * size.context);
  const auto c = static_cast<std::size_t>(size.channels);
  const auto vocabulary = static_cast<std::size_t>(size.vocabulary);
  const std::size_t weights =
      rows * static_cast<std::size_t>(size.heads) * static_cast<std::size_t>(size.context);
  blocks_.resize(static_cast<std::size_t>(size.layers));
  for (Activations& a : blocks_) {
    for (auto* const each : {&a.in, &a.normed1, &a.attended, &a.middle, &a.normed2})
      each->resize(rows * c);
    for (auto* const each : {&a.stats1, &a.stats2}) each->resize(rows * 2);
    for (auto* const each : {&a.up, &a.gelu}) each->resize(rows * 4 * c);
    a.qkv.resize(rows * 3 * c);
    a.weights.resize(weights);
  }
  for (auto* const each :
       {&out_, &final_normed_, &d_out_, &d_normed2_, &d_middle_, &d_attended_, &d_normed1_, &d_in_})
    each->resize(rows * c);
  final_stats_.resize(rows * 2);
  probabilities_.resize(rows * vocabulary);
  losses_.resize(rows);
  d_up_.resize(rows * 4 * c);
  d_qkv_.resize(rows * 3 * c);
  d_table_.resize(vocabulary * c);
  scratch_stride_ = kScratchElements + static_cast<std::size_t>(size.context * size.context);
  scratch_.resize(scratch_stride_ * static_cast<std::size_t>(threads.count()));
}

template <typename T>
std::uint64_t Gpt<T>::bytes() const {
  std::size_t elements = 0;
  for (const Activations& a : blocks_)
    for (const auto* const each : {&a.in, &a.stats1, &a.normed1, &a.qkv, &a.weights, &a.attended,
                                   &a.middle, &a.stats2, &a.normed2, &a.up, &a.gelu})
      elements += each->size();
  for (const auto* const each :
       {&out_, &final_stats_, &final_normed_, &probabilities_, &d_out_, &d_up_, &d_normed2_,
        &d_middle_, &d_attended_, &d_qkv_, &d_normed1_, &d_in_, &d_table_, &scratch_})
    elements += each->size();
  return elements * sizeof(T) + losses_.size() * sizeof(double);
}

// ---- linear layers and their division among threads ---------------------------------------------

template <typename T>
void Gpt<T>::multiply(const Product<T>& product) {
  product_flops_ += std::uint64_t{2} * static_cast<std::uint64_t>(product.rows) *
                    static_cast<std::uint64_t>(product.columns) *
                    static_cast<std::uint64_t>(product.depth);
  if (multiply_) return multiply_(product);
  const int parts = std::min(threads_.count(), product.rows);
  threads_.for_each(parts, [&](int part, int thread) {
    const Rows rows{product.rows * part / parts, product.rows * (part + 1) / parts};
    layers_.multiply(product, rows, scratch(thread));
  });
}

// out = in * weight + bias, with weight as [inputs][outputs].
template <typename T>
void Gpt<T>::linear(const T* in, const T* weight, const T* bias, int inputs, int outputs, T* out) {
  multiply({rows_, outputs, inputs, {in, inputs, 1}, {weight, 1, outputs}, out, outputs, bias});
}

// d_in = d_out * weight^T.
template <typename T>
void Gpt<T>::linear_backward(const T* d_out, const T* weight, int inputs, int outputs, T* d_in) {
  multiply({rows_, inputs, outputs, {d_out, outputs, 1}, {weight, outputs, 1}, d_in, inputs});
}

// d_weight += in^T * d_out, over one slot's rows.
template <typename T>
void Gpt<T>::linear_gradient(Rows rows, const T* in, const T* d_out, int inputs, int outputs,
                             T* d_weight, T* d_bias) {
  const int count = rows.end - rows.begin;
  in += std::ptrdiff_t{rows.begin} * inputs;
  d_out += std::ptrdiff_t{rows.begin} * outputs;
  multiply({inputs,
            outputs,
            count,
            {in, 1, inputs},
            {d_out, 1, outputs},
            d_weight,
            outputs,
            nullptr,
            true});
  layers_.bias_gradient(d_out, count, outputs, d_bias);
}

template <typename T>
void Gpt<T>::for_rows(const std::function<void(Rows rows)>& work) {
  const int parts = std::min(threads_.count(), rows_);
  threads_.for_each(parts, [&](int part, int) {
    work({static_cast<int>(std::int64_t{rows_} * part / parts),
          static_cast<int>(std::int64_t{rows_} * (part + 1) / parts)});
  });
}

template <typename T>
void Gpt<T>::for_heads(const std::function<void(int sequence, int head, int thread)>& work) {
  threads_.for_each(rows_ / size_.context * size_.heads, [&](int item, int thread) {
    work(item / size_.heads, item % size_.heads, thread);
  });
}

template <typename T>
Rows Gpt<T>::slot_rows(int slot) const {
  return {slot * slot_rows_, (slot + 1) * slot_rows_};
}

template <typename T>
Attention<T> Gpt<T>::attention(Activations& a, int sequence) const {
  const std::ptrdiff_t t = size_.context, first = t * sequence;
  return {size_.context, size_.channels, size_.heads, a.qkv.data() + first * 3 * size_.channels,
          a.weights.data() + first * size_.heads * t};
}

// ---- forward ------------------------------------------------------------------------------------

template <typename T>
void Gpt<T>::begin(const Batch& batch, const Weights& embeddings) {
  slot_rows_ = batch.sequences_per_slot * size_.context;
  rows_ = batch.slots * slot_rows_;
  std::vector<T>& first = blocks_.empty() ? out_ : blocks_.front().in;
  for_rows([&](Rows rows) {
    layers_.embed(embeddings[kTokenEmbedding], embeddings[kPositionEmbedding], batch.inputs.data(),
                  rows, size_.context, size_.channels, first.data());
  });
}

// middle = in + projection(attention(norm1(in))); out = middle + down(gelu(up(norm2(middle)))).
template <typename T>
void Gpt<T>::block(int layer, const Weights& w) {
  const int c = size_.channels;
  const auto index = static_cast<std::size_t>(layer);
  Activations& a = blocks_[index];
  std::vector<T>& out = index + 1 < blocks_.size() ? blocks_[index + 1].in : out_;
  norm(a.in, w[kNorm1Gain], w[kNorm1Bias], a.normed1, a.stats1);
  linear(a.normed1.data(), w[kQkvWeight], w[kQkvBias], c, 3 * c, a.qkv.data());
  for_heads([&](int sequence, int head, int thread) {
    T* const to = a.attended.data() + std::ptrdiff_t{sequence} * size_.context * c;
    layers_.attend(attention(a, sequence), head, to, scratch(thread));
  });
  linear(a.attended.data(), w[kProjectionWeight], w[kProjectionBias], c, c, a.middle.data());
  add(a.in, a.middle);
  norm(a.middle, w[kNorm2Gain], w[kNorm2Bias], a.normed2, a.stats2);
  linear(a.normed2.data(), w[kUpWeight], w[kUpBias], c, 4 * c, a.up.data());
  for_rows([&](Rows rows) {
    const std::ptrdiff_t first = std::ptrdiff_t{rows.begin} * 4 * c;
    layers_.gelu(a.up.data() + first, static_cast<std::size_t>((rows.end - rows.begin) * 4 * c),
                 a.gelu.data() + first);
  });
  linear(a.gelu.data(), w[kDownWeight], w[kDownBias], 4 * c, c, out.data());
  add(a.middle, out);
}

template <typename T>
void Gpt<T>::norm(const std::vector<T>& in, const T* gain, const T* bias, std::vector<T>& out,
                  std::vector<T>& stats) {
  for_rows([&](Rows rows) {
    const std::ptrdiff_t first = std::ptrdiff_t{rows.begin} * size_.channels;
    layers_.norm(in.data() + first, gain, bias, rows.end - rows.begin, size_.channels,
                 out.data() + first, stats.data() + 2 * std::ptrdiff_t{rows.begin});
  });
}

template <typename T>
void Gpt<T>::add(const std::vector<T>& in, std::vector<T>& sum) {
  for_rows([&](Rows rows) {
    const std::ptrdiff_t first = std::ptrdiff_t{rows.begin} * size_.channels;
    layers_.add(in.data() + first,
                static_cast<std::size_t>((rows.end - rows.begin) * size_.channels),
                sum.data() + first);
  });
}

template <typename T>
void Gpt<T>::final_norm(const Weights& w) {
  norm(out_, w[kFinalGain], w[kFinalBias], final_normed_, final_stats_);
}

template <typename T>
void Gpt<T>::head(const Weights& embeddings, const Batch& batch, std::span<double> slot_losses) {
  const int c = size_.channels, v = size_.vocabulary;
  multiply({rows_,
            v,
            c,
            {final_normed_.data(), c, 1},
            {embeddings[kTokenEmbedding], c, 1},
            probabilities_.data(),
            v});
  for_rows([&](Rows rows) {
    layers_.cross_entropy(batch.targets.data() + rows.begin, rows.end - rows.begin, v,
                          probabilities_.data() + std::ptrdiff_t{rows.begin} * v,
                          losses_.data() + rows.begin);
  });
  for (int slot = 0; slot < batch.slots; ++slot) {
    const Rows rows = slot_rows(slot);
    slot_losses[static_cast<std::size_t>(slot)] =
        std::accumulate(losses_.begin() + rows.begin, losses_.begin() + rows.end, 0.0);
  }
}

// ---- backward -----------------------------------------------------------------------------------

template <typename T>
void Gpt<T>::norm_backward(const std::vector<T>& d_out, const std::vector<T>& in,
                           const std::vector<T>& stats, const T* gain, std::vector<T>& d_in) {
  for_rows([&](Rows rows) {
    const std::ptrdiff_t first = std::ptrdiff_t{rows.begin} * size_.channels;
    layers_.norm_backward(d_out.data() + first, in.data() + first,
                          stats.data() + 2 * std::ptrdiff_t{rows.begin}, gain,
                          rows.end - rows.begin, size_.channels, d_in.data() + first);
  });
}

template <typename T>
void Gpt<T>::norm_gradient(int slot, const std::vector<T>& d_out, const std::vector<T>& in,
                           const std::vector<T>& stats, T* d_gain, T* d_bias) {
  const Rows rows = slot_rows(slot);
  const std::ptrdiff_t first = std::ptrdiff_t{rows.begin} * size_.channels;
  layers_.norm_gradient(d_out.data() + first, in.data() + first,
                        stats.data() + 2 * std::ptrdiff_t{rows.begin}, rows.end - rows.begin,
                        size_.channels, d_gain, d_bias);
}

template <typename T>
void Gpt<T>::head_backward(const Weights& embeddings, const Batch& batch, T factor) {
  const int c = size_.channels, v = size_.vocabulary;
  for_rows([&](Rows rows) {
    layers_.cross_entropy_backward(batch.targets.data() + rows.begin, rows.end - rows.begin, v,
                                   factor, probabilities_.data() + std::ptrdiff_t{rows.begin} * v);
  });
  multiply({rows_,
            c,
            v,
            {probabilities_.data(), v, 1},
            {embeddings[kTokenEmbedding], 1, c},
            d_normed1_.data(),
            c});
}

template <typename T>
void Gpt<T>::final_norm_backward(const Weights& w) {
  std::fill(d_out_.begin(), d_out_.end(), T{0});
  norm_backward(d_normed1_, out_, final_stats_, w[kFinalGain], d_out_);
}

template <typename T>
void Gpt<T>::final_norm_gradient(int slot, const Gradients& g) {
  norm_gradient(slot, d_normed1_, out_, final_stats_, g[kFinalGain], g[kFinalBias]);
}

// From d_out_ to d_in_, and the gradients that block_gradient() needs in between.
template <typename T>
void Gpt<T>::block_backward(int layer, const Weights& w) {
  const int c = size_.channels;
  Activations& a = blocks_[static_cast<std::size_t>(layer)];
  linear_backward(d_out_.data(), w[kDownWeight], 4 * c, c, d_up_.data());
  for_rows([&](Rows rows) {
    const std::ptrdiff_t first = std::ptrdiff_t{rows.begin} * 4 * c;
    layers_.gelu_backward(a.up.data() + first,
                          static_cast<std::size_t>((rows.end - rows.begin) * 4 * c),
                          d_up_.data() + first);
  });
  linear_backward(d_up_.data(), w[kUpWeight], c, 4 * c, d_normed2_.data());
  std::copy_n(d_out_.begin(), std::ptrdiff_t{rows_} * c, d_middle_.begin());
  norm_backward(d_normed2_, a.middle, a.stats2, w[kNorm2Gain], d_middle_);
  linear_backward(d_middle_.data(), w[kProjectionWeight], c, c, d_attended_.data());
  for_heads([&](int sequence, int head, int thread) {
    const std::ptrdiff_t first = std::ptrdiff_t{sequence} * size_.context * c;
    layers_.attend_backward(attention(a, sequence), head, d_attended_.data() + first,
                            d_qkv_.data() + 3 * first, scratch(thread) + kScratchElements,
                            scratch(thread));
  });
  linear_backward(d_qkv_.data(), w[kQkvWeight], c, 3 * c, d_normed1_.data());
  std::copy_n(d_middle_.begin(), std::ptrdiff_t{rows_} * c, d_in_.begin());
  norm_backward(d_normed1_, a.in, a.stats1, w[kNorm1Gain], d_in_);
}

template <typename T>
void Gpt<T>::block_gradient(int layer, int slot, const Gradients& g) {
  const int c = size_.channels;
  const Activations& a = blocks_[static_cast<std::size_t>(layer)];
  const Rows rows = slot_rows(slot);
  linear_gradient(rows, a.gelu.data(), d_out_.data(), 4 * c, c, g[kDownWeight], g[kDownBias]);
  linear_gradient(rows, a.normed2.data(), d_up_.data(), c, 4 * c, g[kUpWeight], g[kUpBias]);
  norm_gradient(slot, d_normed2_, a.middle, a.stats2, g[kNorm2Gain], g[kNorm2Bias]);
  linear_gradient(rows, a.attended.data(), d_middle_.data(), c, c, g[kProjectionWeight],
                  g[kProjectionBias]);
  linear_gradient(rows, a.normed1.data(), d_qkv_.data(), c, 3 * c, g[kQkvWeight], g[kQkvBias]);
  norm_gradient(slot, d_normed1_, a.in, a.stats1, g[kNorm1Gain], g[kNorm1Bias]);
}

// The head's part, then the embedding's, which is summed by itself first.
template <typename T>
void Gpt<T>::embedding_gradient(int slot, const Gradients& g, const Batch& batch) {
  const int c = size_.channels, v = size_.vocabulary;
  const Rows rows = slot_rows(slot);
  const std::ptrdiff_t first = rows.begin;
  multiply({v,
            c,
            rows.end - rows.begin,
            {probabilities_.data() + first * v, 1, v},
            {final_normed_.data() + first * c, 1, c},
            g[kTokenEmbedding],
            c,
            nullptr,
            true});
  std::fill(d_table_.begin(), d_table_.end(), T{0});
  layers_.embed_gradient(d_out_.data(), batch.inputs.data(), rows, size_.context, c,
                         d_table_.data(), g[kPositionEmbedding]);
  layers_.add(d_table_.data(), d_table_.size(), g[kTokenEmbedding]);
}

template class Gpt<float>;
template class Gpt<double>;

}  // namespace tutti::gpt
