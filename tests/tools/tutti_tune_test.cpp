// SPDX-License-Identifier: Apache-2.0
// tutti-tune: the fit finds costs that explain times; the program writes what the library reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/host.hpp"
#include "plan/choice.hpp"
#include "tests/tools/command.hpp"
#include "tutti-tune/fit_costs.hpp"

namespace tutti::tune {
namespace {

// What every plan of tutti-tune would take on a machine of such costs.
std::vector<Sample> samples_of(const CostSet& costs, int cores) {
  Settings settings = *make_settings({}, cores);
  settings.costs = costs;
  std::vector<Sample> samples;
  for (const Session& session : sessions(cores))
    for (const std::string& plan : session.plans)
      for (const std::uint64_t bytes : session.bytes) {
        const auto all =
            *contenders(settings, *parse_forced(plan),
                        {.collective = Collective::kAllReduce, .ranks = session.ranks});
        const auto priced = *price_candidates(
            settings, all, bytes, session.windows ? PeerAccess::kMapped : PeerAccess::kAttach);
        samples.push_back(
            {session.ranks, session.windows, plan, bytes, priced.front().cost.time_ns / 1e3});
      }
  return samples;
}

TEST(FitCosts, ExplainsTheTimesOfAnotherMachine) {
  CostSet costs = prior_costs();
  for (const auto set : {&CostSet::flagged, &CostSet::attached, &CostSet::mapped}) {
    (costs.*set).alpha_ns *= 3;
    (costs.*set).step_ns *= 0.5;
    (costs.*set).switch_ns *= 2;
  }
  costs.slotted.beta_ns_per_byte *= 2.5;
  costs.slotted.step_ns *= 3;
  costs.slotted.message_ns_per_byte *= 0.4;
  costs.attached.remote_ns_per_byte *= 4;
  for (const int cores : {2, 8}) {
    const std::vector<Sample> samples = samples_of(costs, cores);
    const auto fitted = fit_costs(samples, cores);
    ASSERT_TRUE(fitted) << fitted.error().message;
    EXPECT_GT(fitted->residual_before, 0.2);
    EXPECT_LT(fitted->residual, 0.05);
    ASSERT_EQ(fitted->predicted_us.size(), samples.size());
    for (const CostSetMember& set : kCostSetMembers)
      for (const HostCostsMember& member : kHostCostsMembers)
        EXPECT_GE(fitted->costs.*set.costs.*member.value, 0) << set.name << ' ' << member.name;
  }
}

TEST(FitCosts, SaysWhatIsTooFarFromItsOwnToBeTrusted) {
  CostSet costs = prior_costs();
  EXPECT_THAT(fit_costs(samples_of(costs, 2), 2)->at_bound, ::testing::IsEmpty());
  for (const auto set : {&CostSet::flagged, &CostSet::attached, &CostSet::mapped})
    (costs.*set).alpha_ns *= 1000;
  EXPECT_THAT(fit_costs(samples_of(costs, 2), 2)->at_bound,
              ::testing::Contains("flagged alpha_ns"));
}

TEST(FitCosts, OfTooLittleIsRefused) {
  EXPECT_FALSE(fit_costs({}, 2));
  const std::vector<Sample> none{{2, false, "no_such_plan", 8, 1.0}};
  EXPECT_FALSE(fit_costs(none, 2));
}

// Containers may refuse one process to read another's memory.
TEST(FitCosts, DoWithoutPlansThatReadOtherProcesses) {
  std::vector<Sample> samples = samples_of(prior_costs(), 2);
  const std::size_t all = samples.size();
  std::erase_if(samples, [](const Sample& sample) {
    return attaches({sample.ranks, sample.windows, {sample.plan}, {}});
  });
  ASSERT_LT(samples.size(), all);
  const auto fitted = fit_costs(samples, 2);
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_LT(fitted->residual, 0.01);
}

TEST(TuttiTune, WritesAProfileThatTheLibraryPricesWith) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-tune-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/own.json";
  int status = 0;
  const std::string said = testing::run_command(TUTTI_TUNE " --seconds 0.3 -o " + path, status);
  ASSERT_EQ(status, 0) << said;
  EXPECT_THAT(said, ::testing::HasSubstr("written to " + path));
  const auto profile = read_profile(path);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->machine, describe_machine());
  const std::string explained = testing::run_command(
      "TUTTI_PROFILE=" + path + " " ALL_REDUCE_PERF " --procs 2 -b 1K -e 1K -n 1 -c 0 --explain",
      status);
  EXPECT_EQ(status, 0) << explained;
  EXPECT_THAT(explained,
              ::testing::HasSubstr("prices by the profile " + fingerprint_of(describe_machine())));
  // What other programs measured is kept.
  MachineProfile more = *profile;
  more.device = DeviceProfile{.name = "a GPU", .costs = kPriorDeviceCosts};
  more.measured = {{.collective = Collective::kScatter,
                    .ranks = 2,
                    .cores = 1,
                    .name = "ring@slots",
                    .times = {{8, 0.5}}}};
  ASSERT_TRUE(write_profile(more, path));
  const std::string again = testing::run_command(TUTTI_TUNE " --seconds 0.3 -o " + path, status);
  ASSERT_EQ(status, 0) << again;
  const auto both = read_profile(path);
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->device, more.device);
  EXPECT_EQ(both->measured, more.measured);
  const std::string damaged =
      testing::run_command("echo '{\"tutti_profile\": 7}' > " + path + "; TUTTI_PROFILE=" + path +
                               " " ALL_REDUCE_PERF " --procs 2 -b 1K -e 1K -n 1 --explain",
                           status);
  EXPECT_EQ(status, 0) << damaged;
  EXPECT_THAT(damaged, ::testing::HasSubstr(path + ": /tutti_profile: the profile has layout 7"));
  EXPECT_THAT(damaged, ::testing::HasSubstr("prices by the built-in costs"));
  // As the damaged one says, tuning again mends it: the file that jobs read is the one written.
  const std::string mended =
      testing::run_command("TUTTI_PROFILE=" + path + " " TUTTI_TUNE " --seconds 0.3", status);
  EXPECT_EQ(status, 0) << mended;
  EXPECT_THAT(mended, ::testing::HasSubstr("written to " + path + "; the automatic choice uses"));
  EXPECT_TRUE(read_profile(path));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::tune
