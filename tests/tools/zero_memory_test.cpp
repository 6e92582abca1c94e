// SPDX-License-Identifier: Apache-2.0
// zero_memory as a user runs it: tables, JSON, picture, advice, and every way to misuse it.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/folder.hpp"
#include "tests/tools/command.hpp"

namespace tutti {
namespace {

using ::testing::AllOf;
using testing::file_with;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int status = -1;
  std::string output;
};

Outcome run(const std::string& arguments) {
  Outcome outcome;
  outcome.output = testing::run_command(ZERO_MEMORY + (" " + arguments), outcome.status);
  return outcome;
}

nlohmann::json run_json(const std::string& arguments) {
  const Outcome outcome = run(arguments + " --json");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  return nlohmann::json::parse(outcome.output, nullptr, false);
}

// Two hosts of two GPUs behind slow ports.
std::string slow_cluster() {
  return file_with("zero-memory-slow.json",
                   R"({"name": "slow", "nodes": 2, "gpus_per_node": 2, "gpu": "a100",
 "nics_per_node": 2, "nic": {"kind": "ndr200", "GBps": 1}})");
}

const std::string kA100 = "--gpu-memory 80e9 --peak-flops 312e12";

TEST(ZeroMemory, PrintsThePapersRow) {
  const Outcome outcome = run("--parameters 7.5e9 --ranks 64");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("7500000000 parameters"), HasSubstr("2 + 2 + 12 bytes"),
                    HasSubstr("unknown without the model's shape")));
  const nlohmann::json json = run_json("--parameters 7.5e9 --ranks 64");
  ASSERT_EQ(json["stages"].size(), 4U);
  const std::vector<double> GB{120, 31.40625, 16.640625, 1.875};
  for (std::size_t i = 0; i < GB.size(); ++i)
    EXPECT_DOUBLE_EQ(json["stages"][i]["state_bytes"].get<double>(), GB[i] * 1e9);
  EXPECT_TRUE(json["stages"][3]["limit"].is_null());
  EXPECT_TRUE(json["stages"][0]["least_ranks"].is_null());
}

TEST(ZeroMemory, PrintsGpt3) {
  const nlohmann::json json =
      run_json("--model 175b --ranks 1024 --peak-flops 312e12 --mfu 0.5 --tokens 300e9");
  EXPECT_EQ(json["stages"][3]["least_ranks"], 35);
  EXPECT_DOUBLE_EQ(json["flops"].get<double>(), 3.15e23);
  EXPECT_EQ(json["ranks_for_days"], 780);
  ASSERT_EQ(json["activations"].size(), 3U);
  EXPECT_NEAR(json["activations"][0]["layer_bytes"].get<double>(), 2.869e9, 1e6);
  const Outcome text = run("--model gpt3 --pipeline 4 --tensor-parallel 8 --sequence-parallel");
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.output, AllOf(HasSubstr("174604259328 parameters (96 layers"),
                                 HasSubstr("bubble 37.5 % of the ideal time, 27.27 % of the"),
                                 HasSubstr("(b = 1, t = 8, sequence parallel)")));
}

TEST(ZeroMemory, TakesAnyShape) {
  const nlohmann::json json = run_json(
      "--layers 2 --hidden 64 --heads 2 --sequence 32 --vocabulary 256 --fp32 --ranks 4 "
      "--batch 8");
  EXPECT_EQ(json["model"]["parameters"], 118528);
  EXPECT_EQ(json["model"]["bytes_per_parameter"]["optimizer"], 8);
  EXPECT_EQ(json["microsteps"], 2);
  EXPECT_EQ(json["step_tokens"], 8 * 32);
  EXPECT_EQ(run_json("--model nano --bytes 2,4,12")["stages"][0]["state_bytes"], 118528 * 18.0);
  EXPECT_EQ(run_json("--model nano --sequence 33")["model"]["parameters"], 118528 + 64);
}

TEST(ZeroMemory, ArticlesAreATableAndJson) {
  const Outcome outcome = run("--articles");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Mission Impossible"), HasSubstr("7.5B: ZeRO-1, N = 64"),
                    HasSubstr("(P - 1) / M is the share of the ideal time")));
  const nlohmann::json figures = run_json("--articles")["articles"];
  EXPECT_EQ(figures.size(), 71U);
}

TEST(ZeroMemory, DrawsAPictureThatParses) {
  const testing::Folder folder;
  const std::string file = folder.file("zero-memory.svg");
  const Outcome outcome = run("--model 7b --ranks 64 --svg " + file);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  pugi::xml_document picture;
  ASSERT_TRUE(picture.load_file(file.c_str()));
  const pugi::xml_node svg = picture.child("svg");
  EXPECT_STREQ(svg.attribute("xmlns").value(), "http://www.w3.org/2000/svg");
  const auto count = [&](const char* name) {
    const auto children = svg.children(name);
    return std::distance(children.begin(), children.end());
  };
  EXPECT_EQ(count("polyline"), 4);
  EXPECT_EQ(count("circle"), 4 * 7);  // 1, 2, ..., 64 ranks
  std::string text;
  for (const pugi::xml_node& node : svg.children("text")) text += node.child_value();
  EXPECT_THAT(text, AllOf(HasSubstr("7b: state on each rank"), HasSubstr("ZeRO-3"),
                          HasSubstr("a rank has 80 GB")));
  for (const pugi::xml_node& circle : svg.children("circle")) {
    EXPECT_GE(circle.attribute("cy").as_double(), 60);
    EXPECT_LE(circle.attribute("cy").as_double(), 420);
  }
  // One rank and little memory are pictures too.
  EXPECT_EQ(run("--model nano --ranks 1 --gpu-memory 1 --svg " + file).status, 0);
  ASSERT_TRUE(picture.load_file(file.c_str()));
}

