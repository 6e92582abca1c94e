// SPDX-License-Identifier: Apache-2.0
// Each layer's backward pass against differences of its forward pass in double, on awkward shapes;
// float against double; every instruction set against the others, bit for bit.
#include "zero_gpt/layers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "zero_gpt/random.hpp"

namespace tutti::gpt {
namespace {

using Values = std::vector<double>;

template <typename T = double>
std::vector<T> random_values(std::uint64_t seed, int count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<T>(random_normal(seed, 7, i));
  return values;
}

const Layers<double>& layers() { return *layer_sets().front().doubles; }

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `loss` as a function of `at`, which is put back; `gradient` is what it should be.
void expect_gradient(Values& at, const Values& gradient, const std::function<double()>& loss,
                     const char* what) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(at.size(), gradient.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double value = at[i];
    at[i] = value + kStep;
    const double above = loss();
    at[i] = value - kStep;
    const double below = loss();
    at[i] = value;
    ASSERT_NEAR((above - below) / (2 * kStep), gradient[i], 2e-8) << what << ", element " << i;
  }
}

TEST(Layers, ExponentialIsAccurate) {
  for (const LayerSet& set : layer_sets()) {
    std::vector<float> x, y;
    for (float value = -90; value < 90; value += 0.0137F) x.push_back(value);
    y.resize(x.size());
    set.floats->exponential(x.data(), x.size(), y.data());
    std::vector<double> xd(x.begin(), x.end()), yd(x.size());
    set.doubles->exponential(xd.data(), xd.size(), yd.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double limited = std::min(80.0, std::max(-80.0, xd[i]));
      EXPECT_NEAR(y[i] / std::exp(limited), 1, 2e-7) << set.name << " " << x[i];
      EXPECT_NEAR(yd[i] / std::exp(xd[i]), 1, 1e-15) << set.name << " " << x[i];
    }
    const float zero = 0;
    float one = 0;
    set.floats->exponential(&zero, 1, &one);
    EXPECT_EQ(one, 1);
  }
}

TEST(Layers, BiasGradientSumsRows) {
  const Values d_out = random_values(1, 5 * 7);
  Values d_bias(7, 0.5);
  layers().bias_gradient(d_out.data(), 5, 7, d_bias.data());
  for (std::size_t j = 0; j < 7; ++j) {
    double sum = 0.5;
    for (std::size_t i = 0; i < 5; ++i) sum += d_out[i * 7 + j];
    EXPECT_EQ(d_bias[j], sum);
  }
}

TEST(Layers, EmbeddingGradient) {
  constexpr int kRows = 10, kContext = 5, kChannels = 6, kVocabulary = 4;
  const std::vector<std::int32_t> tokens = {0, 1, 1, 3, 0, 3, 3, 3, 1, 0};
  Values table = random_values(1, kVocabulary * kChannels);
  Values positions = random_values(2, kContext * kChannels);
  const Values weight = random_values(3, kRows * kChannels);
  Values out(weight.size());
  const auto loss = [&] {
    layers().embed(table.data(), positions.data(), tokens.data(), {0, kRows}, kContext, kChannels,
                   out.data());
    return dot(out, weight);
  };
  Values d_table(table.size()), d_positions(positions.size());
  layers().embed_gradient(weight.data(), tokens.data(), {0, kRows}, kContext, kChannels,
                          d_table.data(), d_positions.data());
  expect_gradient(table, d_table, loss, "table");
  expect_gradient(positions, d_positions, loss, "positions");
}

TEST(Layers, NormGradient) {
  constexpr int kRows = 3, kChannels = 37;
  Values in = random_values(1, kRows * kChannels), gain = random_values(2, kChannels),
         bias = random_values(3, kChannels);
  const Values weight = random_values(4, kRows * kChannels);
  Values out(in.size()), stats(2 * kRows);
  const auto loss = [&] {
    layers().norm(in.data(), gain.data(), bias.data(), kRows, kChannels, out.data(), stats.data());
    return dot(out, weight);
  };
  loss();
  Values d_in(in.size(), 0.25), d_gain(gain.size()), d_bias(bias.size());
  layers().norm_backward(weight.data(), in.data(), stats.data(), gain.data(), kRows, kChannels,
                         d_in.data());
  layers().norm_gradient(weight.data(), in.data(), stats.data(), kRows, kChannels, d_gain.data(),
                         d_bias.data());
  for (double& each : d_in) each -= 0.25;  // it is added to
  expect_gradient(in, d_in, loss, "in");
  expect_gradient(gain, d_gain, loss, "gain");
  expect_gradient(bias, d_bias, loss, "bias");
}

TEST(Layers, GeluGradientAndValue) {
  Values in = random_values(1, 61);
  in[0] = -9, in[1] = 9, in[2] = 0;
  const Values weight = random_values(2, 61);
  Values out(in.size());
  const auto loss = [&] {
    layers().gelu(in.data(), in.size(), out.data());
    return dot(out, weight);
  };
  loss();
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double x = in[i], u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(out[i], x / 2 * (1 + std::tanh(u)), 1e-14);
  }
  Values d_in = weight;
  layers().gelu_backward(in.data(), in.size(), d_in.data());
  expect_gradient(in, d_in, loss, "in");
}

