// SPDX-License-Identifier: Apache-2.0
// A parameter server beside the engine: synchronous, it has the engine's bits; asynchronous, the
// staleness that was asked for. Ranks are threads.
#include "tutti/parameter_server.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "folder.hpp"
#include "model.hpp"

namespace tutti::zero::test {
namespace {

const std::vector<int> kLayersOfUnit{1, 1, 1, 1, 1};
constexpr AdamW kAdamW{.learning_rate = 0.01F, .weight_decay = 0.1F};

void fill_first(ParameterServer& ps) {
  ps.initialize([](const Parameter& parameter, std::uint64_t first, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = first_value(parameter.name, first + i);
  });
}

Config clipped(Config config = {}) {
  config.clip_norm = 0.05F;
  config.poison = true;
  return config;
}

struct Job {
  int workers = 1;
  Servers servers = {};
  Config config = {};
  int steps = 3;
  int first_step = 0;
  [[nodiscard]] int ranks() const { return workers + (servers.colocated ? 0 : servers.count); }
};

// Runs `body` on every rank of the job with its parameter server.
void run_job(const Job& job, const std::function<void(int rank, ParameterServer&)>& body) {
  run_ranks(job.ranks(), [&](int rank, Communicator& comm) {
    ParameterServer ps(comm, units_of(kLayersOfUnit), job.config, job.servers);
    body(rank, ps);
  });
}

// Synchronous training.
Outcome train(const Job& job, const std::function<void(ParameterServer&)>& start = fill_first,
              const std::function<void(int rank, ParameterServer&)>& after = nullptr) {
  const auto slots = static_cast<std::size_t>(job.config.slots);
  const auto steps = static_cast<std::size_t>(job.steps);
  const Training setup{.ranks = job.workers, .config = job.config};
  Outcome outcome{std::vector<std::uint64_t>(steps), std::vector<std::uint32_t>(steps),
                  std::vector<std::uint32_t>(slots * steps)};
  run_job(job, [&](int rank, ParameterServer& ps) {
    start(ps);
    std::optional<Trainer> trainer;
    if (ps.works()) trainer.emplace(ps.worker(), setup);
    for (std::size_t step = 0; step < steps; ++step) {
      if (trainer)
        trainer->pass(job.first_step + static_cast<int>(step),
                      std::span(outcome.losses).subspan(step * slots, slots));
      const std::uint32_t norm = std::bit_cast<std::uint32_t>(ps.step(kAdamW));
      const std::uint64_t fingerprint = ps.fingerprint();
      if (rank == 0) {
        outcome.norms[step] = norm;
        outcome.fingerprints[step] = fingerprint;
      }
    }
    if (after) after(rank, ps);
  });
  return outcome;
}

Outcome train_engine(int ranks, const Config& config) {
  return train(Training{.ranks = ranks, .config = config});
}

const std::vector<Job> kShapes{{1, {.count = 1}, {}},
                               {2, {.count = 1}, {}},
                               {4, {.count = 3}, {}},
                               {2, {.count = 2, .colocated = true}, {}},
                               {4, {.count = 4, .colocated = true}, {}},
                               {4, {.count = 1, .colocated = true}, {}}};

std::string text_of(const Job& job) {
  return std::to_string(job.workers) + " workers, " + std::to_string(job.servers.count) +
         (job.servers.colocated ? " colocated" : "") + " servers";
}

TEST(ParameterServerEqualityE0, SynchronousBitsAreTheEngines) {
  const Outcome reference = train_engine(1, clipped({.stage = Stage::kDdp}));
  for (Job job : kShapes)
    for (const int microsteps : {1, 2}) {
      job.config = clipped({.microsteps = microsteps});
      EXPECT_EQ(train(job), reference) << text_of(job) << ", microsteps " << microsteps;
    }
}

TEST(ParameterServerEqualityE0, NarrowNumbersToo) {
  const std::vector<Config> configs{
      clipped({.compute = Number::kBfloat16, .reduce = Number::kBfloat16}),
      clipped({.compute = Number::kBfloat16}), clipped({.reduce = Number::kBfloat16}),
      clipped({.compute = Number::kFloat16,
               .reduce = Number::kFloat16,
               .loss_scaling = {.initial = 1 << 14, .growth_steps = 1}})};
  for (const Config& config : configs) {
    Config engine = config;
    engine.stage = Stage::kZero1;
    const Outcome reference = train_engine(4, engine);
    for (const Job& shape :
         {Job{4, {.count = 2}, config}, Job{4, {.count = 4, .colocated = true}, config}})
      EXPECT_EQ(train(shape), reference)
          << text_of(shape) << ", compute " << static_cast<int>(config.compute) << ", reduce "
          << static_cast<int>(config.reduce);
  }
}

TEST(ParameterServerUsage, BytesAreThoseOfTheFormulas) {
  for (Job job : kShapes) {
    SCOPED_TRACE(text_of(job));
    const auto steps = static_cast<std::uint64_t>(job.steps);
    // initialize() sends the parameters once more.
    const auto spreads = steps + 1;
    const auto workers = static_cast<std::uint64_t>(job.workers);
    train(job, fill_first, [&](int rank, ParameterServer& ps) {
      const Usage usage = ps.usage();
      const std::uint64_t all = ps.layout().padded_elements() * sizeof(float);
      const std::uint64_t shard = all / static_cast<std::uint64_t>(job.servers.count);
      const bool both = ps.works() && ps.serves();
      EXPECT_EQ(usage.gradient_bytes, ps.works() ? steps * (all - (both ? shard : 0)) : 0);
      EXPECT_EQ(usage.update_gather_bytes,
                ps.serves() ? spreads * shard * (workers - (both ? 1 : 0)) : 0);
      EXPECT_EQ(ps.library_bytes(),
                usage.gradient_bytes + usage.update_gather_bytes + usage.other_bytes)
          << "rank " << rank;
      if (ps.works()) {
        EXPECT_GT(usage.stall_seconds, 0);
      }
    });
  }
}

// With a server for each worker, in its process, a rank sends what it does with ZeRO-1.
TEST(ParameterServerUsage, ColocatedItIsThatOfZero1) {
  std::uint64_t zero1 = 0;
  Training setup{.ranks = 4, .config = {.stage = Stage::kZero1}, .steps = 2};
  setup.watch = [&](Engine& engine, int rank, int done) {
    if (done == 1) engine.reset_usage();
    if (done < 2) return;
    const Usage usage = engine.usage();
    if (rank == 0) zero1 = usage.gradient_bytes + usage.update_gather_bytes;
  };
  static_cast<void>(train(setup));
  const auto start = [](ParameterServer& ps) {
    fill_first(ps);
    ps.reset_usage();
  };
  train({.workers = 4, .servers = {.count = 4, .colocated = true}, .config = {}, .steps = 1}, start,
        [&](int rank, ParameterServer& ps) {
          const Usage usage = ps.usage();
          EXPECT_EQ(usage.gradient_bytes + usage.update_gather_bytes, zero1) << "rank " << rank;
        });
}

TEST(ParameterServerMemory, IsThePlannedOneAndLimited) {
  for (Job job : kShapes) {
    SCOPED_TRACE(text_of(job));
    for (const Number number : {Number::kFloat32, Number::kBfloat16}) {
      job.config = {.compute = number, .reduce = number};
      run_job(job, [&](int rank, ParameterServer& ps) {
        const Memory planned =
            memory_of(units_of(kLayersOfUnit), job.config, job.servers, job.ranks(), rank);
        EXPECT_EQ(ps.memory().parameters, planned.parameters) << "rank " << rank;
        EXPECT_EQ(ps.memory().gradients, planned.gradients) << "rank " << rank;
        EXPECT_EQ(ps.memory().optimizer, planned.optimizer) << "rank " << rank;
        EXPECT_EQ(ps.memory().total(), planned.total()) << "rank " << rank;
        if (!ps.serves()) {
          EXPECT_EQ(planned.optimizer, 0U);
        }
      });
    }
  }
  // Refused on all ranks, whoever it is that needs more.
  std::atomic<int> refused = 0;
  run_ranks(3, [&](int, Communicator& comm) {
    try {
      const ParameterServer ps(comm, units_of(kLayersOfUnit), {.memory_limit_bytes = 20'000},
                               {.count = 1});
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("Config::memory_limit_bytes is 20000"),
                std::string::npos)
          << error.what();
      ++refused;
    }
  });
  EXPECT_EQ(refused, 3);
}

TEST(ParameterServerCheckpoint, IsTheEnginesBothWays) {
  const Folder folder;
  const Config config = clipped({.stage = Stage::kZero3});
  Training whole{.ranks = 1, .config = config, .steps = 4};
  const Outcome reference = train(whole);
  // Two steps on servers, then two on an engine.
  Job job{.workers = 2, .servers = {.count = 2}, .config = config, .steps = 2};
  train(job, fill_first, [&](int, ParameterServer& ps) { ps.save(folder.path(), "two"); });
  const auto expect_note = [](const std::string& note) { EXPECT_EQ(note, "two"); };
  Training rest{.ranks = 4, .config = config, .steps = 2};
  rest.first_step = 2;
  const Outcome from_servers =
      train(rest, [&](Engine& engine) { expect_note(engine.load(folder.path())); });
  EXPECT_EQ(from_servers.fingerprints[1], reference.fingerprints[3]);
  // And the other way.
  Training two{.ranks = 2, .config = config, .steps = 2};
  two.watch = [&](Engine& engine, int, int done) {
    if (done == 2) engine.save(folder.path(), "two");
  };
  static_cast<void>(train(two));
  job.servers = {.count = 1, .colocated = true};
  job.first_step = 2;
  const Outcome from_engine =
      train(job, [&](ParameterServer& ps) { expect_note(ps.load(folder.path())); });
  EXPECT_EQ(from_engine.fingerprints[1], reference.fingerprints[3]);
}

TEST(ParameterServerCheckpoint, WhatCannotBeReadIsToldToAllAndChangesNothing) {
  std::atomic<int> told = 0;
  run_job({.workers = 2, .servers = {.count = 2}, .config = {}}, [&](int, ParameterServer& ps) {
    fill_first(ps);
    const std::uint64_t before = ps.fingerprint();
    try {
      static_cast<void>(ps.load("/nowhere/at/all"));
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("/nowhere/at/all"), std::string::npos)
          << error.what();
      ++told;
    }
    EXPECT_EQ(ps.fingerprint(), before);
  });
  EXPECT_EQ(told, 4);
}

TEST(ParameterServer, ReadsOneParameterOnAllRanks) {
  run_job({.workers = 2, .servers = {.count = 2}, .config = {}}, [&](int, ParameterServer& ps) {
    fill_first(ps);
    const Unit unit = units_of(kLayersOfUnit)[1];
    std::vector<float> values(unit.parameters[0].elements());
    ps.read(1, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], first_value(unit.parameters[0].name, i)) << i;
  });
}

