// SPDX-License-Identifier: Apache-2.0
// The tool as its users see it, and the parts that read and score measured tables. Prices, fits and
// cluster files have tests of their own (tests/lab, tests/topology).
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "evaluate.hpp"
#include "manifest.hpp"
#include "map_command.hpp"
#include "measured.hpp"
#include "sizes.hpp"
#include "tests/folder.hpp"
#include "validate.hpp"

namespace tutti::sim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using tutti::testing::file_with;

struct Output {
  std::string text;
  int status = 0;
};

// Standard output and error of the tool, together.
Output run(const std::string& arguments) {
  Output output;
  std::FILE* const pipe = popen((std::string(TUTTI_SIM) + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {"popen failed", -1};
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) output.text += part.data();
  output.status = WEXITSTATUS(pclose(pipe));
  return output;
}

std::string mn5(int nodes) {
  return file_with(fmt::format("mn5-{}.json", nodes),
                   fmt::format(R"({{"name": "mn5", "nodes": {}, "gpus_per_node": 4, "gpu": "h100",
 "intra": {{"kind": "nvlink4", "GBps_per_gpu": 450}},
 "nics_per_node": 4, "nic": {{"kind": "ndr200", "GBps": 25}}}})",
                               nodes));
}

TEST(TuttiSim, PredictPrintsTheColumnsAsked) {
  const Output output = run("predict --cluster " + mn5(8) +
                            " --collective all_reduce --algos ring,tree --sizes 8,1K,64M --csv");
  EXPECT_EQ(output.status, 0);
  std::vector<std::string> lines;
  std::istringstream text(output.text);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 7U) << output.text;
  EXPECT_EQ(lines[0], "size_bytes,algorithm,time_us");
  EXPECT_THAT(lines[1], ::testing::StartsWith("8,ring,"));
  EXPECT_THAT(lines[4], ::testing::StartsWith("1024,tree,"));
  EXPECT_THAT(lines[6], ::testing::StartsWith("67108864,tree,"));
}

// From 2^27 ns on a time has no room for the grid's last bit, and flows have to end all the same.
TEST(TuttiSim, SimulatesWhatTakesLongerThanTimesAreExact) {
  const Output output =
      run("predict --cluster " + mn5(8) + " --algos tree --sizes 8G --simulate --csv");
  EXPECT_EQ(output.status, 0);
  const std::string row = "8589934592,tree,";
  const std::size_t at = output.text.find(row);
  ASSERT_NE(at, std::string::npos) << output.text;
  EXPECT_GT(std::stod(output.text.substr(at + row.size())), 0x1p27 / 1e3) << output.text;
}

TEST(TuttiSim, PredictWithoutCsvIsATableOfBandwidths) {
  const Output output = run("predict --cluster " + mn5(4) + " --sizes 1G --algos ring");
  EXPECT_EQ(output.status, 0);
  EXPECT_THAT(output.text, AllOf(HasSubstr("busbw"), HasSubstr("1073741824"), HasSubstr("ring")));
}

TEST(TuttiSim, EveryDefaultProfileServesEveryKindOfCluster) {
  const std::string nic = R"("nic":{"kind":"hdr200"}})";
  const std::string cpu =
      file_with("cpu.json", R"({"name":"c","nodes":4,"ranks_per_node":8,)" + nic);
  const std::string amd =
      file_with("amd.json", R"({"name":"a","nodes":2,"gpus_per_node":8,"gpu":"mi300x",)" + nic);
  for (const std::string& flags :
       {cpu, amd, cpu + " --profile tutti", amd + " --nodes 1", mn5(1), mn5(3)}) {
    const Output output = run("predict --csv --sizes 8,1M --cluster " + flags);
    EXPECT_EQ(output.status, 0) << flags << output.text;
  }
}

TEST(TuttiSim, OneLineForWhatIsWrong) {
  const std::string bad = file_with("bad.json", "{\"name\": \"x\",\n \"nodes\": 0}");
  const std::array<std::array<std::string, 2>, 10> cases{{
      {"predict --cluster /nowhere.json", "/nowhere.json cannot be read: No such file"},
      {"predict --cluster " + bad, "/nodes: 0 is not a whole number"},
      {"predict --cluster " + mn5(2) + " --sizes 8,x", "'x' is neither a size"},
      {"predict --cluster " + mn5(2) + " --algos rng", "unknown algorithm 'rng'"},
      {"predict --cluster " + mn5(2) + " --profile ncl",
       "unknown profile 'ncl'; choose one of nccl"},
      {"predict --cluster " + mn5(2) + " --collective reduce_all", "'reduce_all' is not one of"},
      {"predict --cluster " + mn5(2) + " --nodes 9999999", "9999999 not in range 1 to 1048576"},
      {"map --cluster " + mn5(2) + " --nodes 2,0", "Value 0 not in range 1 to 1048576"},
      {"validate /nowhere", "/nowhere cannot be read"},
      {"predict", "--cluster is required"},
  }};
  for (const auto& [arguments, says] : cases) {
    const Output output = run(arguments);
    EXPECT_EQ(output.status, 2) << arguments;
    EXPECT_THAT(output.text, HasSubstr("tutti-sim: ")) << arguments;
    EXPECT_THAT(output.text, HasSubstr(says));
    EXPECT_EQ(std::ranges::count(output.text, '\n'), 1) << output.text;
  }
}

