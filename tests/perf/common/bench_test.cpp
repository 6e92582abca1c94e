// SPDX-License-Identifier: Apache-2.0
// Plants an error in the timed iterations of a real run, and looks whether the bench sees it.
#include "common/bench.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace tutti::perf {
namespace {

constexpr std::uint64_t kBytes = 65536;  // one block of the send buffer's fingerprint
constexpr std::uint64_t kRegions = 16;

// Where the error goes; the collective is a plain function.
struct Sabotage {
  std::uint64_t region = 0;
  const std::byte* buffer = nullptr;  // the send buffer: what the first operation, a warm-up, sends
  bool done = false;
};
Sabotage& sabotage() {
  static Sabotage instance;
  return instance;
}

// All-reduce that once changes a byte of the region that it is about to send.
tuttiResult_t changes_its_input(const Arguments& a) {
  Sabotage& plan = sabotage();
  if (a.count == kBytes / sizeof(float)) {
    const auto* bytes = static_cast<const std::byte*>(a.send);
    if (plan.buffer == nullptr) plan.buffer = bytes;
    if (!plan.done && bytes == plan.buffer + plan.region * kBytes) {
      const_cast<std::byte*>(bytes)[5] ^= std::byte{1};  // a GuardedBuffer's, thus writable
      plan.done = true;
    }
  }
  return tuttiAllReduce(a.send, a.receive, a.count, a.type, a.op, a.comm, a.stream);
}

class FirstMeasurement : public Reporter {
 public:
  void row_started(const Row&) override {}
  void measured(const Measurement& measurement) override {
    if (!wrong) wrong = measurement.wrong.value_or(-1);
  }
  void row_finished(const Row&) override {}
  void explained(const std::string&) override {}
  void skipped(const std::string&) override {}

  std::optional<std::int64_t> wrong;
};

// 2 iterations of 4 operations in a group use 8 regions. The check of its own looks at region 0,
// the sample of the timed ones at region 7 and, with this seed, 1.
TEST(Bench, AChangedSendBufferIsFoundInAllRegionsOfAnAggregatedRun) {
  for (const std::uint64_t region : {2, 5}) {
    sabotage() = {.region = region};
    Options options;
    options.min_bytes = kBytes;
    options.max_bytes = kBytes * kRegions;
    options.step_factor = kRegions;
    options.iterations = 2;
    options.aggregated = 4;
    const Tool tool{Collective::kAllReduce, changes_its_input};
    ThreadRanks ranks(Communicator::init_all(1), 0, 1);
    FirstMeasurement first;
    Bench bench(tool, options, ranks, {.reporter = &first});
    bench.run();
    EXPECT_TRUE(sabotage().done);
    EXPECT_EQ(first.wrong, 1) << "region " << region;
    ranks.finish();
  }
}

}  // namespace
}  // namespace tutti::perf
