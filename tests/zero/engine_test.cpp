// SPDX-License-Identifier: Apache-2.0
// Scopes, and the errors of wrong use: they name what is wrong and change nothing.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "model.hpp"

namespace tutti::zero::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<Unit> kUnits{
    {"a", {{"a.w", {40}}}}, {"b", {{"b.w", {3, 50}}, {"b.b", {3}}}}, {"c", {{"c.w", {1}}}}};

void expect_refused(const std::function<void()>& call, const char* text) {
  EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
}

void hand_in_all(Engine& engine) {
  for (int micro = 0; micro < engine.microsteps(); ++micro)
    for (int unit = 0; unit < engine.layout().units(); ++unit)
      for (std::uint64_t slot = 0; slot < engine.slots(micro).elements(); ++slot)
        engine.gradients(unit)[0][0] = 1;
}

TEST(ZeroEngine, ConfigurationsThatDoNotFitAreRefused) {
  run_ranks(3, [](int, Communicator& comm) {
    expect_refused([&] { Engine(comm, kUnits, {.slots = 8}); }, "8 slots cannot be dealt out");
    expect_refused([&] { Engine(comm, kUnits, {.slots = 3, .memory_limit_bytes = 100}); },
                   "Config::memory_limit_bytes is 100");
    const Memory memory = memory_of(kUnits, {.slots = 3}, 3);
    Engine fits(comm, kUnits, {.slots = 3, .memory_limit_bytes = memory.total()});
    EXPECT_EQ(fits.memory().total(), memory.total());
    const std::vector<Unit> twice{{"a", {{"w", {1}}, {"w", {1}}}}};
    expect_refused([&] { Engine(comm, twice, {.slots = 3}); }, "two parameters have the name 'w'");
  });
}

// All ranks get the same text, and nobody waits for calls that are not made.
TEST(ZeroEngine, OtherSettingsOnOneRankAreRefusedOnAll) {
  const auto refused = [](const Config& first, const Config& last, const char* text) {
    run_ranks(3, [&](int rank, Communicator& comm) {
      expect_refused([&] { Engine(comm, kUnits, rank == 2 ? last : first); }, text);
    });
  };
  refused({.slots = 12}, {.slots = 24}, "Config::slots is 24 on rank 2 and 12 on rank 0");
  refused({.order = Order::kFast, .slots = 12},
          {.order = Order::kFast, .slots = 12, .microsteps = 2},
          "Config::microsteps is 2 on rank 2");
  refused({.slots = 12}, {.stage = Stage::kDdp, .slots = 12}, "Config::stage is 0 on rank 2");
  refused({.slots = 12}, {.slots = 12, .prefetch = 3}, "Config::prefetch is 3 on rank 2");
  refused({.slots = 12}, {.slots = 12, .clip_norm = 1}, "rank 2 has other Config::clip_norm");
  run_ranks(2, [](int rank, Communicator& comm) {
    std::vector<Unit> units = kUnits;
    if (rank == 1) units[1].parameters[0].shape = {150};
    expect_refused([&] { Engine(comm, units, {.slots = 4}); }, "rank 1 has other units");
    Engine allowed(comm, kUnits, {.slots = 4, .poison = rank == 1});
  });
}

TEST(ZeroEngine, AnotherOptimizerOnOneRankEndsTheStepOnAll) {
  for (const Stage stage : {Stage::kDdp, Stage::kZero3})
    run_ranks(3, [&](int rank, Communicator& comm) {
      Engine engine(comm, kUnits, {.stage = stage, .slots = 3});
      fill_first(engine);
      hand_in_all(engine);
      EXPECT_THAT([&] { engine.step(AdamW{.learning_rate = rank == 1 ? 0.1F : 0.2F}); },
                  ThrowsMessage<std::runtime_error>(
                      HasSubstr("step() of rank 1 has another optimizer, or other coefficients, "
                                "than that of rank 0")));
    });
}

