// SPDX-License-Identifier: Apache-2.0
// The same bits, whatever the configuration: parameters, moments, norms and losses after each step
// are compared with those of one rank. The ladder's names are those of the equality that is shown:
// E0 same ranks, E1 other ranks and microsteps, E4 the fast order and bf16: the same bits where
// sums are exact, near losses where they are not.
#include "model.hpp"
#include "tests/sanitizers.hpp"

namespace tutti::zero::test {
namespace {

constexpr std::array<Stage, 4> kStages{Stage::kDdp, Stage::kZero1, Stage::kZero2, Stage::kZero3};

Training clipped(int ranks, Config config) {
  config.clip_norm = 0.05F;
  config.poison = true;
  return {.ranks = ranks, .config = std::move(config)};
}

// One rank, eight slots: what all others are compared with.
const Outcome& reference() {
  static const Outcome outcome = train(clipped(1, {.stage = Stage::kDdp}));
  return outcome;
}

TEST(ZeroEquality, TheReferenceLearnsAndClips) {
  const Outcome& outcome = reference();
  ASSERT_EQ(outcome.norms.size(), 3U);
  EXPECT_NE(outcome.fingerprints[0], outcome.fingerprints[1]);
  for (const std::uint32_t norm : outcome.norms) EXPECT_GT(std::bit_cast<float>(norm), 0.05F);
  Training long_run = clipped(1, {.stage = Stage::kDdp});
  long_run.steps = 60;
  const Outcome longer = train(long_run);
  const auto loss_of = [&](std::size_t step) {
    float sum = 0;
    for (std::size_t slot = 0; slot < 8; ++slot)
      sum += std::bit_cast<float>(longer.losses[step * 8 + slot]);
    return sum;
  };
  EXPECT_LT(loss_of(59), loss_of(0));
}

TEST(ZeroEqualityE0, Stages) {
  for (const Stage stage : kStages)
    EXPECT_EQ(train(clipped(4, {.stage = stage})), reference()) << static_cast<int>(stage);
}

TEST(ZeroEqualityE0, PrefetchAndOverlap) {
  for (const int prefetch : {0, 1, 3})
    for (const bool overlap : {false, true})
      EXPECT_EQ(train(clipped(4, {.prefetch = prefetch, .overlap = overlap, .units_in_use = 1})),
                reference())
          << prefetch << (overlap ? " overlap" : "");
  for (const Stage stage : {Stage::kDdp, Stage::kZero1, Stage::kZero2})
    EXPECT_EQ(train(clipped(4, {.stage = stage, .overlap = false})), reference());
}

TEST(ZeroEqualityE0, KeptAfterForward) {
  for (const int microsteps : {1, 2})
    for (const int prefetch : {0, 2})
      EXPECT_EQ(
          train(clipped(
              4, {.microsteps = microsteps, .prefetch = prefetch, .keep_after_forward = true})),
          reference());
}

TEST(ZeroEqualityE0, GroupingIntoUnits) {
  for (const std::vector<int>& grouping :
       {std::vector<int>{5}, std::vector<int>{2, 3}, std::vector<int>{1, 3, 1}})
    for (const Stage stage : kStages) {
      Training setup = clipped(4, {.stage = stage});
      setup.layers_of_unit = grouping;
      EXPECT_EQ(train(setup), reference()) << grouping.size() << " units";
    }
}

TEST(ZeroEqualityE0, HybridSharding) {
  for (const int shard_ranks : {1, 2})
    for (const Stage stage : kStages)
      EXPECT_EQ(train(clipped(4, {.stage = stage, .shard_ranks = shard_ranks})), reference())
          << shard_ranks << " ranks share a replica";
  EXPECT_EQ(train(clipped(8, {.shard_ranks = 2})), reference());
  EXPECT_EQ(train(clipped(8, {.microsteps = 1, .shard_ranks = 4})), reference());
}

TEST(ZeroEqualityE1, Ranks) {
  for (const int ranks : {1, 2, 8})
    for (const Stage stage : kStages)
      EXPECT_EQ(train(clipped(ranks, {.stage = stage})), reference()) << ranks << " ranks";
}

TEST(ZeroEqualityE1, TwelveSlots) {
  const Outcome twelve = train(clipped(1, {.stage = Stage::kDdp, .slots = 12}));
  for (const int ranks : {3, 6})
    for (const Stage stage : {Stage::kDdp, Stage::kZero2, Stage::kZero3})
      EXPECT_EQ(train(clipped(ranks, {.stage = stage, .slots = 12})), twelve) << ranks << " ranks";
  EXPECT_EQ(train(clipped(6, {.slots = 12, .shard_ranks = 2})), twelve);
  EXPECT_NE(twelve, reference());
}

TEST(ZeroEqualityE1, Microsteps) {
  for (const int microsteps : {2, 4})
    for (const Stage stage : kStages)
      for (const auto sync :
           {Config::Sync::kByStage, Config::Sync::kEachMicrostep, Config::Sync::kOnce})
        EXPECT_EQ(train(clipped(2, {.stage = stage, .microsteps = microsteps, .sync = sync})),
                  reference())
            << microsteps << " microsteps, stage " << static_cast<int>(stage);
  EXPECT_EQ(train(clipped(1, {.microsteps = 8})), reference());
  EXPECT_EQ(train(clipped(1, {.microsteps = 2, .sync = Config::Sync::kOnce})), reference());
  EXPECT_EQ(train(clipped(4, {.microsteps = 2, .shard_ranks = 2})), reference());
}

TEST(ZeroEqualityE1, SgdWithMomentum) {
  const auto with_sgd = [](Training setup) {
    setup.update = [](Engine& engine) {
      return engine.step(Sgd{.learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F});
    };
    return train(setup);
  };
  const Outcome one = with_sgd(clipped(1, {.stage = Stage::kDdp}));
  EXPECT_NE(one, reference());
  for (const Stage stage : kStages) EXPECT_EQ(with_sgd(clipped(4, {.stage = stage})), one);
}

// Without a tree the order shows: the test can tell orders apart.
TEST(ZeroEqualityE4, TheFastOrderIsAnother) {
  int different = 0;
  for (const int ranks : {3, 4, 6})
    for (const Stage stage : {Stage::kZero1, Stage::kZero3}) {
      const int slots = ranks == 4 ? 8 : 12;
      const Outcome fast =
          train(clipped(ranks, {.stage = stage, .order = Order::kFast, .slots = slots}));
      different += fast != train(clipped(1, {.slots = slots})) ? 1 : 0;
    }
  EXPECT_GT(different, 0);
}

// Rounding that differs is not amplified: after 40 steps (8 with a sanitizer) the losses of all
// slots are those of the canonical order in fp32, up to a relative `bound` of eight times what is
// seen at most.
TEST(ZeroEqualityE4, LossesStayNearThoseOfTheCanonicalOrder) {
  constexpr int kSteps = tutti::test::kSanitized ? 8 : 40;
  const auto losses = [&](int ranks, Config config) {
    config.slots = 12;
    Training setup{.ranks = ranks, .config = std::move(config), .steps = kSteps};
    return train(setup).losses;
  };
  const std::vector<std::uint32_t> exact = losses(1, {.stage = Stage::kDdp});
  const auto distance = [&](const std::vector<std::uint32_t>& other) {
    double greatest = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      double sum = 0, exact_sum = 0;
      for (std::size_t slot = 0; slot < 12; ++slot) {
        sum += std::bit_cast<float>(other[step * 12 + slot]);
        exact_sum += std::bit_cast<float>(exact[step * 12 + slot]);
      }
      greatest = std::max(greatest, std::abs(sum / exact_sum - 1));
    }
    EXPECT_GT(greatest, 0);
    return greatest;
  };
  struct Case {
    Config config;
    double bound;
  };
  const Number bf16 = Number::kBfloat16;
  for (const int ranks : tutti::test::kSanitized ? std::vector{3} : std::vector{3, 6})
    for (const Stage stage : kStages)
      for (const Case& each :
           {Case{{.stage = stage, .order = Order::kFast}, 4e-7},
            Case{{.stage = stage, .order = Order::kFast, .reduce = bf16}, 6e-4},
            Case{{.stage = stage, .reduce = bf16}, 4e-4},
            Case{{.stage = stage, .order = Order::kFast, .compute = bf16, .reduce = bf16}, 2e-3}})
        EXPECT_LE(distance(losses(ranks, each.config)), each.bound)
            << ranks << " ranks, stage " << static_cast<int>(stage);
}

TEST(ZeroEqualityE4, ExactSumsHaveNoOrder) {
  const auto exact = [](Training setup) {
    setup.integers = true;
    return train(setup);
  };
  const Outcome one = exact(clipped(1, {.stage = Stage::kDdp}));
  for (const Stage stage : kStages)
    for (const int shard_ranks : {0, 2})
      for (const int microsteps : {1, 2}) {
        const Config config{.stage = stage,
                            .order = Order::kFast,
                            .microsteps = microsteps,
                            .shard_ranks = shard_ranks};
        EXPECT_EQ(exact(clipped(4, config)), one) << "stage " << static_cast<int>(stage);
      }
  const Config each{.stage = Stage::kDdp,
                    .order = Order::kFast,
                    .microsteps = 2,
                    .sync = Config::Sync::kEachMicrostep};
  EXPECT_EQ(exact(clipped(4, each)), one);
}

}  // namespace
}  // namespace tutti::zero::test
