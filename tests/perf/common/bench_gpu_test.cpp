// SPDX-License-Identifier: Apache-2.0
// The bench on fake GPUs (fake_gpus.hpp): that it waits, that it checks what lies there, and what a
// graph's launches are taken for. Barriers and sums of the bench are the library's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "common/bench.hpp"
#include "tests/perf/common/fake_gpus.hpp"

namespace tutti::perf {
namespace {

constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kRegions = 4;

// Of one rank an all-reduce is a copy, here one by a fake GPU. `spoilt`: which one writes a wrong
// byte. `streams`: what it was called on, but for the probes of one element.
struct FakeLibrary {
  FakeGpus gpus;
  int calls = 0, spoilt = -1;
  std::vector<tuttiStream_t> streams;
};
std::optional<FakeLibrary>& library() {
  static std::optional<FakeLibrary> instance;
  return instance;
}

tuttiResult_t copies(const Arguments& arguments) {
  FakeLibrary& fake = *library();
  const bool spoils = fake.calls++ == fake.spoilt;
  if (arguments.count > 1) fake.streams.push_back(arguments.stream);
  fake.gpus.enqueue(arguments.stream, [a = arguments, spoils] {
    std::memmove(FakeGpus::host(a.receive), FakeGpus::host(a.send), a.count * sizeof(float));
    if (spoils) *FakeGpus::host(a.receive) ^= std::byte{1};
  });
  return tuttiSuccess;
}

class Rows : public Reporter {
 public:
  void row_started(const Row&) override {}
  void measured(const Measurement& measurement) override { measurements.push_back(measurement); }
  void row_finished(const Row&) override {}
  void explained(const std::string&) override {}
  void skipped(const std::string& what) override { ADD_FAILURE() << what; }

  std::vector<Measurement> measurements;
};

Options gpu_options() {
  Options options;
  options.memory = Memory::kDevice;
  options.min_bytes = kBytes;
  options.max_bytes = kBytes * kRegions;
  options.step_factor = kRegions * 2;  // one size
  options.iterations = 4;
  options.warmup_iterations = 0;
  return options;
}

class BenchOnGpus : public testing::Test {
 protected:
  void SetUp() override { library().emplace(); }
  void TearDown() override {
    EXPECT_EQ(library()->gpus.made, 0) << "streams, graphs or events are left";
    library().reset();
  }