TEST(ZeroEngine, WrongUseIsRefusedAndChangesNothing) {
  for (const Stage stage : {Stage::kDdp, Stage::kZero2, Stage::kZero3})
    run_ranks(2, [&](int, Communicator& comm) {
      Engine engine(comm, kUnits, {.stage = stage, .slots = 4});
      fill_first(engine);
      const std::uint64_t before = engine.fingerprint();
      expect_refused([&] { static_cast<void>(engine.use(3, Pass::kForward)); },
                     "there is no unit 3");
      expect_refused([&] { static_cast<void>(engine.gradients(-1)); }, "there is no unit -1");
      expect_refused([&] { static_cast<void>(engine.slots(1)); }, "there is no microstep 1");
      expect_refused([&] { engine.step(AdamW{}); },
                     "step() before unit 'a' has the gradients of all 2 slots; it has 0");
      std::vector<float> few(3);
      expect_refused([&] { engine.read(1, 0, few); }, "read() into 3 values");
      expect_refused([&] { engine.read(1, 2, few); }, "unit 'b' has no parameter 2");
      {
        const auto scope = engine.use(1, Pass::kForward);
        expect_refused([&] { static_cast<void>(scope[2]); }, "unit 'b' has no parameter 2");
        expect_refused([&] { engine.step(AdamW{}); }, "step() while unit 'b' is in use");
        expect_refused([&] { engine.save("never"); }, "save() while unit 'b' is in use");
      }
      {
        const auto first = engine.gradients(0);
        expect_refused([&] { static_cast<void>(engine.gradients(0)); }, "are open");
      }
      expect_refused([&] { engine.save("never"); }, "save() before the step");
      expect_refused([&] { fill_first(engine); }, "initialize() before the step");
      { static_cast<void>(engine.gradients(0)); }
      expect_refused([&] { static_cast<void>(engine.gradients(0)); },
                     "has had the gradients of all 2 slots");
      expect_refused([&] { engine.step(AdamW{.beta1 = 2}); }, "beta1");
      EXPECT_EQ(engine.fingerprint(), before);
      for (int unit = 1; unit < 3; ++unit)
        for (int slot = 0; slot < 2; ++slot) engine.gradients(unit)[0][0] = 1;
      EXPECT_GT(engine.step(AdamW{}), 0);
      EXPECT_NE(engine.fingerprint(), before);
    });
}

TEST(ZeroEngine, UnitsInUseAreBounded) {
  run_ranks(2, [](int, Communicator& comm) {
    Engine engine(comm, kUnits, {.slots = 2, .prefetch = 1, .units_in_use = 1});
    fill_first(engine);
    const auto first = engine.use(0, Pass::kForward);
    expect_refused([&] { static_cast<void>(engine.use(1, Pass::kForward)); },
                   "unit 'b' is used while 'a' are in use; Config::units_in_use allows 1");
    const auto same = engine.use(0, Pass::kForward);
    EXPECT_EQ(first[0], same[0]);
  });
  run_ranks(2, [](int, Communicator& comm) {
    Engine engine(comm, kUnits, {.slots = 4, .overlap = false, .units_in_use = 1});
    fill_first(engine);
    { static_cast<void>(engine.gradients(0)); }  // of the first of two slots
    expect_refused([&] { static_cast<void>(engine.gradients(1)); },
                   "Config::units_in_use allows 1");
    { static_cast<void>(engine.gradients(0)); }
    { static_cast<void>(engine.gradients(1)); }
  });
}

