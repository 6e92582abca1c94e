// SPDX-License-Identifier: Apache-2.0
// The calculators' formulas: against published figures, against numbers worked out by hand, and by
// properties that hold for every model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "activations.hpp"
#include "article_figures.hpp"
#include "gpt_shape.hpp"
#include "model_state.hpp"
#include "training_time.hpp"

namespace tutti::zero_memory {
namespace {

using ::testing::HasSubstr;

constexpr double kGB = 1e9;
constexpr Accounting kMixed{};
constexpr std::uint64_t k75B = 7'500'000'000, k175B = 175'000'000'000, k80GB = 80'000'000'000;

GptShape shape_of(const std::string& name) { return find_model(name)->shape.value(); }
double state(std::uint64_t parameters, Stage stage, std::uint64_t ranks) {
  return state_bytes(parameters, stage, kMixed, ranks).total();
}

// GPT-2's sizes as its released checkpoints have them; the others by hand.
TEST(GptShapeTest, CountsAreThoseOfKnownModels) {
  EXPECT_EQ(find_model("gpt2")->parameters, 124'439'808U);
  EXPECT_EQ(find_model("gpt2-xl")->parameters, 1'557'611'200U);
  EXPECT_EQ(find_model("nano")->parameters, 118'528U);
  EXPECT_EQ(find_model("tiny")->parameters, 834'304U);
  EXPECT_EQ(find_model("gpt3")->parameters, 174'604'259'328U);
  EXPECT_EQ(find_model("7b")->parameters, 7'000'000'000U);
}

TEST(GptShapeTest, UnitsAddUpToTheModel) {
  for (const std::string name : {"nano", "gpt2", "gpt3", "7b", "1t"}) {
    const Model model = *find_model(name);
    const std::vector<std::uint64_t> units = units_of(model, 32);
    EXPECT_EQ(std::accumulate(units.begin(), units.end(), std::uint64_t{0}), model.parameters)
        << name;
  }
  EXPECT_EQ(units_of(*find_model("gpt2"), 32).size(), 13U);
  EXPECT_EQ(units_of({"x", 10, {}}, 4), (std::vector<std::uint64_t>{3, 3, 2, 2}));
  EXPECT_EQ(units_of({"x", 3, {}}, 8).size(), 3U);
}

TEST(GptShapeTest, RefusesWhatIsNoModel) {
  EXPECT_THAT(find_model("gpt9").error().message, HasSubstr("'gpt9' is not one of nano, tiny"));
  EXPECT_THAT(check_shape({2, 65, 2, 8, 8}).error().message, HasSubstr("not divisible by --heads"));
  EXPECT_THAT(check_shape({0, 64, 2, 8, 8}).error().message, HasSubstr("--layers is 0"));
  EXPECT_THAT(check_shape({1 << 14, 1 << 18, 2, 8, 8}).error().message, HasSubstr("the most are"));
}

// Figure 1 of the ZeRO paper: 7.5 B parameters on 64 ranks.
TEST(ModelState, IsThePapersFigure) {
  EXPECT_DOUBLE_EQ(state(k75B, Stage::kDdp, 64), 120 * kGB);
  EXPECT_NEAR(state(k75B, Stage::kZero1, 64), 31.4 * kGB, 0.01 * kGB);
  EXPECT_NEAR(state(k75B, Stage::kZero2, 64), 16.6 * kGB, 0.05 * kGB);
  EXPECT_NEAR(state(k75B, Stage::kZero3, 64), 1.88 * kGB, 0.01 * kGB);
  EXPECT_DOUBLE_EQ(state(1, Stage::kDdp, 1), 16);
  EXPECT_EQ(kFloat32.total(), 16U);
}

TEST(ModelState, SavesTheStatedFactors) {
  EXPECT_NEAR(reduction(Stage::kZero1, kMixed, 64), 3.82, 0.005);
  EXPECT_NEAR(reduction(Stage::kZero2, kMixed, 64), 7.21, 0.005);
  EXPECT_DOUBLE_EQ(reduction(Stage::kZero3, kMixed, 64), 64);
  EXPECT_DOUBLE_EQ(reduction_limit(Stage::kZero1, kMixed), 4);
  EXPECT_DOUBLE_EQ(reduction_limit(Stage::kZero2, kMixed), 8);
  EXPECT_TRUE(std::isinf(reduction_limit(Stage::kZero3, kMixed)));
  // Megatron's bf16 parameters with fp32 gradients: 6 + 12 / N.
  EXPECT_DOUBLE_EQ(state_bytes(64, Stage::kZero1, {2, 4, 12}, 64).total(), 6 * 64 + 12);
}

TEST(ModelState, MoreRanksNeverNeedMore) {
  for (const Stage stage : kStages)
    for (const Accounting& accounting : {kMixed, kFloat32, Accounting{2, 4, 12}}) {
      double before = state_bytes(k75B, stage, accounting, 1).total();
      for (std::uint64_t ranks = 2; ranks <= 300; ++ranks) {
        const double now = state_bytes(k75B, stage, accounting, ranks).total();
        EXPECT_LE(now, before) << name_of(stage) << " " << ranks;
        before = now;
      }
    }
}

TEST(ModelState, LeastRanksAndLargestModelAreTheEdges) {
  EXPECT_EQ(least_ranks(k175B, Stage::kZero3, kMixed, k80GB), 35U);
  EXPECT_EQ(least_ranks(k175B, Stage::kZero1, kMixed, k80GB), std::nullopt);
  EXPECT_EQ(least_ranks(20'000'000'000, Stage::kZero1, kMixed, k80GB), std::nullopt);
  EXPECT_EQ(largest_model(Stage::kDdp, kMixed, 1, k80GB), 5'000'000'000U);
  EXPECT_EQ(largest_model(Stage::kZero3, kMixed, 64, k80GB), 320'000'000'000U);
  for (const Stage stage : kStages)
    for (const std::uint64_t parameters :
         {std::uint64_t{1'000'000'007}, std::uint64_t{3'333'333'333},
          std::uint64_t{4'999'999'999}}) {
      const std::optional<std::uint64_t> least = least_ranks(parameters, stage, kMixed, k80GB);
      ASSERT_TRUE(least);
      EXPECT_LE(state(parameters, stage, *least), double{k80GB});
      if (*least > 1) {
        EXPECT_GT(state(parameters, stage, *least - 1), double{k80GB});
      }
      const std::uint64_t largest = largest_model(stage, kMixed, 7, k80GB);
      EXPECT_LE(state(largest, stage, 7), double{k80GB});
      EXPECT_GT(state(largest + 1, stage, 7), double{k80GB});
    }
}

TEST(ModelState, LargestModelIsBounded) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  EXPECT_EQ(largest_model(Stage::kZero3, {1, 0, 0}, 1 << 21, kMost), kMost);
  EXPECT_EQ(largest_model(Stage::kDdp, {1, 0, 0}, 1 << 21, kMost), kMost);
  EXPECT_EQ(largest_model(Stage::kDdp, kMixed, 4, 15), 0U);
}

TEST(ModelState, PaddedUnitsAreExact) {
  EXPECT_EQ(padded_elements(1, 4), 128U);
  EXPECT_EQ(padded_elements(128, 4), 128U);
  EXPECT_EQ(padded_elements(129, 4, 1), 132U);
  EXPECT_EQ(padded_elements(0, 4), 0U);
  // Units of 100 and 300 elements for 3 shards of whole lines: 192 and 384.
  const std::vector<std::uint64_t> units = padded_units(std::vector<std::uint64_t>{100, 300}, 3);
  EXPECT_EQ(units, (std::vector<std::uint64_t>{192, 384}));
  const auto total = [&](Stage stage) {
    return exact_state_bytes(units, stage, kMixed, 3).total();
  };
  EXPECT_EQ(total(Stage::kDdp), 16U * 576);
  EXPECT_EQ(total(Stage::kZero1), 4U * 576 + 12 * 192);
  EXPECT_EQ(total(Stage::kZero2), 2U * 576 + 14 * 192);
  EXPECT_EQ(total(Stage::kZero3), 16U * 192);
  const TransientBytes three = transient_bytes(units, Stage::kZero3, kMixed, {});
  EXPECT_EQ(three.gathered, 2U * 384 * 2);
  EXPECT_EQ(three.reducing, 2U * 384 * 2);
  EXPECT_EQ(transient_bytes(units, Stage::kZero2, kMixed, {}).gathered, 0U);
  EXPECT_EQ(transient_bytes(units, Stage::kZero1, kMixed, {}).total(), 0U);
}

// Padding is less than a line for each shard and unit, and a shard never grows with their number.
TEST(ModelState, PaddingIsBounded) {
  const std::vector<std::uint64_t> units = units_of(*find_model("nano"), 0);
  const std::uint64_t elements = find_model("nano")->parameters;
  std::uint64_t before = ~std::uint64_t{0};
  for (std::uint64_t shards = 1; shards <= 70; ++shards) {
    const std::vector<std::uint64_t> padded = padded_units(units, shards);
    const std::uint64_t whole =
        exact_state_bytes(padded, Stage::kDdp, Accounting{1, 0, 0}, shards).total();
    EXPECT_GE(whole, elements);
    EXPECT_LT(whole, elements + units.size() * shards * kShardMultipleElements);
    const std::uint64_t now = exact_state_bytes(padded, Stage::kZero3, kMixed, shards).total();
    EXPECT_LE(now, before) << shards;
    before = now;
  }
}

TEST(Volume, IsThePapersAndGrowsWithMicrosteps) {
  // 64 parameters of 2 bytes on 4 ranks: (N - 1) / N of 128 bytes are 96.
  const auto total = [](Stage stage, std::uint64_t microsteps, bool keep = false) {
    return volume_bytes(64, kMixed, {stage, 4, 0, microsteps, keep}).total();
  };
  for (const std::uint64_t G : {1U, 2U, 4U}) {
    const auto g = static_cast<double>(G);
    EXPECT_DOUBLE_EQ(total(Stage::kDdp, G), 2 * 96);
    EXPECT_DOUBLE_EQ(total(Stage::kZero1, G), 2 * 96);
    EXPECT_DOUBLE_EQ(total(Stage::kZero2, G), (g + 1) * 96);
    EXPECT_DOUBLE_EQ(total(Stage::kZero3, G), 3 * g * 96);
    EXPECT_DOUBLE_EQ(total(Stage::kZero3, G, true), 2 * g * 96);
  }
  for (const Stage stage : kStages)
    EXPECT_DOUBLE_EQ(volume_bytes(64, kMixed, {stage, 1}).total(), 0) << name_of(stage);
}

// 4 ranks, 2 in a host: inside it 3 x 128 / 2, between hosts an all-reduce of half the gradients.
TEST(Volume, HybridCrossesHostsWithGradientsOnly) {
  const VolumeBytes bytes = volume_bytes(64, kMixed, {Stage::kZero3, 4, 2, 1});
  EXPECT_DOUBLE_EQ(bytes.gradients + bytes.gathered, 3 * 64);
  EXPECT_DOUBLE_EQ(bytes.replicas, 2 * 64 * 0.5);
}

TEST(ActivationsTest, AreThoseOfAGpt3Layer) {
  const GptShape shape = shape_of("gpt3");
  const LayerParts parts = layer_parts(shape, 1);
  EXPECT_NEAR(parts.total() - parts.scores, 0.856 * kGB, 0.0005 * kGB);
  EXPECT_NEAR(parts.scores, 2.013 * kGB, 0.0005 * kGB);
  const double sbh = 2048.0 * 12288;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(shape, 1, Recomputation::kNone),
                   sbh * (34 + 5.0 * 96 * 2048 / 12288));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(shape, 1, Recomputation::kSelective), 34 * sbh);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(shape, 3, Recomputation::kFull), 3 * 2 * sbh);
  EXPECT_DOUBLE_EQ(activation_bytes(shape, 1, Recomputation::kFull).stored, 96 * 2 * sbh);
  EXPECT_DOUBLE_EQ(parts.attention, 11 * sbh);
  EXPECT_DOUBLE_EQ(parts.perceptron, 19 * sbh);
}

TEST(ActivationsTest, CountWhatIsAliveBesideTheStored) {
  const GptShape shape = shape_of("gpt3");
  const LayerParts parts = layer_parts(shape, 2);
  const double sbh = 2 * 2048.0 * 12288;
  const auto of = [&](Recomputation each) { return activation_bytes(shape, 2, each); };
  EXPECT_DOUBLE_EQ(of(Recomputation::kNone).working, 0);
  EXPECT_DOUBLE_EQ(of(Recomputation::kSelective).working, parts.scores);
  EXPECT_DOUBLE_EQ(of(Recomputation::kFull).working, parts.total() - 2 * sbh);
  EXPECT_DOUBLE_EQ(of(Recomputation::kFull).output, 4 * sbh * (1 + 50257.0 / 12288));
}

TEST(ActivationsTest, TensorParallelSplitsWhatTheTablesSay) {
  const GptShape shape = shape_of("gpt3");
  const double sbh = 2048.0 * 12288, scores = 5.0 * 96 * 2048 / 12288;
  const auto none = [&](const TensorParallel& tensor) {
    return layer_activation_bytes(shape, 1, Recomputation::kNone, tensor);
  };
  EXPECT_DOUBLE_EQ(none({8, false}), sbh * (10 + 24.0 / 8 + scores / 8));
  EXPECT_DOUBLE_EQ(none({8, true}), sbh * (34 + scores) / 8);
  EXPECT_DOUBLE_EQ(tensor_parallel_bytes(shape, 1, 8), 8.0 * 7 / 8 * sbh * 2);
  EXPECT_DOUBLE_EQ(tensor_parallel_bytes(shape, 1, 1), 0);
}

TEST(TrainingTime, IsArithmetic) {
  EXPECT_DOUBLE_EQ(training_flops(175e9, 300e9), 3.15e23);
  EXPECT_DOUBLE_EQ(attention_flops({2, 3, 1, 5, 7}, 11), 12.0 * 2 * 3 * 5 * 11);
  EXPECT_DOUBLE_EQ(training_seconds(6e25, 1, 1e15, 0.5), 1.2e11);
  EXPECT_DOUBLE_EQ(utilization(6e25, 1.2e11, 1, 1e15), 0.5);
  EXPECT_EQ(ranks_for(100, 2, 10, 0.5), 10U);
  EXPECT_EQ(ranks_for(101, 2, 10, 0.5), 11U);
  const GptShape shape{2, 3, 1, 5, 7};
  EXPECT_DOUBLE_EQ(recomputation_flops(100, shape, 1, Recomputation::kSelective), 4 * 2 * 3 * 5);
  EXPECT_DOUBLE_EQ(recomputation_flops(100, shape, 1, Recomputation::kFull), 200 + 4 * 2 * 3 * 5);
}

TEST(TrainingTime, BubblesAndRounds) {
  EXPECT_DOUBLE_EQ(pipeline_bubble(4, 8).of_ideal, 3.0 / 8);
  EXPECT_DOUBLE_EQ(pipeline_bubble(4, 8).of_total, 3.0 / 11);
  EXPECT_DOUBLE_EQ(pipeline_bubble(4, 8, 2).of_ideal, 3.0 / 16);
  EXPECT_DOUBLE_EQ(pipeline_bubble(1, 8).of_total, 0);
  EXPECT_EQ(microbatches_in_flight(PipelineSchedule::kGpipe, 4, 8, 0), 8U);
  EXPECT_EQ(microbatches_in_flight(PipelineSchedule::kOneForwardOneBackward, 4, 8, 0), 4U);
  EXPECT_EQ(microbatches_in_flight(PipelineSchedule::kOneForwardOneBackward, 4, 2, 1), 2U);
  EXPECT_EQ(ring_rounds(4), 6U);
  EXPECT_EQ(rabenseifner_rounds(64), 12U);
  EXPECT_EQ(rabenseifner_rounds(65), 14U);
}

// Every line: ours is the right one, and where the article's is another the reason stands beside.
TEST(ArticleFigures, OursAreRight) {
  const std::vector<Figure> figures = article_figures();
  EXPECT_EQ(figures.size(), 71U);
  for (const Figure& figure : figures) {
    EXPECT_TRUE(close(figure.ours, figure.right, kRightRounding))
        << figure.what << ": " << figure.ours << ", right " << figure.right;
    EXPECT_TRUE(agrees(figure) || !figure.why.empty()) << figure.what;
  }
}

// The articles' errors that have a number, by the lines that they are on.
TEST(ArticleFigures, DisagreeWhereArticlesErr) {
  std::vector<std::string> wrong;
  for (const Figure& figure : article_figures())
    if (figure.said && !agrees(figure))
      wrong.push_back(std::string(letter_of(figure.article)) + " " + figure.what);
  EXPECT_THAT(
      wrong,
      ::testing::UnorderedElementsAre(
          "A 1T: with unit buffers, on 1024", "A ZeRO-1: saves, N = 64", "A ZeRO-2: saves, N = 64",
          "A ZeRO-2: volume / DDP's, G = 4", "A ZeRO-3: compute / DDP's", "A the same on one H100",
          "A GPT-3 layer, b = 1: activations", "B 7B: optimizer", "B 7B: state", "B 100B: state",
          "B 175B: state", "B K: fp32 momentum", "B largest model on 80 GB, DDP",
          "B ZeRO-2: volume / DDP's, G = 4", "B ZeRO-Offload: GPU state saved",
          "B GPT-3 layer, b = 1: scores", "B bubble, P = 4, M = 8: of the total",
          "B tensor parallel: all-reduces a block", "B 175B, t = 8, p = 4: parameters",
          "B 175B, p = 4: layers a stage", "B NVLink 4: both directions",
          "B H100 all-to-all: a direction", "C largest model on 80 GB, DDP",
          "C largest model on 64 x 80 GB, ZeRO-3", "D 7.5B: ZeRO-1, N = 64",
          "D optimizer / 16-bit parameters", "D layer: perceptron / sbh",
          "D GPT-3, b = 1, full recomputation"));
}

}  // namespace
}  // namespace tutti::zero_memory
