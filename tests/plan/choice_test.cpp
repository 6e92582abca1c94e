// SPDX-License-Identifier: Apache-2.0
// Choice by price: what is tried, what a user forces, the table of rank 0.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "plan/choice_table.hpp"
#include "plan/rank_orders.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Forced named(std::string_view name) { return *parse_forced(name); }

Problem all_reduce(std::int32_t ranks) {
  return {.collective = Collective::kAllReduce, .ranks = ranks};
}

Settings settings_of(std::int32_t cores) { return *make_settings({}, cores); }

TEST(Settings, WhatAPeerSaysIsComparedInOneLine) {
  Settings mine, theirs;
  std::string_view("ri\nng").copy(theirs.forced.data(), theirs.forced.size());
  const auto difference = first_difference(mine, theirs);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->a, "auto");
  EXPECT_EQ(difference->b.find('\n'), std::string::npos);
  EXPECT_EQ(difference->b.find("ri"), 0u);
}

TEST(Settings, ForeignBytesAreRefused) {
  Settings settings = settings_of(2);
  EXPECT_TRUE(check_settings(settings));
  settings.forced.fill('x');  // a name without an end
  EXPECT_FALSE(check_settings(settings));
  settings = settings_of(2);
  settings.layout = 1;
  EXPECT_FALSE(check_settings(settings));
}

TEST(Forced, ANameSaysAlgorithmProtocolAndShape) {
  EXPECT_EQ(named("auto").name, "");
  EXPECT_EQ(named("").algorithm, nullptr);
  const Forced ring = named("ring");
  EXPECT_EQ(ring.algorithm->name, "ring");
  EXPECT_FALSE(ring.protocol);
  const Forced all = named("circulant:radix=3@slots:replicas=4:slots=8:slot=64K");
  EXPECT_EQ(all.algorithm->name, "circulant:radix=3");
  EXPECT_EQ(all.protocol, Protocol::kSlots);
  EXPECT_EQ(all.replicas, 4u);
  EXPECT_EQ(all.slots, 8u);
  EXPECT_EQ(all.slot_bytes, 65536u);
  EXPECT_EQ(named("auto@flagged").algorithm, nullptr);
  EXPECT_EQ(named("auto@flagged").protocol, Protocol::kFlagged);
}

// A program whose calls are on devices has some on host memory besides.
TEST(Forced, AFormatOfDeviceMemoryMeansFlaggedOnTheHosts) {
  EXPECT_EQ(named("ring@ll16").packets, PacketFormat::kLl16);
  EXPECT_EQ(named("auto@LL128:replicas=2").packets, PacketFormat::kLl128);
  EXPECT_TRUE(named("ring@cells").cells);
  EXPECT_EQ(named("ring@ll8").protocol, Protocol::kFlagged);
  const Settings settings = settings_of(4);
  const auto host = *contenders(settings, forced_by(settings, named("ring@ll8")), all_reduce(4));
  const auto flagged =
      *contenders(settings, forced_by(settings, named("ring@flagged")), all_reduce(4));
  ASSERT_EQ(host.size(), 1u);
  EXPECT_FALSE(host.front().candidates.empty());
  EXPECT_EQ(host.front().candidates.size(), flagged.front().candidates.size());
}

TEST(Forced, WhatIsNoNameIsRefusedInALine) {
  const auto refused = [](std::string_view name) { return parse_forced(name).error().message; };
  EXPECT_THAT(refused("rings"), HasSubstr("choose one of ring, tree"));
  EXPECT_THAT(refused("rings"), HasSubstr("or auto"));
  EXPECT_THAT(refused("circulant:radix=1"), Not(HasSubstr("or auto")));
  EXPECT_THAT(refused(std::string(500, 'a')), HasSubstr("at most 127 characters"));
  EXPECT_THAT(refused("ring@"), HasSubstr("@flagged, @slots or @direct"));
  EXPECT_THAT(refused("ring@packets"), HasSubstr("'packets' in 'ring@packets'"));
  EXPECT_THAT(refused("ring@slots:slot"), HasSubstr("a number from 128 to"));
  EXPECT_THAT(refused("ring@slots:replicas=33"), HasSubstr("must be a number from 1 to 32"));
  EXPECT_THAT(refused("@slots"), HasSubstr("before the @"));
  EXPECT_THAT(refused("ring@slots:depth=9"), HasSubstr("'depth=9' in 'ring@slots:depth=9'"));
  EXPECT_THAT(refused("ring@slots:"), HasSubstr("@flagged, @slots or @direct"));
}

