// Plans: both ends of every connection agree on where it lies, nothing overlaps, every message
// fits.
#include "runtime/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace tutti::test {
namespace {

using testing::HasSubstr;

std::vector<Plan> plans_of(const Algorithm& algorithm, std::int32_t ranks,
                           const PlanOptions& options) {
  std::vector<Plan> plans;
  for (Rank r = 0; r < ranks; ++r) {
    auto plan = compile_plan(algorithm, {.ranks = ranks}, options, r);
    EXPECT_TRUE(plan) << plan.error().message;
    plans.push_back(*std::move(plan));
  }
  return plans;
}

auto key(const ConnectionSpec& spec) {
  return std::tuple(spec.source, spec.destination, spec.index, spec.first_cell, spec.cells_per_slot,
                    spec.arena_offset_bytes, spec.slot_bytes, spec.slots);
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
      const Plan plan = *compile_plan(*algorithm, {.ranks = ranks},
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
  const auto arena = compile_plan(**find_algorithm("one_shot"), {.ranks = 64},
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
        compile_plan(algorithm, {.ranks = 3},
                     {.protocol = protocol, .slot_bytes = 4096, .arena_bytes = 1 << 20}, 1);
    return plan ? "accepted" : plan.error().message;
  };
  EXPECT_EQ(message(remote, Protocol::kDirect), "accepted");
  EXPECT_THAT(message(remote, Protocol::kSlots), HasSubstr("reads a peer's memory"));
  EXPECT_THAT(message(remote, Protocol::kFlagged), HasSubstr("reads a peer's memory"));
  EXPECT_THAT(message(**find_algorithm("ring"), Protocol::kDirect), HasSubstr("sends data"));
}

TEST(Plan, ADirectPlanSaysWhoseMemoryItReadsAndCutsOnlyWhatItIsTold) {
  const Algorithm& remote = **find_algorithm("two_shot:access=remote");
  PlanOptions options{.protocol = Protocol::kDirect};
  const Plan whole = *compile_plan(remote, {.ranks = 4}, options, 2);
  EXPECT_THAT(whole.remotes, testing::UnorderedElementsAre(0, 1, 3));
  EXPECT_EQ(whole.slices_for(std::uint64_t{1} << 40, 8), 1u);
  for (const ConnectionSpec& spec : whole.sends) EXPECT_EQ(spec.protocol, Protocol::kFlagged);
  options.slot_bytes = 1 << 20;
  const Plan sliced = *compile_plan(remote, {.ranks = 4}, options, 2);
  EXPECT_EQ(sliced.slices_for(std::uint64_t{4} << 20, 8), 8u);
}

TEST(Plan, SmallSchedulesAreProvedWhenCompiled) {
  const Plan plan = *compile_plan(**find_algorithm("ring"), {.ranks = 4},
                                  {.slot_bytes = 4096, .arena_bytes = 1 << 20}, 1);
  EXPECT_EQ(plan.seal, Seal::kVerified);
}

}  // namespace
}  // namespace tutti::test
