// SPDX-License-Identifier: Apache-2.0
// The whole model: byte-level GPT-2 (Radford et al. 2019; blocks with the layer norm first, learned
// positions, a head that shares its matrix with the token embedding), forward and backward by hand.
//
// It owns activations, never parameters: those come from a Store, unit by unit, and gradients go
// into it, slot by slot. The engine of tutti/zero.hpp is one, plain arrays in the tests another:
//   auto w = store.use(unit, backward);   w[tensor] is a const T*, for as long as w lives
//   auto g = store.gradients(unit);       g[tensor] is a T*, zero at first, to be added to
//
// The rule of bits: what a slot contributes is a function of its tokens and the parameters alone.
// Forward and the gradients of activations work on all slots of a batch at once, since their rows
// do not know of each other; gradients of parameters are summed slot by slot.
//
// The embeddings are used once in a pass, from its beginning until the head's gradient is known.
// Their gradients are the last: the head's product is kept until then, so that each slot opens the
// unit once, adds up the head's part and the embedding's in accumulators of their own, and adds the
// second to the first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "zero_gpt/layers.hpp"
#include "zero_gpt/size.hpp"
#include "zero_gpt/threads.hpp"

namespace tutti::gpt {

// Sequences of `context` tokens, slot after slot.
struct Batch {
  int slots = 0;
  int sequences_per_slot = 0;
  std::vector<std::int32_t> inputs, targets;  // [slots][sequences][context]
};

template <typename T>
class Gpt {
 public:
  // Allocates the activations of `most_sequences`.
  Gpt(const Size& size, int most_sequences, const Layers<T>& layers, Threads& threads);

  // Losses and probabilities. slot_losses[slot]: the sum of its tokens' losses.
  template <typename Store>
  void evaluate(Store& store, const Batch& batch, std::span<double> slot_losses);
  // The same, and the gradient of `factor` times the sum of all losses.
  template <typename Store>
  void train(Store& store, const Batch& batch, T factor, std::span<double> slot_losses);

  // Of the last pass, [rows][vocabulary]. train() leaves the gradients there instead.
  [[nodiscard]] const T* probabilities() const { return probabilities_.data(); }
  [[nodiscard]] std::uint64_t bytes() const;
  // Operations of products with parameters since the start.
  [[nodiscard]] std::uint64_t product_flops() const { return product_flops_; }
  // Computes those products instead of our own code. It need not keep the rule of bits.
  void set_multiply(std::function<void(const Product<T>&)> multiply) {
    multiply_ = std::move(multiply);
  }

 private:
  using Weights = std::array<const T*, kBlockTensors>;
  using Gradients = std::array<T*, kBlockTensors>;
  struct Activations {  // of a block
    std::vector<T> in, stats1, normed1, qkv, weights, attended, middle, stats2, normed2, up, gelu;
  };

  void begin(const Batch& batch, const Weights& embeddings);
  void block(int layer, const Weights& w);
  void final_norm(const Weights& w);
  void head(const Weights& embeddings, const Batch& batch, std::span<double> slot_losses);

  void head_backward(const Weights& embeddings, const Batch& batch, T factor);
  void final_norm_backward(const Weights& w);
  void final_norm_gradient(int slot, const Gradients& g);
  void block_backward(int layer, const Weights& w);
  void block_gradient(int layer, int slot, const Gradients& g);
  void embedding_gradient(int slot, const Gradients& g, const Batch& batch);

  void norm(const std::vector<T>& in, const T* gain, const T* bias, std::vector<T>& out,
            std::vector<T>& stats);
  void norm_backward(const std::vector<T>& d_out, const std::vector<T>& in,
                     const std::vector<T>& stats, const T* gain, std::vector<T>& d_in);
  void norm_gradient(int slot, const std::vector<T>& d_out, const std::vector<T>& in,
                     const std::vector<T>& stats, T* d_gain, T* d_bias);
  void add(const std::vector<T>& in, std::vector<T>& sum);
  void multiply(const Product<T>& product);
  void linear(const T* in, const T* weight, const T* bias, int inputs, int outputs, T* out);
  void linear_backward(const T* d_out, const T* weight, int inputs, int outputs, T* d_in);
  void linear_gradient(Rows rows, const T* in, const T* d_out, int inputs, int outputs, T* d_weight,
                       T* d_bias);
  void for_rows(const std::function<void(Rows rows)>& work);
  void for_heads(const std::function<void(int sequence, int head, int thread)>& work);
  [[nodiscard]] Rows slot_rows(int slot) const;
  [[nodiscard]] Attention<T> attention(Activations& a, int sequence) const;
  [[nodiscard]] T* scratch(int thread) {
    return scratch_.data() + static_cast<std::size_t>(thread) * scratch_stride_;
  }

