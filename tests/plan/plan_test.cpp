// SPDX-License-Identifier: Apache-2.0
// Plans: both ends of every connection agree on where it lies, nothing overlaps, every message
// fits.
#include "plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>

#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"
#include "tests/algorithms/direct_forms.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

std::vector<Plan> plans_of(const Algorithm& algorithm, std::int32_t ranks,
                           const PlanOptions& options) {
  std::vector<Plan> plans;
  for (Rank r = 0; r < ranks; ++r) {
    auto plan =
        compile_plan(algorithm, {.collective = Collective::kAllReduce, .ranks = ranks}, options, r);
    EXPECT_TRUE(plan) << plan.error().message;
    plans.push_back(*std::move(plan));
  }
  return plans;
}

auto key(const ConnectionSpec& spec) {
  return std::tuple(spec.source, spec.destination, spec.index, spec.first_cell, spec.cells_per_slot,
                    spec.short_slots, spec.arena_offset_bytes, spec.slot_bytes, spec.slots);
}

TEST(Plan, EndsAgreeAndRegionsAreDisjoint) {
  for (const Algorithm* algorithm : all_algorithms())
    for (const Protocol protocol : {Protocol::kFlagged, Protocol::kSlots})
      for (const std::uint32_t replicas : {1u, 2u})
        for (std::int32_t ranks = 1; ranks <= 17; ++ranks) {
          constexpr std::uint64_t kArena = 1 << 20;
          const auto plans = plans_of(*algorithm, ranks,
                                      {.protocol = protocol,
                                       .replicas = replicas,
                                       .slot_bytes = 1 << 20,
                                       .arena_bytes = kArena});
          std::multiset<decltype(key({}))> sent, received;
          for (const Plan& plan : plans) {
            EXPECT_EQ(plan.id, plans[0].id);
            EXPECT_EQ(plan.carve, plans[0].carve);
            EXPECT_EQ(plan.cells, plans[0].cells);
            EXPECT_EQ(plan.message_bytes, plans[0].message_bytes);
            for (const auto& spec : plan.sends) sent.insert(key(spec));
            std::map<std::uint64_t, std::uint64_t> regions;  // of this rank's inbox
            std::map<std::pair<Rank, std::uint32_t>, std::uint32_t> cells;
            for (const auto& spec : plan.recvs) {
              received.insert(key(spec));
              EXPECT_LT(spec.index, kMaxConnectionsPerPair);
              if (protocol == Protocol::kSlots)
                regions[spec.arena_offset_bytes] = spec.slots * spec.slot_bytes;
              else
                EXPECT_LE(spec.first_cell + spec.slots * spec.cells_per_slot, kCellsPerPair);
            }
            std::uint64_t end = 0;
            for (const auto& [begin, bytes] : regions) {
              EXPECT_GE(begin, end);
              end = begin + bytes;
            }
            EXPECT_LE(end, kArena);
          }
          EXPECT_EQ(sent, received) << algorithm->name << " p=" << ranks;
        }
}

TEST(Plan, SlicesMakeEveryMessageFit) {
  std::mt19937_64 random(7);
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t ranks : {1, 2, 3, 8}) {
      const Plan plan =
          *compile_plan(*algorithm, {.collective = Collective::kAllReduce, .ranks = ranks},
                        {.slot_bytes = 4096, .arena_bytes = 1 << 20}, 0);
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes_each = std::size_t{1} << random() % 4;
        const std::uint64_t count = random() % (std::uint64_t{1} << random() % 24) + 1;
        const auto slices = static_cast<std::uint32_t>(plan.slices_for(count, bytes_each));
        const UniformCut cut{count, plan.shape.chunks, slices, grain_elements(bytes_each)};
        std::uint64_t covered = 0;
        for (std::uint32_t c = 0; c < plan.shape.chunks; ++c)
          for (std::uint32_t s = 0; s < std::min(slices, 64u); ++s) {
            ASSERT_LE(cut.slice(c, s).count() * bytes_each, plan.message_bytes)
                << algorithm->name << " count " << count << " x " << bytes_each;
            covered += cut.slice(c, s).count();
          }
        if (slices <= 64) {
          EXPECT_EQ(covered, count);
        }
      }
    }
}