TEST(ZeroMemory, AdvisesOnAClusterFile) {
  const std::string arguments =
      "--advise " + slow_cluster() + " --parameters 1e9 --units 4 --batch 4 " + kA100;
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(run(arguments).output, outcome.output);
  const nlohmann::json json = run_json(arguments);
  ASSERT_EQ(json["strategies"].size(), 7U);
  EXPECT_EQ(json["strategies"].back()["strategy"], "ZeRO-3");
  // Ports of 1 GB/s decide. Of 2 GB a host's two ports carry half in a reduce-scatter or all-gather
  // of all ranks: 0.5 s. So ZeRO-3 takes three times as long, all others twice, those with shards
  // inside hosts for their all-reduce of 1 GB between hosts.
  for (const nlohmann::json& each : json["strategies"]) {
    EXPECT_TRUE(each["possible"]);
    const nlohmann::json& seconds = each["seconds"];
    const double ports = each["strategy"] == "ZeRO-3" ? 1.5 : 1.0;
    EXPECT_GE(seconds["communication"].get<double>(), ports) << each;
    EXPECT_LE(seconds["communication"].get<double>(), 1.25 * ports) << each;
    EXPECT_NEAR(seconds["total"].get<double>(),
                seconds["compute"].get<double>() + seconds["exposed"].get<double>() +
                    seconds["update"].get<double>(),
                1e-12);
  }
}

TEST(ZeroMemory, AdviceNamesWhatDoesNotFit) {
  const Outcome outcome =
      run("--advise " + slow_cluster() + " --model 7b --gpu-memory 40e9 --peak-flops 312e12");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("DDP              impossible: needs"));
}

TEST(ZeroMemory, BadInputIsOneLine) {
  const std::string slow = slow_cluster();
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "which model? use --model"},
      {"--model gpt9", "--model 'gpt9' is not one of"},
      {"--model gpt3 --layers 3", "--model says the shape already"},
      {"--layers 2 --hidden 64", "--heads is missing"},
      {"--layers 2 --hidden 65 --heads 2 --sequence 8 --vocabulary 9", "not divisible by --heads"},
      {"--parameters 1.5", "--parameters 1.5 is not a whole number"},
      {"--parameters -7e9", "is not a whole number"},
      {"--parameters 1e30", "is not a whole number"},
      {"--model 7b --ranks 0", "--ranks 0 is not a whole number from 1"},
      {"--model 7b --bytes 2,2", "--bytes '2,2' is not three numbers"},
      {"--model 7b --bytes 2,2,12x", "is not three numbers"},
      {"--model 7b --bytes 2,2,999", "is not three numbers"},
      {"--model 7b --mfu 1.5", "--mfu 1.5 is not above 0 and at most 1"},
      {"--model 7b --mfu nan", "--mfu nan is not above 0"},
      {"--model 7b --batch 100", "not divisible by 64 ranks of microbatch 1"},
      {"--model 7b --ranks 2e6 --microbatch 1e6 --microsteps 1e6", "4.096e+21 tokens in a step"},
      {"--model gpt3 --tensor-parallel 7", "does not divide the 96 heads"},
      {"--model 7b --gpu-memory -1", "--gpu-memory -1 is not a whole number"},
      {"--model 7b --svg /nonexistent/a.svg", "--svg /nonexistent/a.svg: cannot write"},
      {"--model 7b --ranks many", "--ranks"},
      {"--model 7b --batch 64 --microsteps 2", "--microsteps excludes --batch"},
      {"--model 7b --advise /nonexistent.json", "/nonexistent.json"},
      {"--model 7b --advise " + slow + " --ranks 4", "takes the ranks from the cluster"},
      {"--model 7b --advise " + slow, "the ranks of this cluster are GPUs of the model a100; say"},
      {"--model 7b --chunks 4", "--chunks needs a pipeline"},
      {"--model 7b --pipeline 5", "--pipeline 5 with --chunks 1 does not divide the 32 layers"},
      {"--model 7b --fp32 --bytes 2,2,12", "--bytes excludes --fp32"},
      {"--model 7b --advise " + slow + " --batch 5 " + kA100,
       "not divisible by the cluster's 4 ranks"},
      {"--model 7b --advise " + slow + " --pipeline 2", "knows data parallelism alone"},
      {"--model 7b --advise " + slow + " --profile nope", "nope"},
      {"--model 7b --advise " + slow + " --svg a.svg", "--svg draws no --advise"},
      {"--model 7b --advise " + file_with("zero-memory-bad.json", "{"), "zero-memory-bad.json"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.output, AllOf(StartsWith("zero_memory: "), HasSubstr(expected)))
        << arguments;
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  }
}

}  // namespace
}  // namespace tutti