TEST(ParameterServer, GradientsThatAreNotFiniteEndTheStepOnAllRanks) {
  std::atomic<int> told = 0;
  run_job({.workers = 2, .servers = {.count = 1}, .config = {}},
          [&](int rank, ParameterServer& ps) {
            fill_first(ps);
            if (ps.works())
              for (int unit = 0; unit < ps.layout().units(); ++unit)
                for (int slot = 0; slot < 4; ++slot) {
                  const auto gradients = ps.worker().gradients(unit);
                  if (rank == 1) *gradients[0] = INFINITY;
                }
            try {
              static_cast<void>(ps.step(kAdamW));
            } catch (const std::runtime_error& error) {
              EXPECT_NE(std::string(error.what()).find("gradients of step 1 are not finite"),
                        std::string::npos)
                  << error.what();
              ++told;
            }
          });
  EXPECT_EQ(told, 3);
}

// ---- asynchronous -------------------------------------------------------------------------------

struct Served {
  std::vector<Arrival> arrivals;
  std::uint64_t fingerprint = 0;
  std::vector<std::uint32_t> losses;  // of each slot of each step
};

// Each worker does so many steps; `pause` comes before each push.
Served serve(
    const Job& job, const std::function<void(int worker, int step)>& pause = [](int, int) {}) {
  const auto slots = static_cast<std::size_t>(job.config.slots);
  const Training setup{.ranks = job.workers, .config = job.config};
  Served served;
  served.losses.resize(slots * static_cast<std::size_t>(job.steps));
  std::vector<std::vector<Arrival>> all(static_cast<std::size_t>(job.ranks()));
  run_job(job, [&](int rank, ParameterServer& ps) {
    fill_first(ps);
    if (ps.serves()) {
      ps.serve([](std::uint64_t) { return kAdamW; });
    } else {
      Trainer trainer(ps.worker(), setup);
      for (int step = 0; step < job.steps; ++step) {
        trainer.pass(
            step, std::span(served.losses).subspan(static_cast<std::size_t>(step) * slots, slots));
        pause(rank, step);
        ps.push();
      }
      ps.finish();
    }
    const std::uint64_t fingerprint = ps.fingerprint();
    all[static_cast<std::size_t>(rank)] = ps.arrivals();
    if (rank == 0) served.fingerprint = fingerprint;
  });
  served.arrivals = all[0];
  EXPECT_EQ(served.arrivals.size(), static_cast<std::size_t>(job.workers * job.steps));
  for (const std::vector<Arrival>& each : all) EXPECT_EQ(each, served.arrivals);
  return served;
}