TEST(Plan, RefusesWhatDoesNotFit) {
  const auto arena = compile_plan(**find_algorithm("one_shot"),
                                  {.collective = Collective::kAllReduce, .ranks = 64},
                                  {.slot_bytes = 4096, .arena_bytes = 8192}, 0);
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().code, Code::kInvalidArgument);
  EXPECT_THAT(arena.error().message, HasSubstr("TUTTI_ARENA_BYTES"));
  const auto collective = compile_plan(**find_algorithm("ring"),
                                       {.collective = Collective::kAllToAll, .ranks = 4}, {}, 0);
  ASSERT_FALSE(collective);
  EXPECT_EQ(collective.error().code, Code::kNotSupported);
}

TEST(Plan, RemoteOperandsAndTheDirectProtocolBelongTogether) {
  const Algorithm& remote = **find_algorithm("two_shot:access=remote");
  const auto message = [](const Algorithm& algorithm, Protocol protocol) {
    const auto plan =
        compile_plan(algorithm, {.collective = Collective::kAllReduce, .ranks = 3},
                     {.protocol = protocol, .slot_bytes = 4096, .arena_bytes = 1 << 20}, 1);
    return plan ? "accepted" : plan.error().message;
  };
  EXPECT_EQ(message(remote, Protocol::kDirect), "accepted");
  EXPECT_THAT(message(remote, Protocol::kSlots), HasSubstr("works in a peer's memory"));
  EXPECT_THAT(message(remote, Protocol::kFlagged), HasSubstr("works in a peer's memory"));
  const Algorithm& store = **find_algorithm("two_shot:access=store");
  EXPECT_EQ(message(store, Protocol::kDirect), "accepted");
  EXPECT_THAT(message(store, Protocol::kSlots), HasSubstr("works in a peer's memory"));
  EXPECT_THAT(message(**find_algorithm("ring"), Protocol::kDirect), HasSubstr("sends data"));
}

// An all-gather that reads its peers' outputs, and says that they may be anywhere.
class ApartGather final : public Algorithm {
 public:
  ApartGather() : Algorithm("apart_gather", "", "") {}
  [[nodiscard]] bool supports(const Problem& problem) const override {
    return problem.collective == Collective::kAllGather;
  }
  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    ScheduleShape shape = form_.shape(problem);
    shape.apart = true;
    return shape;
  }
  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    return form_.program(problem, rank);
  }

 private:
  const Algorithm& form_ = **find_algorithm("two_shot:access=remote");
};

// A rank that calls in place has another output then, which its peers must not look for.
TEST(Plan, WhatIsApartIsDirectAndUsesNoPeersOutput) {
  const auto message = [](const Algorithm& algorithm, Collective collective, Protocol protocol) {
    const auto plan = compile_plan(algorithm, {.collective = collective, .ranks = 3},
                                   {.protocol = protocol, .arena_bytes = 1 << 20}, 1);
    return plan ? "accepted" : plan.error().message;
  };
  const Algorithm& remote = **find_algorithm("two_shot:access=remote");
  EXPECT_EQ(message(remote, Collective::kAllToAll, Protocol::kDirect), "accepted");
  EXPECT_THAT(message(remote, Collective::kAllToAll, Protocol::kFlagged),
              HasSubstr("keeps input and output apart, which the protocol flagged cannot do"));
  EXPECT_EQ(message(remote, Collective::kAllGather, Protocol::kDirect), "accepted");
  EXPECT_THAT(message(ApartGather(), Collective::kAllGather, Protocol::kDirect),
              HasSubstr("works in a peer's output"));
}

TEST(Plan, ADirectPlanSaysWhoseMemoryItReadsAndCutsOnlyWhatItIsTold) {
  const Algorithm& remote = **find_algorithm("two_shot:access=remote");
  PlanOptions options{.protocol = Protocol::kDirect};
  const Plan whole =
      *compile_plan(remote, {.collective = Collective::kAllReduce, .ranks = 4}, options, 2);
  EXPECT_THAT(whole.remotes, testing::UnorderedElementsAre(0, 1, 3));
  EXPECT_EQ(whole.slices_for(std::uint64_t{1} << 40, 8), 1u);
  EXPECT_FALSE(whole.stores);
  for (const ConnectionSpec& spec : whole.sends) EXPECT_EQ(spec.protocol, Protocol::kFlagged);
  const Plan stores = *compile_plan(**find_algorithm("two_shot:access=store"),
                                    {.collective = Collective::kAllReduce, .ranks = 4}, options, 2);
  EXPECT_THAT(stores.remotes, testing::UnorderedElementsAre(0, 1, 3));
  EXPECT_TRUE(stores.stores);
  options.slot_bytes = 1 << 20;
  const Plan sliced =
      *compile_plan(remote, {.collective = Collective::kAllReduce, .ranks = 4}, options, 2);
  EXPECT_EQ(sliced.slices_for(std::uint64_t{4} << 20, 8), 8u);
}

