// SPDX-License-Identifier: Apache-2.0
// What an engine says that it allocates, against what the kernel says that the process has grown by
// (Pss) once all of it was touched.
#include <algorithm>
#include <array>
#include <barrier>
#include <fstream>
#include <string>

#include "model.hpp"
#include "tests/sanitizers.hpp"

namespace tutti::zero::test {
namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kUnitElements = 2 << 20;
constexpr int kUnits = 6;  // more than a pool holds, so that each of its places is used

// Measured: 13 MiB below to 3 MiB above. The smallest pool of parameters has 24 MiB a rank, so one
// that is left out is found.
constexpr double kSlackBytes = 20 << 20;

std::int64_t pss_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;)
    if (std::int64_t kilobytes = 0; word == "Pss:" && file >> kilobytes) return kilobytes * 1024;
  return -1;
}

std::vector<Unit> large_units() {
  std::vector<Unit> units;
  for (int unit = 0; unit < kUnits; ++unit)
    units.push_back({"u" + std::to_string(unit), {{"w" + std::to_string(unit), {kUnitElements}}}});
  return units;
}

void train_one_step(Engine& engine) {
  for (int unit = 0; unit < kUnits; ++unit) static_cast<void>(engine.use(unit, Pass::kForward));
  for (int unit = kUnits; unit-- > 0;) {
    const auto scope = engine.use(unit, Pass::kBackward);
    for (std::uint64_t slot = 0; slot < engine.slots(0).elements(); ++slot) {
      const auto gradients = engine.gradients(unit);
      std::fill_n(gradients[0], kUnitElements, 1.0F);
    }
  }
  engine.step(AdamW{});
}

class ZeroMemory : public ::testing::TestWithParam<Stage> {};

TEST_P(ZeroMemory, TheProcessGrowsByIt) {
  if (tutti::test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory grows with the program's";
  if (pss_bytes() < 0) GTEST_SKIP() << "/proc/self/smaps_rollup is not available";
  const Config config{.stage = GetParam(), .slots = 4};
  const std::vector<Unit> units = large_units();
  std::int64_t before = 0, after = 0;
  std::barrier all(kRanks);
  run_ranks(kRanks, [&](int rank, Communicator& comm) {
    if (rank == 0) before = pss_bytes();
    all.arrive_and_wait();
    Engine engine(comm, units, config);
    fill_first(engine);
    for (int step = 0; step < 2; ++step) train_one_step(engine);
    static_cast<void>(engine.usage());
    all.arrive_and_wait();
    if (rank == 0) after = pss_bytes();
    all.arrive_and_wait();
  });
  const auto planned = kRanks * static_cast<std::int64_t>(memory_of(units, config, kRanks).total());
  EXPECT_NEAR(static_cast<double>(after - before), static_cast<double>(planned), kSlackBytes);
}

std::string name_of(const ::testing::TestParamInfo<Stage>& info) {
  constexpr std::array<const char*, 4> kNames{"Ddp", "Zero1", "Zero2", "Zero3"};
  return kNames[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroMemory,
                         ::testing::Values(Stage::kDdp, Stage::kZero1, Stage::kZero2,
                                           Stage::kZero3),
                         name_of);

}  // namespace
}  // namespace tutti::zero::test
