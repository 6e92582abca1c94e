// SPDX-License-Identifier: Apache-2.0
// tutti-info as a user runs it: everything there is appears, in text and in JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "algorithms/algorithm.hpp"
#include "base/config.hpp"
#include "model/machine_profile.hpp"
#include "tests/folder.hpp"
#include "tests/tools/command.hpp"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int status = -1;
  std::string output;
};

Outcome run(const std::string& environment, const std::string& arguments) {
  const std::string command = environment + " " + TUTTI_INFO + " " + arguments;
  Outcome outcome;
  outcome.output = testing::run_command(command, outcome.status);
  return outcome;
}

TEST(TuttiInfo, TextNamesEveryAlgorithmAndVariable) {
  const Outcome outcome = run("env -u TUTTI_ALGO", "");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* title : {"Build\n", "Machine\n", "Algorithms", "Variables", "memfd", "shm"})
    EXPECT_THAT(outcome.output, HasSubstr(title));
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_THAT(outcome.output, HasSubstr(std::string(algorithm->name)));
    EXPECT_THAT(outcome.output, HasSubstr(std::string(algorithm->summary)));
    EXPECT_THAT(outcome.output, HasSubstr(std::string(algorithm->parameters)));
  }
  for (const ConfigVariable& variable : config_table())
    EXPECT_THAT(outcome.output, HasSubstr(std::string(variable.name)));
}

TEST(TuttiInfo, SaysWhetherThisBuildAndMachineHaveCuda) {
  const auto json = nlohmann::json::parse(run("CUDA_VISIBLE_DEVICES=", "--json").output);
  const std::string built = json["build"]["CUDA"], device = json["machine"]["CUDA device"];
  EXPECT_EQ(built == "no", device.starts_with("built without CUDA")) << built << "; " << device;
  EXPECT_NE(device, "usable");  // none is visible
}

TEST(TuttiInfo, JsonShowsWhatIsSet) {
  const Outcome outcome = run("TUTTI_OP_TIMEOUT_S=17", "--json");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["variables"].size(), config_table().size());
  EXPECT_EQ(json["algorithms"].size(), all_algorithms().size());
  bool found = false;
  for (const auto& variable : json["variables"]) {
    const bool mine = variable["name"] == "TUTTI_OP_TIMEOUT_S";
    found = found || mine;
    if (mine) {
      EXPECT_EQ(variable["value"], "17");
      EXPECT_EQ(variable["set"], true);
    }
  }
  EXPECT_TRUE(found);
}

TEST(TuttiInfo, SaysWhichCostsAreTaken) {
  const testing::Folder folder;
  const std::string cache = "env -u TUTTI_PROFILE XDG_CACHE_HOME=" + folder.path().string();
  const auto costs_with = [](const std::string& environment) {
    const Outcome outcome = run(environment, "--json");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    const bool refused = !json["warnings"].empty();
    return (refused ? std::string(json["warnings"][0]) + "; " : "") +
           std::string(json["machine"]["costs"]);
  };
  EXPECT_EQ(costs_with(cache), "built in");

  const std::string file = folder.file("p.json");
  const std::string named = "TUTTI_PROFILE=" + file;
  EXPECT_EQ(costs_with(named),
            file +
                " cannot be read: No such file or directory; built in, since the profile cannot "
                "be used: see the warning");
  MachineProfile profile;
  profile.machine = describe_machine();
  profile.created = "2026-11-28";
  ASSERT_TRUE(write_profile(profile, file));
  EXPECT_EQ(costs_with(named), "built in; of devices built in");
  const std::string measured = file + ", measured 2026-11-28";
  profile.device = DeviceProfile{.name = "a GPU", .costs = kPriorDeviceCosts};
  ASSERT_TRUE(write_profile(profile, file));
  EXPECT_EQ(costs_with(named), "built in; of devices " + measured);
  profile.device.reset();
  profile.costs.slotted.step_ns += 1;
  ASSERT_TRUE(write_profile(profile, file));
  EXPECT_EQ(costs_with(named), measured + "; of devices built in");
  // The user's own, and none.
  const std::string own = folder.file("tutti/") + fingerprint_of(describe_machine()) + ".json";
  ASSERT_TRUE(write_profile(profile, own));
  EXPECT_THAT(costs_with(cache), StartsWith(own + ", measured"));
  EXPECT_EQ(costs_with("TUTTI_PROFILE=off XDG_CACHE_HOME=" + folder.path().string()), "built in");
  profile.machine = "another";
  ASSERT_TRUE(write_profile(profile, file));
  EXPECT_THAT(costs_with(named), HasSubstr("the profile was measured on another machine"));
}

