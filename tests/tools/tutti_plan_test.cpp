// SPDX-License-Identifier: Apache-2.0
// tutti-plan as its users run it: the built program, its exit status, what it prints where.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "algorithms/algorithm.hpp"
#include "schedule/passes.hpp"
#include "schedule/print.hpp"
#include "schedule/unroll.hpp"
#include "tools/tutti-plan/number_list.hpp"

namespace tutti {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct Ran {
  int status = -1;
  std::string out, err;
};

class TuttiPlan : public testing::Test {
 protected:
  TuttiPlan() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-plan-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TuttiPlan() override { std::filesystem::remove_all(folder_); }

  // `arguments` as a shell would read them.
  [[nodiscard]] Ran run(const std::string& arguments) const {
    // First, so that `arguments` may send the output elsewhere.
    const std::string command = fmt::format(">{} 2>{} {} {}", (folder_ / "out").string(),
                                            (folder_ / "err").string(), TUTTI_PLAN, arguments);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(folder_ / "out"),
            contents(folder_ / "err")};
  }

  // Bad input: status 2, nothing on the output, one line that says `part`.
  void expect_bad(const std::string& arguments, const std::string& part) const {
    SCOPED_TRACE(arguments);
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.status, 2);
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_NE(ran.err.find(part), std::string::npos) << ran.err;
    EXPECT_EQ(ran.err.rfind("tutti-plan: ", 0), 0U) << ran.err;
  }

  std::filesystem::path folder_;
};

Schedule built(std::string_view name, std::int32_t ranks) {
  return *build_schedule(**find_algorithm(name),
                         {.collective = Collective::kAllReduce, .ranks = ranks});
}

TEST_F(TuttiPlan, ListNamesEveryAlgorithmWithItsFormula) {
  const Ran ran = run("list");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_NE(ran.out.find(fmt::format("\n{} ", algorithm->name)), std::string::npos);
    EXPECT_NE(ran.out.find(algorithm->summary), std::string::npos);
    EXPECT_NE(ran.out.find(algorithm->source), std::string::npos);
    EXPECT_NE(ran.out.find(algorithm->parameters), std::string::npos);
  }
}

TEST_F(TuttiPlan, ShowPrintsTheScheduleInThreeForms) {
  const Schedule tree = built("tree", 6);
  EXPECT_EQ(run("show tree --ranks 6").out, to_text(tree));
  EXPECT_EQ(run("show tree --ranks 6 --format json").out, to_json(tree));
  EXPECT_EQ(run("show tree --ranks 6 --format svg").out, to_svg(tree));
}

TEST_F(TuttiPlan, ShowAppliesReplicasAndSlices) {
  const Schedule ring = replicate(built("ring", 3), 2);
  EXPECT_EQ(run("show ring --ranks 3 --replicas 2").out, to_text(ring));
  EXPECT_EQ(run("show ring --ranks 3 --replicas 2 --slices 4").out, to_text(*unroll(ring, 4)));
  EXPECT_EQ(run("show ring --ranks 3 --replicas 2 --rank 1").out,
            to_text(ring.shape, 1, ring.ranks[1]));
}

TEST_F(TuttiPlan, ShowsOneRankOfVeryMany) {
  const Ran ran = run("show tree --ranks 1000000 --rank 500000");
  EXPECT_EQ(ran.status, 0);
  EXPECT_NE(ran.out.find("\nr500000.up0.0: "), std::string::npos) << ran.out;
}

TEST_F(TuttiPlan, DrawWritesItsFile) {
  const std::string file = (folder_ / "ring.svg").string();
  const Ran ran = run("draw ring --ranks 4 --slices 2 -o " + file);
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out + ran.err, "");
  EXPECT_EQ(contents(file), to_svg(*unroll(built("ring", 4), 2)));
  EXPECT_EQ(run("draw ring --ranks 4").out, to_svg(built("ring", 4)));
}

TEST_F(TuttiPlan, VerifyProvesEverythingAndCounts) {
  const Ran ran = run("verify --all --ranks 1-5,9 --replicas 1,2 --slices 1,3");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  const std::size_t cases = all_algorithms().size() * 6 * 2 * 2;
  EXPECT_EQ(static_cast<std::size_t>(std::count(ran.out.begin(), ran.out.end(), '\n')), cases + 2);
  const std::string last = fmt::format("# {} verified, 0 failed\n", cases);
  ASSERT_GE(ran.out.size(), last.size());
  EXPECT_EQ(ran.out.substr(ran.out.size() - last.size()), last);
}