TEST(Sizes, AsNcclTestsWritesThem) {
  EXPECT_THAT(parse_sizes("8,1K,64M,1G,12,2KiB").value(),
              ElementsAre(8U, 1024U, 64U << 20, 1U << 30, 12U, 2048U));
  EXPECT_THAT(parse_sizes("8-64").value(), ElementsAre(8U, 16U, 32U, 64U));
  for (const char* const wrong :
       {"", "8,", "0", "-8", "8-4", "1X", "1KK", "99999999999999999999", "2048T", "8 ", "1e9"})
    EXPECT_FALSE(parse_sizes(wrong)) << wrong;
  EXPECT_EQ(short_size(65536), "64K");
  EXPECT_EQ(short_size(1.5 * (1 << 20)), "1.5M");
}

TEST(Table, RowsByAlgorithmOrAlone) {
  const auto alone = parse_table("size_bytes,time_us,x\n16,2.5,a\n8,2,b\n", "t").value();
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone.at("")[0].size_bytes, 8);
  EXPECT_EQ(alone.at("")[1].time_us, 2.5);
  const auto named =
      parse_table("algorithm,size_bytes,time_us\r\nring,8,2\r\ntree,8,3\r\n", "t").value();
  EXPECT_EQ(named.at("tree")[0].time_us, 3);
}

TEST(Table, SaysWhichLine) {
  const std::string good = "size_bytes,algorithm,time_us\n8,ring,2\n";
  EXPECT_THAT(parse_table("size,time\n1,2\n", "t.csv").error().message, HasSubstr("t.csv:1:"));
  for (const char* const row : {"16,ring", "x,ring,2", "16,ring,-1", "16,ring,nan", "0,ring,1",
                                "16,ring,2,3", "16,ring,1e999", "16,ring,inf"})
    EXPECT_THAT(parse_table(good + row + "\n", "t.csv").error().message, HasSubstr("t.csv:3:"))
        << row;
  EXPECT_FALSE(parse_table("", "t"));
  EXPECT_FALSE(parse_table("size_bytes,time_us\n", "t"));
}

TEST(Table, MutationsGiveRowsOrOneLine) {
  const std::string good = "size_bytes,algorithm,time_us\n8,ring,2\n16,tree,1.5e3\n";
  constexpr unsigned kSeed = 5;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int change = 0; change < 3; ++change)
      text[random() % text.size()] = "0123456789,.eE+-\nxringtree\0\xff"[random() % 28];
    const auto rows = parse_table(text, "m.csv");
    if (!rows) {
      EXPECT_THAT(rows.error().message, AllOf(HasSubstr("m.csv:"), Not(HasSubstr("\n"))));
      continue;
    }
    for (const auto& [name, points] : *rows)
      for (const Point& point : points) {
        EXPECT_GT(point.time_us, 0);
        EXPECT_GT(point.size_bytes, 0);
      }
  }
}

// Candidate 0 wins small sizes and candidate 1 large ones: they cross at 2^14 as measured, at 2^16
// as predicted.
std::vector<Case> two_lines() {
  std::vector<Case> cases;
  for (double size = 256; size <= 1 << 22; size *= 4)
    cases.push_back({size,
                     {10 + size / 1000, 10 + 16.384 / 2 + size / 2000},
                     {10 + size / 1000, 10 + 65.536 / 2 + size / 2000},
                     0});
  return cases;
}

