// SPDX-License-Identifier: Apache-2.0
// 16-bit numbers: the same bits for each stage, the compute copy is always the rounded master, and
// loss scaling leaves out a step that overflows.
#include <gmock/gmock.h>

#include <limits>

#include "model.hpp"
#include "zero/blocks.hpp"

namespace tutti::zero::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::array<Stage, 4> kStages{Stage::kDdp, Stage::kZero1, Stage::kZero2, Stage::kZero3};

// Every parameter that a scope shows is the fp32 one, rounded.
void expect_rounded_copies(Engine& engine, const std::vector<Unit>& units, Number number) {
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
    const auto& parameters = units[static_cast<std::size_t>(unit)].parameters;
    const auto scope = engine.use(unit, Pass::kForward);
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      const std::uint64_t count = parameters[static_cast<std::size_t>(i)].elements();
      std::vector<float> values(count);
      engine.read(unit, i, values);
      std::vector<std::uint16_t> rounded(count);
      narrow(rounded.data(), number, values.data(), count);
      if (count == 0) continue;
      EXPECT_EQ(std::memcmp(scope[i], rounded.data(), 2 * count), 0);
    }
  }
}

TEST(ZeroNarrow, StagesHaveTheSameBits) {
  for (const Number number : {Number::kBfloat16, Number::kFloat16})
    for (const Number reduce : {Number::kFloat32, number}) {
      Training setup{.ranks = 4, .config = {.compute = number, .reduce = reduce, .poison = true}};
      setup.watch = [&](Engine& engine, int, int) {
        expect_rounded_copies(engine, units_of(setup.layers_of_unit), number);
      };
      setup.config.stage = Stage::kDdp;
      const Outcome first = train(setup);
      for (const Stage stage : kStages) {
        setup.config.stage = stage;
        setup.config.overlap = stage != Stage::kZero2;
        EXPECT_EQ(train(setup), first) << "stage " << static_cast<int>(stage);
      }
    }
}

TEST(ZeroNarrow, SumsOfFp32DoNotDependOnRanks) {
  const auto with = [](int ranks) {
    return train({.ranks = ranks, .config = {.compute = Number::kBfloat16}});
  };
  const Outcome one = with(1);
  EXPECT_EQ(with(2), one);
  EXPECT_EQ(with(8), one);
}

TEST(ZeroNarrow, FastAndGroupedReductionsAreNear) {
  Training setup{.ranks = 4, .config = {.reduce = Number::kBfloat16}, .steps = 1};
  const auto norm_with = [&](Order order, int shard_ranks, Stage stage) {
    setup.config.order = order;
    setup.config.shard_ranks = shard_ranks;
    setup.config.stage = stage;
    return std::bit_cast<float>(train(setup).norms[0]);
  };
  setup.config.reduce = Number::kFloat32;
  const float exact = norm_with(Order::kCanonical, 0, Stage::kDdp);
  setup.config.reduce = Number::kBfloat16;
  for (const Order order : {Order::kCanonical, Order::kFast})
    for (const int shard_ranks : {0, 1, 2})
      for (const Stage stage : {Stage::kDdp, Stage::kZero3}) {
        const float norm = norm_with(order, shard_ranks, stage);
        EXPECT_NEAR(norm / exact, 1, 0.02);
      }
}

// A loss scale that makes the gradients overflow in fp16 is halved until they do not; then the
// steps are those of a run that began with what is left.
TEST(ZeroNarrow, LossScalingLeavesOutWhatOverflows) {
  Training setup{.ranks = 4,
                 .config = {.compute = Number::kFloat16,
                            .reduce = Number::kFloat16,
                            .loss_scaling = {.initial = 0x1p24F, .growth_steps = 1000}},
                 .steps = 16};
  // The same data in each step, so that leaving one out changes nothing.
  std::vector<float> scales;
  std::vector<std::uint64_t> skipped;
  setup.watch = [&](Engine& engine, int rank, int) {
    if (rank != 0) return;
    scales.push_back(engine.loss_scale());
    skipped.push_back(engine.usage().skipped_steps);
  };
  const Outcome outcome = train(setup);
  EXPECT_EQ(scales.front(), 0x1p24F);
  EXPECT_LT(scales.back(), 0x1p24F);
  EXPECT_EQ(scales.back(), std::ldexp(0x1p24F, -static_cast<int>(skipped.back())));
  ASSERT_LT(skipped.back(), 15U);
  for (std::size_t step = 0; step < outcome.norms.size(); ++step) {
    const bool left_out = skipped[step + 1] > skipped[step];
    EXPECT_EQ(left_out, !std::isfinite(std::bit_cast<float>(outcome.norms[step])));
    if (left_out && step > 0) {
      EXPECT_EQ(outcome.fingerprints[step], outcome.fingerprints[step - 1]);
    }
  }
  // A step of a scaled run is that of one that is scaled otherwise: powers of two change no bits
  // while nothing is lost at either end of fp32.
  Training wide{.ranks = 2, .config = {.loss_scaling = {.initial = 1}}};
  const Outcome plain = train(wide);
  wide.config.loss_scaling.initial = 1024;
  EXPECT_EQ(train(wide), plain);
  wide.config.loss_scaling = {.initial = 2, .growth_steps = 1};
  EXPECT_EQ(train(wide), plain);
}

// A step that is left out does not count: the next one has the bits of the first of another run.
TEST(ZeroNarrow, AStepThatIsLeftOutLeavesNoTrace) {
  const std::vector<Unit> units{{"u", {{"w", {3}}}}};
  run_ranks(2, [&](int rank, Communicator& comm) {
    const Config config{.slots = 2, .loss_scaling = {.initial = 4}};
    const auto train_once = [&](bool overflows) {
      Engine engine(comm, units, config);
      fill_first(engine);
      if (overflows) {
        { engine.gradients(0)[0][1] = rank == 1 ? std::numeric_limits<float>::infinity() : 0; }
        EXPECT_FALSE(std::isfinite(engine.step(AdamW{})));
        EXPECT_EQ(engine.loss_scale(), 2);
      }
      for (int step = 0; step < 2; ++step) {
        { engine.gradients(0)[0][1] = 0.3F * engine.loss_scale(); }
        engine.step(AdamW{});
      }
      return engine.fingerprint();
    };
    EXPECT_EQ(train_once(true), train_once(false));
  });
}

TEST(ZeroNarrow, WithoutScalingWhatIsNotFiniteIsAnError) {
  const std::vector<Unit> units{{"u", {{"w", {3}}}}};
  run_ranks(2, [&](int rank, Communicator& comm) {
    Engine engine(comm, units, {.slots = 2});
    fill_first(engine);
    { engine.gradients(0)[0][1] = rank == 1 ? std::numeric_limits<float>::infinity() : 0; }
    EXPECT_THAT([&] { engine.step(AdamW{}); },
                ThrowsMessage<std::runtime_error>(HasSubstr("gradients of step 1 are not finite")));
    EXPECT_THROW(static_cast<void>(engine.use(0, Pass::kForward)), std::runtime_error);
  });
}

}  // namespace
}  // namespace tutti::zero::test