TEST_F(TuttiPlan, TakesAnyCollectiveAndRoot) {
  Ran ran = run("verify --all --collective alltoall --ranks 1-9");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("\n# 36 verified, 0 failed\n"), std::string::npos) << ran.out;
  ran = run("verify butterfly --collective scatter --root 4 --ranks 5,9");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  const Schedule gather = *build_schedule(
      **find_algorithm("butterfly"), {.collective = Collective::kGather, .ranks = 6, .root = 2});
  EXPECT_EQ(run("show butterfly --collective gather --root 2 --ranks 6").out, to_text(gather));
  EXPECT_EQ(run("draw butterfly --collective gather --root 2 --ranks 6").out, to_svg(gather));
  expect_bad("verify ring --collective gatherx --ranks 4", "'gatherx' is unknown; choose one");
  expect_bad("verify --all --collective send --ranks 4", "no algorithm has schedules of");
  expect_bad("show ring --collective gather --ranks 4", "ring does not implement gather");
  expect_bad("show butterfly --collective gather --root 6 --ranks 6", "root 6 is out of range");
}

TEST_F(TuttiPlan, VerifyReadsAFileAndExitsOneIfItFalls) {
  Schedule schedule = replicate(built("ring", 4), 2);
  const std::string file = (folder_ / "ring.json").string();
  std::ofstream(file) << to_json(schedule);
  Ran ran = run("verify --file " + file);
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("# 1 verified, 0 failed"), std::string::npos);

  schedule.ranks[1].lanes[0].steps[2].sources.pop_back();  // loses a contribution
  std::ofstream(file) << to_json(schedule);
  ran = run("verify --file " + file);
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("FAILED: "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("# 0 verified, 1 failed"), std::string::npos);
}

TEST_F(TuttiPlan, VerifyFallsWithTooFewSlots) {
  const Ran ran = run("verify ring --ranks 4 --slots 1");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("FAILED: "), std::string::npos);
}