TEST(ParameterServerAsynchronous, AScriptSaysWhatIsStaleAndItsBitsComeAgain) {
  Job job{.workers = 2, .config = clipped(), .steps = 2};
  job.servers = {.count = 1, .asynchronous = true, .arrivals = {0, 0, 1}};
  const Served first = serve(job);
  EXPECT_EQ(first.arrivals, (std::vector<Arrival>{{0, 0}, {0, 0}, {1, 2}, {1, 0}}));
  for (const int servers : {1, 3}) {
    job.servers.count = servers;
    const Served again = serve(job);
    EXPECT_EQ(again.arrivals, first.arrivals);
    EXPECT_EQ(again.fingerprint, first.fingerprint);
    EXPECT_EQ(again.losses, first.losses);
  }
  job.servers.arrivals = {0, 1, 0, 1};
  EXPECT_NE(serve(job).fingerprint, first.fingerprint);
  // One after the other: nothing is stale.
  job.servers.arrivals = {0, 0, 1, 1};
  job.servers.staleness = 0;
  const Served fresh = serve(job);
  EXPECT_EQ(fresh.arrivals, (std::vector<Arrival>{{0, 0}, {0, 0}, {1, 0}, {1, 0}}));
  EXPECT_NE(fresh.fingerprint, first.fingerprint);
}

