// SPDX-License-Identifier: Apache-2.0
// The command line, the learning rate, and what a checkpoint remembers.
#include "zero_gpt/options.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "zero_gpt/checkpoint_note.hpp"

namespace tutti::gpt {
namespace {

struct Outcome {
  ParsedOptions parsed;
  std::string errors;
};
Outcome parse(std::vector<std::string> arguments, int launched = 1, bool speaks = true) {
  arguments.insert(arguments.begin(), "zero_gpt");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStderr();
  Outcome outcome{parse_options(static_cast<int>(argv.size()), argv.data(), launched, speaks), {}};
  outcome.errors = ::testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(Options, FlagsReachTheEngine) {
  const Outcome outcome = parse(
      {"--procs",        "3",    "--stage",      "zero2",    "--model",      "odd",
       "--slots",        "12",   "--microsteps", "2",        "--order",      "fast",
       "--compute",      "half", "--reduce",     "bfloat16", "--no-overlap", "--keep-after-forward",
       "--prefetch",     "9",    "--prefetch",   "2",        "--clip",       "0.5",
       "--memory-limit", "64M",  "--optimizer",  "sgd",      "--momentum",   "0.8"});
  ASSERT_TRUE(outcome.parsed.options) << outcome.errors;
  const Options& options = *outcome.parsed.options;
  EXPECT_EQ(options.processes, 3);
  EXPECT_EQ(options.size.name, "odd");
  EXPECT_EQ(options.tokens_per_step(), 12U * 4 * 27);
  const zero::Config& config = options.engine;
  EXPECT_EQ(config.stage, zero::Stage::kZero2);
  EXPECT_EQ(config.order, zero::Order::kFast);
  EXPECT_EQ(config.compute, zero::Number::kFloat16);
  EXPECT_EQ(config.reduce, zero::Number::kBfloat16);
  EXPECT_FALSE(config.overlap);
  EXPECT_TRUE(config.keep_after_forward);
  EXPECT_EQ(config.microsteps, 2);
  EXPECT_EQ(config.prefetch, 2);
  EXPECT_EQ(config.clip_norm, 0.5F);
  EXPECT_EQ(config.loss_scaling.initial, 65536);  // half asks for it
  EXPECT_EQ(config.memory_limit_bytes, 64U << 20);
  EXPECT_EQ(std::get<zero::Sgd>(options.optimizer).momentum, 0.8F);
}

TEST(Options, FlagsReachTheServers) {
  const Outcome outcome = parse({"--procs", "6", "--stage", "ps", "--servers", "2", "--async",
                                 "--staleness", "3", "--arrivals", "0,3,1"});
  ASSERT_TRUE(outcome.parsed.options) << outcome.errors;
  const Options& options = *outcome.parsed.options;
  ASSERT_TRUE(options.servers);
  EXPECT_EQ(options.servers->count, 2);
  EXPECT_TRUE(options.servers->asynchronous);
  EXPECT_EQ(options.servers->staleness, 3);
  EXPECT_EQ(options.servers->arrivals, (std::vector<int>{0, 3, 1}));
  EXPECT_EQ(options.workers(), 4);
  EXPECT_EQ(parse({"--procs", "2", "--stage", "ps", "--colocated"}).parsed.options->workers(), 2);
  EXPECT_FALSE(parse({}).parsed.options->servers);
}

TEST(Options, AMistakeIsOneLineWithTheFlag) {
  const std::vector<std::vector<std::string>> mistakes = {
      {"--stage", "zero4"},
      {"--model", "huge"},
      {"--slots", "0"},
      {"--compute", "int8"},
      {"--lr", "-1"},
      {"--optimizer", "lamb"},
      {"--steps", "x"},
      {"--save-every", "3"},
      {"--procs", "0"},
      {"--memory-limit", "much"},
      {"--batch", "0"},
      {"--bogus"},
      {"--servers", "2"},
      {"--staleness", "1", "--stage", "zero1"},
      {"--save-every", "3", "--save", "x", "--stage", "ps", "--async"},
      {"--prefetch", "3", "--stage", "ps"},
      {"--async", "--stage", "ps", "--compute", "half"}};
  for (const auto& arguments : mistakes) {
    const Outcome outcome = parse(arguments);
    EXPECT_FALSE(outcome.parsed.options);
    EXPECT_EQ(outcome.parsed.status, 2);
    EXPECT_TRUE(outcome.errors.starts_with("zero_gpt: ")) << outcome.errors;
    EXPECT_NE(outcome.errors.find(arguments[0]), std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
    EXPECT_EQ(parse(arguments, 4, false).errors, "");  // another process has said it
  }
}

TEST(Options, UnderALauncherItsProcessesAreTheRanks) {
  const Outcome good = parse({}, 4);
  ASSERT_TRUE(good.parsed.options);
  EXPECT_EQ(good.parsed.options->processes, 4);
  EXPECT_TRUE(good.parsed.options->launched);
  EXPECT_NE(parse({"--procs", "2"}, 4).errors.find("a launcher has started 4"), std::string::npos);
}

TEST(Options, TheLearningRateGrowsAndFalls) {
  Options options;
  options.learning_rate = 1;
  options.warmup_steps = 10;
  options.steps = 110;
  EXPECT_FLOAT_EQ(learning_rate(options, 0), 0.1F);
  EXPECT_FLOAT_EQ(learning_rate(options, 9), 1);
  EXPECT_FLOAT_EQ(learning_rate(options, 10), 1);
  EXPECT_FLOAT_EQ(learning_rate(options, 60), 0.55F);
  EXPECT_FLOAT_EQ(learning_rate(options, 110), 0.1F);
  for (int step = 10; step < 110; ++step)
    EXPECT_GE(learning_rate(options, step), learning_rate(options, step + 1));
  options.warmup_steps = 0;
  options.steps = 0;
  EXPECT_GT(learning_rate(options, 0), 0);
}

TEST(CheckpointNote, ReadsBackAndNamesWhatDiffers) {
  const CheckpointNote note{123, "tiny", 7, 8, 4};
  const CheckpointNote back = parse_note(to_text(note));
  EXPECT_EQ(back.steps, 123);
  EXPECT_EQ(back.model, "tiny");
  EXPECT_TRUE(differences(note, back).empty());
  EXPECT_EQ(differences(note, {123, "tiny", 9, 8, 4}), std::vector<std::string>{"--seed 7, not 9"});
  for (const char* const text : {"", "steps x", "model tiny\n", "steps -4\nmodel tiny\nseed 1\n"})
    EXPECT_THROW(static_cast<void>(parse_note(text)), std::runtime_error) << text;
}

}  // namespace
}  // namespace tutti::gpt
