// SPDX-License-Identifier: Apache-2.0
// The host executor against exact data, for every algorithm, rank count, protocol and replication,
// under random interleavings of the ranks; traffic against the schedule's own counts; peers that
// give up while others read their memory.
#include "exec/host_executor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "local_fabric.hpp"
#include "tests/algorithms/direct_forms.hpp"

namespace tutti::test {
namespace {

constexpr std::uint64_t kArenaBytes = 64 << 10;

struct Case {
  const Algorithm* algorithm;
  std::int32_t ranks;
  Protocol protocol;
  std::uint32_t replicas;
  std::uint32_t slots;
  PeerAccess access = PeerAccess::kMapped;
  std::uint32_t order_seed = 0;  // of the order of ranks; 0: by number
  std::uint32_t orders = 1;      // of the replicas, in turn
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  std::string name(c.algorithm->name);
  std::ranges::replace_if(
      name, [](char letter) { return letter == ':' || letter == '='; }, '_');
  if (c.protocol == Protocol::kDirect) name += std::string("_") + name_of(c.access);
  return name + "_p" + std::to_string(c.ranks) + "_" + name_of(c.protocol) + "_w" +
         std::to_string(c.replicas) + "_s" + std::to_string(c.slots) +
         (c.order_seed == 0 ? "" : "_order" + std::to_string(c.order_seed));
}

// Random orders of ranks.
bool stores(const Algorithm& algorithm) {
  const Problem problem{.collective = Collective::kAllReduce, .ranks = 2};
  return compile_plan(algorithm, problem, {.protocol = Protocol::kDirect}, 0)->stores;
}

void add_orders(std::vector<Case>& cases) {
  for (std::int32_t ranks = 1; ranks <= 9; ++ranks) {
    const auto seed = 100 + static_cast<std::uint32_t>(ranks);
    for (const Algorithm* algorithm : all_algorithms()) {
      cases.push_back({algorithm, ranks, Protocol::kFlagged, 1, 2, PeerAccess::kMapped, seed});
      cases.push_back({algorithm, ranks, Protocol::kSlots, 2, 2, PeerAccess::kMapped, seed, 2});
    }
    for (const Algorithm* algorithm : test::direct_forms(Collective::kAllReduce))
      cases.push_back({algorithm, ranks, Protocol::kDirect, 1, 2,
                       stores(*algorithm) ? PeerAccess::kMapped : PeerAccess::kAttach, seed});
  }
}

RankOrder random_order(std::int32_t ranks, std::uint32_t seed) {
  std::vector<Rank> rank_at(static_cast<std::size_t>(ranks));
  std::iota(rank_at.begin(), rank_at.end(), 0);
  std::mt19937 random(seed);
  if (seed != 0) std::ranges::shuffle(rank_at, random);
  return *RankOrder::make(std::move(rank_at));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16})
      for (const auto& [protocol, replicas, slots] :
           {std::tuple{Protocol::kFlagged, 1u, 2u}, std::tuple{Protocol::kSlots, 1u, 2u},
            std::tuple{Protocol::kSlots, 2u, 2u}, std::tuple{Protocol::kSlots, 3u, 4u}})
        cases.push_back({algorithm, ranks, protocol, replicas, slots});
  for (const Algorithm* algorithm : test::direct_forms(Collective::kAllReduce))
    for (const std::int32_t ranks : {1, 2, 3, 4, 5, 8, 16})
      for (const PeerAccess access : {PeerAccess::kMapped, PeerAccess::kAttach})
        for (const std::uint32_t replicas : {1u, 2u})
          if (access == PeerAccess::kMapped || !stores(*algorithm))
            cases.push_back({algorithm, ranks, Protocol::kDirect, replicas, 2, access});
  add_orders(cases);
  return cases;
}

class ExecutorTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    fabric_ = std::make_unique<LocalFabric>(c.ranks, kArenaBytes, c.access);
    for (std::uint32_t j = 0; j < c.orders; ++j)
      orders_.push_back(random_order(c.ranks, c.order_seed + 1000 * j));
    for (Rank r = 0; r < c.ranks; ++r) {
      auto plan =
          compile_plan(*c.algorithm, {.collective = Collective::kAllReduce, .ranks = c.ranks},
                       {.protocol = c.protocol,
                        .replicas = c.replicas,
                        .slots = c.slots,
                        .slot_bytes = 1024,
                        .arena_bytes = kArenaBytes,
                        .orders = &orders_},
                       r);
      ASSERT_TRUE(plan) << plan.error().message;
      plans_.push_back(*std::move(plan));
    }
    for (const Plan& plan : plans_) executors_.push_back(fabric_->bind(plan));
  }

  // Runs operation `operation` over `count` int32 in a random interleaving and checks every rank.
  void run(std::uint64_t operation, std::uint64_t count, bool in_place) {
    const auto ranks = static_cast<std::size_t>(GetParam().ranks);
    std::vector<std::vector<std::int32_t>> inputs(ranks), outputs(ranks);
    std::vector<std::int32_t> want(count, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      inputs[r].resize(count);
      for (std::int32_t& value : inputs[r]) value = static_cast<std::int32_t>(random_() % 1000);
      for (std::size_t i = 0; i < count; ++i) want[i] += inputs[r][i];
      outputs[r].assign(count + 1, -7);
    }
    const auto kept = inputs;
    for (std::size_t r = 0; r < ranks; ++r) {
      const Call call{.collective = Collective::kAllReduce,
                      .input = inputs[r].data(),
                      .output = in_place ? inputs[r].data() : outputs[r].data(),
                      .count = count,
                      .type = DataType::kInt32};
      ASSERT_TRUE(
          executors_[r]->start({.call = &call,
                                .kernel = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum),
                                .operation = operation,
                                .signature = 1000 + operation}));
    }
    int idle_rounds = 0;
    const auto all_done = [&] {
      return std::all_of(executors_.begin(), executors_.end(), [](auto& e) { return e->done(); });
    };
    while (!all_done()) {
      const bool moved = executors_[random_() % ranks]->advance();
      idle_rounds = moved ? 0 : idle_rounds + 1;
      ASSERT_LT(idle_rounds, 100'000) << "nobody moves any more";
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::vector<std::int32_t>& got = in_place ? inputs[r] : outputs[r];
      ASSERT_TRUE(std::equal(want.begin(), want.end(), got.begin())) << "rank " << r;
      if (!in_place) {
        EXPECT_EQ(outputs[r][count], -7) << "wrote past the end on rank " << r;
        EXPECT_EQ(inputs[r], kept[r]) << "input changed on rank " << r;
      }
    }
  }

  std::mt19937 random_{20'261'120};
  std::unique_ptr<LocalFabric> fabric_;
  std::vector<RankOrder> orders_;
  std::vector<Plan> plans_;
  std::vector<std::unique_ptr<HostExecutor>> executors_;
};

