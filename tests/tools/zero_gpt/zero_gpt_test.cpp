// SPDX-License-Identifier: Apache-2.0
// zero_gpt as a user runs it: the same curve and the same state, bit for bit, whatever the stage,
// the ranks and the microsteps; a checkpoint continues on other ranks; mistakes are one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/tools/command.hpp"

namespace tutti::gpt {
namespace {

class ZeroGpt : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/zero_gpt_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  [[nodiscard]] std::string run(const std::string& flags, int expected_status = 0) const {
    int status = 0;
    std::string output =
        testing::run_command(TUTTI_ZERO_GPT " --batch 1 --eval-windows 4 " + flags, status);
    EXPECT_EQ(status, expected_status) << flags << "\n" << output;
    return output;
  }
  // Its CSV file, and below it the fingerprint that it printed.
  [[nodiscard]] std::string curve(const std::string& flags) const {
    const std::string output = run(flags + " --csv " + (folder / "curve.csv").string());
    std::ifstream file(folder / "curve.csv");
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const std::size_t at = output.find("# fingerprint");
    return at == std::string::npos ? output : text + output.substr(at, output.find('\n', at) - at);
  }

  std::filesystem::path folder;
};

TEST_F(ZeroGpt, EveryStageHasTheSameCurve) {
  const std::string one = curve("--model nano --steps 3 --procs 1 --stage ddp");
  EXPECT_NE(one.find("# fingerprint of parameters and moments: "), std::string::npos) << one;
  EXPECT_NE(one.find("\n2,"), std::string::npos) << one;
  for (const char* const stage : {"ddp", "zero1", "zero2", "zero3"})
    EXPECT_EQ(curve(std::string("--model nano --steps 3 --procs 4 --stage ") + stage), one);
}

TEST_F(ZeroGpt, ParameterServersHaveItToo) {
  const std::string common = "--model nano --steps 3 --stage ";
  const std::string one = curve(common + "ddp");
  EXPECT_EQ(curve(common + "ps --procs 3 --servers 1"), one);
  EXPECT_EQ(curve(common + "ps --procs 4 --servers 2 --microsteps 2"), one);
  EXPECT_EQ(curve(common + "ps --procs 4 --servers 4 --colocated"), one);
}

TEST_F(ZeroGpt, AScriptOfArrivalsIsKeptAndItsBitsComeAgain) {
  const std::string flags =
      "--model nano --steps 2 --procs 3 --stage ps --async --arrivals 0,0,1 --csv " +
      (folder / "apart.csv").string();
  const std::string first = run(flags), second = run(flags);
  EXPECT_NE(first.find("# worker:staleness of the updates: 0:0 0:0 1:2 1:0\n"), std::string::npos)
      << first;
  const auto fingerprint = [](const std::string& output) {
    return output.substr(output.find("# fingerprint"), 60);
  };
  EXPECT_EQ(fingerprint(first), fingerprint(second));
  std::ifstream file(folder / "apart.csv");
  EXPECT_EQ(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'), 3);
  EXPECT_NE(run("--model nano --steps 2 --procs 3 --stage ps --async --arrivals 0,0,0,1", 1)
                .find("update 2 of Servers::arrivals is worker 0's, which has finished"),
            std::string::npos);
}

TEST_F(ZeroGpt, RanksAndMicrostepsDoNotMatter) {
  const std::string common = "--model odd --slots 12 --steps 2 ";
  const std::string one = curve(common + "--procs 1 --microsteps 12 --stage ddp");
  EXPECT_EQ(curve(common + "--procs 3 --stage zero3"), one);
  EXPECT_EQ(curve(common + "--procs 6 --stage zero1 --microsteps 2"), one);
  EXPECT_EQ(curve("--model nano --steps 2 --procs 8 --stage zero3"),
            curve("--model nano --steps 2 --procs 1 --stage ddp"));
  EXPECT_EQ(curve(common + "--procs 3 --stage zero3 --no-overlap --prefetch 0 --poison"), one);
}

TEST_F(ZeroGpt, SixteenBitParametersHaveTheSameCurveToo) {
  const std::string common = "--model nano --steps 2 --compute bfloat16 ";
  EXPECT_EQ(curve(common + "--procs 4 --stage zero3"), curve(common + "--procs 1 --stage ddp"));
}

// Its parameters, moments and step are the whole run's: a run from it has nothing left to do.
TEST_F(ZeroGpt, ACheckpointIsReadByOtherRanksAndStages) {
  const std::string save = " --save " + (folder / "saved").string();
  const auto fingerprint = [](const std::string& output) {
    return output.substr(output.find("# fingerprint"), 60);
  };
  const std::string whole =
      fingerprint(run("--model nano --steps 3 --procs 4 --stage zero3" + save));
  const std::string load = " --load " + (folder / "saved").string();
  EXPECT_EQ(fingerprint(run("--model nano --steps 3 --procs 2 --stage zero1" + load)), whole);
  const std::string other = run("--model nano --steps 3 --seed 9" + load);
  EXPECT_NE(other.find("the checkpoint was trained with --seed 1, not 9"), std::string::npos);
  EXPECT_NE(run("--model odd --steps 3" + load, 1).find("token_embedding"), std::string::npos);
}

TEST_F(ZeroGpt, SamplesAndDraws) {
  const std::string output =
      run("--model nano --steps 1 --procs 2 --sample 20 --svg " + (folder / "curve.svg").string());
  EXPECT_NE(output.find("# products: own code"), std::string::npos) << output;
  EXPECT_NE(output.find("# memory  : optimizer"), std::string::npos) << output;
  EXPECT_NE(output.find("best trigram model"), std::string::npos) << output;
  EXPECT_TRUE(std::filesystem::exists(folder / "curve.svg"));
}

TEST_F(ZeroGpt, MistakesAreOneLine) {
  const std::vector<std::string> mistakes = {"--text /nonexistent",
                                             "--text /",
                                             "--csv /nonexistent/x",
                                             "--procs 3",
                                             "--procs 4 --memory-limit 1M",
                                             "--procs 2 --shard-ranks 3",
                                             "--procs 2 --stage ps --servers 2",
                                             "--procs 3 --stage ps --async --arrivals 0,2"};
  for (const std::string& flags : mistakes) {
    const std::string output = run("--model nano " + flags, 2);
    EXPECT_TRUE(output.starts_with("zero_gpt: ")) << output;
    EXPECT_EQ(output.find('\n'), output.size() - 1) << output;
  }
}

TEST_F(ZeroGpt, LostOutputIsAFailure) {
  static_cast<void>(run("--model nano --steps 1 > /dev/full", 1));
}

}  // namespace
}  // namespace tutti::gpt