TEST(ZeroEngine, NestedScopesShareOneGather) {
  run_ranks(4, [](int, Communicator& comm) {
    Engine engine(comm, kUnits, {.slots = 4, .prefetch = 0});
    fill_first(engine);
    {
      auto outer = engine.use(1, Pass::kForward);
      const void* const at = outer[1];
      {
        const auto inner = engine.use(1, Pass::kForward);
        EXPECT_EQ(inner[1], at);
        const auto other = engine.use(0, Pass::kForward);
        EXPECT_NE(other[0], at);
      }
      const Engine::Parameters moved = std::move(outer);
      EXPECT_EQ(moved.as<float>(1), at);
      EXPECT_EQ(*moved.as<float>(1), first_value("b.b", 0));
    }
    EXPECT_EQ(engine.usage().gathers, 2U);
    { static_cast<void>(engine.use(1, Pass::kBackward)); }
    EXPECT_EQ(engine.usage().gathers, 3U);
  });
}

// What a scope showed is NaN afterwards, in the pool of parameters and in that of gradients.
TEST(ZeroEngine, FreedBuffersArePoisoned) {
  run_ranks(2, [](int, Communicator& comm) {
    Engine engine(comm, kUnits, {.slots = 2, .overlap = false, .poison = true});
    fill_first(engine);
    const float* parameters = nullptr;
    {
      const auto scope = engine.use(1, Pass::kForward);
      parameters = scope.as<float>(0);
      EXPECT_EQ(parameters[7], first_value("b.w", 7));
    }
    EXPECT_TRUE(std::isnan(parameters[7]));
    float* gradients = nullptr;
    {
      const auto scope = engine.gradients(1);
      gradients = scope[0];
      for (int i = 0; i < 150; ++i) EXPECT_EQ(gradients[i], 0) << "given out as zero";
    }
    EXPECT_TRUE(std::isnan(gradients[7]));
  });
}

// The first element of a unit, after steps that each subtract 0.5 (of two slots that hand in 1).
float first_element(int unit, int steps) {
  const char* const names[]{"a.w", "b.w", "c.w"};
  float value = first_value(names[unit], 0);
  for (int step = 0; step < steps; ++step) value -= 0.5F;
  return value;
}
constexpr Sgd kHalf{.learning_rate = 0.25F};

// Other uses than in the step before: gathers go on demand, and the new order is learnt.
TEST(ZeroEngine, AnotherOrderOfUseIsLearntAnew) {
  run_ranks(2, [](int, Communicator& comm) {
    Engine engine(comm, kUnits, {.slots = 2, .prefetch = 2, .poison = true});
    fill_first(engine);
    int steps = 0;
    const auto pass = [&](const std::vector<int>& order) {
      for (const int unit : order) {
        const auto scope = engine.use(unit, Pass::kForward);
        EXPECT_EQ(*scope.as<float>(0), first_element(unit, steps)) << unit;
      }
      hand_in_all(engine);
      engine.step(kHalf);
      ++steps;
      const Usage usage = engine.usage();
      engine.reset_usage();
      return usage;
    };
    EXPECT_EQ(pass({0, 1, 2}).prefetch_hits, 0U);
    EXPECT_EQ(pass({0, 1, 2}).prefetch_hits, 3U);
    EXPECT_EQ(pass({0, 2, 1, 1}).prefetch_hits, 1U);
    EXPECT_EQ(pass({0, 2, 1, 1}).prefetch_hits, 4U);
    EXPECT_EQ(pass({2, 1}).prefetch_hits, 0U);
    EXPECT_EQ(pass({2, 1}).prefetch_hits, 2U);
    EXPECT_EQ(pass({2}).prefetch_hits, 1U);
    EXPECT_EQ(pass({2, 0}).prefetch_hits, 1U);
  });
}

// What is gathered ahead, or kept for a backward pass that does not come, is of old parameters.
TEST(ZeroEngine, NewParametersReplaceWhatIsGathered) {
  for (const bool keeps : {false, true})
    run_ranks(2, [&](int, Communicator& comm) {
      Engine engine(comm, kUnits, {.slots = 2, .prefetch = 2, .keep_after_forward = keeps});
      fill_first(engine);
      const auto use_all = [&](int steps) {
        for (int unit = 0; unit < 3; ++unit)
          EXPECT_EQ(*engine.use(unit, Pass::kForward).as<float>(0), first_element(unit, steps));
      };
      for (const int steps : {0, 1}) {
        use_all(steps);
        hand_in_all(engine);
        engine.step(kHalf);
      }
      use_all(2);
      fill_first(engine);
      use_all(0);
    });
}

