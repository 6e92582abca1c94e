// SPDX-License-Identifier: Apache-2.0
// The simulator against the price where nothing is contended, against sharing worked out by hand,
// and its representatives against all ranks.
#include "lab/simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <tuple>

#include "model/event_graph.hpp"
#include "networks.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using networks::Nodes;
using networks::Shape;

Simulation simulated(const PlanModel& model, const Costs& costs, const SimulationRequest& request) {
  const Result<Simulation> result = simulate(model, costs, request);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(Simulation{});
}

PlanModel model_of(std::string_view name, const Nodes& network, std::uint32_t replicas = 1,
                   bool every_rank = false) {
  return PlanModel::make(*find_algorithm(name).value(),
                         {.collective = Collective::kAllReduce, .ranks = network.ranks()}, network,
                         replicas, every_rank)
      .value();
}

TEST(Simulator, IsThePriceWhereNothingIsShared) {
  const Costs costs = networks::costs();
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t p : {1, 2, 5, 8, 16})
      for (const std::uint32_t slices : {1U, 6U}) {
        const Nodes network({.ranks = p});
        const PlanModel model = model_of(algorithm->name, network, 2);
        const double priced =
            model.price(costs, {.bytes = 1 << 18, .slices = slices}).value().time_ns;
        EXPECT_NEAR(simulated(model, costs, {.bytes = 1 << 18, .slices = slices}).time_ns, priced,
                    1e-9 * priced)
            << algorithm->name << ", " << p << " ranks, " << slices << " slices";
      }
}

TEST(Simulator, IsThePriceOfOneMessageAtATimeOnLinks) {
  const Costs costs = networks::costs();
  for (const char* name : {"ring", "butterfly", "rabenseifner", "circulant", "pat"}) {
    const Nodes network({.ranks = 16, .adapters = 1});
    const PlanModel model = model_of(name, network);
    const double priced = model.price(costs, {.bytes = 1 << 20}).value().time_ns;
    EXPECT_NEAR(simulated(model, costs, {.bytes = 1 << 20}).time_ns, priced, 1e-9 * priced) << name;
  }
}

// 512 nodes of 8, every family. Nobody knows the result before as many bytes have come; and the
// price of the same plan is never far.
TEST(Simulator, RunsEveryFamilyAmong4096Ranks) {
  const Costs costs = networks::costs();
  const Shape shape{.ranks = 4096, .node = 8, .adapters = 8};
  const Nodes network(shape);
  constexpr std::uint64_t kBytes = 1 << 20;
  for (const Algorithm* algorithm : all_algorithms()) {
    const PlanModel model = model_of(algorithm->name, network);
    const double time_ns = simulated(model, costs, {.bytes = kBytes}).time_ns;
    const double price_ns = model.price(costs, {.bytes = kBytes}).value().time_ns;
    std::printf("%-24s simulated %10.1f us, price %10.1f us\n",
                std::string(algorithm->name).c_str(), time_ns / 1e3, price_ns / 1e3);
    EXPECT_GT(time_ns, kBytes * shape.inside_ns_per_byte * (1 - 1.0 / shape.ranks))
        << algorithm->name;
    EXPECT_LT(time_ns, 2 * price_ns) << algorithm->name;
    EXPECT_GT(time_ns, price_ns / 2) << algorithm->name;
  }
}

// Rank 0 sends the others all of it at once: a port among p-1 flows, all through together.
TEST(Simulator, AStarSharesItsPort) {
  Costs costs = networks::costs();
  costs.gap_ns = 0;
  const Shape shape{.ranks = 5, .adapters = 1};
  const Nodes network(shape);
  const PlanModel model =
      PlanModel::make(*find_algorithm("one_shot").value(),
                      {.collective = Collective::kBroadcast, .ranks = 5}, network)
          .value();
  const double n = 65536;
  const Simulation result = simulated(model, costs, {.bytes = 65536});
  const double sent = costs.start_ns + costs.step_ns + 6 * n * costs.operand_ns_per_byte;
  const double there = sent + 4 * n * shape.between_ns_per_byte / costs.hops[2].efficiency +
                       costs.hops[2].alpha_ns + shape.between_ns;
  const double end = there + costs.step_ns + 2 * n * costs.operand_ns_per_byte;
  ASSERT_EQ(result.rank_ends_ns.size(), 5U);
  EXPECT_NEAR(result.rank_ends_ns[0], sent, 1e-6);
  for (std::size_t rank = 1; rank < 5; ++rank) EXPECT_NEAR(result.rank_ends_ns[rank], end, 1e-6);
  const double busy = 4 * n * shape.between_ns_per_byte / costs.hops[2].efficiency / end;
  EXPECT_NEAR(result.link_busy[2], busy, 1e-9);          // out of rank 0's adapter
  EXPECT_NEAR(result.link_busy[5 + 3], busy / 4, 1e-9);  // into rank 1's
}

