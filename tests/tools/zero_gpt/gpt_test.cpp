// SPDX-License-Identifier: Apache-2.0
// The whole model: its gradient against differences in double, float against double, and the rule
// of bits: what a slot contributes depends neither on the slots beside it nor on threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/tools/zero_gpt/memory_store.hpp"
#include "zero_gpt/random.hpp"

namespace tutti::gpt {
namespace {

constexpr Size kLittle{"little", 11, 6, 12, 3, 2};

// Slots [first, first + slots) of two sequences each.
Batch make_batch(const Size& size, int first, int slots) {
  Batch batch{slots, 2, {}, {}};
  const int tokens = 2 * size.context;
  for (int i = first * tokens; i < (first + slots) * tokens; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const auto bound = static_cast<std::uint64_t>(size.vocabulary);
    batch.inputs.push_back(
        static_cast<std::int32_t>(scale_to(random_bits(5, Purpose::kWindow, 0, at), bound)));
    batch.targets.push_back(
        static_cast<std::int32_t>(scale_to(random_bits(5, Purpose::kWindow, 1, at), bound)));
  }
  return batch;
}

const Size& odd() { return *find_size("odd"); }

// Larger parameters than a fresh model's, so that every part of it matters.
template <typename T>
MemoryStore<T> make_store(const Size& size) {
  MemoryStore<T> store(size);
  for (int unit = 0; unit < store.units(); ++unit) {
    std::vector<T>& values = store.parameters(unit);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<T>(static_cast<float>(values[i]) +
                                 0.2F * random_normal(9, static_cast<std::uint64_t>(unit), i));
  }
  return store;
}

TEST(Gpt, SizesHaveTheirParameters) {
  EXPECT_EQ(parameters_of(*find_size("nano")), 118'528U);
  EXPECT_EQ(parameters_of(*find_size("tiny")), 834'304U);
  EXPECT_EQ(parameters_of(*find_size("small")), 4'837'376U);
  EXPECT_EQ(find_size("none"), nullptr);
  for (const Size& size : all_sizes()) EXPECT_EQ(size.channels % size.heads, 0) << size.name;
}

TEST(Gpt, ParametersAreAFunctionOfNameAndElement) {
  const Tensor tensor{"some.weight", {10, 10}, Fill::kNormal, 1};
  std::vector<float> whole(100), part(7);
  fill_tensor(tensor, 3, 0, whole);
  fill_tensor(tensor, 3, 40, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 40));
  double square = 0;
  for (const float value : whole) square += value * value;
  EXPECT_NEAR(square / 100, 1, 0.4);
}

// Every tensor of every unit, at a few elements.
void expect_gradients(const Size& size, std::size_t elements_a_tensor) {
  Threads threads(1);
  auto store = make_store<double>(size);
  const Batch batch = make_batch(size, 0, 2);
  Gpt<double> model(size, 4, *layer_sets().front().doubles, threads);
  std::vector<double> losses(2);
  constexpr double kFactor = 0.125, kStep = 1e-5;
  model.train(store, batch, kFactor, losses);
  for (int unit = 0; unit < store.units(); ++unit) {
    std::size_t offset = 0;
    ASSERT_EQ(store.slots(unit).size(), 2U);
    for (const Tensor& tensor : store.names()[static_cast<std::size_t>(unit)].tensors) {
      const std::size_t count = tensor.elements();
      const std::size_t stride = std::max<std::size_t>(1, count / elements_a_tensor);
      for (std::size_t i = 0; i < count; i += stride) {
        double& at = store.parameters(unit)[offset + i];
        const double value = at;
        double difference = 0;
        for (const double sign : {1.0, -1.0}) {
          at = value + sign * kStep;
          model.evaluate(store, batch, losses);
          difference += sign * (losses[0] + losses[1]);
        }
        at = value;
        const double sum = store.slots(unit)[0][offset + i] + store.slots(unit)[1][offset + i];
        ASSERT_NEAR(kFactor * difference / (2 * kStep), sum, 1e-7) << tensor.name << " " << i;
      }
      offset += count;
    }
  }
}

TEST(Gpt, GradientOfALittleModelEverywhere) { expect_gradients(kLittle, 1'000'000); }
TEST(Gpt, GradientOfTheOddModelHereAndThere) { expect_gradients(odd(), 9); }

TEST(Gpt, FloatIsCloseToDouble) {
  Threads threads(1);
  auto doubles = make_store<double>(odd());
  auto floats = make_store<float>(odd());
  const Batch batch = make_batch(odd(), 0, 1);
  std::vector<double> loss(1), twin(1);
  Gpt<float>(odd(), 2, *layer_sets().front().floats, threads).train(floats, batch, 0.1F, loss);
  Gpt<double>(odd(), 2, *layer_sets().front().doubles, threads)
      .train(doubles, batch, static_cast<double>(0.1F), twin);
  EXPECT_NEAR(loss[0] / twin[0], 1, 1e-6);
  for (int unit = 0; unit < floats.units(); ++unit) {
    const std::vector<float>& some = floats.slots(unit)[0];
    const std::vector<double>& exact = doubles.slots(unit)[0];
    double largest = 0;
    for (const double value : exact) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < some.size(); ++i)
      ASSERT_NEAR(some[i], exact[i], 2e-5 * largest) << "unit " << unit << " element " << i;
  }
}

// The losses and gradients of slots 0 to 5, computed `at_once` slots at a time.
struct Computed {
  std::vector<double> losses;
  std::vector<std::vector<std::vector<float>>> gradients;  // [unit][slot]
  bool operator==(const Computed&) const = default;
};
Computed compute(const Size& size, int at_once, int thread_count, const LayerSet& set) {
  constexpr int kSlots = 6;
  Threads threads(thread_count);
  auto store = make_store<float>(size);
  Gpt<float> model(size, 2 * at_once, *set.floats, threads);
  Computed found;
  found.losses.resize(kSlots);
  for (int slot = 0; slot < kSlots; slot += at_once)
    model.train(store, make_batch(size, slot, at_once), 0.01F,
                std::span(found.losses)
                    .subspan(static_cast<std::size_t>(slot), static_cast<std::size_t>(at_once)));
  for (int unit = 0; unit < store.units(); ++unit) found.gradients.push_back(store.slots(unit));
  return found;
}

TEST(Gpt, ASlotsBitsDependNeitherOnBatchingNorOnThreads) {
  const LayerSet& set = layer_sets().front();
  for (const Size& size : {odd(), *find_size("nano")}) {
    const Computed one = compute(size, 1, 1, set);
    for (const int at_once : {2, 3, 6})
      EXPECT_TRUE(compute(size, at_once, 1, set) == one) << size.name << " " << at_once;
    EXPECT_TRUE(compute(size, 3, 3, set) == one) << size.name << " with threads";
  }
}

TEST(Gpt, EveryInstructionSetHasTheSameBits) {
  const Computed first = compute(odd(), 2, 1, layer_sets().front());
  for (const LayerSet& set : layer_sets())
    EXPECT_TRUE(compute(odd(), 2, 1, set) == first) << set.name;
}

// Operations are those that MFU is reckoned with, attention's apart.
TEST(Gpt, CountsTheOperationsOfItsProducts) {
  Threads threads(1);
  const Size& size = odd();
  auto store = make_store<float>(size);
  Gpt<float> model(size, 2, *layer_sets().front().floats, threads);
  std::vector<double> losses(1);
  model.train(store, make_batch(size, 0, 1), 1, losses);
  const auto c = static_cast<std::uint64_t>(size.channels);
  const auto context = static_cast<std::uint64_t>(size.context);
  const std::uint64_t attention = 12 * static_cast<std::uint64_t>(size.layers) * c * context;
  EXPECT_EQ(model.product_flops(), (size.flops_per_token() - attention) * 2 * context);
}

TEST(Gpt, LearnsASequenceByHeart) {
  Threads threads(1);
  auto store = make_store<float>(kLittle);
  const Batch batch = make_batch(kLittle, 0, 1);
  Gpt<float> model(kLittle, 2, *layer_sets().front().floats, threads);
  std::vector<double> losses(1);
  double first = 0;
  for (int step = 0; step < 300; ++step) {
    store.clear_gradients();
    model.train(store, batch, 1.0F / 12, losses);
    if (step == 0) first = losses[0];
    for (int unit = 0; unit < store.units(); ++unit)
      for (std::size_t i = 0; i < store.parameters(unit).size(); ++i)
        store.parameters(unit)[i] -= 0.1F * store.slots(unit)[0][i];
  }
  EXPECT_LT(losses[0], 0.1 * first);
}

}  // namespace
}  // namespace tutti::gpt