// (3, 4) has the norm 5. With a limit of 2.5 half of it is subtracted, with 5 all of it.
TEST(ZeroEngine, GradientsAreClippedToTheirNorm) {
  const std::vector<Unit> units{{"u", {{"w", {80}}}}};
  for (const float limit : {2.5F, 5.0F})
    run_ranks(2, [&](int rank, Communicator& comm) {
      Engine engine(comm, units, {.slots = 2, .clip_norm = limit});
      engine.initialize([](const Parameter&, std::uint64_t, std::span<float> values) {
        std::ranges::fill(values, 0.0F);
      });
      // In the shards of different ranks, and handed in by different ranks.
      { engine.gradients(0)[0][rank == 0 ? 0 : 79] = rank == 0 ? 3 : 4; }
      EXPECT_EQ(engine.step(Sgd{.learning_rate = 1}), 5);
      std::vector<float> values(80);
      engine.read(0, 0, values);
      EXPECT_EQ(values[0], -3 * limit / 5);
      EXPECT_EQ(values[79], -4 * limit / 5);
    });
}

TEST(ZeroEngine, ReadGivesWholeParametersToAllRanks) {
  for (const Stage stage : {Stage::kDdp, Stage::kZero1, Stage::kZero3})
    for (const Number number : {Number::kFloat32, Number::kBfloat16})
      run_ranks(4, [&](int, Communicator& comm) {
        Engine engine(comm, kUnits, {.stage = stage, .compute = number, .slots = 4});
        fill_first(engine);
        for (int unit = 0; unit < 3; ++unit) {
          const auto& parameters = kUnits[static_cast<std::size_t>(unit)].parameters;
          for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
            const Parameter& parameter = parameters[static_cast<std::size_t>(i)];
            std::vector<float> values(parameter.elements());
            engine.read(unit, i, values);
            for (std::size_t at = 0; at < values.size(); ++at)
              EXPECT_EQ(values[at], first_value(parameter.name, at));
          }
        }
      });
}

// Weight decay alone moves those that decay, and no padding: the step's gradients are zero.
TEST(ZeroEngine, DecayIsForThoseThatDecay) {
  const std::vector<Unit> units{{"u", {{"decays", {5}}, {"stays", {7}, false}}}};
  run_ranks(2, [&](int, Communicator& comm) {
    Engine engine(comm, units, {.slots = 2});
    fill_first(engine);
    { static_cast<void>(engine.gradients(0)); }
    EXPECT_EQ(engine.step(AdamW{.learning_rate = 0.5F, .weight_decay = 0.5F}), 0);
    std::vector<float> decays(5), stays(7);
    engine.read(0, 0, decays);
    engine.read(0, 1, stays);
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_EQ(decays[i],
                std::fma(-0.5F, 0.5F * first_value("decays", i), first_value("decays", i)));
    for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(stays[i], first_value("stays", i));
  });
}

// An engine that is left in the middle of a step by an exception does not keep the others waiting.
TEST(ZeroEngine, AnExceptionOnOneRankEndsTheOthers) {
  std::vector<Communicator> comms = Communicator::init_all(2);
  std::thread other([&] {
    EXPECT_THROW(
        {
          Engine engine(comms[1], kUnits, {.slots = 2});
          fill_first(engine);
          throw std::runtime_error("of the model");
        },
        std::runtime_error);
    comms[1].abort();
  });
  EXPECT_THROW(
      {
        Engine engine(comms[0], kUnits, {.slots = 2});
        fill_first(engine);
        for (int step = 0; step < 100; ++step) {
          for (int unit = 0; unit < 3; ++unit) static_cast<void>(engine.use(unit, Pass::kForward));
          hand_in_all(engine);
          engine.step(AdamW{});
        }
      },
      tutti::Exception);
  other.join();
}