  std::vector<Measurement> run(const Options& options) {
    const Tool tool{Collective::kAllReduce, copies};
    ThreadRanks ranks(Communicator::init_all(1), 0, 1);
    Rows rows;
    {
      Bench bench(tool, options, ranks, {.reporter = &rows, .gpus = &library()->gpus});
      bench.run();
    }
    ranks.finish();
    return rows.measurements;
  }
};

TEST_F(BenchOnGpus, WaitsAndChecksInTheirMemory) {
  for (const Blocking blocking : {Blocking::kOff, Blocking::kWaitEach, Blocking::kBarrierOuter}) {
    library().emplace();
    Options options = gpu_options();
    options.blocking = blocking;
    const auto measurements = run(options);
    ASSERT_EQ(measurements.size(), 2u);
    for (const Measurement& m : measurements) EXPECT_EQ(m.wrong, 0);
    // A probe, and for each half the first one, four that are timed, and the one that is checked.
    EXPECT_EQ(library()->gpus.operations, 1 + 2 * (1 + 4 + 1));
    EXPECT_EQ(library()->gpus.current, 0);
  }
}

TEST_F(BenchOnGpus, FindsAWrongByteOfATimedAndOfACheckedOperation) {
  for (const int call : {1 + 4, 1 + 5}) {  // the last timed one; the one after them
    library().emplace();
    library()->spoilt = call;
    const auto measurements = run(gpu_options());
    EXPECT_EQ(measurements[0].wrong, 1) << "call " << call;
    EXPECT_EQ(measurements[1].wrong, 0) << "call " << call;
  }
}

TEST_F(BenchOnGpus, IterationsAreTimedByTheGpusClock) {
  Options options = gpu_options();
  options.per_iteration = true;
  options.aggregated = 3;
  const auto measurements = run(options);
  EXPECT_THAT(measurements[0].iterations->times_us,
              testing::Pointwise(testing::DoubleNear(1e-9), {3.0, 3.0, 3.0, 3.0}));
}

TEST_F(BenchOnGpus, AGraphsLaunchesAreTimedColdAndWarm) {
  Options options = gpu_options();
  options.graph_launches = 5;
  const auto measurements = run(options);
  ASSERT_EQ(measurements.size(), 2u);
  for (const Measurement& m : measurements) {
    EXPECT_EQ(m.wrong, 0);
    ASSERT_TRUE(m.graph);
    EXPECT_DOUBLE_EQ(m.graph->cold_us, (4 + FakeGpus::kUploadUs) / 4);
    EXPECT_DOUBLE_EQ(m.graph->warm_us.value(), 1);
  }
  EXPECT_EQ(library()->gpus.operations, 1 + 2 * (1 + 5 * 4 + 1));
}

TEST_F(BenchOnGpus, OneLaunchHasNoWarmFigure) {
  Options options = gpu_options();
  options.graph_launches = 1;
  const auto measurements = run(options);
  ASSERT_TRUE(measurements[0].graph);
  EXPECT_FALSE(measurements[0].graph->warm_us);
}

TEST_F(BenchOnGpus, TheRanksOfAGpuAreOneGraph) {
  FakeGpus& gpus = library()->gpus;
  ThreadRanks ranks(Communicator::init_all(5), 0, 5);
  {
    Streams streams(&gpus, ranks, gpu_options());
    const int before = gpus.made;
    int done = 0;
    Graphs graphs(streams, [&] {
      for (int i = 0; i < 5; ++i) gpus.enqueue(streams.of(i), [&] { ++done; });
    });
    EXPECT_EQ(gpus.made, before + 2);
    streams.wait();
    EXPECT_EQ(done, 0);
    for (int launch = 1; launch <= 3; ++launch) {
      graphs.launch();
      streams.wait();
      EXPECT_EQ(done, 5 * launch);
    }
  }
  ranks.finish();
}

TEST_F(BenchOnGpus, AWrongByteOfAGraphIsFound) {
  library()->spoilt = 1 + 4;  // captured last
  Options options = gpu_options();
  options.graph_launches = 2;
  EXPECT_EQ(run(options)[0].wrong, 1);
}

TEST_F(BenchOnGpus, RanksOfAThreadHaveStreamsOfTheirOwnGpus) {
  FakeGpus& gpus = library()->gpus;
  EXPECT_EQ(gpus.of_rank(5), 1);
  ThreadRanks ranks(Communicator::init_all(2), 0, 2);
  {
    Streams streams(&gpus, ranks, gpu_options());
    EXPECT_EQ(gpus.current, 1);
    EXPECT_NE(streams.of(0), streams.of(1));
    int done = 0;
    for (const int i : {0, 0, 1, 1, 1}) gpus.enqueue(streams.of(i), [&] { ++done; });
    streams.wait();
    EXPECT_EQ(done, 5);
  }
  ranks.finish();
}

TEST_F(BenchOnGpus, AWaitEndsWithWhatTheCommunicatorReportsOrAfterItsTime) {
  FakeGpus& gpus = library()->gpus;
  auto comms = Communicator::init_all(2);
  Communicator second = std::move(comms.back());
  comms.pop_back();
  ThreadRanks ranks(std::move(comms), 0, 2);
  Options options = gpu_options();
  options.timeout_s = 1;
  gpus.hangs = true;
  const auto code_of_wait = [&] {
    Streams streams(&gpus, ranks, options);
    try {
      streams.wait();
    } catch (const Exception& error) {
      return error.code();
    }
    return tuttiSuccess;
  };
  EXPECT_EQ(code_of_wait(), tuttiTimeout);
  ASSERT_EQ(tuttiCommAbort(second.release()), tuttiSuccess);
  EXPECT_EQ(code_of_wait(), tuttiRemoteError);
  ranks.abort();
}

}  // namespace
}  // namespace tutti::perf
