// SPDX-License-Identifier: Apache-2.0
// A rank that is killed in the middle of a step (E3): the others fail instead of waiting for it,
// and the last checkpoint continues with fewer ranks to the bits of a run that nobody killed. Each
// rank is a process of its own.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "model.hpp"

namespace tutti::zero::test {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 4, kKilled = 2, kSavedSteps = 2, kSteps = 4;
constexpr int kLostItsPeer = 3;  // exit status

enum class Moment { kForward, kReducing };

std::string name_of(const ::testing::TestParamInfo<std::tuple<Stage, Moment>>& info) {
  const auto [stage, moment] = info.param;
  return std::string(stage == Stage::kZero2 ? "Zero2" : "Zero3") +
         (moment == Moment::kForward ? "Forward" : "Reducing");
}

UniqueId shared_id(int rank, const std::array<int, 2>& pipe_ends) {
  std::array<std::byte, TUTTI_UNIQUE_ID_BYTES> bytes;
  if (rank != 0) {
    if (::read(pipe_ends[0], bytes.data(), bytes.size()) != ssize_t{bytes.size()}) ::_exit(1);
    return UniqueId::from_bytes(bytes);
  }
  const UniqueId id = UniqueId::create();
  for (int other = 1; other < kRanks; ++other)
    if (::write(pipe_ends[1], id.bytes().data(), bytes.size()) != ssize_t{bytes.size()}) ::_exit(1);
  return id;
}

// Trains and saves, then trains on until one rank dies in the step after the checkpoint.
void train_to_the_end(Communicator& comm, int rank, Stage stage, Moment moment,
                      const fs::path& path) {
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

[[noreturn]] void be_rank(int rank, const std::array<int, 2>& pipe_ends, Stage stage, Moment moment,
                          const fs::path& path) {
  try {
    Communicator comm(shared_id(rank, pipe_ends), kRanks, rank);
    try {
      train_to_the_end(comm, rank, stage, moment, path);
    } catch (const Exception&) {
      ::_exit(kLostItsPeer);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  ::_exit(1);
}

class KilledStep : public ::testing::TestWithParam<std::tuple<Stage, Moment>> {
 protected:
  KilledStep() {
    std::string name = (fs::temp_directory_path() / "tutti-zero-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~KilledStep() override { fs::remove_all(folder_); }

  void run_and_kill() {
    std::array<int, 2> pipe_ends;
    ASSERT_EQ(::pipe(pipe_ends.data()), 0);
    std::fflush(nullptr);
    std::array<pid_t, kRanks> processes;
    for (int rank = 0; rank < kRanks; ++rank) {
      const pid_t made = ::fork();
      ASSERT_GE(made, 0);
      if (made == 0)
        be_rank(rank, pipe_ends, std::get<Stage>(GetParam()), std::get<Moment>(GetParam()), path());
      processes[static_cast<std::size_t>(rank)] = made;
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      int status = 0;
      ::waitpid(processes[static_cast<std::size_t>(rank)], &status, 0);
      if (rank == kKilled)
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      else
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kLostItsPeer)
            << "rank " << rank << ": " << status;
    }
    for (const int end : pipe_ends) ::close(end);
  }
  [[nodiscard]] fs::path path() const { return folder_ / "model"; }

  fs::path folder_;
};

TEST_P(KilledStep, GoesOnWithFewerRanks) {
  run_and_kill();  // before this process has threads, which a fork would not take along
  ASSERT_TRUE(fs::exists(path()));
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
                         ::testing::Combine(::testing::Values(Stage::kZero2, Stage::kZero3),
                                            ::testing::Values(Moment::kForward, Moment::kReducing)),
                         name_of);

}  // namespace
}  // namespace tutti::zero::test