// The name of a candidate forces that candidate.
TEST(Forced, EveryCandidatesNameLeadsBackToIt) {
  for (const std::int32_t ranks : {2, 8}) {
    const Settings settings = settings_of(ranks);
    const auto all = *contenders(settings, {}, all_reduce(ranks));
    for (const Contender& contender : all)
      for (const Candidate& candidate : contender.candidates) {
        const std::string name = plan_name(*candidate.algorithm, candidate.options);
        const auto again =
            *contenders(settings, forced_by(settings, named(name)), all_reduce(ranks));
        ASSERT_EQ(again.size(), 1u);
        ASSERT_FALSE(again.front().candidates.empty()) << name;
        for (const Candidate& other : again.front().candidates)
          EXPECT_EQ(other.options, candidate.options) << name;
      }
  }
}

// A call of several slices does not repeat in a straight line, which is most of what a small one
// takes; and lanes that overlap in one call do not in a row of them between two ranks.
TEST(Choice, SmallCallsTakeOneSlice) {
  const auto priced = [](Collective collective, std::int32_t cores, std::uint64_t bytes) {
    const Settings settings = settings_of(cores);
    const auto all = *contenders(settings, {}, {.collective = collective, .ranks = 2});
    std::vector<std::string> names;
    int charged = 0, several = 0;
    const auto by_price = *price_candidates(settings, all, bytes, PeerAccess::kNone);
    for (const Priced& one : by_price) {
      names.push_back(fmt::format(
          "{} in {}", plan_name(*one.candidate->algorithm, one.candidate->options), one.slices));
      several += one.slices > 1 ? 1 : 0;
      charged += one.cost.steps_ns >= prior_costs().flagged.slices_ns ? 1 : 0;
    }
    return std::tuple(names.front(), several, charged);
  };
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce})
    for (const std::uint64_t bytes : {1024, 2048}) {
      const auto [best, several, charged] = priced(collective, 2, bytes);
      EXPECT_THAT(best, AllOf(HasSubstr("@slots"), HasSubstr(" in 1"), Not(HasSubstr("tree"))));
      EXPECT_GT(several, 0);
      EXPECT_EQ(charged, several);
      // Ranks that share a core wait for each other longer than that.
      EXPECT_EQ(std::get<2>(priced(collective, 1, bytes)), 0);
    }
  for (const Collective collective : {Collective::kGather, Collective::kScatter})
    EXPECT_THAT(std::get<0>(priced(collective, 2, 2048)), HasSubstr(" in 1"));
  EXPECT_THAT(std::get<0>(priced(Collective::kBroadcast, 2, 64)), HasSubstr("ring@flagged"));
}

// How many candidates of an all-reduce have many slots; `best`: is it the cheapest one?
struct ManySlots {
  int all = 0;
  bool best = false;
  std::uint32_t most_slices = 0;
};
ManySlots many_slots(std::int32_t ranks, std::uint64_t bytes) {
  constexpr std::uint32_t kMany = 32;
  const Settings settings = settings_of(ranks);
  const auto contending = *contenders(settings, {}, all_reduce(ranks));
  const auto by_price = *price_candidates(settings, contending, bytes, PeerAccess::kNone);
  ManySlots many{.best = by_price.front().candidate->options.slots == kMany};
  for (const Priced& one : by_price) {
    if (one.candidate->options.slots != kMany) continue;
    ++many.all;
    many.most_slices = std::max(many.most_slices, one.slices);
  }
  return many;
}