TEST(Evaluate, CrossoversLieBetweenSizes) {
  const auto found = crossovers_of(two_lines(), {"a", "b"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pair, "a to b");
  EXPECT_NEAR(std::log2(found[0].measured_bytes), 14, 0.05);
  EXPECT_NEAR(std::log2(found[0].predicted_bytes.value()), 16, 0.05);
  EXPECT_NEAR(found[0].factor().value(), 4, 0.3);
}

TEST(Evaluate, RegretErrorsAndWinners) {
  std::vector<Case> cases{{8, {1, 2}, {1.1, 2.0}, 0},      // right
                          {16, {3, 2}, {2.4, 2.6}, 0},     // chosen 0: regret 0.5
                          {32, {1.04, 1}, {1.0, 1.2}, 0},  // a tie
                          {64, {0, 5}, {1, 5}, 0}};        // nothing to choose from
  const auto choice = predicted_choice(cases);
  EXPECT_THAT(choice, ElementsAre(0U, 0U, 0U, 1U));
  const Regret regret = regret_of(cases, choice);
  EXPECT_EQ(regret.cases, 3U);
  EXPECT_NEAR(regret.mean, (0.5 + 0.04) / 3, 1e-9);
  EXPECT_NEAR(regret.worst, 0.5, 1e-9);
  const Winners winners = winners_of(cases, choice);
  EXPECT_EQ(winners.right, 2U);
  EXPECT_EQ(winners.of, 3U);
  const Errors errors = errors_of(cases);
  EXPECT_EQ(errors.points, 7U);
  EXPECT_NEAR(errors.median, 0.1, 1e-9);
}

TEST(Evaluate, TheBestRulesAreFound) {
  const std::vector<Case> cases = two_lines();
  const SizeRule one = best_rule(cases, 1, 2);
  EXPECT_EQ(regret_of(cases, choice_of(one, cases)).mean, 0);
  EXPECT_THAT(one.candidates, ElementsAre(0U, 1U));
  EXPECT_GT(regret_of(cases, choice_of({{0}, {}}, cases)).mean, 0.1);
  EXPECT_EQ(to_string({{1}, {}}, {"a", "b"}), "always b");
  EXPECT_EQ(to_string({{0, 1}, {65536}}, {"a", "b"}), "a, b from 64K");
  // A candidate that was not measured gives way.
  EXPECT_THAT(choice_of({{1, 0}, {100}}, {{8, {3, 0}, {1, 1}, 0}}), ElementsAre(0U));
}

Measurements fixtures() {
  return read_measurements(TUTTI_FIXTURES "/measured", std::string(built_in_manifest())).value();
}

TEST(Manifest, NamesClusterAndAlgorithmOfEachTable) {
  const Measurements measurements = fixtures();
  ASSERT_EQ(measurements.studies.size(), 2U);  // RCCL's tables are not there
  const Study& nccl = measurements.studies[0];
  EXPECT_EQ(nccl.leave_out, LeaveOut::kNodes);
  ASSERT_EQ(nccl.groups.size(), 2U);
  EXPECT_EQ(nccl.groups[1].cluster.ranks(), 64);
  ASSERT_EQ(nccl.groups[1].series.size(), 2U);
  EXPECT_EQ(nccl.groups[1].series[0].points.size(), 9U);
  EXPECT_THAT(measurements.skipped, ::testing::Contains(HasSubstr("does not exist")));
}

TEST(Manifest, SaysWhereItIsWrong) {
  const std::string cluster = R"("clusters":{"c":{"name":"c","nodes":1,"ranks_per_node":2}})";
  const auto with = [&](const std::string& table) {
    return "{" + cluster + R"(,"studies":[{"tables":[)" + table + "]}]}";
  };
  const std::string file = R"("file":"mn5_h100x16_nccl_ring.csv")";
  const std::array<std::array<std::string, 2>, 6> cases{{
      {"{}", "has no list \"studies\""},
      {"[", "invalid JSON"},
      {with("{" + file + R"(,"cluster":"d"})"), "/studies/0/tables/0/cluster: 'd' is not one"},
      {with("{" + file + R"(,"cluster":"c"})"), "needs either \"algorithm\" or \"algorithms\""},
      {with("{" + file + R"(,"cluster":"c","algorithms":{"x":"ring"}})"), "/algorithms/x: no row"},
      {with("{" + file + R"(,"clutser":"c"})"), "unknown key"},
  }};
  for (const auto& [text, says] : cases) {
    const auto result = read_measurements(TUTTI_FIXTURES "/measured", text);
    ASSERT_FALSE(result) << text;
    EXPECT_THAT(result.error().message, HasSubstr(says));
  }
}

// The profile that tutti-sim predicts with, against the tables that it was fitted on.
TEST(Profiles, NcclsDefaultDescribesWhatItWasFittedOn) {
  Study study = fixtures().studies[0];
  study.leave_out = LeaveOut::kNothing;
  const StudyResult result = validate(study, load_profile("nccl").value()).value();
  ASSERT_EQ(result.folds.size(), 1U);
  const Fold& fold = result.folds[0];
  EXPECT_EQ(fold.errors.points, 36U);
  EXPECT_LT(fold.errors.median, 0.15);
  EXPECT_GE(fold.winners.right, 16U);
  EXPECT_LT(fold.regret.mean, 0.02);
  for (const Crossover& each : fold.crossovers)
    EXPECT_LT(each.factor().value_or(100), 4) << each.pair;
}

// Few constants fitted on one number of nodes say the times at another.
TEST(Validate, RingOnOtherNumbersOfNodes) {
  Study study = fixtures().studies[0];
  for (Group& group : study.groups) group.series.resize(1);
  ASSERT_EQ(study.groups[0].series[0].label, "ring");
  Profile profile = load_profile("nccl-prior").value();
  std::erase_if(profile.fit, [](const FitGroup& group) {
    return group.name.starts_with("tree") || group.name == "Simple latency";
  });
  const StudyResult result = validate(study, profile).value();
  ASSERT_EQ(result.folds.size(), 2U);
  for (const Fold& fold : result.folds) {
    EXPECT_EQ(fold.fitted_points, 9U);
    EXPECT_LT(fold.factors, fold.fitted_points);
    EXPECT_LT(fold.errors.median, 0.25) << fold.left_out;
    EXPECT_LE(fold.fit_errors.median, fold.errors.median) << fold.left_out;
  }
}

// Times a hundred thousand times as long ask for constants that no fit may take.
TEST(Validate, SaysWhichConstantsStandAtTheirBounds) {
  Study study = fixtures().studies[0];
  for (Group& group : study.groups) {
    group.series.resize(1);
    for (Point& point : group.series[0].points) point.time_us *= 1e5;
  }
  Profile profile = load_profile("nccl-prior").value();
  std::erase_if(profile.fit, [](const FitGroup& group) {
    return group.name.starts_with("tree") || group.name == "Simple latency";
  });
  const StudyResult result = validate(study, profile).value();
  ASSERT_EQ(result.folds.size(), 2U);
  for (const Fold& fold : result.folds) {
    EXPECT_FALSE(fold.at_bound.empty());
    for (const std::string& name : fold.at_bound)
      EXPECT_NE(std::ranges::find(profile.fit, name, &FitGroup::name), profile.fit.end()) << name;
  }
}

// A whole machine left out: which algorithm wins carries over, times do not.
TEST(Validate, MpiOnAnotherMachine) {
  Study study = fixtures().studies[1];
  std::erase_if(study.groups, [](const Group& group) { return group.series.size() < 2; });
  ASSERT_EQ(study.groups.size(), 2U);
  const StudyResult result = validate(study, load_profile("openmpi-prior").value()).value();
  const Overall overall = overall_of(result);
  EXPECT_EQ(result.folds.size(), 2U);
  EXPECT_GE(overall.winners.of, 15U);
  EXPECT_GE(overall.winners.right * 10, overall.winners.of * 7);
  EXPECT_LT(overall.regret.mean, 0.1);
  EXPECT_EQ(overall.baselines.back().kind, "two thresholds");
  EXPECT_EQ(overall.baselines.back().regret.cases, overall.regret.cases);
}

TEST(Map, LettersRowsAndPictures) {
  MapOptions options;
  options.predict.cluster =
      parse_cluster(R"({"name":"<mn5>","nodes":4,"gpus_per_node":4,"gpu":"h100",
                        "nic":{"kind":"ndr200"}})",
                    "test")
          .value();
  options.predict.profile = load_profile("nccl").value();
  options.predict.collective = Collective::kAllReduce;
  options.predict.algorithms = {"ring", "tree"};
  options.predict.sizes_bytes = {1024, 1 << 28};
  options.nodes = {2, 4};
  const CrossoverMap map = make_map(options).value();
  ASSERT_EQ(map.cells.size(), 2U);
  EXPECT_EQ(map.cells[1][0].winner, 1U);  // 4 nodes, small: tree
  EXPECT_EQ(map.cells[1][1].winner, 0U);  // large: ring
  EXPECT_GT(map.cells[1][0].ahead, 0);
  EXPECT_THAT(to_text(map), AllOf(HasSubstr("# B tree"), HasSubstr("256M")));
  EXPECT_THAT(to_csv(map), AllOf(HasSubstr("nodes,size_bytes,winner"), HasSubstr("4,1024,tree,")));
  const std::string svg = to_svg(map, "on <mn5>");
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg"), HasSubstr("on &#60;mn5&#62;"), HasSubstr("</svg>")));
  options.nodes = {4, 1 << 30};
  EXPECT_FALSE(make_map(options));
}

TEST(Map, FromTheCommandLine) {
  const Output text = run("map --cluster " + mn5(4) + " --nodes 2,4 --sizes 1K,1M");
  EXPECT_EQ(text.status, 0) << text.text;
  EXPECT_THAT(text.text, HasSubstr("nodes     1K     1M"));
  const Output wrong = run("map --cluster " + mn5(4) + " --format png");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.text, HasSubstr("'png' is not one of text, csv, svg"));
}

TEST(Validate, NeedsSomethingElseToFitOn) {
  Study study = fixtures().studies[0];
  study.groups.resize(1);
  EXPECT_THAT(validate(study, load_profile("nccl-prior").value()).error().message,
              HasSubstr("nothing else to fit to"));
}

}  // namespace
}  // namespace tutti::sim
