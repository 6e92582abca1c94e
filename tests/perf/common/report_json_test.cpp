// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/report.hpp"

namespace tutti::perf {
namespace {

class JsonTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tutti_json_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "out.json").string(); }

  nlohmann::json write(const Options& options, const Row& row, const Summary& summary) {
    auto opened = JsonReport::open(path());
    EXPECT_TRUE(opened.report) << opened.error;
    opened.report->begin({"all_reduce_perf", "-b", "8"}, options, 22'809,
                         {{0, 0, 42, "node1", 0, "host", "CPU (host memory)"}},
                         "2024-06-07 08:09:10");
    opened.report->add(row, options);
    EXPECT_TRUE(opened.report->close(summary, "2024-06-07 08:09:11"));
    std::ifstream file(path());
    return nlohmann::json::parse(file);
  }
  std::filesystem::path folder_;
};

Row example_row() {
  Row row{1024, 256, "float", "sum", -1, {}, {}};
  row.out_of_place = {12.5, 0.25, 0.5, 0, {}, {"ring", "slots", 0xabcU, 4, 2}};
  row.in_place = {25, 0.5, 1, std::nullopt, {}, {}};
  return row;
}

TEST_F(JsonTest, ARunThatEndedEarlyIsNotOkay) {
  Summary summary;
  summary.completed = false;
  summary.errors = {"rank 1: gone"};
  const auto json = write({}, example_row(), summary);
  EXPECT_EQ(json["out_of_bounds"]["okay"], "false");
  EXPECT_EQ(json["errors"][0], "rank 1: gone");
}

TEST_F(JsonTest, HoldsWhatAGraphsLaunchesTook) {
  Options options;
  options.memory = Memory::kDevice;
  options.graph_launches = 4;
  Row row = example_row();
  row.out_of_place.graph = GraphFacts{12.5, 8.5};
  row.in_place.graph = GraphFacts{9, {}};
  const auto json = write(options, row, {});
  EXPECT_EQ(json["config"]["memory"], "device");
  EXPECT_EQ(json["config"]["graph"], 4);
  const auto& result = json["results"][0];
  EXPECT_EQ(result["out_of_place"]["graph"]["first_launch_us"], 12.5);
  EXPECT_EQ(result["out_of_place"]["graph"]["later_launches_us"], 8.5);
  EXPECT_FALSE(result["in_place"]["graph"].contains("later_launches_us"));
}

TEST_F(JsonTest, HasTheFieldsOfNcclTests) {
  Options options;
  options.step_factor = 2;
  const auto json = write(options, example_row(), {0, 102.5, {}, {}});
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["start_time"], "2024-06-07 08:09:10");
  EXPECT_EQ(json["end_time"], "2024-06-07 08:09:11");
  EXPECT_EQ(json["args"].size(), 3u);
  EXPECT_EQ(json["nccl_version"], 22'809);
  const auto& config = json["config"];
  for (const char* key :
       {"nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_factor", "warmup_iters",
        "iterations", "aggregated_iterations", "validation", "graph", "blocking_collectives",
        "per_iter_timing", "per_iter_skip", "parallel_init", "devices"})
    EXPECT_TRUE(config.contains(key)) << key;
  EXPECT_FALSE(config.contains("step_bytes"));
  EXPECT_EQ(config["blocking_collectives"], "false");
  EXPECT_EQ(config["devices"][0]["hostname"], "node1");
  EXPECT_EQ(config["devices"][0]["device_hex"], "host");
  const auto& result = json["results"][0];
  EXPECT_EQ(result["size"], 1024);
  EXPECT_EQ(result["root"], "    -1");
  EXPECT_EQ(result["out_of_place"]["time"], 12.5);
  EXPECT_EQ(result["out_of_place"]["nwrong"], 0.0);
  EXPECT_EQ(result["out_of_place"]["plan"]["algorithm"], "ring");
  EXPECT_TRUE(result["in_place"]["nwrong"].is_null());
  EXPECT_EQ(result["actual_iterations"], 20);
  EXPECT_EQ(json["out_of_bounds"]["okay"], "true");
  EXPECT_EQ(json["average_bus_bandwidth"]["bandwidth"], 102.5);
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "unchecked");
  EXPECT_TRUE(json["errors"].empty());
}

TEST_F(JsonTest, KeepsTheEnvironmentPrivateUnlessAsked) {
  EXPECT_TRUE(write({}, example_row(), {})["env"].empty());
  std::filesystem::remove(path());
  Options options;
  options.json_environment = true;
  ::setenv("TUTTI_TEST_MARK", "visible", 1);
  const auto env = write(options, example_row(), {})["env"];
  EXPECT_NE(std::find(env.begin(), env.end(), "TUTTI_TEST_MARK=visible"), env.end());
  ::unsetenv("TUTTI_TEST_MARK");
}

TEST_F(JsonTest, NeverOverwrites) {
  auto first = JsonReport::open(path()), second = JsonReport::open(path()),
       third = JsonReport::open(path());
  EXPECT_EQ(first.report->path(), path());
  EXPECT_EQ(second.report->path(), path() + ".0");
  EXPECT_EQ(third.report->path(), path() + ".1");
  const auto missing = JsonReport::open((folder_ / "no" / "such.json").string());
  EXPECT_FALSE(missing.report);
  EXPECT_NE(missing.error.find("not accessible"), std::string::npos);
}

TEST_F(JsonTest, IterationsAndErrors) {
  Row row = example_row();
  row.out_of_place.iterations = iteration_stats({3, 1, 2}, 1);
  row.out_of_place.iterations->per_process_times_us = {{3, 1, 2}, {1, 1, 1}};
  const auto json = write({}, row, {7, 1, 2.0, {"rank 1: gone"}});
  const auto& iterations = json["results"][0]["out_of_place_per_iter"];
  EXPECT_EQ(iterations["skipped_iterations"], 1);
  EXPECT_EQ(iterations["max_us"], 2.0);
  EXPECT_EQ(iterations["times_us"].size(), 3u);
  EXPECT_EQ(iterations["per_process_max_times_us"].size(), 2u);
  EXPECT_FALSE(json["results"][0].contains("in_place_per_iter"));
  EXPECT_EQ(json["out_of_bounds"]["count"], 7);
  EXPECT_EQ(json["out_of_bounds"]["okay"], "false");
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "false");
  EXPECT_EQ(json["errors"][0], "rank 1: gone");
}

}  // namespace
}  // namespace tutti::perf