TEST_P(ExecutorTest, SumsExactlyInAnyInterleaving) {
  std::uint64_t operation = 0;
  // Direct plans read pieces of some 10,000 elements; the last counts lie around their borders.
  std::vector<std::uint64_t> counts{1, 2, 5, 63, 124, 125, 1000, 10'007};
  if (GetParam().protocol == Protocol::kDirect)
    for (const std::uint64_t count : {16'383ul, 32'768ul, 32'769ul, 100'003ul})
      counts.push_back(count);
  for (const std::uint64_t count : counts) {
    run(++operation, count, false);
    run(++operation, count, true);
    if (HasFatalFailure()) FAIL() << "count " << count << ", seed 20261120";
  }
}

TEST_P(ExecutorTest, SendsWhatTheScheduleSays) {
  constexpr std::uint64_t kCount = 4800;  // divisible by every chunk count here
  run(1, kCount, false);
  const auto schedule = build_schedule(
      *GetParam().algorithm, {.collective = Collective::kAllReduce, .ranks = GetParam().ranks});
  ASSERT_TRUE(schedule);
  const std::uint64_t count = std::lcm(std::uint64_t{16} * schedule->shape.chunks, 16ul) * 10;
  const std::uint64_t chunk_bytes = count * 4 / schedule->shape.chunks;
  std::vector<TrafficCounters> before;
  for (auto& executor : executors_) before.push_back(executor->traffic());
  run(2, count, false);
  for (std::size_t r = 0; r < executors_.size(); ++r) {
    std::uint64_t chunks = 0, remote_chunks = 0, stored_chunks = 0;
    // Which slices are which replica's: with several orders a rank's share is not one place's.
    if (orders_.size() > 1) continue;
    const auto place = static_cast<std::size_t>(orders_.front().place_of(static_cast<Rank>(r)));
    for (const Lane& lane : schedule->ranks[place].lanes)
      for (const Step& step : lane.steps) {
        for (const Operand& operand : step.destinations)
          if (operand.kind == OperandKind::kSend)
            chunks += operand.span.count();
          else if (operand.kind == OperandKind::kRemote)
            stored_chunks += operand.span.count();
        for (const Operand& operand : step.sources)
          if (operand.kind == OperandKind::kRemote) remote_chunks += operand.span.count();
      }
    const TrafficCounters& now = executors_[r]->traffic();
    EXPECT_EQ(now.payload_bytes - before[r].payload_bytes, chunks * chunk_bytes);
    EXPECT_EQ(now.read_bytes - before[r].read_bytes, remote_chunks * chunk_bytes);
    EXPECT_EQ(now.stored_bytes - before[r].stored_bytes, stored_chunks * chunk_bytes);
  }
}

// What `rank` must end with, by the definition of the collective.
std::int64_t expected(const Problem& problem, const std::vector<std::vector<std::int64_t>>& inputs,
                      Rank rank, std::uint64_t count, std::uint64_t i) {
  const auto at = [&](Rank r, std::uint64_t k) { return inputs[static_cast<std::size_t>(r)][k]; };
  if (problem.collective == Collective::kBroadcast) return at(problem.root, i);
  const auto block = static_cast<std::uint64_t>(rank) * count;
  if (problem.collective == Collective::kScatter) return at(problem.root, block + i);
  if (problem.collective == Collective::kAllGather || problem.collective == Collective::kGather)
    return at(static_cast<Rank>(i / count), i % count);
  if (problem.collective == Collective::kAllToAll)
    return at(static_cast<Rank>(i / count), block + i % count);
  const std::uint64_t first = problem.collective == Collective::kReduceScatter ? block : 0;
  std::int64_t sum = 0;
  for (Rank r = 0; r < problem.ranks; ++r) sum += at(r, first + i);
  return sum;
}

// In two replicas of different orders; each rank has its own block and the root is the root.
void run_in_orders(const Algorithm& algorithm, const Problem& problem, Protocol protocol) {
  SCOPED_TRACE(testing::Message() << algorithm.name << ", " << name_of(problem.collective) << ", "
                                  << problem.ranks << " ranks, root " << problem.root);
  const CollectiveInfo& info = info_of(problem.collective);
  const std::vector<RankOrder> orders{random_order(problem.ranks, 7),
                                      random_order(problem.ranks, 8)};
  LocalFabric fabric(problem.ranks, kArenaBytes, PeerAccess::kMapped);
  std::vector<Plan> plans;
  for (Rank r = 0; r < problem.ranks; ++r)
    plans.push_back(*compile_plan(algorithm, problem,
                                  {.protocol = protocol,
                                   .replicas = 2,
                                   .slot_bytes = 1024,
                                   .arena_bytes = kArenaBytes,
                                   .orders = &orders},
                                  r));
  std::vector<std::unique_ptr<HostExecutor>> executors;
  for (const Plan& plan : plans) executors.push_back(fabric.bind(plan));
  std::uint64_t operation = 0;
  for (const std::uint64_t count : {1ul, 7ul, 1001ul}) {
    ++operation;
    std::vector<std::vector<std::int64_t>> inputs, outputs;
    std::mt19937 random(static_cast<std::uint32_t>(count));
    for (Rank r = 0; r < problem.ranks; ++r) {
      inputs.emplace_back(info.elements(info.input, count, problem.ranks));
      for (std::int64_t& value : inputs.back()) value = static_cast<std::int64_t>(random());
      outputs.emplace_back(info.elements(info.output, count, problem.ranks), -7);
    }
    std::vector<Call> calls;
    for (std::size_t r = 0; r < inputs.size(); ++r)
      calls.push_back({.collective = problem.collective,
                       .input = inputs[r].data(),
                       .output = outputs[r].data(),
                       .count = count,
                       .type = DataType::kInt64,
                       .root = problem.root});
    for (std::size_t r = 0; r < inputs.size(); ++r)
      ASSERT_TRUE(
          executors[r]->start({.call = &calls[r],
                               .kernel = reduce_copy_kernel(DataType::kInt64, ReduceOp::kSum),
                               .operation = operation,
                               .signature = 1000 + operation}));
    for (int round = 0; !std::ranges::all_of(executors, [](auto& e) { return e->done(); });
         ++round) {
      ASSERT_LT(round, 1'000'000) << "nobody moves any more";
      for (auto& executor : executors) executor->advance();
    }
    for (Rank r = 0; r < problem.ranks; ++r) {
      const auto& got = outputs[static_cast<std::size_t>(r)];
      const bool has = CollectiveInfo::has(info.output, r, problem.root);
      for (std::uint64_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], has ? expected(problem, inputs, r, count, i) : -7)
            << "rank " << r << ", element " << i << " of " << count;
    }
  }
}

