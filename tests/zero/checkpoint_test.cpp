// SPDX-License-Identifier: Apache-2.0
// Checkpoints (E3): a run that goes on with other ranks, another stage and other units has the bits
// of one that was never interrupted; what is damaged is found before anything changes; a save that
// is killed leaves the last one.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "folder.hpp"
#include "model.hpp"
#include "tests/seed.hpp"
#include "zero/file.hpp"

namespace tutti::zero::test {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ZeroCheckpoint : public ::testing::Test, protected Folder {};

Training setup_of(int ranks, Stage stage, int steps, int first_step = 0) {
  return {.ranks = ranks, .config = {.stage = stage}, .steps = steps, .first_step = first_step};
}

TEST_F(ZeroCheckpoint, GoesOnWithOtherRanksStagesAndUnits) {
  const Outcome whole = train(setup_of(1, Stage::kDdp, 4));
  struct Form {
    int ranks;
    Stage stage;
    std::vector<int> layers_of_unit;
    int shard_ranks;
  };
  const std::vector<Form> forms{
      {1, Stage::kDdp, {1, 1, 1, 1, 1}, 0}, {4, Stage::kZero3, {1, 1, 1, 1, 1}, 0},
      {2, Stage::kZero1, {2, 3}, 0},        {8, Stage::kZero2, {5}, 0},
      {4, Stage::kZero3, {1, 4}, 2},        {2, Stage::kDdp, {3, 2}, 0}};
  for (const Form& saves : forms) {
    Training first = setup_of(saves.ranks, saves.stage, 2);
    first.layers_of_unit = saves.layers_of_unit;
    first.config.shard_ranks = saves.shard_ranks;
    first.watch = [&](Engine& engine, int, int done) {
      if (done == 2) engine.save(path(), "after two");
    };
    static_cast<void>(train(first));
    for (const Form& loads : forms) {
      Training second = setup_of(loads.ranks, loads.stage, 2, 2);
      second.layers_of_unit = loads.layers_of_unit;
      second.config.shard_ranks = loads.shard_ranks;
      const Outcome rest = train(second, [&](Engine& engine) {
        EXPECT_EQ(engine.load(path()), "after two");
        EXPECT_EQ(engine.fingerprint(), whole.fingerprints[1]);
      });
      EXPECT_TRUE(std::equal(rest.fingerprints.begin(), rest.fingerprints.end(),
                             whole.fingerprints.begin() + 2))
          << saves.ranks << " ranks to " << loads.ranks;
      EXPECT_TRUE(std::equal(rest.norms.begin(), rest.norms.end(), whole.norms.begin() + 2));
      EXPECT_TRUE(std::equal(rest.losses.begin(), rest.losses.end(), whole.losses.begin() + 16));
    }
  }
  EXPECT_EQ(entries(), 1) << "nothing is left beside the checkpoint";
}

TEST_F(ZeroCheckpoint, KeepsTheMasterCopyAndTheLossScale) {
  Training first{
      .ranks = 2, .config = {.compute = Number::kBfloat16, .loss_scaling = {8, 2}}, .steps = 4};
  first.watch = [&](Engine& engine, int, int done) {
    if (done == 3) engine.save(path());
  };
  const Outcome whole = train(first);
  Training second = first;
  second.ranks = 4;
  second.steps = 1;
  second.first_step = 3;
  second.watch = [](Engine&, int, int) {};
  const Outcome rest = train(second, [&](Engine& engine) {
    engine.load(path());
    EXPECT_EQ(engine.loss_scale(), 16);
  });
  EXPECT_EQ(rest.fingerprints[0], whole.fingerprints[3]);
}

// A load in the middle of a run forgets what was gathered ahead.
TEST_F(ZeroCheckpoint, LoadsIntoARunningEngine) {
  Training setup = setup_of(4, Stage::kZero3, 4);
  const Outcome whole = train(setup);
  setup.watch = [&](Engine& engine, int, int done) {
    if (done == 1) engine.save(path());
    if (done == 2) engine.load(path());
  };
  setup.steps = 2;
  static_cast<void>(train(setup));
  setup.steps = 3;
  std::vector<std::uint64_t> seen;
  run_ranks(4, [&](int rank, Communicator& comm) {
    Engine engine(comm, units_of(setup.layers_of_unit), setup.config);
    fill_first(engine);
    Trainer trainer(engine, setup);
    std::vector<std::uint32_t> losses(8);
    for (const int step : {0, 1, 2}) {
      trainer.pass(step, losses);
      setup.update(engine);
    }
    engine.load(path());
    trainer.pass(1, losses);
    setup.update(engine);
    const std::uint64_t fingerprint = engine.fingerprint();
    if (rank == 0) seen.push_back(fingerprint);
  });
  EXPECT_EQ(seen, std::vector<std::uint64_t>{whole.fingerprints[1]});
}

TEST_F(ZeroCheckpoint, DamageIsFoundByAllRanksAndChangesNothing) {
  Training setup = setup_of(4, Stage::kZero3, 1);
  setup.watch = [&](Engine& engine, int, int done) {
    if (done == 1) engine.save(path());
  };
  const Outcome saved = train(setup);
  const auto expect_refused = [&](const char* text, Stage stage = Stage::kZero3) {
    run_ranks(4, [&](int, Communicator& comm) {
      Engine engine(comm, units_of({2, 3}), {.stage = stage});
      fill_first(engine);
      const std::uint64_t before = engine.fingerprint();
      EXPECT_THAT([&] { engine.load(path()); }, ThrowsMessage<std::runtime_error>(HasSubstr(text)));
      EXPECT_EQ(engine.fingerprint(), before);
      std::vector<float> values(5);
      static_cast<void>(engine.use(0, Pass::kForward));
    });
  };
  const auto with_byte = [&](const char* file, std::uint64_t at,
                             const std::function<void()>& call) {
    std::fstream stream(path() / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(stream.get());
    const auto put = [&](char value) {
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(value);
      stream.flush();
    };
    put(static_cast<char>(byte ^ 4));
    call();
    put(byte);
  };
  for (const char* const file : {"rank-0.bin", "rank-3.bin"})
    with_byte(file, 64, [&] { expect_refused("do not have their checksum"); });
  with_byte("index.json", fs::file_size(path() / "index.json") / 2,
            [&] { expect_refused("the checkpoint's index is damaged"); });
  fs::rename(path() / "rank-2.bin", path() / "hidden");
  expect_refused("rank-2.bin");
  fs::rename(path() / "hidden", path() / "rank-2.bin");
  const auto bytes = fs::file_size(path() / "rank-1.bin");
  fs::copy_file(path() / "rank-1.bin", path() / "copy");
  fs::resize_file(path() / "rank-1.bin", bytes - 1);
  expect_refused("is shorter than its index says");
  fs::rename(path() / "copy", path() / "rank-1.bin");
  run_ranks(2, [&](int, Communicator& comm) {
    Engine engine(comm, units_of({5}), Config{});
    engine.load(path());
    EXPECT_EQ(engine.fingerprint(), saved.fingerprints[0]) << "whole again";
  });
  fs::rename(path(), folder_ / "other");
  expect_refused("cannot open");
}

TEST_F(ZeroCheckpoint, AnotherModelIsRefused) {
  run_ranks(2, [&](int, Communicator& comm) {
    const std::vector<Unit> units{{"u", {{"w", {4, 3}}, {"b", {4}}}}};
    Engine engine(comm, units, {.slots = 2});
    fill_first(engine);
    engine.save(path());
  });
  const auto expect_refused = [&](const std::vector<Unit>& units, const char* text) {
    run_ranks(2, [&](int, Communicator& comm) {
      Engine engine(comm, units, {.slots = 2});
      EXPECT_THAT([&] { engine.load(path()); }, ThrowsMessage<std::runtime_error>(HasSubstr(text)));
    });
  };
  expect_refused({{"u", {{"w", {3, 4}}, {"b", {4}}}}},
                 "has 'w' in the shape [4, 3], the model in [3, 4]");
  expect_refused({{"u", {{"w", {4, 3}}, {"c", {4}}}}}, "has no parameter 'c'");
  expect_refused({{"u", {{"w", {4, 3}}}}}, "has 2 parameters, the model 1");
}

TEST_F(ZeroCheckpoint, AFailedSaveIsToldToAllRanksAndLeavesTheOldOne) {
  run_ranks(2, [&](int, Communicator& comm) {
    Engine engine(comm, units_of({5}), Config{});
    fill_first(engine);
    engine.save(path(), "old");
    EXPECT_THAT([&] { engine.save(folder_ / "absent" / "model"); },
                ThrowsMessage<std::runtime_error>(HasSubstr("absent")));
    EXPECT_THAT([&] { engine.save(path(), "\xff"); },
                ThrowsMessage<std::runtime_error>(HasSubstr("is not UTF-8")));
    EXPECT_EQ(engine.load(path()), "old");
    engine.save(path(), "new");
    engine.save(path().string() + "/", "newer");
    EXPECT_EQ(engine.load(path()), "newer");
  });
  EXPECT_EQ(entries(), 1);
}

const std::vector<Unit> kPlain{{"u", {{"w", {20'000}}}}};

// In a process of its own: saves parameters that all have the number of the save, for ever, and
// writes a byte after each.
[[noreturn]] void save_for_ever(const fs::path& path, int told) {
  run_ranks(2, [&](int rank, Communicator& comm) {
    Engine engine(comm, kPlain, {.slots = 2});
    for (int number = 0;; ++number) {
      engine.initialize([&](const Parameter&, std::uint64_t, std::span<float> values) {
        std::ranges::fill(values, static_cast<float>(number));
      });
      engine.save(path, std::to_string(number));
      if (rank == 0 && ::write(told, "", 1) != 1) ::_exit(1);
    }
  });
  ::_exit(1);
}

// In a process of its own: is what is there a whole checkpoint, of this save or a later one?
[[noreturn]] void load_and_save(const fs::path& path, unsigned least) {
  run_ranks(1, [&](int, Communicator& comm) {
    Engine engine(comm, kPlain, Config{});
    const std::string note = engine.load(path);
    std::vector<float> values(20'000);
    engine.read(0, 0, values);
    EXPECT_THAT(values, ::testing::Each(std::stof(note)));
    EXPECT_GE(std::stoul(note), least);
    engine.save(path, note);
  });
  // Not _exit(): the library joins the thread of its root on the way out, and the thread sanitizer
  // looks for threads that nobody joined. The leak sanitizer looks here too.
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

// A process that saves again and again is killed at any moment; whatever it was doing, a whole
// checkpoint is there, and the next save clears away what it left.
TEST_F(ZeroCheckpoint, AKilledSaveLeavesTheLastOne) {
  std::mt19937 random(draw_seed());
  for (int round = 0; round < 8; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    std::fflush(nullptr);  // a child that exits would print it again
    const pid_t saver = ::fork();
    ASSERT_GE(saver, 0);
    if (saver == 0) save_for_ever(path(), pipe_ends[1]);
    ::close(pipe_ends[1]);
    char byte = 0;
    const auto saves = static_cast<unsigned>(1 + random() % 3);
    for (unsigned i = 0; i < saves; ++i) ASSERT_EQ(::read(pipe_ends[0], &byte, 1), 1);
    std::atomic<std::uint64_t> spent{0};  // some part of the time that a save takes
    for (const auto spins = random() % 3'000'000; spent.load(std::memory_order_relaxed) < spins;)
      spent.fetch_add(1, std::memory_order_relaxed);
    ::kill(saver, SIGKILL);
    ::waitpid(saver, nullptr, 0);
    ::close(pipe_ends[0]);
    const pid_t loader = ::fork();
    ASSERT_GE(loader, 0);
    if (loader == 0) load_and_save(path(), saves - 1);
    int status = 0;
    ::waitpid(loader, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(entries(), 1);
  }
}

TEST_F(ZeroCheckpoint, ASaveReplacesNothingButACheckpoint) {
  const auto write = [](const fs::path& file) { std::ofstream(file) << "results"; };
  fs::create_directory(folder_ / "results");
  write(folder_ / "results" / "loss.csv");
  write(folder_ / "model.bin");
  fs::create_directory(folder_ / "empty");
  run_ranks(2, [&](int, Communicator& comm) {
    Engine engine(comm, units_of({5}), Config{});
    fill_first(engine);
    EXPECT_THAT([&] { engine.save(folder_ / "results"); },
                ThrowsMessage<std::runtime_error>(
                    HasSubstr("results is there and is no checkpoint (it holds loss.csv); save to "
                              "another name")));
    EXPECT_THAT([&] { engine.save(folder_ / "model.bin"); },
                ThrowsMessage<std::runtime_error>(HasSubstr("it is not a folder")));
    engine.save(folder_ / "empty", "note");
    EXPECT_EQ(engine.load(folder_ / "empty"), "note");
  });
  EXPECT_TRUE(fs::exists(folder_ / "results" / "loss.csv"));
  EXPECT_TRUE(fs::exists(folder_ / "model.bin"));
}

// Where two names cannot be exchanged, as on NFS: killed between the two renames, the old one is
// there by its other name, and is read.
TEST_F(ZeroCheckpoint, WithoutExchangeTheOldOneIsFoundByItsOtherName) {
  const auto cannot = [](const fs::path&, const fs::path&) { return false; };
  run_ranks(1, [&](int, Communicator& comm) {
    Engine engine(comm, units_of({5}), Config{});
    fill_first(engine);
    engine.save(path(), "first");
    engine.save(folder_ / "fresh", "second");
    publish_folder(folder_ / "fresh", path(), cannot);
    EXPECT_EQ(engine.load(path()), "second");
    EXPECT_EQ(entries(), 1);
    fs::rename(path(), path().string() + ".old");
    EXPECT_EQ(engine.load(path()), "second");
    engine.save(path(), "third");
    EXPECT_EQ(engine.load(path()), "third");
  });
  // What has that other name and is no checkpoint is kept.
  fs::create_directory(folder_ / "fresh");
  std::ofstream(fs::path(path().string() + ".old") / "mine") << "mine";
  EXPECT_THAT([&] { publish_folder(folder_ / "fresh", path(), cannot); },
              ThrowsMessage<std::runtime_error>(HasSubstr("it holds mine")));
}

// Of a run that did not scale its losses nothing is taken for a scale.
TEST_F(ZeroCheckpoint, ARunThatScalesGoesOnFromOneThatDidNot) {
  run_ranks(2, [&](int, Communicator& comm) {
    Engine plain(comm, units_of({5}), Config{});
    fill_first(plain);
    plain.save(path());
    Engine scaled(comm, units_of({5}), {.loss_scaling = {.initial = 1024}});
    scaled.load(path());
    EXPECT_EQ(scaled.loss_scale(), 1024);
    scaled.save(path());
    plain.load(path());
    EXPECT_EQ(plain.loss_scale(), 1);
  });
}

}  // namespace
}  // namespace tutti::zero::test