TEST(Plan, SmallSchedulesAreProvedWhenCompiled) {
  const Plan plan =
      *compile_plan(**find_algorithm("ring"), {.collective = Collective::kAllReduce, .ranks = 4},
                    {.slot_bytes = 4096, .arena_bytes = 1 << 20}, 1);
  EXPECT_EQ(plan.seal, Seal::kVerified);
}

// Which connection carries the messages of a pair and a tag, as the plans of all ranks have it.
using Carriers = std::map<std::tuple<Rank, Rank, Tag>, decltype(key({}))>;

// Does the plan's operand move the same data through the same connection as the schedule's?
bool same_operand(const Plan& plan, const PlanOperand& flat, const Operand& operand,
                  Carriers& carriers) {
  if (flat.kind != operand.kind || flat.span != operand.span) return false;
  const auto carried_by = [&](const ConnectionSpec& spec, Rank source, Rank destination) {
    const auto [known, added] = carriers.try_emplace({source, destination, operand.tag}, key(spec));
    return spec.source == source && spec.destination == destination && known->second == key(spec);
  };
  switch (operand.kind) {
    case OperandKind::kLocal:
      return flat.buffer == operand.buffer;
    case OperandKind::kSend:
      return flat.peer == operand.peer &&
             carried_by(plan.sends.at(flat.connection), plan.rank, operand.peer);
    case OperandKind::kRecv:
      return flat.peer == operand.peer &&
             carried_by(plan.recvs.at(flat.connection), operand.peer, plan.rank);
    case OperandKind::kRemote:
      return flat.buffer == operand.buffer && flat.peer == operand.peer &&
             plan.remotes.at(flat.connection) == operand.peer;
  }
  return false;
}

// "" or how the plan's step differs from the schedule's.
std::string step_difference(const Plan& plan, const PlanStep& flat, const Step& step,
                            Carriers& carriers) {
  if (flat.destinations != step.destinations.size() || flat.sources != step.sources.size())
    return "the number of its operands";
  if (flat.finish != step.finish) return "finish";
  const auto is_remote = [](const Operand& operand) {
    return operand.kind == OperandKind::kRemote;
  };
  const bool stores = std::ranges::any_of(step.destinations, is_remote);
  if (flat.stores != stores) return "whether it stores into a peer's memory";
  if (flat.remote != (stores || std::ranges::any_of(step.sources, is_remote)))
    return "whether it works in a peer's memory";
  const std::span<const Wait> waits(plan.waits.data() + flat.first_wait, flat.waits);
  if (!std::ranges::equal(waits, step.waits)) return "its waits";
  std::size_t next = flat.first_operand;
  for (const auto* operands : {&step.destinations, &step.sources})
    for (const Operand& operand : *operands)
      if (!same_operand(plan, plan.operands.at(next++), operand, carriers))
        return "operand " + std::to_string(next - 1 - flat.first_operand);
  return {};
}

// A rank's plan is its program of the schedule: lane for lane, step for step.
void expect_runs(const Plan& plan, const RankProgram& program, Carriers& carriers) {
  SCOPED_TRACE(testing::Message() << plan.algorithm->name << " rank " << plan.rank);
  ASSERT_EQ(plan.lanes.size(), program.lanes.size());
  std::size_t steps = 0, operands = 0, waits = 0;
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const PlanLane& flat = plan.lanes[l];
    const Lane& lane = program.lanes[l];
    ASSERT_EQ(flat.steps, lane.steps.size()) << "lane " << l;
    EXPECT_EQ(flat.replica, lane.replica) << "lane " << l;
    for (std::uint32_t s = 0; s < flat.steps; ++s) {
      const PlanStep& step = plan.steps.at(flat.first_step + s);
      EXPECT_EQ(step_difference(plan, step, lane.steps[s], carriers), "")
          << "lane " << l << " step " << s;
      ++steps;
      operands += step.destinations + step.sources;
      waits += step.waits;
    }
  }
  EXPECT_EQ(plan.steps.size(), steps);
  EXPECT_EQ(plan.operands.size(), operands);
  EXPECT_EQ(plan.waits.size(), waits);
}

// The same of all ranks: both ends of every connection agree, and no two tags of a pair share one.
void expect_all_run(const std::vector<Plan>& plans, const Schedule& schedule) {
  Carriers carriers;
  std::multiset<decltype(key({}))> sent, received;
  for (const Plan& plan : plans) {
    expect_runs(plan, schedule.ranks[static_cast<std::size_t>(plan.rank)], carriers);
    for (const auto& spec : plan.sends) sent.insert(key(spec));
    for (const auto& spec : plan.recvs) received.insert(key(spec));
  }
  EXPECT_EQ(sent, received);
  std::multiset<decltype(key({}))> carrying;
  for (const auto& [message, spec] : carriers) carrying.insert(spec);
  EXPECT_EQ(carrying, sent);
}