TEST(ExecutorOrders, RanksKeepTheirBlocksAndRoots) {
  for (const Algorithm* algorithm : all_algorithms())
    for (std::size_t c = 1; c < kCollectiveCount; ++c)
      for (const std::int32_t ranks : {2, 3, 5, 8}) {
        const Problem problem{static_cast<Collective>(c), ranks, ranks / 2};
        if (!algorithm->supports(problem)) continue;
        for (const Protocol protocol : {Protocol::kFlagged, Protocol::kSlots})
          run_in_orders(*algorithm, problem, protocol);
        if (testing::Test::HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(All, ExecutorTest, testing::ValuesIn(all_cases()), name_of_case);

// Turns that all ranks take, from the last to the first, until `slices` slices are done.
int turns_for(std::string_view algorithm, std::int32_t ranks, std::uint32_t slices) {
  constexpr std::uint64_t kCount = 1 << 16;
  LocalFabric fabric(ranks, kArenaBytes);
  std::vector<Plan> plans;
  for (Rank r = 0; r < ranks; ++r)
    plans.push_back(*compile_plan(
        **find_algorithm(algorithm), {.collective = Collective::kAllReduce, .ranks = ranks},
        {.slot_bytes = 4096, .arena_bytes = kArenaBytes, .min_slices = slices}, r));
  std::vector<std::unique_ptr<HostExecutor>> executors;
  for (const Plan& plan : plans) executors.push_back(fabric.bind(plan));
  std::vector<std::vector<std::int32_t>> data(plans.size(), std::vector<std::int32_t>(kCount, 1));
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const Call call{.collective = Collective::kAllReduce,
                    .input = data[r].data(),
                    .output = data[r].data(),
                    .count = kCount,
                    .type = DataType::kInt32};
    EXPECT_TRUE(executors[r]->start({.call = &call,
                                     .kernel = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum),
                                     .operation = 1}));
    EXPECT_EQ(executors[r]->slices(), slices);
  }
  int turns = 0;
  for (bool moved = true; moved; ++turns) {
    moved = false;
    for (auto executor = executors.rbegin(); executor != executors.rend(); ++executor)
      moved |= (*executor)->advance();
  }
  EXPECT_EQ(data[0][kCount - 1], ranks);
  return turns;
}

// What a slice adds does not grow with the depth of the tree; beside it the ring, where it does.
TEST(ExecutorPace, TreesTakeDepthPlusSlices) {
  const auto per_slice = [](std::string_view algorithm, std::int32_t ranks) {
    return (turns_for(algorithm, ranks, 192) - turns_for(algorithm, ranks, 64)) / 128.0;
  };
  for (const char* algorithm : {"tree", "hierarchical:form=leader:inner=tree:outer=tree"}) {
    EXPECT_LE(per_slice(algorithm, 8), 1.5) << algorithm;
    EXPECT_LE(per_slice(algorithm, 64), 1.5) << algorithm;
    EXPECT_GT(turns_for(algorithm, 64, 64), turns_for(algorithm, 8, 64)) << algorithm;
  }
  EXPECT_GT(per_slice("ring", 8), 3);
  EXPECT_GT(per_slice("ring", 16), 1.5 * per_slice("ring", 8));
}

TEST(ExecutorFaults, ForeignSignatureStopsTheReceiver) {
  LocalFabric fabric(2, kArenaBytes);
  std::vector<Plan> plans;
  for (Rank r = 0; r < 2; ++r)
    plans.push_back(*compile_plan(**find_algorithm("one_shot"),
                                  {.collective = Collective::kAllReduce, .ranks = 2},
                                  {.protocol = Protocol::kFlagged}, r));
  auto first = fabric.bind(plans[0]), second = fabric.bind(plans[1]);
  float in = 1, out = 0;
  const Call call{.collective = Collective::kAllReduce, .input = &in, .output = &out, .count = 1};
  const OperationArgs args{.call = &call,
                           .kernel = reduce_copy_kernel(DataType::kFloat32, ReduceOp::kSum),
                           .operation = 1,
                           .signature = 11};
  OperationArgs other = args;
  other.signature = 12;
  ASSERT_TRUE(first->start(args));
  ASSERT_TRUE(second->start(other));
  for (int i = 0; i < 10; ++i) {
    first->advance();
    second->advance();
  }
  EXPECT_EQ(first->fault(), HostExecutor::Fault::kSignature);
  EXPECT_EQ(first->fault_peer(), 1);
  EXPECT_EQ(second->fault_peer(), 0);
  EXPECT_FALSE(first->done());
}

// Two ranks of a direct plan over `access`; rank 1, the root if there is one, gives up once both
// have begun.
void give_up_in_the_middle(const char* name, PeerAccess access,
                           Collective collective = Collective::kAllReduce) {
  LocalFabric fabric(2, kArenaBytes, access);
  std::vector<Plan> plans;
  for (Rank r = 0; r < 2; ++r)
    plans.push_back(*compile_plan(**find_algorithm(name),
                                  {.collective = collective, .ranks = 2, .root = 1},
                                  {.protocol = Protocol::kDirect}, r));
  auto first = fabric.bind(plans[0]), second = fabric.bind(plans[1]);
  std::vector<float> in(2000, 1), out(2000), root_out(2000);
  const Call call{
      .collective = collective, .input = in.data(), .output = out.data(), .count = 1000, .root = 1};
  Call root_call = call;
  root_call.output = root_out.data();
  const OperationArgs args{.call = &call,
                           .kernel = reduce_copy_kernel(DataType::kFloat32, ReduceOp::kSum),
                           .operation = 1};
  OperationArgs root_args = args;
  root_args.call = &root_call;
  ASSERT_TRUE(first->start(args));
  ASSERT_TRUE(second->start(root_args));
  second->advance();  // has told that its input is there
  EXPECT_EQ(second->withdraw([](Rank) { return false; }), kNoRank);
  first->advance();
  EXPECT_EQ(first->fault(), HostExecutor::Fault::kUnreadable);
  EXPECT_EQ(first->fault_peer(), 1);
  EXPECT_EQ(first->fault_errno(), 0);
  EXPECT_FALSE(first->done());
  EXPECT_EQ(first->traffic().stored_bytes, 0U);
  EXPECT_THAT(out, testing::Each(0.0F));
  if (collective == Collective::kGather || collective == Collective::kReduce) {
    const auto block = std::span(root_out).first(1000);  // rank 0's; the root has filled its own
    EXPECT_THAT(std::vector(block.begin(), block.end()), testing::Each(0.0F));
  }
}

TEST(ExecutorFaults, APeerThatGivesUpIsNotReadByLoads) {
  give_up_in_the_middle("two_shot:access=remote", PeerAccess::kMapped);
}
TEST(ExecutorFaults, APeerThatGivesUpIsNotReadByAttach) {
  give_up_in_the_middle("two_shot:access=remote", PeerAccess::kAttach);
}
TEST(ExecutorFaults, APeerThatGivesUpIsNotStoredTo) {
  give_up_in_the_middle("two_shot:access=store", PeerAccess::kMapped);
}
// It uses nobody's memory itself.
TEST(ExecutorFaults, ARootThatGivesUpIsNotUsed) {
  for (const PeerAccess access : {PeerAccess::kMapped, PeerAccess::kAttach})
    for (const Collective collective : {Collective::kBroadcast, Collective::kScatter})
      give_up_in_the_middle("one_shot:access=remote", access, collective);
  give_up_in_the_middle("one_shot:access=store", PeerAccess::kMapped, Collective::kGather);
  give_up_in_the_middle("two_shot:access=store", PeerAccess::kMapped, Collective::kReduce);
}

TEST(ExecutorFaults, NothingIsStoredIntoOtherProcessesOutsideOfWindows) {
  LocalFabric fabric(2, kArenaBytes, PeerAccess::kAttach);
  const Plan plan = *compile_plan(**find_algorithm("two_shot:access=store"),
                                  {.collective = Collective::kAllReduce, .ranks = 2},
                                  {.protocol = Protocol::kDirect}, 0);
  float data = 1;
  const Call call{
      .collective = Collective::kAllReduce, .input = &data, .output = &data, .count = 1};
  const Status status = fabric.bind(plan)->start({.call = &call, .operation = 1});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInternalError);
}

