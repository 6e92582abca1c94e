// SPDX-License-Identifier: Apache-2.0
// Topology at the start of a job: hosts' graphs meet on rank 0, one order reaches all ranks, what
// is damaged costs a warning; and communicators that run in such an order.
#include "comm/layout_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "comm/communicator.hpp"
#include "comm/run_operations.hpp"
#include "tests/control/job.hpp"
#include "topology/hwloc_reader.hpp"

namespace tutti {
namespace {

using namespace tutti::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string fixture(const std::string& name) { return std::string(TUTTI_FIXTURES) + name; }

// A log's text, in a file of the test's own.
class LogFile {
 public:
  LogFile() : path_(::testing::TempDir() + "layout_exchange_" + std::to_string(::getpid())) {}
  ~LogFile() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

// As of `hosts` hosts to which the ranks are dealt one by one; each rank's configuration is its
// own.
AgreedLayout gather(int ranks, int hosts, const std::function<Config(Rank)>& config_of) {
  const UniqueId id = must_create_id();
  std::vector<AgreedLayout> laid(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Rank rank) {
    const JoinResult plane = ControlPlane::join(
        id, rank, ranks,
        {.deadline = patience(), .host_id_text = "host " + std::to_string(rank % hosts)});
    ASSERT_TRUE(plane) << plane.error().message;
    const Config config = config_of(rank);
    const auto log = Log::open(config.log_level, config.log_file, rank);
    ASSERT_TRUE(log);
    const OwnPlace own = look_at_own_place(config, rank, (*plane)->peers());
    auto result = gather_layout(**plane, config, *log, own.seat, patience());
    ASSERT_TRUE(result) << result.error().message;
    laid[static_cast<std::size_t>(rank)] = *std::move(result);
    EXPECT_TRUE((*plane)->barrier(patience()));
  });
  for (std::size_t rank = 1; rank < laid.size(); ++rank)
    EXPECT_TRUE(laid[rank].orders.are_by_number()) << "rank 0 decides";
  return laid.front();
}

Config config_of(const std::string& topology, const std::string& seats) {
  Config config;
  config.topology = topology;
  config.seats = seats;
  return config;
}

RankOrder ring_of(const RankOrders& orders, std::int32_t ranks) {
  const std::vector<RankOrder>& rings = orders.of(**find_algorithm("ring"), ranks);
  return rings.empty() ? RankOrder() : rings.front();
}

TEST(LayoutExchange, GraphsOfHostsAreMergedAndHostsStandTogether) {
  const AgreedLayout laid =
      gather(6, 2, [](Rank) { return config_of(fixture("nccl/dgx1v-own.xml"), "GPU0/GPU1/GPU2"); });
  const RankOrder ring = ring_of(laid.orders, 6);
  ASSERT_FALSE(ring.is_by_number());
  for (Rank place = 0; place < 6; ++place)
    EXPECT_EQ(ring.rank_at(place) % 2, place < 3 ? ring.rank_at(0) % 2 : ring.rank_at(3) % 2);
  EXPECT_EQ(laid.groups, "2x3");
  EXPECT_THAT(laid.source, HasSubstr("2 hosts merged"));
}

TEST(LayoutExchange, AClusterFileOfTooFewNodesCostsAWarning) {
  const LogFile log, cluster;
  std::ofstream(cluster.path() + ".json")
      << R"({"name": "one", "nodes": 1, "ranks_per_node": 3, "nic": {"kind": "hdr200"}})";
  const AgreedLayout laid = gather(6, 2, [&](Rank) {
    Config config = config_of(fixture("nccl/dgx1v-own.xml"), "GPU0/GPU1/GPU2");
    config.cluster = cluster.path() + ".json";
    config.log_file = log.path();
    return config;
  });
  std::filesystem::remove(cluster.path() + ".json");
  EXPECT_TRUE(laid.orders.are_by_number());
  EXPECT_THAT(log.text(), HasSubstr("rings and trees follow rank numbers"));
}

// Whatever is wrong with one host: one line from who knows, and the job goes on.
TEST(LayoutExchange, ADamagedDescriptionCostsOneWarning) {
  for (const int damaged : {0, 1}) {
    const LogFile log;
    const std::string broken = log.path() + ".xml";
    std::ofstream(broken) << "<system version=\"1\">\n  <cpu numaid=\"0\"\n";
    const AgreedLayout laid = gather(6, 2, [&](Rank rank) {
      Config config =
          config_of(rank % 2 == damaged ? broken : fixture("nccl/dgx1v-own.xml"), "GPU0/GPU1/GPU2");
      config.log_file = log.path();
      return config;
    });
    std::filesystem::remove(broken);
    EXPECT_TRUE(laid.orders.are_by_number());
    EXPECT_EQ(laid.groups, "");
    const std::string text = log.text();
    EXPECT_THAT(text,
                AllOf(HasSubstr(broken + ":"), HasSubstr("rings and trees follow rank numbers")));
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  }
}

TEST(LayoutExchange, ASeatThatIsNotThereCostsOneWarning) {
  const LogFile log;
  const AgreedLayout laid = gather(4, 2, [&](Rank) {
    Config config = config_of(fixture("nccl/dgx1v-own.xml"), "GPU0/GPU99");
    config.log_file = log.path();
    return config;
  });
  EXPECT_TRUE(laid.orders.are_by_number());
  EXPECT_THAT(log.text(), HasSubstr("TUTTI_SEATS: the host has no device 'GPU99'"));
  EXPECT_EQ(std::ranges::count(log.text(), '\n'), 1);
}

// By host, interest and seat.
TEST(LayoutExchange, MattersOnlyWherePlacesDiffer) {
  using topology::Interest;
  const auto matters = [](std::vector<Interest> interests, std::vector<std::uint64_t> hosts,
                          std::vector<std::uint64_t> seats) {
    std::vector<RankFacts> all(interests.size());
    std::vector<PeerInfo> peers(interests.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      all[rank].interest = interests[rank];
      all[rank].seat_hash = seats[rank];
      peers[rank].host_id = hosts[rank];
    }
    return layout_matters(all, peers);
  };
  constexpr Interest kNone = Interest::kNone, kSeated = Interest::kIfSeated,
                     kAlways = Interest::kAlways, kOff = Interest::kOff;
  EXPECT_FALSE(matters({kNone, kNone, kNone}, {1, 1, 1}, {1, 2, 3})) << "one NUMA node";
  EXPECT_FALSE(matters({kSeated, kSeated, kSeated}, {1, 1, 1}, {1, 1, 1})) << "all alike";
  EXPECT_TRUE(matters({kSeated, kSeated, kSeated}, {1, 1, 1}, {1, 1, 2}));
  EXPECT_TRUE(matters({kNone, kNone, kNone}, {1, 1, 2}, {1, 1, 1})) << "two hosts";
  EXPECT_TRUE(matters({kNone, kAlways, kNone}, {1, 1, 1}, {1, 1, 1}));
  EXPECT_FALSE(matters({kOff, kAlways, kAlways}, {1, 1, 2}, {1, 1, 2})) << "rank 0 wants none";
  EXPECT_FALSE(matters({kAlways, kAlways}, {1, 2}, {1, 2})) << "two ranks have one order";
}

TEST(RankOrders, AreBytesThatNobodyTrusts) {
  const RankOrders orders({*RankOrder::make({0, 2, 1, 3}), *RankOrder::make({0, 3, 1, 2})},
                          *RankOrder::make({3, 2, 1, 0}));
  const std::vector<std::byte> bytes = orders.encode(4);
  EXPECT_EQ(bytes.size(), RankOrders::encoded_bytes(4));
  EXPECT_EQ(*RankOrders::decode(bytes, 4, orders.hash(4)), orders);
  EXPECT_EQ(RankOrders().hash(4), 0u);
  EXPECT_NE(orders.hash(4), 0u);
  EXPECT_EQ(*RankOrders::decode(RankOrders().encode(4), 4, 0), RankOrders());
  EXPECT_FALSE(RankOrders::decode(bytes, 4, orders.hash(4) + 1));
  EXPECT_FALSE(RankOrders::decode(bytes, 5, orders.hash(4)));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::vector<std::byte> wrong = bytes;
    wrong[at] ^= std::byte{1};
    const auto decoded = RankOrders::decode(wrong, 4, orders.hash(4));
    ASSERT_FALSE(decoded) << at;
    EXPECT_EQ(decoded.error().culprit, 0);
  }
  EXPECT_EQ(orders.text(),
            "0 2 1 3 in rings (the first of 2 rings, one per rail), 3 2 1 0 in trees");
}

TEST(RankOrders, WhoTalksToAllKeepsTheOrderOfNumbers) {
  const RankOrders orders({*RankOrder::make({0, 2, 1, 3, 4, 5})},
                          *RankOrder::make({4, 2, 1, 3, 0, 5}));
  const auto order_of = [&](const char* name) {
    const std::vector<RankOrder>& found = orders.of(**find_algorithm(name), 6);
    return found.empty() ? RankOrder() : found.front();
  };
  EXPECT_EQ(order_of("ring").rank_at(1), 2);
  EXPECT_EQ(order_of("tree").rank_at(0), 4);
  EXPECT_EQ(order_of("hierarchical").rank_at(1), 2);
  EXPECT_TRUE(order_of("one_shot").is_by_number());
  EXPECT_TRUE(order_of("two_shot").is_by_number());
  EXPECT_TRUE(order_of("two_shot:access=remote").is_by_number());
}

Problem all_reduce(std::int32_t ranks) {
  return {.collective = Collective::kAllReduce, .ranks = ranks};
}

const Call kCall{.collective = Collective::kAllReduce, .count = 250};

TEST(WithGroups, AHierarchyTakesThoseOfTheJob) {
  Settings settings = *make_settings({}, 4);
  const Algorithm& plain = **find_algorithm("hierarchical");
  EXPECT_EQ(with_groups(settings, plain, all_reduce(6)).name, "hierarchical");
  std::string_view("2x3").copy(settings.groups.data(), 3);
  EXPECT_EQ(with_groups(settings, plain, all_reduce(6)).name, "hierarchical:groups=2x3");
  EXPECT_EQ(with_groups(settings, plain, all_reduce(7)).name, "hierarchical")
      << "another number of ranks";
  EXPECT_EQ(with_groups(settings, **find_algorithm("hierarchical:form=leader"), all_reduce(6)).name,
            "hierarchical:form=leader:groups=2x3");
  EXPECT_EQ(with_groups(settings, **find_algorithm("hierarchical:groups=3x2"), all_reduce(6)).name,
            "hierarchical:groups=3x2");
  EXPECT_EQ(with_groups(settings, **find_algorithm("ring"), all_reduce(6)).name, "ring");
  // The table knows it by its family's number, and what is looked up is what was priced.
  const ChoiceTable table = *make_table(settings, 6);
  settings.table_hash = table.hash();
  EXPECT_TRUE(check_table(table, settings, 6));
  const auto listed = *contenders(settings, *parse_forced("hierarchical"), all_reduce(6));
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed.front().algorithm->name, "hierarchical:groups=2x3");
  EXPECT_EQ(listed.front().named->name, "hierarchical");
}