// One worker alone is what a synchronous worker is.
TEST(ParameterServerAsynchronous, OneWorkerHasTheSynchronousBits) {
  Job job{.workers = 1, .servers = {.count = 2}, .config = clipped(), .steps = 3};
  const Outcome synchronous = train(job);
  job.servers.asynchronous = true;
  const Served served = serve(job);
  EXPECT_EQ(served.fingerprint, synchronous.fingerprints.back());
  EXPECT_EQ(served.losses, synchronous.losses);
}

TEST(ParameterServerAsynchronous, TheBoundHolds) {
  for (const int bound : {0, 1, 3, Servers::kUnbounded}) {
    Job job{.workers = 4, .config = clipped(), .steps = 12};
    job.servers = {.count = 2, .asynchronous = true, .staleness = bound};
    const Served served = serve(job);
    std::array<int, 4> of_worker{};
    for (const Arrival& arrival : served.arrivals) {
      ++of_worker[static_cast<std::size_t>(arrival.worker)];
      if (bound >= 0) {
        EXPECT_LE(arrival.staleness, bound);
      }
    }
    EXPECT_EQ(of_worker, (std::array<int, 4>{12, 12, 12, 12}));
  }
}

// A slow worker holds nobody up, and finds its parameters old.
TEST(ParameterServerAsynchronous, FastWorkersDoNotWait) {
  std::atomic<int> pushed = 0;  // or about to be
  Job job{.workers = 3, .config = clipped({.slots = 6}), .steps = 5};
  job.servers = {.count = 1, .asynchronous = true};
  const Served served = serve(job, [&](int worker, int step) {
    // Worker 2 has its parameters, and the others have made at least six updates before its first.
    while (worker == 2 && step == 0 && pushed < 8 && !::testing::Test::HasFailure())
      std::this_thread::yield();
    if (worker != 2) ++pushed;
  });
  const auto slow = std::ranges::find(served.arrivals, 2, &Arrival::worker);
  ASSERT_NE(slow, served.arrivals.end());
  EXPECT_GE(slow->staleness, 6);
}

// Runs an asynchronous job of two workers and two servers that ends in an error that all hear of.
// `work` is a worker's part, up to finish().
void expect_all_hear(const Servers& servers, const std::string& text,
                     const std::function<void(int worker, ParameterServer&)>& work) {
  std::atomic<int> heard = 0;
  run_job({.workers = 2, .servers = servers}, [&](int rank, ParameterServer& ps) {
    try {
      fill_first(ps);
      if (ps.serves()) ps.serve([](std::uint64_t) { return kAdamW; });
      if (!ps.works()) return;
      work(rank, ps);
      ps.finish();
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      ++heard;
    }
  });
  EXPECT_EQ(heard, 4);
}

// One step's gradients: the first element of each slot of each unit is `first`.
void hand_in(ParameterServer& ps, float first) {
  for (int unit = 0; unit < ps.layout().units(); ++unit)
    for (int slot = 0; slot < 4; ++slot) *ps.worker().gradients(unit)[0] = first;
}

TEST(ParameterServerAsynchronous, AScriptThatCannotBeKeptIsToldToAllRanks) {
  expect_all_hear({.count = 2, .asynchronous = true, .arrivals = {0, 1, 0}},
                  "update 2 of Servers::arrivals is worker 0's, which has finished",
                  [](int, ParameterServer& ps) {
                    hand_in(ps, 1);
                    ps.push();
                  });
}