// Many slots, which outgrow a core's own cache, for messages of some KiB that one of them holds;
// between more ranks they would outgrow the shared cache too.
TEST(Choice, ManySlotsAreForMessagesBetweenTwo) {
  EXPECT_EQ(many_slots(2, 2 << 10).all, 0);
  EXPECT_GT(many_slots(2, 16 << 10).all, 0);
  EXPECT_TRUE(many_slots(2, 16 << 10).best);
  EXPECT_EQ(many_slots(2, 1 << 20).all, 0);
  EXPECT_EQ(many_slots(4, 16 << 10).all, 0);
}

// The plan of a call is that of its size class, and what is told of the call is priced at its size.
TEST(Choice, ManySlotsAreTakenAlikeInASizeClass) {
  for (std::uint64_t bytes = 1 << 10; bytes <= 128 << 10; bytes += 96) {
    const ManySlots own = many_slots(2, bytes);
    EXPECT_EQ(own.all, many_slots(2, class_bytes(size_class(bytes))).all) << bytes;
    EXPECT_LE(own.most_slices, 1u) << bytes;
  }
}

TEST(Choice, PicksTheCheapestAndObeysForce) {
  const Settings settings = settings_of(8);
  const auto all = *contenders(settings, {}, all_reduce(8));
  const auto small = *price_candidates(settings, all, 8, PeerAccess::kNone);
  const auto large = *price_candidates(settings, all, 256 << 20, PeerAccess::kNone);
  EXPECT_EQ(small.front().candidate->algorithm->name, "one_shot");
  EXPECT_NE(large.front().candidate->algorithm->name, "one_shot");
  EXPECT_GT(large.front().candidate->options.replicas, 1u) << "large data must pipeline";
  for (std::size_t i = 1; i < large.size(); ++i)
    EXPECT_LE(large[i - 1].cost.time_ns, large[i].cost.time_ns);
  const auto trees = *contenders(settings, named("tree"), all_reduce(8));
  const auto priced_trees = *price_candidates(settings, trees, 8, PeerAccess::kNone);
  for (const Priced& c : priced_trees) EXPECT_EQ(c.candidate->algorithm->name, "tree");
  EXPECT_TRUE(contenders(settings, named("hierarchical:groups=3+2"), all_reduce(5)));
  EXPECT_EQ(contenders(settings, named("hierarchical:groups=3+2"), all_reduce(8)).error().code,
            Code::kNotSupported);
}

TEST(Choice, ThePriceIsTheSumOfItsTerms) {
  const Settings settings = settings_of(2);
  const auto all = *contenders(settings, {}, all_reduce(8));
  for (const std::uint64_t bytes : {8u, 4096u, 1u << 20, 64u << 20}) {
    const auto priced = *price_candidates(settings, all, bytes, PeerAccess::kAttach);
    for (const Priced& one : priced) {
      const PlanCost& c = one.cost;
      EXPECT_GT(c.time_ns, 0);
      EXPECT_NEAR(c.messages_ns + c.switches_ns + c.steps_ns + c.bytes_ns + c.remote_ns, c.time_ns,
                  1e-9 * c.time_ns);
    }
  }
}

// Where hosts have several ranks, hierarchies by host are offered to every collective, and there is
// a size at which each is the cheapest.
TEST(Choice, OffersHierarchiesOfTheHostsToEveryCollective) {
  using enum Collective;
  constexpr std::int32_t kRanks = 64, kHostRanks = 8;
  Settings settings = settings_of(kRanks);
  std::string_view("8x8").copy(settings.groups.data(), settings.groups.size());
  settings.flagged_wire = {.alpha_ns = 20'000, .beta_ns_per_byte = 0.3};
  settings.slots_wire = settings.flagged_wire;
  std::vector<std::int32_t> hosts;
  for (Rank rank = 0; rank < kRanks; ++rank) hosts.push_back(rank / kHostRanks);
  for (const Collective collective : {kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter,
                                      kAllToAll, kGather, kScatter}) {
    const auto all = *contenders(settings, {}, {.collective = collective, .ranks = kRanks}, hosts);
    std::size_t won = 0;
    for (std::size_t c = 0; c < kSizeClasses; ++c) {
      const auto priced = price_candidates(settings, all, class_bytes(c), PeerAccess::kNone);
      if (priced && priced->front().candidate->algorithm->name == "hierarchical:groups=8x8") ++won;
    }
    EXPECT_GT(won, 0U) << name_of(collective);
  }
}

// The ends of 1+9+1 ranks meet on nine rails.
TEST(Choice, SaysWhyThereIsNoPlan) {
  const Settings settings = settings_of(8);
  const auto rails = *contenders(settings, named("hierarchical:groups=1+9+1"), all_reduce(11));
  const auto none = price_candidates(settings, rails, 4, PeerAccess::kNone);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotSupported);
  EXPECT_THAT(none.error().message, HasSubstr("needs 9 connections between two ranks"));
  const auto wrong = *contenders(
      settings, forced_by(settings, named("two_shot:access=remote@slots")), all_reduce(4));
  EXPECT_THAT(price_candidates(settings, wrong, 4, PeerAccess::kMapped).error().message,
              HasSubstr("two_shot:access=remote does not run with the protocol slots"));
}