TEST(TuttiInfo, SaysByWhichWayMessagesTravelAndWhy) {
  const auto ways_with = [](const std::string& environment) {
    return nlohmann::json::parse(run(environment, "--json").output)["ways"];
  };
  const auto chosen = ways_with("TUTTI_IFNAME=lo TUTTI_IB_HCA==none TUTTI_TRANSPORT=auto");
  EXPECT_EQ(chosen["within a host"], "shm, since its ranks can share memory");
  EXPECT_THAT(std::string(chosen["between hosts"]),
              StartsWith("tcp at 127.0.0.1 (lo), as TUTTI_IFNAME=lo says; no RDMA: "));
  const auto forced = ways_with("TUTTI_IB_HCA==none TUTTI_TRANSPORT=verbs");
  EXPECT_EQ(forced["within a host"], "verbs, because TUTTI_TRANSPORT=verbs");
  EXPECT_THAT(std::string(forced["between hosts"]), StartsWith("none: "));
  EXPECT_EQ(ways_with("TUTTI_TRANSPORT=tcp")["within a host"], "tcp, because TUTTI_TRANSPORT=tcp");
  EXPECT_EQ(ways_with("TUTTI_TRANSPORT=shm")["between hosts"], "none, because TUTTI_TRANSPORT=shm");
  EXPECT_THAT(
      std::string(ways_with("TUTTI_IFNAME=no-such-one TUTTI_TRANSPORT=tcp")["between hosts"]),
      StartsWith("none: "));
}

TEST(TuttiInfo, ShowsTheLauncher) {
  const std::string by_hand = "TUTTI_RANK=2 TUTTI_RANKS=5 TUTTI_ROOT=127.0.0.1:7000";
  const auto json = nlohmann::json::parse(run(by_hand, "--json").output);
  EXPECT_EQ(json["launcher"]["found"], "environment");
  EXPECT_EQ(json["launcher"]["rank"], "2 of 5");
  EXPECT_EQ(json["launcher"]["rank on this host"], "not said");
  EXPECT_EQ(json["launcher"]["unique id comes by"], "address");
  const Outcome wrong = run("TUTTI_RANK=2", "");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.output, HasSubstr("warning: TUTTI_RANK is set and TUTTI_RANKS is not"));
}

TEST(TuttiInfo, WarnsOfBadValuesAndUnknownNames) {
  const Outcome bad = run("TUTTI_OP_TIMEOUT_S=soon", "");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, HasSubstr("TUTTI_OP_TIMEOUT_S"));
  EXPECT_THAT(bad.output, HasSubstr("soon"));
  const Outcome unknown = run("TUTTI_ALGOO=ring", "");
  EXPECT_EQ(unknown.status, 0);
  EXPECT_THAT(unknown.output, HasSubstr("TUTTI_ALGOO is set but unknown"));
}

TEST(TuttiInfo, RefusesAnUnknownAlgorithmAsTheLibraryDoes) {
  for (const char* name : {"nope", "circulant:radix=1"}) {
    const Outcome outcome = run(std::string("TUTTI_ALGO=") + name, "");
    EXPECT_EQ(outcome.status, 1) << name;
    const auto message = find_algorithm(name).error().message;
    EXPECT_THAT(outcome.output, HasSubstr("warning: TUTTI_ALGO: " + message));
  }
  for (const char* name : {"all_reduce:ring;all_gather:pat", "ring@slots:replicas=2"}) {
    const Outcome outcome = run(std::string("TUTTI_ALGO='") + name + "'", "");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }
  EXPECT_EQ(run("TUTTI_ALGO=circulant:radix=3", "").status, 0);
  EXPECT_EQ(run("TUTTI_ALGO=auto", "").status, 0);
}

TEST(TuttiInfo, LostOutputIsAnError) {
  for (const char* arguments : {"", "--json", "--help"}) {
    const Outcome outcome = run("", std::string(arguments) + " >/dev/full");
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_THAT(outcome.output, StartsWith("tutti-info: standard output cannot be written: "));
    EXPECT_EQ(outcome.output.find('\n') + 1, outcome.output.size()) << outcome.output;
  }
}

TEST(TuttiInfo, WrongUsage) { EXPECT_EQ(run("", "--frobnicate").status, 2); }

}  // namespace
}  // namespace tutti