TEST(ParameterServerAsynchronous, GradientsThatAreNotFiniteAreToldToAllRanks) {
  expect_all_hear({.count = 2, .asynchronous = true}, "are not finite",
                  [](int rank, ParameterServer& ps) {
                    for (int step = 0; step < 3; ++step) {
                      hand_in(ps, rank == 1 && step == 1 ? INFINITY : 1);
                      ps.push();
                    }
                  });
}

TEST(ParameterServerAsynchronous, AWorkerThatLeavesEndsAllRanks) {
  std::atomic<int> ended = 0;
  Job job{.workers = 2, .config = {}, .steps = 1};
  job.servers = {.count = 2, .asynchronous = true};
  run_job(job, [&](int rank, ParameterServer& ps) {
    try {
      fill_first(ps);
      if (rank == 1) return;  // its destructor comes before the servers have heard that it finished
      if (ps.serves()) ps.serve([](std::uint64_t) { return kAdamW; });
      if (ps.works()) ps.finish();
    } catch (const Exception&) {
      ++ended;
    }
  });
  EXPECT_EQ(ended, 3);
}

// ---- what is refused ----------------------------------------------------------------------------

void expect_refused(const std::function<void()>& function, const std::string& text) {
  try {
    function();
    ADD_FAILURE() << "not refused: " << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(ParameterServerRefuses, NumbersThatDoNotFit) {
  const std::vector<Unit> units = units_of(kLayersOfUnit);
  const auto refused = [&](const Config& config, const Servers& servers, int ranks,
                           const std::string& text) {
    expect_refused([&] { static_cast<void>(memory_of(units, config, servers, ranks, 0)); }, text);
  };
  refused({}, {.count = 0}, 2, "Servers::count is 0; there is at least 1 server");
  refused({}, {.count = 2}, 2, "2 ranks are too few for 2 servers and at least one worker");
  refused({}, {}, 1, "1 rank is too few for 1 server and at least one worker");
  refused({.microsteps = 0}, {}, 2, "Config::microsteps is 0");
  refused({}, {.count = 3, .colocated = true}, 2, "2 ranks are too few for 3 servers");
  refused({}, {.colocated = true, .asynchronous = true}, 2, "leave out Servers::colocated");
  refused({}, {.staleness = 1}, 2, "are of asynchronous servers");
  refused({}, {.arrivals = {0}}, 2, "are of asynchronous servers");
  refused({}, {.asynchronous = true, .staleness = -2}, 2, "Servers::staleness is -2");
  refused({}, {.asynchronous = true, .arrivals = {0, 2}}, 3,
          "Servers::arrivals names worker 2; there are 2");
  refused({.loss_scaling = {.initial = 1024}}, {.asynchronous = true}, 2, "Config::loss_scaling");
  refused({.slots = 8}, {}, 4, "8 slots cannot be");
}

TEST(ParameterServerRefuses, CallsOfTheOtherKind) {
  run_job({.workers = 1, .servers = {.count = 1}, .config = {}}, [](int, ParameterServer& ps) {
    fill_first(ps);
    expect_refused([&] { ps.push(); }, "push() of synchronous servers; call step()");
    expect_refused([&] { ps.finish(); }, "finish() of synchronous servers");
    expect_refused([&] { ps.serve([](std::uint64_t) { return kAdamW; }); },
                   "serve() of synchronous servers");
    if (ps.works())
      expect_refused([&] { ps.worker().step(kAdamW); },
                     "step() of a parameter server's worker; call the ParameterServer's");
    else
      expect_refused([&] { static_cast<void>(ps.worker()); },
                     "worker() of a rank that only serves");
  });
  Job job{.workers = 1, .config = {}};
  job.servers.asynchronous = true;
  run_job(job, [](int, ParameterServer& ps) {
    fill_first(ps);
    expect_refused([&] { ps.step(kAdamW); }, "step() of asynchronous servers");
    if (ps.works())
      expect_refused([&] { ps.serve([](std::uint64_t) { return kAdamW; }); },
                     "serve() of a worker");
    else
      expect_refused([&] { ps.push(); }, "push() of a server");
    if (ps.serves()) ps.serve([](std::uint64_t) { return kAdamW; });
    if (ps.works()) ps.finish();
    // Once between two initializations.
    if (ps.serves())
      expect_refused([&] { ps.serve([](std::uint64_t) { return kAdamW; }); },
                     "serve() before initialize() or load()");
    if (ps.works()) expect_refused([&] { ps.finish(); }, "finish() before initialize()");
    fill_first(ps);
    if (ps.serves()) ps.serve([](std::uint64_t) { return kAdamW; });
    if (ps.works()) ps.finish();
  });
}

}  // namespace
}  // namespace tutti::zero::test
