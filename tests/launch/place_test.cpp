// SPDX-License-Identifier: Apache-2.0
// Environments as the launchers leave them (recorded from Debian 12's), alone and nested.
#include "launch/place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Environment = std::map<std::string, std::string>;

const Environment kOpenMpi{{"PMIX_RANK", "1"},
                           {"PMIX_NAMESPACE", "703725569"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Environment kHydra{{"PMI_FD", "8"},
                         {"PMI_RANK", "2"},
                         {"PMI_SIZE", "3"},
                         {"MPI_LOCALRANKID", "0"},
                         {"MPI_LOCALNRANKS", "1"}};
const Environment kSlurm{{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "5"},  {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "2"},  {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_NTASKS", "7"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
const Environment kSlurmPmi{{"PMI_FD", "11"}, {"PMI_RANK", "5"}, {"PMI_SIZE", "7"}};
const Environment kSlurmPmix{{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.17.0"}};
const Environment kTorchrun{{"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_RESTART_COUNT", "0"},
                            {"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "29500"}};

Environment join(Environment first, const Environment& second) {
  for (const auto& [name, value] : second) first.insert_or_assign(name, value);
  return first;
}

// `open_fd`: the one descriptor that is a socket.
Result<Place> find_in(const Environment& environment, int open_fd = -1) {
  const Getenv getenv_like = [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  TUTTI_TRY_ASSIGN(const Config config, load_config(getenv_like));
  return find_place(config, {getenv_like, [open_fd](int fd) { return fd == open_fd; }});
}

struct Case {
  const char* name;
  Environment environment;
  int open_fd;
  const char* launcher;
  Store store;
  int rank, ranks, local_rank, local_ranks;
};

class PlaceOf : public testing::TestWithParam<Case> {};

TEST_P(PlaceOf, IsWhatTheLauncherMeans) {
  const Case& expected = GetParam();
  const Result<Place> place = find_in(expected.environment, expected.open_fd);
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->launcher, expected.launcher);
  EXPECT_EQ(place->store, expected.store);
  EXPECT_EQ(place->rank, expected.rank);
  EXPECT_EQ(place->ranks, expected.ranks);
  EXPECT_EQ(place->local_rank, expected.local_rank);
  EXPECT_EQ(place->local_ranks, expected.local_ranks);
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, PlaceOf,
    testing::Values(
        Case{"Nobody", {}, -1, "none", Store::kNone, 0, 1, 0, 1},
        Case{"OpenMpi", kOpenMpi, -1, "openmpi", Store::kPmix, 1, 4, 1, 2},
        Case{"OtherPmix",
             {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prte-1"}},
             -1,
             "pmix",
             Store::kPmix,
             2,
             kUnknown,
             kUnknown,
             kUnknown},
        Case{"Hydra", kHydra, 8, "hydra", Store::kPmi, 2, 3, 0, 1},
        Case{"OtherPmi", kSlurmPmi, 11, "pmi", Store::kPmi, 5, 7, kUnknown, kUnknown},
        Case{"SlurmPmi2", join(kSlurm, kSlurmPmi), 11, "srun", Store::kPmi, 5, 7, 1, 2},
        Case{"SlurmPmix", join(kSlurm, kSlurmPmix), -1, "srun", Store::kPmix, 5, 7, 1, 2},
        Case{"SlurmAlone", kSlurm, -1, "srun", Store::kAddress, 5, 7, 1, 2},
        Case{"SlurmLastNode",
             join(kSlurm, {{"SLURM_PROCID", "6"}, {"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}}),
             -1, "srun", Store::kAddress, 6, 7, 0, 1},
        Case{"SlurmBatchScript",
             {{"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "7"}},
             -1,
             "none",
             Store::kNone,
             0,
             1,
             0,
             1},
        Case{"Torchrun", kTorchrun, -1, "torchrun", Store::kAddress, 3, 4, 1, 2},
        Case{"TorchVariables",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}},
             -1,
             "torch",
             Store::kAddress,
             1,
             2,
             kUnknown,
             kUnknown},
        Case{"RankAloneMeansNothing", {{"RANK", "1"}}, -1, "none", Store::kNone, 0, 1, 0, 1},
        Case{"ByHand",
             {{"TUTTI_RANK", "1"}, {"TUTTI_RANKS", "2"}},
             -1,
             "environment",
             Store::kAddress,
             1,
             2,
             kUnknown,
             kUnknown},
        Case{"OneRank",
             join(kOpenMpi, {{"PMIX_RANK", "0"},
                             {"OMPI_COMM_WORLD_SIZE", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
             -1, "openmpi", Store::kNone, 0, 1, 0, 1},
        // Nested: the innermost one counts.
        Case{"HydraUnderOpenMpi", join(kOpenMpi, kHydra), 8, "hydra", Store::kPmi, 2, 3, 0, 1},
        Case{"OpenMpiUnderHydra", join(kHydra, kOpenMpi), -1, "openmpi", Store::kPmix, 1, 4, 1, 2},
        Case{"TorchrunUnderSlurm", join(join(kSlurm, kSlurmPmix), kTorchrun), -1, "torchrun",
             Store::kAddress, 3, 4, 1, 2},
        Case{"ByHandUnderHydra", join(kHydra, {{"TUTTI_RANK", "0"}, {"TUTTI_RANKS", "9"}}), 8,
             "environment", Store::kAddress, 0, 9, kUnknown, kUnknown},
        Case{"ToldToFindNone", join(kHydra, {{"TUTTI_LAUNCHER", "none"}}), 8, "none", Store::kNone,
             0, 1, 0, 1},
        Case{"RootWinsOverTheStore", join(kOpenMpi, {{"TUTTI_ROOT", "h:1"}}), -1, "openmpi",
             Store::kAddress, 1, 4, 1, 2}),
    [](const auto& tested) { return tested.param.name; });

TEST(Place, OfPmiWithoutItsDescriptorIsNotBeingAlone) {
  const Result<Place> place = find_in(kHydra);
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->store, Store::kPmi);
  EXPECT_EQ(place->ranks, 3);
  EXPECT_EQ(place->pmi_fd, -1);
}

TEST(Place, TorchsOwnStoreKeepsItsPort) {
  const auto root = [](const Environment& changes) {
    const Result<Place> place = find_in(join(kTorchrun, changes));
    return place ? place->root : place.error().message;
  };
  EXPECT_EQ(root({}), "node0:29501");
  EXPECT_EQ(root({{"MASTER_PORT", "65535"}}), "node0:65534");
  EXPECT_EQ(root({{"MASTER_ADDR", "fd00::1"}}), "[fd00::1]:29501");
  EXPECT_EQ(root({{"TUTTI_ROOT", "node0:7000"}}), "node0:7000");
  EXPECT_THAT(root({{"MASTER_PORT", "x"}}), HasSubstr("MASTER_PORT is 'x'"));
  EXPECT_EQ(root({{"MASTER_ADDR", ""}}), "");
}

TEST(Place, ARestartIsAnotherJob) {
  const Result<Place> first = find_in(kTorchrun);
  const Result<Place> again = find_in(join(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  ASSERT_TRUE(first && again);
  EXPECT_NE(first->job, again->job);
}

struct BadCase {
  const char* name;
  Environment environment;
  const char* text;
};
class BadPlace : public testing::TestWithParam<BadCase> {};

TEST_P(BadPlace, IsOneLineThatSaysWhatToDo) {
  const Result<Place> place = find_in(GetParam().environment, 8);
  ASSERT_FALSE(place) << place->launcher;
  EXPECT_EQ(place.error().code, Code::kInvalidArgument);
  EXPECT_THAT(place.error().message, AllOf(HasSubstr(GetParam().text), Not(HasSubstr("\n"))));
}

INSTANTIATE_TEST_SUITE_P(
    Variables, BadPlace,
    testing::Values(BadCase{"RankAlone", {{"TUTTI_RANK", "1"}}, "TUTTI_RANKS is not: set both"},
                    BadCase{"RanksAlone", {{"TUTTI_RANKS", "2"}}, "TUTTI_RANK is not: set both"},
                    BadCase{"RankTooLarge",
                            {{"TUTTI_RANK", "2"}, {"TUTTI_RANKS", "2"}},
                            "TUTTI_RANK is 2 and TUTTI_RANKS is 2; ranks are numbered from 0"},
                    BadCase{"NoNumber", join(kHydra, {{"PMI_RANK", "two"}}), "PMI_RANK is 'two'"},
                    BadCase{"Negative", join(kHydra, {{"PMI_SIZE", "-3"}}), "PMI_SIZE is '-3'"},
                    BadCase{"Huge", join(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "99999999999"}}),
                            "OMPI_COMM_WORLD_SIZE is '99999999999'"},
                    BadCase{"Trailing", join(kTorchrun, {{"WORLD_SIZE", "4x"}}),
                            "WORLD_SIZE is '4x'"},
                    BadCase{"Unset", join(kTorchrun, {{"LOCAL_RANK", "3"}}), "on this host 3 of 2"},
                    BadCase{"MoreHereThanInAll", join(kHydra, {{"MPI_LOCALNRANKS", "9"}}),
                            "on this host 0 of 9"}),
    [](const auto& tested) { return tested.param.name; });

TEST(Place, NonsenseOfSlurmsTaskCountsIsNotKnowing) {
  for (const char* counts :
       {"", ",", "x", "2(x", "2(x)", "2(x0)", "2(x-1)", "2(x2", "(x2)", "2,,2"}) {
    const Result<Place> place = find_in(join(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", counts}}));
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place->local_ranks, kUnknown) << counts;
  }
}

}  // namespace
}  // namespace tutti::launch