// An exception that leaves scopes in the middle of a backward pass, where what unwinding would
// issue waits for the others and they for this rank.
TEST(ZeroEngine, AnExceptionThatLeavesScopesEndsTheOthersToo) {
  for (const bool overlap : {false, true}) {
    std::atomic<int> ended = 0;
    std::vector<Communicator> comms = Communicator::init_all(2);
    const auto run = [&](int rank) {
      Communicator& comm = comms[static_cast<std::size_t>(rank)];
      Engine engine(comm, kUnits, {.slots = 4, .prefetch = 1, .overlap = overlap});
      fill_first(engine);
      try {
        for (int step = 0; step < 3; ++step) {
          for (int unit = 0; unit < 3; ++unit) static_cast<void>(engine.use(unit, Pass::kForward));
          for (int unit = 3; unit-- > 0;) {
            const auto scope = engine.use(unit, Pass::kBackward);
            for (std::uint64_t slot = 0; slot < engine.slots(0).elements(); ++slot) {
              const auto gradients = engine.gradients(unit);
              if (rank == 1 && step == 1 && unit == 1 && slot == 0)
                throw std::runtime_error("of the model");
            }
          }
          engine.step(AdamW{});
        }
      } catch (const std::runtime_error&) {
        ++ended;
      }
      if (rank != 1) return;
      EXPECT_THAT([&] { engine.step(AdamW{}); },
                  ::testing::ThrowsMessage<std::runtime_error>(
                      ::testing::HasSubstr("an exception left a scope of unit 'b'")));
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    EXPECT_EQ(ended, 2) << overlap;
  }
}

TEST(ZeroEngine, WhatOneRankRefusesAllDo) {
  std::atomic<int> told = 0;
  run_ranks(3, [&](int rank, Communicator& comm) {
    const Config config{.slots = 6, .memory_limit_bytes = rank == 1 ? 1'000U : 0U};
    try {
      const Engine engine(comm, kUnits, config);
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("Config::memory_limit_bytes is 1000"),
                std::string::npos)
          << error.what();
      ++told;
    }
    comm.barrier();  // of a communicator that still works
  });
  EXPECT_EQ(told, 3);
}

TEST(ZeroEngine, WhatFillThrowsOnOneRankAllRanksHear) {
  std::atomic<int> told = 0;
  run_ranks(2, [&](int rank, Communicator& comm) {
    Engine engine(comm, kUnits, {.slots = 2});
    try {
      engine.initialize([&](const Parameter&, std::uint64_t, std::span<float>) {
        if (rank == 1) throw std::invalid_argument("no such file");
      });
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "no such file");
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

// Each square fits a double, but the norm no float.
TEST(ZeroEngine, ANormThatIsNoFloatIsNotFinite) {
  run_ranks(2, [](int, Communicator& comm) {
    Engine engine(comm, kUnits, {.slots = 2, .loss_scaling = {.initial = 2}});
    fill_first(engine);
    const std::uint64_t before = engine.fingerprint();
    for (int unit = 0; unit < 3; ++unit) {
      const auto gradients = engine.gradients(unit);
      for (int i = 0; unit == 1 && i < 150; ++i) gradients[0][i] = 1.5e38F;
    }
    EXPECT_FALSE(std::isfinite(engine.step(AdamW{})));
    EXPECT_EQ(engine.loss_scale(), 1);
    EXPECT_EQ(engine.fingerprint(), before);
    fill_first(engine);
    EXPECT_EQ(engine.loss_scale(), 2);
  });
}

}  // namespace
}  // namespace tutti::zero::test