// Communicators of threads, on the processors of another machine.
class Seated : public ::testing::TestWithParam<int> {
 protected:
  // Runs body(communicator) on every rank.
  static void run(int ranks, const Config& config, const std::function<void(Communicator&)>& body) {
    const UniqueId id = must_create_id();
    run_threads(ranks, [&](Rank rank) {
      auto communicator = Communicator::create(id, rank, ranks, {.config = config, .cancel = {}});
      ASSERT_TRUE(communicator) << communicator.error().message;
      body(**communicator);
    });
  }
  // Empty if right.
  static std::string all_reduce(Communicator& communicator, std::size_t count) {
    std::vector<std::int32_t> data(count);
    for (std::size_t i = 0; i < count; ++i)
      data[i] = communicator.rank() * 1000 + static_cast<std::int32_t>(i % 997);
    HeldCall call{&communicator,
                  {.collective = Collective::kAllReduce,
                   .input = data.data(),
                   .output = data.data(),
                   .count = count,
                   .type = DataType::kInt32},
                  nullptr};
    if (const Status status = run_operations({&call, 1}); !status) return status.error().message;
    const std::int32_t ranks = communicator.ranks(), base = 1000 * (ranks * (ranks - 1) / 2);
    for (std::size_t i = 0; i < count; ++i)
      if (data[i] != base + ranks * static_cast<std::int32_t>(i % 997))
        return "wrong at " + std::to_string(i);
    return {};
  }
};