// Two flows of unequal length: the short one leaves, the long one has the link alone.
TEST(Simulator, TheRestHasTheLinkAlone) {
  Costs costs;
  costs.step_ns = 10;
  const Shape shape{.ranks = 4, .node = 2, .adapters = 1, .inside_ns_per_byte = 0.001};
  const Nodes network(shape);
  // Ranks 0 and 1 send to 2 and 3 at once by the one adapter, a quarter and three quarters.
  class TwoMessages final : public Algorithm {
   public:
    TwoMessages() : Algorithm("two_messages", "", "") {}
    bool supports(const Problem&) const override { return true; }
    ScheduleShape shape(const Problem& problem) const override {
      return {.algorithm = "two_messages", .ranks = problem.ranks, .chunks = 4};
    }
    RankProgram program(const Problem&, Rank rank) const override {
      using namespace operands;
      LaneBuilder lane("lane");
      const Span span = chunks(0, rank % 2 == 0 ? 1 : 3);
      if (rank < 2) {
        lane.step().to(send(rank + 2, 0, span)).from(input(span));
      } else {
        lane.step().to(output(span)).from(recv(rank - 2, 0, span));
      }
      return assemble({lane});
    }
  };
  const TwoMessages algorithm;
  const PlanModel model =
      PlanModel::make(algorithm, {.collective = Collective::kAllReduce, .ranks = 4}, network)
          .value();
  const Simulation result = simulated(model, costs, {.bytes = 4000});
  const double b = shape.between_ns_per_byte, way = 10 + shape.between_ns + 10;
  EXPECT_NEAR(result.rank_ends_ns[2], way + 2 * 1000 * b, 1e-6);
  EXPECT_NEAR(result.rank_ends_ns[3], way + 4 * 1000 * b, 1e-6);
  // A queue serves rank 0's message first, alone.
  EXPECT_NEAR(model.price(costs, {.bytes = 4000}).value().time_ns, way + 4 * 1000 * b, 1e-6);
}

