// SPDX-License-Identifier: Apache-2.0
// The sweep: every collective by each of its algorithms, with every type and operation, among 1 to
// 9 threads, in place and not, with counts that no number of ranks divides. The data are the perf
// tools' (exact in any order; perf/common/data.hpp), so every bit is compared.
//
// A run takes one case in kOneCaseIn, drawn by SWEEP_SEED; SWEEP_EVERY takes all. The largest have
// 64 KiB. A last test sends 64 MiB. How many cases ran is printed.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "calls.hpp"
#include "common/data.hpp"
#include "job.hpp"
#include "tests/programs/values.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

constexpr Collective kCollectivesHere[] = {Collective::kAllReduce,     Collective::kBroadcast,
                                           Collective::kReduce,        Collective::kAllGather,
                                           Collective::kReduceScatter, Collective::kGather,
                                           Collective::kScatter,       Collective::kAllToAll};
constexpr tuttiRedOp_t kOps[] = {tuttiSum,        tuttiProd,      tuttiMax,       tuttiMin,
                                 tuttiAvg,        tuttiBitAnd,    tuttiBitOr,     tuttiBitXor,
                                 tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};
constexpr std::size_t kPeriod = 1009;  // elements after which the data repeat
constexpr std::size_t kLargeBytes = 65'536;
constexpr unsigned kOneCaseIn = 8, kOneLargeCaseIn = 64;

bool every_case() { return std::getenv("SWEEP_EVERY") != nullptr; }
bool is_float(tuttiDataType_t type) { return type >= tuttiFloat16; }
bool is_of_nccl(tuttiRedOp_t op) { return op < tuttiNumOps; }

// The inputs of all ranks for one type and operation, and what comes of them.
template <class Bits>
class Values {
 public:
  using Element = Bits;
  Values(tuttiDataType_t type, tuttiRedOp_t op, int ranks, unsigned seed)
      : inputs_(static_cast<std::size_t>(ranks), std::vector<Bits>(kPeriod)), reduced_(kPeriod) {
    // Bitwise and logical operations are of any bits, and of some zeros.
    const perf::DataSpec spec{.type = type,
                              .op = is_of_nccl(op) ? static_cast<perf::Op>(op) : perf::Op::kMin,
                              .ranks = ranks,
                              .seed = seed};
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<Bits>& input = inputs_[static_cast<std::size_t>(rank)];
      perf::fill_input(spec, rank, 0, kPeriod, input.data());
      for (std::size_t i = 0; !is_of_nccl(op) && i < kPeriod; ++i)
        if ((i + static_cast<std::size_t>(rank)) % 3 == 0) input[i] = 0;
    }
    if (is_of_nccl(op)) {
      perf::fill_expected(spec, 0, kPeriod, reduced_.data());
      return;
    }
    std::vector<std::uint64_t> elements(inputs_.size());
    for (std::size_t i = 0; i < kPeriod; ++i) {
      for (std::size_t rank = 0; rank < inputs_.size(); ++rank) elements[rank] = inputs_[rank][i];
      reduced_[i] = static_cast<Bits>(programs::reduce(type, op, elements));
    }
  }
  [[nodiscard]] Bits input(int rank, std::size_t i) const {
    return inputs_[static_cast<std::size_t>(rank)][i % kPeriod];
  }
  [[nodiscard]] Bits reduced(std::size_t i) const { return reduced_[i % kPeriod]; }

 private:
  std::vector<std::vector<Bits>> inputs_;  // by rank
  std::vector<Bits> reduced_;
};

struct Way {
  Collective collective;
  const Algorithm* algorithm;
  std::string name;
};

std::vector<Way> every_way(int ranks) {
  std::vector<Way> ways;
  for (const Collective collective : kCollectivesHere)
    for (const auto& part : {all_algorithms(), direct_algorithms()})
      for (const Algorithm* algorithm : part)
        if (algorithm->supports({.collective = collective, .ranks = ranks}))
          ways.push_back({collective, algorithm, std::string(algorithm->name)});
  const std::string named = "ring:exchange=neighbours";  // a form that no list has
  for (const Collective collective : kCollectivesHere)
    if (const Algorithm* const form = find_algorithm(named).value();
        form->supports({.collective = collective, .ranks = ranks}))
      ways.push_back({collective, form, named});
  return ways;
}

// Every rank draws alike.
struct Draw {
  std::mt19937 random;
  bool takes(unsigned one_in) { return random() % one_in == 0 || every_case(); }
};