// The schedule that ranks in another order run is one that the verifier accepts, and its figures
// are those of the order by number.
TEST(Plan, WhatRunsInAnotherOrderIsProved) {
  constexpr std::uint32_t kSeed = 20261122;
  std::mt19937 random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::vector<const Algorithm*> algorithms(all_algorithms().begin(), all_algorithms().end());
  const auto direct_ones = test::direct_forms(Collective::kAllReduce);
  algorithms.insert(algorithms.end(), direct_ones.begin(), direct_ones.end());
  for (const Algorithm* algorithm : algorithms)
    for (std::int32_t ranks = 1; ranks <= 9; ++ranks) {
      std::vector<Rank> rank_at(static_cast<std::size_t>(ranks));
      std::iota(rank_at.begin(), rank_at.end(), 0);
      std::ranges::shuffle(rank_at, random);
      const std::vector<RankOrder> orders{*RankOrder::make(rank_at)};
      const RankOrder& order = orders.front();
      const Schedule plain = replicate(
          *build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = ranks}), 2);
      const Schedule running = reorder(plain, order);
      const Result<Proof> before = verify(plain), after = verify(running);
      ASSERT_TRUE(after) << algorithm->name << " " << ranks << ": " << after.error().message;
      EXPECT_EQ(after->minimal_slots, before->minimal_slots);
      EXPECT_EQ(after->depth, before->depth);
      EXPECT_EQ(after->messages, before->messages);
      EXPECT_EQ(after->max_sent_chunks, before->max_sent_chunks);
      const bool direct = is_direct(*algorithm);
      const PlanOptions options{.protocol = direct ? Protocol::kDirect : Protocol::kSlots,
                                .replicas = 2,
                                .slot_bytes = 4096,
                                .arena_bytes = 1 << 20,
                                .orders = &orders};
      const auto plans = plans_of(*algorithm, ranks, options);
      expect_all_run(plans, running);
    }
}

// The same where each replica's ranks stand in an order of its own, as for a ring a rail.
TEST(Plan, WhatRunsInAnOrderAReplicaIsProved) {
  constexpr std::uint32_t kSeed = 20261123;
  std::mt19937 random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  for (const Algorithm* algorithm : all_algorithms())
    for (std::int32_t ranks = 2; ranks <= 9; ++ranks) {
      std::vector<Rank> rank_at(static_cast<std::size_t>(ranks));
      std::iota(rank_at.begin(), rank_at.end(), 0);
      std::vector<RankOrder> orders;
      for (int i = 0; i < 2; ++i) {
        std::ranges::shuffle(rank_at, random);
        orders.push_back(*RankOrder::make(rank_at));
      }
      // Three replicas of two orders, in turn.
      const Schedule plain =
          *build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = ranks});
      Schedule running{replicate_shape(plain.shape, 3), {}};
      for (Rank rank = 0; rank < ranks; ++rank) {
        std::vector<RankProgram> programs;
        for (const std::size_t i : {0, 1, 0}) {
          const auto place = static_cast<std::size_t>(orders[i].place_of(rank));
          programs.push_back(reorder_program(plain.ranks[place], orders[i]));
        }
        running.ranks.push_back(replicate_programs(plain.shape, programs));
      }
      const Result<Proof> proof = verify(running);
      ASSERT_TRUE(proof) << algorithm->name << " " << ranks << ": " << proof.error().message;
      const auto plans =
          plans_of(*algorithm, ranks,
                   {.replicas = 3, .slot_bytes = 4096, .arena_bytes = 1 << 20, .orders = &orders});
      expect_all_run(plans, running);
    }
}