// Two heads of five channels and seven tokens.
class AttentionLayer : public ::testing::Test {
 protected:
  static constexpr int kTokens = 7, kChannels = 10, kHeads = 2;
  Values qkv = random_values(1, kTokens * 3 * kChannels);
  Values weights = Values(kHeads * kTokens * kTokens);
  Values out = Values(kTokens * kChannels), scratch = Values(kScratchElements);
  [[nodiscard]] Attention<double> attention() {
    return {kTokens, kChannels, kHeads, qkv.data(), weights.data()};
  }
  void forward() {
    for (int head = 0; head < kHeads; ++head)
      layers().attend(attention(), head, out.data(), scratch.data());
  }
};

TEST_F(AttentionLayer, Gradient) {
  const Values weight = random_values(2, kTokens * kChannels);
  const auto loss = [&] {
    forward();
    return dot(out, weight);
  };
  loss();
  Values d_qkv(qkv.size()), work(kTokens * kTokens);
  for (int head = 0; head < kHeads; ++head)
    layers().attend_backward(attention(), head, weight.data(), d_qkv.data(), work.data(),
                             scratch.data());
  expect_gradient(qkv, d_qkv, loss, "qkv");
}

TEST_F(AttentionLayer, SeesNothingOfLaterTokens) {
  forward();
  const Values before = out;
  for (std::size_t i = 4 * 3 * kChannels; i < qkv.size(); ++i) qkv[i] += 1;
  forward();
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i] == before[i], i < 4 * kChannels) << i;
  for (int row = 0; row < kTokens; ++row) {
    double sum = 0;
    for (int j = 0; j < kTokens; ++j) sum += weights[static_cast<std::size_t>(row * kTokens + j)];
    EXPECT_NEAR(sum, 1, 1e-15);
  }
}

TEST(Layers, CrossEntropyGradient) {
  constexpr int kRows = 3, kColumns = 19;
  const std::vector<std::int32_t> targets = {0, 18, 7};
  Values logits = random_values(1, kRows * kColumns), probabilities, losses(kRows);
  const auto loss = [&] {
    probabilities = logits;
    layers().cross_entropy(targets.data(), kRows, kColumns, probabilities.data(), losses.data());
    return 0.3 * (losses[0] + losses[1] + losses[2]);
  };
  loss();
  double sum = 0;
  for (int j = 0; j < kColumns; ++j) sum += std::exp(logits[static_cast<std::size_t>(j)]);
  EXPECT_NEAR(losses[0], std::log(sum) - logits[0], 1e-14);
  Values gradient = probabilities;
  layers().cross_entropy_backward(targets.data(), kRows, kColumns, 0.3, gradient.data());
  expect_gradient(logits, gradient, loss, "logits");
}

// All that a set computes on some input, one after the other.
template <typename T>
std::vector<T> everything(const Layers<T>& set) {
  constexpr int kTokens = 21, kChannels = 52, kHeads = 4, kAll = kTokens * kChannels;
  const auto in = random_values<T>(1, kAll), gain = random_values<T>(2, kChannels),
             d = random_values<T>(3, kAll), qkv = random_values<T>(4, 3 * kAll);
  std::vector<T> all, out(kAll), stats(2 * kTokens), d_in(kAll), d_gain(kChannels),
      d_bias(kChannels), weights(kHeads * kTokens * kTokens), d_qkv(3 * kAll),
      work(kTokens * kTokens), scratch(kScratchElements);
  const auto keep = [&](const std::vector<T>& values) {
    all.insert(all.end(), values.begin(), values.end());
  };
  set.norm(in.data(), gain.data(), gain.data(), kTokens, kChannels, out.data(), stats.data());
  keep(out), keep(stats);
  set.norm_backward(d.data(), in.data(), stats.data(), gain.data(), kTokens, kChannels,
                    d_in.data());
  set.norm_gradient(d.data(), in.data(), stats.data(), kTokens, kChannels, d_gain.data(),
                    d_bias.data());
  keep(d_in), keep(d_gain), keep(d_bias);
  set.gelu(in.data(), in.size(), out.data());
  keep(out);
  out = d;
  set.gelu_backward(in.data(), in.size(), out.data());
  keep(out);
  const Attention<T> attention{kTokens, kChannels, kHeads, qkv.data(), weights.data()};
  for (int head = 0; head < kHeads; ++head) {
    set.attend(attention, head, out.data(), scratch.data());
    set.attend_backward(attention, head, d.data(), d_qkv.data(), work.data(), scratch.data());
  }
  keep(out), keep(weights), keep(d_qkv);
  std::vector<std::int32_t> targets(kTokens, 5);
  std::vector<double> losses(kTokens);
  out = in;
  set.cross_entropy(targets.data(), kTokens, kChannels, out.data(), losses.data());
  keep(out), keep({losses.begin(), losses.end()});
  set.cross_entropy_backward(targets.data(), kTokens, kChannels, static_cast<T>(0.1), out.data());
  keep(out);
  return all;
}

TEST(Layers, EveryInstructionSetHasTheSameBits) {
  for (const LayerSet& set : layer_sets()) {
    EXPECT_EQ(everything(*set.floats), everything(*layer_sets().back().floats)) << set.name;
    EXPECT_EQ(everything(*set.doubles), everything(*layer_sets().back().doubles)) << set.name;
  }
}

TEST(Layers, FloatIsCloseToDouble) {
  const auto floats = everything(*layer_sets().front().floats);
  const auto doubles = everything(*layer_sets().front().doubles);
  ASSERT_EQ(floats.size(), doubles.size());
  for (std::size_t i = 0; i < floats.size(); ++i)
    EXPECT_NEAR(floats[i], doubles[i], 2e-5 * (1 + std::abs(doubles[i]))) << i;
}

}  // namespace
}  // namespace tutti::gpt