// One type and operation, by all ways; the number of cases.
template <class Bits>
int sweep(tuttiComm_t comm, int rank, int ranks, tuttiDataType_t type, tuttiRedOp_t op,
          unsigned seed, Draw& draw) {
  const Values<Bits> values(type, op, ranks, seed);
  constexpr std::size_t kLargeCount = kLargeBytes / sizeof(Bits) - 1;
  int cases = 0;
  for (const Way& way : every_way(ranks)) {
    const CollectiveInfo& info = info_of(way.collective);
    if (!info.reduces() && op != tuttiSum) continue;
    const std::string plan = fmt::format("{}:{}", info.name, way.name);
    bool forced = false;
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{37}, std::size_t{1021}, kLargeCount})
      for (const bool in_place : {false, true}) {
        const int root = static_cast<int>(draw.random() % static_cast<unsigned>(ranks));
        if (!draw.takes(count == kLargeCount ? kOneLargeCaseIn : kOneCaseIn)) continue;
        if (!std::exchange(forced, true)) {
          EXPECT_EQ(tuttiCommSetAlgorithm(comm, plan.c_str()), tuttiSuccess)
              << plan << ": " << tuttiGetLastError(comm);
        }
        const CallCase one{way.collective, count, root, in_place, 0, type, op};
        const std::string wrong = check_call(comm, rank, ranks, one, values);
        EXPECT_EQ(wrong, "") << plan << " type " << type << " operation " << op << " root " << root
                             << " count " << count << " in place " << in_place << " seed " << seed;
        if (!wrong.empty()) return cases;
        ++cases;
      }
  }
  return cases;
}

// Calls `run` with a word of the type's size.
template <class Run>
auto with_bits(tuttiDataType_t type, const Run& run) {
  switch (element_bytes(static_cast<DataType>(type))) {
    case 1:
      return run(std::uint8_t{});
    case 2:
      return run(std::uint16_t{});
    case 4:
      return run(std::uint32_t{});
    default:
      return run(std::uint64_t{});
  }
}

class Sweep : public testing::TestWithParam<int> {};

TEST_P(Sweep, EveryBitIsRight) {
  const int ranks = GetParam();
  const unsigned seed = draw_seed("SWEEP_SEED");
  std::atomic<int> cases{0};
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    Draw draw{std::mt19937(seed)};
    int own = 0;
    for (int type = 0; type < tuttiNumTypes; ++type)
      for (const tuttiRedOp_t op : kOps) {
        const auto of = static_cast<tuttiDataType_t>(type);
        if (testing::Test::HasFailure() || (is_float(of) && !is_of_nccl(op))) continue;
        own += with_bits(of, [&](auto bits) {
          return sweep<decltype(bits)>(comm, rank, ranks, of, op, seed, draw);
        });
      }
    if (rank == 0) cases = own;
  });
  fmt::print("{} cases among {} ranks, each at every rank\n", cases.load(), ranks);
  EXPECT_GT(cases.load(), 500);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Sweep, testing::Range(1, 10));

class LargeSweep : public testing::TestWithParam<Collective> {};

// By one algorithm, among 2 to 4 ranks, which the seed draws, or by all, among 2.
TEST_P(LargeSweep, SixtyFourMebibytes) {
  const unsigned seed = draw_seed("SWEEP_SEED");
  std::mt19937 random(seed);
  const int ranks = every_case() ? 2 : 2 + static_cast<int>(random() % 3);
  std::vector<Way> ways = every_way(ranks);
  std::erase_if(ways, [](const Way& way) { return way.collective != GetParam(); });
  if (!every_case()) ways = {ways[random() % ways.size()]};
  for (const tuttiDataType_t type : {tuttiFloat32, tuttiBfloat16})
    with_bits(type, [&](auto bits) {
      const Values<decltype(bits)> values(type, tuttiSum, ranks, seed);
      const std::size_t data = (std::size_t{64} << 20) / sizeof bits;
      const CallCase one{GetParam(),
                         data / info_of(GetParam()).blocks_among(ranks) - 1,
                         static_cast<int>(random() % static_cast<unsigned>(ranks)),
                         random() % 2 == 0,
                         0,
                         type};
      run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
        for (const Way& way : ways) {
          const std::string plan = fmt::format("{}:{}", name_of(GetParam()), way.name);
          ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan.c_str()), tuttiSuccess) << plan;
          ASSERT_EQ(check_call(comm, rank, ranks, one, values), "")
              << plan << " type " << type << " ranks " << ranks << " root " << one.root
              << " in place " << one.in_place;
        }
      });
    });
}

INSTANTIATE_TEST_SUITE_P(Collectives, LargeSweep, testing::ValuesIn(kCollectivesHere),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace tutti::test