// A table names so many; auto would never take what is beyond.
TEST(Choice, HasRoomForEveryFamilyAndDirectForm) {
  EXPECT_EQ(all_algorithms().size() + direct_algorithms().size(), listed_algorithms().size());
}

TEST(Choice, DirectPlansNeedMemoryWithinReach) {
  Settings settings = settings_of(2);
  const auto rank = [&](std::string_view name, std::uint64_t bytes, PeerAccess access) {
    const auto all = *contenders(settings, named(name), all_reduce(2));
    const auto priced = price_candidates(settings, all, bytes, access);
    std::vector<Protocol> protocols;
    if (priced)
      for (const Priced& one : *priced) protocols.push_back(one.candidate->options.protocol);
    return protocols;
  };
  constexpr std::string_view kRemote = "two_shot:access=remote";
  EXPECT_THAT(rank("auto", 64 << 20, PeerAccess::kNone),
              Not(::testing::Contains(Protocol::kDirect)));
  EXPECT_TRUE(rank(kRemote, 8, PeerAccess::kNone).empty());
  // The kernel reads for a rank of another process, and stores nothing.
  constexpr std::string_view kStore = "two_shot:access=store";
  for (const PeerAccess access : {PeerAccess::kNone, PeerAccess::kAttach})
    EXPECT_TRUE(rank(kStore, 1 << 20, access).empty());
  EXPECT_THAT(rank(kStore, 1 << 20, PeerAccess::kMapped), ::testing::Each(Protocol::kDirect));
  const auto stores = *contenders(settings, named(kStore), all_reduce(2));
  EXPECT_THAT(price_candidates(settings, stores, 4, PeerAccess::kAttach).error().message,
              HasSubstr("tuttiCommWindowRegister"));
  for (const PeerAccess access : {PeerAccess::kAttach, PeerAccess::kMapped}) {
    EXPECT_THAT(rank(kRemote, 1 << 20, access), ::testing::Each(Protocol::kDirect));
    // Signals alone cost more than a small message.
    EXPECT_NE(rank("auto", 8, access).front(), Protocol::kDirect);
  }
  // Loads are cheaper than slots, and the kernel's copies are not.
  EXPECT_EQ(rank("auto", 64 << 20, PeerAccess::kMapped).front(), Protocol::kDirect);
  EXPECT_EQ(rank("auto", 64 << 20, PeerAccess::kAttach).front(), Protocol::kSlots);
  settings.cores = 1;  // by turns on one core
  EXPECT_EQ(rank("auto", 64 << 20, PeerAccess::kMapped).front(), Protocol::kDirect);
  EXPECT_EQ(rank("auto", 64 << 20, PeerAccess::kAttach).front(), Protocol::kSlots);
}

TEST(Choice, FlaggedPlansOfManyConnectionsHaveFewerSlots) {
  const auto slots_of = [](std::string_view name) {
    const auto all = contenders(settings_of(2), named(name), all_reduce(2));
    return all && !all->front().candidates.empty() ? all->front().candidates.front().options.slots
                                                   : 0;
  };
  EXPECT_EQ(slots_of("one_shot@flagged"), 8u);
  EXPECT_EQ(slots_of("one_shot@flagged:replicas=4"), 4u);
  EXPECT_EQ(slots_of("one_shot@flagged:replicas=8"), 2u);
  EXPECT_EQ(slots_of("one_shot@flagged:replicas=8:slots=4"), 0u);  // is told, if it is forced
}