TEST(Plan, AnOrderIsPartOfItsName) {
  const Algorithm& ring = **find_algorithm("ring");
  const std::vector<RankOrder> order{*RankOrder::make({0, 2, 1, 3})},
      by_number{*RankOrder::make({0, 1, 2, 3})};
  PlanOptions options{.slot_bytes = 4096, .arena_bytes = 1 << 20};
  const std::uint64_t plain =
      plan_id(ring, {.collective = Collective::kAllReduce, .ranks = 4}, options);
  options.orders = &by_number;
  EXPECT_EQ(plan_id(ring, {.collective = Collective::kAllReduce, .ranks = 4}, options), plain);
  options.orders = &order;
  EXPECT_NE(plan_id(ring, {.collective = Collective::kAllReduce, .ranks = 4}, options), plain);
  const Plan plan =
      *compile_plan(ring, {.collective = Collective::kAllReduce, .ranks = 4}, options, 0);
  EXPECT_NE(plan.carve,
            compile_plan(ring, {.collective = Collective::kAllReduce, .ranks = 4}, {}, 0)->carve);
  ASSERT_EQ(plan.sends.size(), 1u);
  EXPECT_EQ(plan.sends.front().destination, 2);
}

// In any order of the ranks: each keeps its block, which the shape says, and the root stays the
// root, also where replicas have orders of their own.
TEST(Plan, BlocksAndRootsAreThoseOfTheRanks) {
  const Algorithm& ring = **find_algorithm("ring");
  const std::vector<RankOrder> orders{*RankOrder::make({0, 2, 1, 3}),
                                      *RankOrder::make({3, 1, 0, 2})};
  const PlanOptions options{
      .replicas = 2, .slot_bytes = 4096, .arena_bytes = 1 << 20, .orders = &orders};
  const auto scatter =
      compile_plan(ring, {.collective = Collective::kReduceScatter, .ranks = 4}, options, 0);
  ASSERT_TRUE(scatter) << scatter.error().message;
  EXPECT_EQ(scatter->shape.block_ranks, (std::vector<Rank>{0, 2, 1, 3, 3, 1, 0, 2}));
  const Problem broadcast{.collective = Collective::kBroadcast, .ranks = 4, .root = 2};
  for (Rank rank = 0; rank < 4; ++rank) {
    const auto plan = compile_plan(ring, broadcast, options, rank);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->shape.root, 2);
    EXPECT_EQ(plan->recvs.empty(), rank == 2) << rank;
  }
}

// So that calls of any kind may alternate without a wait for each other's cells.
TEST(Plan, CellsAreDividedByTheConnectionsOfAPairAlone) {
  const auto cells = [](const char* algorithm, const Problem& problem) {
    return compile_plan(**find_algorithm(algorithm), problem, {.protocol = Protocol::kFlagged}, 0)
        ->cells;
  };
  const std::uint64_t one = cells("butterfly", {.collective = Collective::kAllReduce, .ranks = 4});
  EXPECT_EQ(cells("ring", {.collective = Collective::kAllGather, .ranks = 4}), one);
  for (const Rank root : {0, 1})
    EXPECT_EQ(cells("butterfly", {.collective = Collective::kBroadcast, .ranks = 4, .root = root}),
              one);
  EXPECT_NE(cells("tree", {.collective = Collective::kBroadcast, .ranks = 2}), one);
}

TEST(Plan, ShortCellsAreForMessagesThatGoOneWay) {
  const auto sent = [](const char* algorithm, Collective collective, Protocol protocol) {
    const Problem problem{.collective = collective, .ranks = 4};
    return compile_plan(**find_algorithm(algorithm), problem,
                        {.protocol = protocol, .slot_bytes = 4096, .arena_bytes = 1 << 20}, 0)
        ->sends;
  };
  using enum Collective;
  for (const ConnectionSpec& spec : sent("butterfly", kBroadcast, Protocol::kFlagged))
    EXPECT_EQ(spec.short_slots, kShortCellsPerPair);
  for (const ConnectionSpec& spec : sent("tree", kBroadcast, Protocol::kFlagged))
    EXPECT_GE(kShortCellsPerPair, (spec.index + 1) * spec.short_slots);
  for (const ConnectionSpec& spec : sent("butterfly", kAllReduce, Protocol::kFlagged))
    EXPECT_EQ(spec.short_slots, 0U);
  for (const ConnectionSpec& spec : sent("butterfly", kBroadcast, Protocol::kSlots))
    EXPECT_EQ(spec.short_slots, 0U);
}

TEST(Plan, AMessageIsShortWhereACellHoldsIt) {
  const Problem problem{.collective = Collective::kScatter, .ranks = 4};
  const Plan plan =
      *compile_plan(**find_algorithm("butterfly"), problem, {.protocol = Protocol::kFlagged}, 1);
  ASSERT_EQ(plan.shape.max_message_chunks, 2U);
  for (const auto& [count, is_short] : {std::pair{62U, true}, std::pair{63U, false}})
    EXPECT_EQ(plan.has_short_messages(plan.cut_of(count, 4, 1), 4), is_short) << count;
}

}  // namespace
}  // namespace tutti::test