TEST(Simulator, TracesEveryStepAndMessage) {
  const Nodes network({.ranks = 6, .adapters = 1});
  const PlanModel model = model_of("ring", network, 1, true);
  const Simulation result = simulated(model, networks::costs(),
                                      {.bytes = 6000, .slices = 3, .full = true, .trace = true});
  const auto steps =
      std::ranges::count(result.trace, SimulatedEvent::Kind::kStep, &SimulatedEvent::kind);
  EXPECT_EQ(steps, 6 * 11 * 3);
  EXPECT_EQ(static_cast<std::int64_t>(result.trace.size()) - steps, 6 * 10 * 3);
  double last_ns = 0;
  for (const SimulatedEvent& event : result.trace) {
    EXPECT_LE(event.begin_ns, event.end_ns);
    last_ns = std::max(last_ns, event.end_ns);
    if (event.kind == SimulatedEvent::Kind::kStep) continue;
    EXPECT_EQ(event.peer, (event.rank + 1) % 6);
    EXPECT_NEAR(event.bytes, 6000.0 / 6 / 3, 1e-9);
  }
  EXPECT_EQ(last_ns, result.time_ns);
  EXPECT_EQ(simulate(model, networks::costs(), {.trace = true}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(simulate(model, networks::costs(), {.slices = 0}).error().code, Code::kInvalidArgument);
}

const Shape kPlaces[] = {
    {},
    {.adapters = 1},
    {.node = 4, .adapters = 1},
    {.node = 8, .adapters = 2},
    {.node = 8, .adapters = 4, .bus = true},
    {.node = 4, .adapters = 2, .workers = 3},
};

// By ranks and place.
class SimulatorAtRanks : public testing::TestWithParam<std::tuple<std::int32_t, std::size_t>> {};

TEST_P(SimulatorAtRanks, RepresentativesAreSimulatedAsAll) {
  const auto [ranks, place] = GetParam();
  Shape shape = kPlaces[place];
  shape.ranks = ranks;
  const Nodes network(shape);
  int reduced = 0;
  for (const Algorithm* algorithm : all_algorithms()) {
    const PlanModel few = model_of(algorithm->name, network);
    if (few.graph().represented == 1) continue;
    ++reduced;
    const PlanModel all = model_of(algorithm->name, network, 1, true);
    const SimulationRequest request{
        .bytes = 1 << 20, .slices = ranks == 64 ? 1U : 2U, .full = true};
    const Simulation fast = simulated(few, networks::costs(), request);
    const Simulation full = simulated(all, networks::costs(), request);
    EXPECT_NEAR(fast.time_ns, full.time_ns, 1e-9 * full.time_ns) << algorithm->name;
    // Links are those of the nodes represented, node by node.
    const std::size_t each = full.link_busy.size() / static_cast<std::size_t>(ranks / shape.node);
    for (std::size_t i = 0; i < fast.link_busy.size(); ++i) {
      const std::size_t first = i / each * static_cast<std::size_t>(shape.node);
      const auto node = static_cast<std::size_t>(few.graph().ranks[first] / shape.node);
      ASSERT_NEAR(fast.link_busy[i], full.link_busy[node * each + i % each], 1e-9)
          << algorithm->name << " " << i;
    }
  }
  EXPECT_EQ(reduced > 0, ranks > shape.node);
}

INSTANTIATE_TEST_SUITE_P(Representatives, SimulatorAtRanks,
                         testing::Combine(testing::Values(8, 16, 24, 32, 64),
                                          testing::Range(std::size_t{0}, std::size(kPlaces))));

TEST(Simulator, RoundsRepeat) {
  for (const char* name : {"ring", "butterfly", "two_shot"}) {
    const Nodes network({.ranks = 16, .node = 4, .adapters = 1});
    const PlanModel model = model_of(name, network, 2);
    const Simulation fast = simulated(model, networks::costs(), {.bytes = 1 << 20, .slices = 40});
    const Simulation full =
        simulated(model, networks::costs(), {.bytes = 1 << 20, .slices = 40, .full = true});
    EXPECT_NEAR(fast.time_ns, full.time_ns, 1e-9 * full.time_ns) << name;
    EXPECT_LT(fast.events, full.events) << name;
    EXPECT_NEAR(fast.link_busy[8], full.link_busy[8], 1e-9) << name;
  }
}

// Messages in one global order that every rank follows, on lanes of their own for sends and
// receives: never stuck, of no sense.
class RandomMessages final : public Algorithm {
 public:
  explicit RandomMessages(std::uint64_t seed) : Algorithm("random", "", ""), random_(seed) {
    for (int i = 0; i < 40; ++i) {
      const auto from = static_cast<Rank>(random_() % kRanks);
      const auto to = static_cast<Rank>(
          (static_cast<std::uint64_t>(from) + 1 + random_() % (kRanks - 1)) % kRanks);
      messages_.push_back({from, to, static_cast<std::uint32_t>(random_() % kChunks)});
    }
  }
  static constexpr std::uint32_t kRanks = 8, kChunks = 6;
  struct Message {
    Rank from, to;
    std::uint32_t chunks;
  };

  bool supports(const Problem&) const override { return true; }
  ScheduleShape shape(const Problem& problem) const override {
    return {.algorithm = "random", .ranks = problem.ranks, .chunks = kChunks};
  }
  RankProgram program(const Problem&, Rank rank) const override {
    using namespace operands;
    LaneBuilder out("out"), in("in");
    for (const Message& message : messages_) {
      const Span span = chunks(0, message.chunks);
      if (message.from == rank) out.step().to(send(message.to, 0, span)).from(input(span));
      if (message.to == rank) in.step().to(output(span)).from(recv(message.from, 0, span));
    }
    return assemble({out, in});
  }
  [[nodiscard]] const std::vector<Message>& messages() const { return messages_; }

 private:
  std::mt19937_64 random_;
  std::vector<Message> messages_;
};

class RandomMessaging : public testing::TestWithParam<std::uint64_t> {};

// Under no bound that holds whatever the order, and, without links, the very price.
TEST_P(RandomMessaging, KeepsToWhatLinksAndWorkersCanDo) {
  const RandomMessages algorithm(GetParam());
  Costs costs = networks::costs();
  const Problem problem{.collective = Collective::kAllReduce, .ranks = RandomMessages::kRanks};
  for (const Shape& shape : {Shape{.ranks = 8}, Shape{.ranks = 8, .node = 4, .adapters = 1},
                             Shape{.ranks = 8, .node = 2, .adapters = 2, .bus = true}}) {
    SCOPED_TRACE(testing::Message() << "seed " << GetParam() << ", nodes of " << shape.node);
    const Nodes network(shape);
    const PlanModel model = PlanModel::make(algorithm, problem, network).value();
    const Simulation result = simulated(model, costs, {.bytes = 1 << 18, .slices = 2});
    const double priced = model.price(costs, {.bytes = 1 << 18, .slices = 2}).value().time_ns;
    for (const double busy : result.link_busy) EXPECT_LE(busy, 1);
    for (const auto& [from, to, chunks] : algorithm.messages()) {
      const Route route = network.route(from, to);
      const HopCosts& hop = costs.hops[static_cast<std::size_t>(route.hop)];
      const double alone = chunks * (1 << 18) / 6.0 * route.ns_per_byte / hop.efficiency +
                           hop.alpha_ns + route.latency_ns;
      EXPECT_GE(result.time_ns, alone);
      EXPECT_GE(priced, alone);
    }
    if (shape.adapters == 0) {
      EXPECT_NEAR(result.time_ns, priced, 1e-9 * priced);
    }
    EXPECT_EQ(result.events, 2 * 2 * algorithm.messages().size());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomMessaging,
                         testing::Range(std::uint64_t{1}, std::uint64_t{21}));

}  // namespace
}  // namespace tutti