// A limit of unroll() says nothing about the schedule.
TEST_F(TuttiPlan, VerifySaysWhatItCannotWriteOut) {
  const Ran ran = run("verify hierarchical --ranks 11 --slices 1,3");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.out.find("FAILED"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("NOT UNROLLED: cannot unroll"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("# 1 verified, 0 failed, 1 not unrolled\n"), std::string::npos) << ran.out;
}

// Counting many slices of a large schedule would take far longer than its proof.
TEST_F(TuttiPlan, VerifyCountsThePaceOfSmallSchedulesOnly) {
  EXPECT_NE(run("verify ring --ranks 8").out.find(" 15     15.00 "), std::string::npos);
  EXPECT_NE(run("verify ring --ranks 364").out.find(" 726      -         - "), std::string::npos);
}

// A ring of 16,384 ranks has 537 million steps, none of which but rank 0's is held.
TEST_F(TuttiPlan, VerifyTakesOneRankForAllWhereTheyAreAlike) {
  const Ran ran = run("verify ring --ranks 16384 --replicas 2");
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_NE(ran.out.find(" 1073676288 "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("from one rank's program"), std::string::npos) << ran.out;
}

TEST_F(TuttiPlan, VerifySaysWhatIsTooLargeAndWhatToDo) {
  const Ran ran = run("verify one_shot --ranks 8192");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("NOT VERIFIED: one_shot among 8192 ranks cannot be verified"),
            std::string::npos)
      << ran.out;
  EXPECT_NE(ran.out.find("take ring or circulant"), std::string::npos) << ran.out;
}

TEST_F(TuttiPlan, VerifyKeepsItsColumnsUnderLongNames) {
  std::istringstream lines(
      run("verify hierarchical:form=leader:inner=tree:outer=ring:groups=2x4 --ranks 8").out);
  std::string head, row;
  ASSERT_TRUE(std::getline(lines, head) && std::getline(lines, row));
  EXPECT_EQ(head.size(), row.size()) << head << "\n" << row;
}

TEST_F(TuttiPlan, BadInputIsOneLineAndStatusTwo) {
  expect_bad("", "subcommand");
  expect_bad("prove", "unknown command 'prove'; choose one of list, show, verify, draw");
  expect_bad("show", "algorithm");
  expect_bad("show ring", "--ranks");
  expect_bad("show rung --ranks 4", "unknown algorithm 'rung'; choose one of ring, tree");
  expect_bad("show ring --ranks 0", "--ranks");
  expect_bad("show ring --ranks -3", "--ranks");
  expect_bad("show ring --ranks four", "--ranks");
  expect_bad("show ring --ranks 4 --rank 4", "--rank 4 is out of range: there are 4 ranks");
  expect_bad("show ring --ranks 4 --rank 1 --format svg", "--rank needs --format text");
  for (const char* rank : {"", " --rank 1", " --rank 49"})
    expect_bad(std::string("show hierarchical:groups=2x2 --ranks 50") + rank,
               "hierarchical:groups=2x2 does not implement all_reduce for 50 ranks");
  expect_bad("show ring --ranks 4 --format xml", "not one of text, json, svg");
  expect_bad("show ring --ranks 1000000", "--rank");
  expect_bad("show ring --ranks 4 --colour", "--colour");
  expect_bad("draw ring --ranks 200", "but a picture holds 50000");
  expect_bad("draw ring --ranks 60000", "the first 1 of 60000 ranks have 119999 steps");
  expect_bad("draw ring --ranks 4 -o /nonexistent/folder/x.svg", "/nonexistent/folder/x.svg");
  expect_bad("verify --ranks 4", "needs an algorithm, --all or --file");
  expect_bad("verify ring", "needs --ranks");
  expect_bad("verify rung --ranks 4", "choose one of ring, tree");
  expect_bad("verify ring --all --ranks 4", "excludes");
  expect_bad(
      "show hierarchical:inner=circulant:inner.radix=99 --ranks 4",
      "hierarchical: inner=circulant: circulant does not accept 'radix=99'; it takes radix=2..64");
  expect_bad("verify hierarchical:groups=2x4 --ranks 8,9",
             "does not implement all_reduce for 9 ranks");
  expect_bad("verify hierarchical --ranks 4,4096 --replicas 1024", "replicas of");
  expect_bad("verify ring --ranks 4-2", "'4-2' is not a number or range");
  expect_bad("verify ring --ranks 1,,2", "''");
  expect_bad("verify ring --ranks 4 --slots 0", "--slots");
  expect_bad("verify --file /nonexistent.json", "/nonexistent.json");
  const std::string file = (folder_ / "bad.json").string();
  std::ofstream(file) << "{";
  expect_bad("verify --file " + file, "syntax error at byte");
  std::ofstream(file, std::ios::trunc) << "";
  expect_bad("verify --file " + file, "syntax error at byte");
}

TEST_F(TuttiPlan, LostOutputIsAnError) {
  const std::string full = "/dev/full";
  for (const char* arguments : {"list", "show ring --ranks 4", "show ring --ranks 4 --rank 1",
                                "verify ring --ranks 4", "--help"}) {
    const Ran ran = run(fmt::format("{} >{}", arguments, full));
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_EQ(ran.err, "tutti-plan: standard output cannot be written: No space left on device\n")
        << arguments;
  }
  expect_bad("draw ring --ranks 4 -o /dev/full", "/dev/full cannot be written: No space left");
}

TEST_F(TuttiPlan, HelpIsNoError) {
  for (const char* arguments : {"--help", "verify --help", "show --help"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.status, 0);
    EXPECT_NE(ran.out.find("tutti-plan"), std::string::npos) << ran.out;
    EXPECT_EQ(ran.err, "");
  }
}

TEST(NumberList, ReadsNumbersAndRangesInOrder) {
  EXPECT_EQ(*parse_number_list("x", "3", 9), (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(*parse_number_list("x", "1-3,9,2", 9), (std::vector<std::uint32_t>{1, 2, 3, 9, 2}));
  for (const char* bad : {"", ",", "1,", "0", "10", "1-10", "3-2", "-3", "1-", "1-2-3", "a", "1 ",
                          "+1", "99999999999999999999", "1.5"})
    EXPECT_FALSE(parse_number_list("x", bad, 9)) << bad;
  EXPECT_FALSE(parse_number_list("x", "1-4294967295", 4294967295U));
}

}  // namespace
}  // namespace tutti