  template <typename Pointer, typename Scope>
  static std::array<Pointer, kBlockTensors> pointers(const Scope& scope, int tensors) {
    std::array<Pointer, kBlockTensors> all{};
    for (int i = 0; i < tensors; ++i) all[static_cast<std::size_t>(i)] = scope[i];
    return all;
  }
  template <typename Store>
  void forward(Store& store, const Weights& embeddings, const Batch& batch,
               std::span<double> slot_losses);

  Size size_;
  const Layers<T>& layers_;
  Threads& threads_;
  std::function<void(const Product<T>&)> multiply_;
  int rows_ = 0, slot_rows_ = 0;  // of the batch
  std::uint64_t product_flops_ = 0;
  std::vector<Activations> blocks_;
  std::vector<T> out_, final_stats_, final_normed_, probabilities_;
  std::vector<double> losses_;  // of rows
  // Gradients of a block's activations, by the names of what they belong to.
  std::vector<T> d_out_, d_up_, d_normed2_, d_middle_, d_attended_, d_qkv_, d_normed1_, d_in_;
  std::vector<T> d_table_;  // one slot's, of the embedding
  std::size_t scratch_stride_ = 0;
  std::vector<T> scratch_;  // of each thread
};

// ---- the passes: which unit when ----------------------------------------------------------------

template <typename T>
template <typename Store>
void Gpt<T>::forward(Store& store, const Weights& embeddings, const Batch& batch,
                     std::span<double> slot_losses) {
  begin(batch, embeddings);
  for (int layer = 0; layer < size_.layers; ++layer) {
    const auto w = store.use(layer + 1, false);
    block(layer, pointers<const T*>(w, kBlockTensors));
  }
  {
    const auto w = store.use(size_.last_unit(), false);
    final_norm(pointers<const T*>(w, kFinalNormTensors));
  }
  head(embeddings, batch, slot_losses);
}

template <typename T>
template <typename Store>
void Gpt<T>::evaluate(Store& store, const Batch& batch, std::span<double> slot_losses) {
  const auto w = store.use(0, false);
  forward(store, pointers<const T*>(w, kEmbeddingTensors), batch, slot_losses);
}

template <typename T>
template <typename Store>
void Gpt<T>::train(Store& store, const Batch& batch, T factor, std::span<double> slot_losses) {
  {
    const auto w = store.use(0, false);
    const Weights embeddings = pointers<const T*>(w, kEmbeddingTensors);
    forward(store, embeddings, batch, slot_losses);
    head_backward(embeddings, batch, factor);
  }
  {
    const auto w = store.use(size_.last_unit(), true);
    final_norm_backward(pointers<const T*>(w, kFinalNormTensors));
  }
  for (int slot = 0; slot < batch.slots; ++slot) {
    const auto g = store.gradients(size_.last_unit());
    final_norm_gradient(slot, pointers<T*>(g, kFinalNormTensors));
  }
  for (int layer = size_.layers - 1; layer >= 0; --layer) {
    {
      const auto w = store.use(layer + 1, true);
      block_backward(layer, pointers<const T*>(w, kBlockTensors));
    }
    for (int slot = 0; slot < batch.slots; ++slot) {
      const auto g = store.gradients(layer + 1);
      block_gradient(layer, slot, pointers<T*>(g, kBlockTensors));
    }
    d_out_.swap(d_in_);
  }
  for (int slot = 0; slot < batch.slots; ++slot) {
    const auto g = store.gradients(0);
    embedding_gradient(slot, pointers<T*>(g, kEmbeddingTensors), batch);
  }
}

extern template class Gpt<float>;
extern template class Gpt<double>;

}  // namespace tutti::gpt