TEST(SizeClasses, HoldTheSizesNearestToThem) {
  EXPECT_EQ(size_class(1), 0u);
  EXPECT_EQ(size_class(UINT64_MAX), kSizeClasses - 1);
  for (std::size_t power = 0; power < 40; ++power)
    EXPECT_EQ(size_class(std::uint64_t{1} << power), 2 * power);
  for (std::size_t k = 20; k < kSizeClasses; ++k) {  // below, rounding to bytes shows
    EXPECT_EQ(size_class(class_bytes(k)), k);
    const double step = std::exp2(0.25);
    const auto own = static_cast<double>(class_bytes(k));
    EXPECT_EQ(size_class(static_cast<std::uint64_t>(own * step * 0.98)), k);
    EXPECT_EQ(size_class(static_cast<std::uint64_t>(own * step * 1.02)),
              std::min(k + 1, kSizeClasses - 1));
  }
}

// Both send each byte once; one_shot reads and writes half as much again of its own, for one
// message fewer. How long that pays depends on the own bytes' cost alone.
TEST(Choice, OwnBytesAreWeighedApartFromMessages) {
  Settings settings = settings_of(2);
  const auto cheapest = [&](double own_ns, double message_ns) {
    settings.costs.slotted.beta_ns_per_byte = own_ns;
    settings.costs.slotted.message_ns_per_byte = message_ns;
    const auto all = *contenders(settings, named("auto@slots"), all_reduce(2));
    return (*price_candidates(settings, all, 32 << 10, PeerAccess::kNone))
        .front()
        .contender->counts.depth;
  };
  EXPECT_EQ(cheapest(0.003, 0.1), 1U);
  EXPECT_EQ(cheapest(0.003, 1.0), 1U);
  EXPECT_EQ(cheapest(0.05, 0.003), 2U);
}

TEST(Choice, OfEqualPricesShorterLanesGoFirst) {
  Contender waits, overlaps;
  waits.counts.lane_steps = 3;
  overlaps.counts.lane_steps = 1;
  Priced one, other;
  one.contender = &waits;
  other.contender = &overlaps;
  one.cost.time_ns = other.cost.time_ns = 5;
  EXPECT_TRUE(cheaper(other, one));
  EXPECT_FALSE(cheaper(one, other));
  EXPECT_FALSE(cheaper(one, one));
  one.cost.time_ns = 4;
  EXPECT_TRUE(cheaper(one, other));
}

class Tables : public ::testing::TestWithParam<std::int32_t> {};

