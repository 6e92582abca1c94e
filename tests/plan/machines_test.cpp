// SPDX-License-Identifier: Apache-2.0
// Who shares a machine, of jobs on several hosts and machines.
#include "plan/machines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::ElementsAre;

struct Place {
  std::uint64_t machine, host, mask;
  std::int32_t cores, machine_cores;
};

class Job {
 public:
  explicit Job(const std::vector<Place>& places) {
    for (const Place& place : places) {
      RankFacts own;
      own.machine = place.machine;
      own.cores_hash = place.mask;
      own.cores = place.cores;
      own.machine_cores = place.machine_cores;
      facts.push_back(own);
      peers.push_back({.rank = static_cast<Rank>(peers.size()), .host_id = place.host, .host = {}});
    }
  }
  std::vector<RankFacts> facts;
  std::vector<PeerInfo> peers;
};

TEST(Machines, HostsOfOneMachineShareItsCores) {
  const Job job({{7, 1, 5, 2, 2}, {7, 1, 5, 2, 2}, {7, 2, 5, 2, 2}, {7, 2, 5, 2, 2}});
  const Machine machine = machine_of(0, job.facts, job.peers);
  EXPECT_EQ(machine.ranks, 4);
  EXPECT_EQ(machine.cores, 2);
  EXPECT_EQ(cores_of_job(job.facts, job.peers), 2);
}

TEST(Machines, EachMachineHasCoresOfItsOwn) {
  const Job job({{7, 1, 5, 2, 2}, {8, 2, 5, 4, 4}, {7, 1, 5, 2, 2}, {8, 2, 5, 4, 4}});
  EXPECT_EQ(machine_of(0, job.facts, job.peers).ranks, 2);
  EXPECT_EQ(machine_of(1, job.facts, job.peers).cores, 4);
  EXPECT_EQ(cores_of_job(job.facts, job.peers), 6);
}

TEST(Machines, OfAnUnknownMachineTheHostCounts) {
  const Job job({{0, 1, 5, 2, 2}, {0, 2, 5, 2, 2}, {0, 1, 6, 2, 8}});
  EXPECT_EQ(machine_of(0, job.facts, job.peers).ranks, 2);
  EXPECT_EQ(machine_of(0, job.facts, job.peers).cores, 4);
  EXPECT_EQ(cores_of_job(job.facts, job.peers), 6);
}

TEST(Machines, MasksThatOverlapGiveNoMoreThanThereIs) {
  const Job job({{7, 1, 5, 3, 4}, {7, 1, 6, 3, 4}});
  EXPECT_EQ(machine_of(1, job.facts, job.peers).cores, 4);
}

TEST(Machines, HostsAreNumberedByTheirFirstRanks) {
  const Job job({{7, 90, 5, 2, 2}, {7, 40, 5, 2, 2}, {7, 90, 5, 2, 2}});
  EXPECT_THAT(number_hosts(job.peers, false), ElementsAre(0, 1, 0));
  EXPECT_THAT(number_hosts(job.peers, true), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tutti