TEST(ExecutorFaults, MemoryThatIsNotThereIsNamed) {
  LocalFabric fabric(2, kArenaBytes, PeerAccess::kAttach);
  std::vector<Plan> plans;
  for (Rank r = 0; r < 2; ++r)
    plans.push_back(*compile_plan(**find_algorithm("two_shot:access=remote"),
                                  {.collective = Collective::kAllReduce, .ranks = 2},
                                  {.protocol = Protocol::kDirect}, r));
  auto first = fabric.bind(plans[0]), second = fabric.bind(plans[1]);
  std::vector<float> in(1000, 1), out(1000);
  Call call{.collective = Collective::kAllReduce,
            .input = in.data(),
            .output = out.data(),
            .count = in.size()};
  OperationArgs args{.call = &call,
                     .kernel = reduce_copy_kernel(DataType::kFloat32, ReduceOp::kSum),
                     .operation = 1};
  ASSERT_TRUE(first->start(args));
  call.input = reinterpret_cast<const void*>(std::uintptr_t{64});  // on the page that nobody has
  ASSERT_TRUE(second->start(args));
  second->advance();
  first->advance();
  EXPECT_EQ(first->fault(), HostExecutor::Fault::kUnreadable);
  EXPECT_EQ(first->fault_peer(), 1);
  EXPECT_EQ(first->fault_errno(), EFAULT);
}

TEST(ExecutorFaults, RefusesAPlanWithoutSeal) {
  Plan plan =
      *compile_plan(**find_algorithm("ring"), {.collective = Collective::kAllReduce, .ranks = 1},
                    {.slot_bytes = 4096, .arena_bytes = kArenaBytes}, 0);
  plan.seal = Seal::kNone;
  HostExecutor executor(plan, {}, {});
  const Status status = executor.start({});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInternalError);
}

}  // namespace
}  // namespace tutti::test