// What rank 0 put into the table is what pricing says.
TEST_P(Tables, HoldTheCheapestOfEveryClass) {
  const std::int32_t ranks = GetParam();
  Settings settings = settings_of(4);
  const ChoiceTable table = *make_table(settings, ranks);
  settings.table_hash = table.hash();
  EXPECT_TRUE(check_table(table, settings, ranks));
  const ForcedSet configured;
  const auto all = *contenders(settings, {}, all_reduce(ranks));
  for (const PeerAccess access : {PeerAccess::kNone, PeerAccess::kAttach, PeerAccess::kMapped}) {
    const ChoiceRow* const best = find_row(table, configured, {all_reduce(ranks), {}, access});
    ASSERT_NE(best, nullptr);
    for (std::size_t c = 0; c < 60; ++c) {
      const auto priced = *price_candidates(settings, all, class_bytes(c), access);
      ASSERT_TRUE(best->has(c));
      EXPECT_EQ(listed_algorithms()[best->at(c).algorithm], priced.front().candidate->algorithm);
      EXPECT_EQ(best->at(c).shape, priced.front().candidate->shape);
    }
    for (const Contender& contender : all) {
      const ChoiceRow* const own = find_row(
          table, configured, {all_reduce(ranks), named(contender.algorithm->name), access});
      const bool within_reach =
          access == PeerAccess::kMapped || !works_in_peers(contender.counts) ||
          (access == PeerAccess::kAttach && !stores_into_peers(contender.counts));
      ASSERT_EQ(own != nullptr, within_reach) << contender.algorithm->name;
      if (own == nullptr) continue;
      for (std::size_t c = 0; c < 60; ++c) {
        const auto priced =
            *price_candidates(settings, std::span(&contender, 1), class_bytes(c), access);
        ASSERT_TRUE(own->has(c)) << contender.algorithm->name << ' ' << c;
        EXPECT_EQ(own->at(c).shape, priced.front().candidate->shape);
        EXPECT_EQ(listed_algorithms()[own->at(c).algorithm], contender.algorithm);
      }
    }
    const ChoiceRow* const trees =
        find_row(table, configured, {all_reduce(ranks), named("tree"), access});
    ASSERT_NE(trees, nullptr);
    EXPECT_EQ(listed_algorithms()[trees->at(20).algorithm]->name, "tree");
    EXPECT_EQ(find_row(table, configured, {all_reduce(ranks), named("tree@flagged"), access}),
              nullptr);
    EXPECT_EQ(find_row(table, configured, {all_reduce(ranks), named("circulant:radix=3"), access}),
              nullptr);
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Tables, ::testing::Values(1, 2, 7, 16));

TEST(Table, OfOtherBytesIsRefused) {
  Settings settings = settings_of(4);
  const ChoiceTable table = *make_table(settings, 6);
  settings.table_hash = table.hash();
  ChoiceTable other = table;
  other.of(Collective::kAllReduce)[0].best.set(3, {.algorithm = 1, .shape = 3});
  EXPECT_FALSE(check_table(other, settings, 6)) << "not the one that rank 0 made";
  for (const ChoiceRow::Entry entry : {ChoiceRow::Entry{0, plan_shapes().size()},
                                       ChoiceRow::Entry{listed_algorithms().size(), 0}}) {
    other.of(Collective::kAllReduce)[1].forced[2].set(5, entry);
    settings.table_hash = other.hash();
    EXPECT_FALSE(check_table(other, settings, 6));
  }
}

TEST(Table, OfAForcedAlgorithmHasOnlyThat) {
  Config config;
  config.algo = "ring@slots";
  const Settings settings = *make_settings(config, 4);
  const ForcedSet configured = *configured_plans(config);
  const ChoiceTable table = *make_table(settings, 6);
  EXPECT_NE(find_row(table, configured, {all_reduce(6), named("ring@slots"), PeerAccess::kNone}),
            nullptr);
  EXPECT_EQ(find_row(table, configured, {all_reduce(6), named("ring"), PeerAccess::kNone}),
            nullptr);
  EXPECT_EQ(find_row(table, configured, {all_reduce(6), named("tree"), PeerAccess::kNone}),
            nullptr);
}

// Between hosts every message takes its time at both ends, so large calls take large slots; small
// ones have several under way. Within a host neither shape is tried.
TEST(Choice, BetweenHostsSlotsAreLargeOrMany) {
  Settings settings = settings_of(2);
  settings.flagged_wire = settings.slots_wire = {.alpha_ns = 17'000,
                                                 .beta_ns_per_byte = 0.32,
                                                 .overhead_ns = 4'000,
                                                 .overhead_ns_per_byte = 0.16};
  const Problem broadcast{.collective = Collective::kBroadcast, .ranks = 2};
  const auto options = [&](const std::vector<std::int32_t>& hosts, std::uint64_t bytes) {
    const auto all = *contenders(settings, {}, broadcast, hosts);
    return price_candidates(settings, all, bytes, PeerAccess::kNone)->front().candidate->options;
  };
  EXPECT_GE(options({0, 1}, 16 << 20).slot_bytes, 128U << 10);
  EXPECT_EQ(options({0, 1}, 32 << 10).slots, 8U);
  for (const std::uint64_t bytes : {32ULL << 10, 16ULL << 20}) {
    const auto all = *contenders(settings, {}, broadcast, std::vector<std::int32_t>{0, 0});
    const auto tried = *price_candidates(settings, all, bytes, PeerAccess::kNone);
    for (const Priced& priced : tried) {
      EXPECT_NE(priced.candidate->options.slot_bytes, 512U << 10);
      if (priced.candidate->options.protocol == Protocol::kSlots) {
        EXPECT_NE(priced.candidate->options.slots, 8U);
      }
    }
  }
}

// What is under way between two ranks passes through the caches of both: no more than the link
// needs, which of a long and fast one is more.
TEST(Choice, BetweenHostsLittleIsUnderWay) {
  Settings settings = settings_of(2);
  const auto most_under_way = [&](Collective collective) {
    const Problem problem{.collective = collective, .ranks = 2};
    const auto all = *contenders(settings, {}, problem, std::vector<std::int32_t>{0, 1});
    std::uint64_t most = 0;
    const auto tried = *price_candidates(settings, all, 16 << 20, PeerAccess::kNone);
    for (const Priced& priced : tried) {
      const PlanOptions& options = priced.candidate->options;
      if (options.protocol == Protocol::kSlots)
        most = std::max<std::uint64_t>(
            most, options.slot_bytes * options.slots * options.replicas *
                      priced.contender->algorithm->shape(problem).max_per_pair);
    }
    return most;
  };
  for (const Collective collective : {Collective::kBroadcast, Collective::kAllReduce}) {
    settings.slots_wire = {.alpha_ns = 17'000, .beta_ns_per_byte = 0.32};
    EXPECT_LE(most_under_way(collective), 768U << 10);
    EXPECT_GE(most_under_way(collective), 512U << 10);
    settings.slots_wire = {.alpha_ns = 50'000, .beta_ns_per_byte = 0.04};  // 2.5 MB a round trip
    EXPECT_GE(most_under_way(collective), 2048U << 10);
    EXPECT_LE(most_under_way(collective), 5'000'000U);
  }
}

// Ranks that were placed on two hosts in turn, in plans that take them host by host: what crosses
// between hosts is what it is where they were placed host by host.
TEST(ChoiceTable, SeesHostsInTheOrderOfThePlans) {
  constexpr std::int32_t kRanks = 32;
  Settings settings = settings_of(kRanks);
  settings.flagged_wire = {.alpha_ns = 20'000, .beta_ns_per_byte = 0.3};
  settings.slots_wire = settings.flagged_wire;
  std::vector<std::int32_t> in_turn, by_host;
  std::vector<Rank> order;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    in_turn.push_back(rank % 2);
    by_host.push_back(rank / (kRanks / 2));
    order.push_back(rank % (kRanks / 2) * 2 + rank / (kRanks / 2));
  }
  const RankOrder gathered = RankOrder::make(order).value();
  const RankOrders orders({gathered}, gathered);
  for (const char* name : {"ring", "tree", "circulant"}) {
    const Forced forced = named(name);
    const auto counts = [&](std::span<const std::int32_t> hosts, const RankOrders* taken) {
      return contenders(settings, forced, all_reduce(kRanks), hosts, taken).value().front().counts;
    };
    EXPECT_EQ(counts(in_turn, &orders), counts(by_host, nullptr)) << name;
    EXPECT_NE(counts(in_turn, nullptr), counts(by_host, nullptr)) << name;
  }
  // Where every rank talks to every other, plans keep the numbers.
  const auto rows = [&](std::span<const std::int32_t> hosts, const RankOrders* taken) {
    return make_table(settings, kRanks, {}, hosts, taken)
        .value()
        .of(Collective::kAllReduce)[0]
        .best;
  };
  const ChoiceRow placed = rows(by_host, nullptr), blind = rows(in_turn, nullptr),
                  seen = rows(in_turn, &orders);
  int unlike = 0;
  for (std::size_t c = 0; c < kSizeClasses; ++c) {
    EXPECT_EQ(placed.at(c).algorithm, seen.at(c).algorithm) << class_bytes(c);
    if (placed.at(c).algorithm != blind.at(c).algorithm) ++unlike;
  }
  EXPECT_GT(unlike, 0);
}

}  // namespace
}  // namespace tutti::test
