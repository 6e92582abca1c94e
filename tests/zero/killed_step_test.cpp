// SPDX-License-Identifier: Apache-2.0
// A rank that is killed in the middle of a step (E3): the others fail instead of waiting for it,
// and the last checkpoint continues with fewer ranks to the bits of a run that nobody killed. Each
// rank is a process of its own.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>

#include "folder.hpp"
#include "model.hpp"
#include "tests/comm/fork_harness.hpp"

namespace tutti::zero::test {
namespace {

constexpr int kRanks = 4, kKilled = 2, kSavedSteps = 2, kSteps = 4;

enum class Moment { kForward, kReducing };

std::string name_of(const ::testing::TestParamInfo<std::tuple<Stage, Moment>>& info) {
  const auto [stage, moment] = info.param;
  constexpr std::array kNames{"Ddp", "Zero1", "Zero2", "Zero3"};
  return std::string(kNames[static_cast<std::size_t>(stage)]) +
         (moment == Moment::kForward ? "Forward" : "Reducing");
}

// Trains and saves, then trains on until one rank dies in the step after the checkpoint.
void train_to_the_end(Communicator& comm, int rank, Stage stage, Moment moment,
                      const std::filesystem::path& path) {
  const Training setup{.ranks = kRanks, .config = {.stage = stage}};
  Engine engine(comm, units_of(setup.layers_of_unit), setup.config);
  fill_first(engine);
  Trainer trainer(engine, setup);
  std::vector<std::uint32_t> losses(static_cast<std::size_t>(setup.config.slots));
  for (int step = 0; step <= kSavedSteps; ++step) {
    const bool dies = step == kSavedSteps && rank == kKilled;
    if (dies && moment == Moment::kForward) {
      const auto scope = engine.use(0, Pass::kForward);  // the gather of the next unit is started
      ::raise(SIGKILL);
    }
    trainer.pass(step, losses);
    if (dies) ::raise(SIGKILL);  // reductions are on their way
    setup.update(engine);
    if (step + 1 == kSavedSteps) engine.save(path, "saved");
  }
}

UniqueId id_of(const std::string& message) {
  EXPECT_EQ(message.size(), std::size_t{TUTTI_UNIQUE_ID_BYTES});
  return UniqueId::from_bytes(
      std::as_bytes(std::span(message)).first<std::size_t{TUTTI_UNIQUE_ID_BYTES}>());
}

std::string new_id() {
  const UniqueId id = UniqueId::create();
  return {reinterpret_cast<const char*>(id.bytes().data()), id.bytes().size()};
}

class KilledStep : public ::testing::TestWithParam<std::tuple<Stage, Moment>>, protected Folder {
 protected:
  void run_and_kill() const {
    const auto body = [&](const testing::ForkedRank& self) {
      const auto [stage, moment] = GetParam();
      Communicator comm(id_of(self.message), kRanks, self.rank);
      EXPECT_THROW(train_to_the_end(comm, self.rank, stage, moment, path()), Exception);
    };
    testing::expect_all_passed(
        testing::run_forked(kRanks, body, {.timeout_ms = 120'000, .after_fork = new_id}),
        {kKilled});
  }
};

TEST_P(KilledStep, GoesOnWithFewerRanks) {
  run_and_kill();
  ASSERT_TRUE(std::filesystem::exists(path()));
  const Outcome whole = train({.ranks = 1, .config = {.stage = Stage::kDdp}, .steps = kSteps});
  for (const int ranks : {2, 1}) {
    const Outcome rest = train({.ranks = ranks,
                                .config = {.stage = std::get<Stage>(GetParam())},
                                .steps = kSteps - kSavedSteps,
                                .first_step = kSavedSteps},
                               [&](Engine& engine) {
                                 EXPECT_EQ(engine.load(path()), "saved");
                                 EXPECT_EQ(engine.fingerprint(), whole.fingerprints[1]);
                               });
    EXPECT_TRUE(std::equal(rest.fingerprints.begin(), rest.fingerprints.end(),
                           whole.fingerprints.begin() + kSavedSteps, whole.fingerprints.end()))
        << ranks << " ranks";
    EXPECT_TRUE(std::equal(rest.norms.begin(), rest.norms.end(), whole.norms.begin() + kSavedSteps,
                           whole.norms.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, KilledStep,
                         ::testing::Combine(::testing::Values(Stage::kDdp, Stage::kZero1,
                                                              Stage::kZero2, Stage::kZero3),
                                            ::testing::Values(Moment::kForward, Moment::kReducing)),
                         name_of);

}  // namespace
}  // namespace tutti::zero::test