TEST_P(Seated, EveryAlgorithmIsRightAndTheOrderIsToldInALine) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "no hwloc in this build";
  const int ranks = GetParam();
  const Config config = config_of(fixture("hwloc/24em64t-2n6c2t-pci.xml"), "0/1/2/3/4/5");
  std::vector<std::string> lines(static_cast<std::size_t>(ranks));
  run(ranks, config, [&](Communicator& communicator) {
    for (const char* name : {"auto", "ring", "tree", "butterfly", "rabenseifner", "circulant",
                             "one_shot", "two_shot", "pat", "hierarchical"}) {
      const Status forced = communicator.set_algorithm(name);
      ASSERT_TRUE(forced) << name << ": " << forced.error().message;
      for (const std::size_t count : {1u, 1000u, 60'000u})
        EXPECT_EQ(all_reduce(communicator, count), "") << name << " " << count;
    }
    lines[static_cast<std::size_t>(communicator.rank())] = communicator.explain(kCall, false)->note;
  });
  for (const std::string& line : lines) EXPECT_EQ(line, lines.front());
  if (ranks < 3) {
    EXPECT_EQ(lines.front(), "") << "nothing to lay out";
    return;
  }
  EXPECT_THAT(lines.front(), AllOf(HasSubstr("rank order: "), HasSubstr(" in rings, "),
                                   HasSubstr("24em64t-2n6c2t-pci.xml"), Not(HasSubstr("\n"))));
  if (ranks == 8) {
    EXPECT_THAT(lines.front(), HasSubstr("groups 2x4"));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Seated, ::testing::Values(1, 2, 3, 4, 7, 8));

TEST_F(Seated, OffKeepsNumbersAndSaysNothing) {
  run(4, config_of("off", "0/1"), [&](Communicator& communicator) {
    EXPECT_EQ(all_reduce(communicator, 1000), "");
    EXPECT_EQ(communicator.explain(kCall, false)->note, "");
  });
}

TEST_F(Seated, ADamagedFileIsAWarningAndNotAFailure) {
  const LogFile log;
  Config config = config_of(log.path() + ".none", "0/1");
  config.log_file = log.path();
  run(4, config, [&](Communicator& communicator) {
    EXPECT_EQ(all_reduce(communicator, 1000), "");
    EXPECT_THAT(communicator.explain(kCall, false)->note, HasSubstr("by number"));
  });
  EXPECT_THAT(log.text(), HasSubstr(log.path() + ".none"));
  EXPECT_EQ(std::ranges::count(log.text(), '\n'), 1);
}

}  // namespace
}  // namespace tutti
