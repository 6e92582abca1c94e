// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

namespace tutti::perf {
namespace {

ParseOutcome parse(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  return parse_options("all_reduce_perf", arguments);
}

TEST(Options, DefaultsAreThoseOfNcclTests) {
  const Options o = *parse("").options;
  EXPECT_EQ(o.threads, 1);
  EXPECT_EQ(o.ranks_per_thread, 1);
  EXPECT_EQ(o.min_bytes, 33'554'432u);
  EXPECT_EQ(o.max_bytes, 33'554'432u);
  EXPECT_EQ(o.step_bytes, 1'048'576u);
  EXPECT_EQ(o.step_factor, 1u);
  EXPECT_EQ(o.iterations, 20);
  EXPECT_EQ(o.warmup_iterations, 1);
  EXPECT_EQ(o.aggregated, 1);
  EXPECT_EQ(o.run_cycles, 1);
  EXPECT_EQ(o.checks, 1);
  EXPECT_EQ(o.average, Average::kAverage);
  EXPECT_EQ(o.ops, std::vector{Op::kSum});
  EXPECT_EQ(o.types, std::vector{tuttiFloat32});
  EXPECT_TRUE(o.notes.empty());
}

TEST(Options, ALaunchersProcessesTakeThePlaceOfProcs) {
  const LaunchedProcesses four{"srun", 4};
  const Options launched = *parse_options("tool", {"-t", "2", "-r", "7"}, four).options;
  EXPECT_TRUE(launched.launched);
  EXPECT_EQ(launched.processes, 4);
  EXPECT_EQ(launched.ranks(), 8);
  for (const char* count : {"1", "2"}) {
    const ParseOutcome both = parse_options("tool", {"--procs", count}, four);
    EXPECT_FALSE(both.options);
    EXPECT_EQ(both.status, 2);
    EXPECT_THAT(both.text,
                testing::StartsWith("tool: --procs: srun has already started 4 processes"));
  }
  EXPECT_THAT(parse_options("tool", {}, {"srun", 2000}).text,
              testing::HasSubstr("processes of the launcher: 2000 is not in 1..1024"));
  const Options alone = *parse_options("tool", {"--procs", "3"}, {"srun", 1}).options;
  EXPECT_FALSE(alone.launched);
  EXPECT_EQ(alone.processes, 3);
}

TEST(Options, AlgorithmsAreDividedAtCommas) {
  EXPECT_THAT(parse("-n 1").options->algorithms(), testing::ElementsAre(""));
  EXPECT_THAT(parse("--algo ring@slots").options->algorithms(), testing::ElementsAre("ring@slots"));
  EXPECT_THAT(parse("--algo auto,all_reduce:ring;all_gather:pat,tree").options->algorithms(),
              testing::ElementsAre("auto", "all_reduce:ring;all_gather:pat", "tree"));
}

TEST(Options, BlocksOfAGpuMatterThereAlone) {
  Options alone = *parse("--ctas 4").options;
  EXPECT_EQ(alone.ctas, 4);
  EXPECT_EQ(choose_memory(alone, "no GPU"), "");
  EXPECT_THAT(alone.notes, testing::ElementsAre(testing::StartsWith("--ctas has no effect")));
  EXPECT_THAT(parse("--ctas -1").text, testing::HasSubstr("--ctas: -1 is not in 0..1024"));
}

TEST(Options, AsynchronousCallsHaveNoTimesOfIterations) {
  Options alone = *parse("--async").options;
  EXPECT_TRUE(alone.asynchronous);
  EXPECT_EQ(choose_memory(alone, "no GPU"), "");
  Options both = *parse("--async -I 1").options;
  EXPECT_THAT(choose_memory(both, "no GPU"), testing::StartsWith("--async: "));
}

TEST(Options, ThreadsAreBoundOnDemand) {
  EXPECT_FALSE(parse("--procs 2").options->pin);
  EXPECT_TRUE(parse("--procs 2 --pin").options->pin);
}

TEST(Options, ShortAndLongNamesMeanTheSame) {
  const char* kShort =
      "-t 2 -g 3 -b 8 -e 64K -i 4K -f 4 -n 7 -w 5 -m 2 -N 3 -p 1 -c 2 -o max -d half -r 1 -z 3 "
      "-T 9 -C 1 -S 1 -J out.json -a 3 -M 1 -u 2 -I 1 -K 4";
  const char* kLong =
      "--nthreads 2 --ngpus 3 --minbytes 8 --maxbytes 64K --stepbytes 4K --stepfactor 4 --iters 7 "
      "--warmup_iters 5 --agg_iters 2 --run_cycles 3 --parallel_init 1 --check 2 --op max "
      "--datatype half --root 1 --blocking 3 --timeout 9 --report_cputime 1 --report_timestamps 1 "
      "--output_file out.json --average 3 --memory 1 --unalign 2 --per_iter_timing 1 "
      "--per_iter_skip 4";
  for (const char* line : {kShort, kLong}) {
    const ParseOutcome outcome = parse(line);
    ASSERT_TRUE(outcome.options) << outcome.text;
    const Options& o = *outcome.options;
    EXPECT_EQ(o.ranks(), 6);
    EXPECT_EQ(o.min_bytes, 8u);
    EXPECT_EQ(o.max_bytes, 65'536u);
    EXPECT_EQ(o.step_bytes, 4096u);
    EXPECT_EQ(o.step_factor, 4u);
    EXPECT_EQ(o.iterations, 7);
    EXPECT_EQ(o.warmup_iterations, 5);
    EXPECT_EQ(o.aggregated, 2);
    EXPECT_EQ(o.run_cycles, 3);
    EXPECT_TRUE(o.parallel_init);
    EXPECT_EQ(o.checks, 2);
    EXPECT_EQ(o.ops, std::vector{Op::kMax});
    EXPECT_EQ(o.types, std::vector{tuttiFloat16});
    EXPECT_EQ(o.root, 1);
    EXPECT_EQ(o.blocking, Blocking::kBarrierOuter);
    EXPECT_EQ(o.timeout_s, 9);
    EXPECT_TRUE(o.report_cputime && o.report_timestamps && o.report_memory && o.per_iteration);
    EXPECT_EQ(o.json_path, "out.json");
    EXPECT_EQ(o.average, Average::kMaximum);
    EXPECT_EQ(o.unalign, 2);
    EXPECT_EQ(o.per_iteration_skip, 4);
  }
}

TEST(Options, GluedAndEqualsForms) {
  const ParseOutcome outcome = parse("-b8 --maxbytes=1M -f2 -dbfloat16");
  ASSERT_TRUE(outcome.options) << outcome.text;
  EXPECT_EQ(outcome.options->min_bytes, 8u);
  EXPECT_EQ(outcome.options->max_bytes, 1'048'576u);
  EXPECT_EQ(outcome.options->types, std::vector{tuttiBfloat16});
}

TEST(Options, AllMeansEveryTypeAndOperation) {
  const Options o = *parse("-d all -o all").options;
  EXPECT_EQ(o.types.size(), std::size_t{tuttiNumTypes});
  EXPECT_EQ(o.ops.size(), std::size_t{kOpCount});
  EXPECT_TRUE(o.all_types && o.all_ops);
}

TEST(Options, FlagsThatNeedADeviceAreNoted) {
  Options o = *parse("-y 1 -G 4 -x 1 -D 3 -V 8").options;
  EXPECT_TRUE(o.notes.empty()) << "not known yet";
  EXPECT_EQ(choose_memory(o, "no GPU"), "");
  EXPECT_EQ(o.memory, Memory::kHost);
  ASSERT_EQ(o.notes.size(), 5u);
  for (const std::string& note : o.notes)
    EXPECT_NE(note.find(" has no effect: "), std::string::npos);
  EXPECT_FALSE(o.windows);
}

TEST(Options, RegisteredBuffersAreHostMemory) {
  Options host = *parse("-R 1").options;
  EXPECT_EQ(choose_memory(host, "no GPU"), "");
  EXPECT_TRUE(host.registered);
  EXPECT_FALSE(host.windows);
  EXPECT_TRUE(host.notes.empty());
  Options device = *parse("-R 1").options;
  EXPECT_EQ(choose_memory(device, ""), "");
  EXPECT_FALSE(device.registered);
  EXPECT_THAT(device.notes, testing::ElementsAre(testing::HasSubstr("-R 1 has no effect")));
}

TEST(Options, WindowsAreHostMemory) {
  Options host = *parse("-R 2").options;
  EXPECT_EQ(choose_memory(host, "no GPU"), "");
  EXPECT_TRUE(host.windows);
  EXPECT_TRUE(host.notes.empty());
  Options device = *parse("-R 2").options;
  EXPECT_EQ(choose_memory(device, ""), "");
  EXPECT_FALSE(device.windows);
  EXPECT_THAT(device.notes,
              testing::ElementsAre("-R 2 has no effect: windows are in host memory only"));
}

TEST(Options, MemoryIsTheGpusWhereOneCanBeUsed) {
  const auto chosen = [](const std::string& line, const std::string& absence) {
    Options o = *parse(line).options;
    EXPECT_EQ(choose_memory(o, absence), "") << line;
    EXPECT_TRUE(o.notes.empty()) << line;
    return o.memory;
  };
  EXPECT_EQ(chosen("", ""), Memory::kDevice);
  EXPECT_EQ(chosen("-t 8 -G 4", ""), Memory::kDevice);
  EXPECT_EQ(chosen("--memory device -y 1", ""), Memory::kDevice);
  EXPECT_EQ(chosen("", "no GPU"), Memory::kHost);
  EXPECT_EQ(chosen("--memory host", ""), Memory::kHost);
  EXPECT_EQ(chosen("--procs 2", ""), Memory::kHost);
  EXPECT_FALSE(parse("--procs 2").options->may_use_gpus()) << "nothing is looked for before a fork";
  EXPECT_FALSE(parse("--memory host").options->may_use_gpus());
}

TEST(Options, MemoryIsReportedByANumberAndChosenByAWord) {
  EXPECT_TRUE(parse("-M 1").options->report_memory);
  EXPECT_TRUE(parse("--memory 1").options->report_memory);
  EXPECT_FALSE(parse("-M 0").options->report_memory);
  EXPECT_EQ(parse("-M 1").options->memory, Memory::kAuto);
  const Options both = *parse("-M 1 --memory host").options;
  EXPECT_TRUE(both.report_memory);
  EXPECT_EQ(both.memory, Memory::kHost);
}

TEST(Options, WhatDeviceMemoryCannotDoIsOneLine) {
  const auto wrong = [](const std::string& line, const std::string& absence) {
    Options o = *parse(line).options;
    const std::string text = choose_memory(o, absence);
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  EXPECT_EQ(wrong("--memory device", "no GPU can be used"), "--memory device: no GPU can be used");
  EXPECT_THAT(wrong("--memory device --procs 2", ""), testing::HasSubstr("threads of one process"));
  EXPECT_THAT(wrong("-G 2 -y 1", ""), testing::HasSubstr("default stream"));
  EXPECT_THAT(wrong("-G 2 -z 1", ""), testing::HasSubstr("-z"));
  EXPECT_THAT(wrong("-G 2 -I 1", ""), testing::HasSubstr("-I"));
}

TEST(Options, WrongUsageIsSaidInOneLine) {
  for (const char* line : {"-b 2M -e 1M", "-b x",         "-e 1T",
                           "-o xor",      "-d float128",  "-t 0",
                           "-g -1",       "--procs 0",    "--procs 64 -t 64 -g 64",
                           "-n 0",        "-z 4",         "-R 3",
                           "-a 7",        "-r 1",         "-K 20",
                           "-J out.csv",  "--frobnicate", "-i 0 -b 1 -e 2",
                           "-n many",     "-r some",      "stray",
                           "-y 2",        "-G -1",        "--memory gpu"}) {
    const ParseOutcome outcome = parse(line);
    EXPECT_FALSE(outcome.options) << line;
    EXPECT_NE(outcome.status, 0) << line;
    EXPECT_TRUE(outcome.text.starts_with("all_reduce_perf: ")) << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  }
}

TEST(Options, UnknownNamesAreToldTheKnownOnes) {
  EXPECT_EQ(parse("-o xor").text,
            "all_reduce_perf: -o: unknown operation 'xor'; choose one of sum, prod, max, min, avg, "
            "mulsum, all\n");
  const std::string types = parse("-d float128").text;
  for (int i = 0; i < tuttiNumTypes; ++i)
    EXPECT_NE(types.find(fmt::format(" {},", type_name(static_cast<tuttiDataType_t>(i)))),
              std::string::npos)
        << types;
}

// What `name` of `environment` makes of the options of a command line.
std::string applied(Options& options, const std::map<std::string, std::string>& environment) {
  return apply_environment(options, [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, GivesTheLeastBandwidthAndTheAlgorithm) {
  Options o = *parse("").options;
  EXPECT_EQ(applied(o, {}), "");
  EXPECT_EQ(applied(o, {{"NCCL_TESTS_MIN_BW", ""}, {"TUTTI_ALGO", ""}}), "");
  EXPECT_FALSE(o.required_busbw);
  EXPECT_EQ(o.algorithm, "");
  EXPECT_EQ(applied(o, {{"NCCL_TESTS_MIN_BW", "12.5"}, {"TUTTI_ALGO", "ring"}}), "");
  EXPECT_EQ(o.required_busbw, 12.5);
  EXPECT_EQ(o.algorithm, "ring");
  o = *parse("--algo tree").options;
  EXPECT_EQ(applied(o, {{"TUTTI_ALGO", "ring"}}), "");
  EXPECT_EQ(o.algorithm, "tree");
}

TEST(Environment, BadValuesAreRefused) {
  for (const char* text : {"abc", "1x", "-1", "nan", "inf", " 1"}) {
    Options o;
    EXPECT_EQ(
        applied(o, {{"NCCL_TESTS_MIN_BW", text}}),
        fmt::format("NCCL_TESTS_MIN_BW='{}' is not a bandwidth in GB/s; example: 12.5", text));
  }
  Options o;
  EXPECT_EQ(applied(o, {{"NCCL_TESTS_SPLIT", "XOR 3"}}),
            "NCCL_TESTS_SPLIT='XOR 3' is not AND, OR, MOD or DIV and a number; example: MOD 2");
  EXPECT_EQ(applied(o, {{"NCCL_TESTS_SPLIT_MASK", "x"}}),
            "NCCL_TESTS_SPLIT_MASK='x' is not a hexadecimal number; example: 7");
}

TEST(Environment, SplitsByTheMaskFirst) {
  Options o;
  EXPECT_EQ(applied(o, {{"NCCL_TESTS_SPLIT", "MOD 2"}}), "");
  EXPECT_EQ(o.split, (Split{Split::By::kModulo, 2}));
  EXPECT_EQ(applied(o, {{"NCCL_TESTS_SPLIT", "MOD 2"}, {"NCCL_TESTS_SPLIT_MASK", "f"}}), "");
  EXPECT_EQ(o.split, (Split{Split::By::kAnd, 15}));
}

TEST(Options, TheLastOfRepeatedFlagsWins) {
  const Options o = *parse("-e 1M -b 8 -n 3 --maxbytes 2M -n 7 --algo ring --algo tree").options;
  EXPECT_EQ(o.max_bytes, 2u << 20);
  EXPECT_EQ(o.iterations, 7);
  EXPECT_EQ(o.algorithm, "tree");
}

TEST(Options, NamesAreReadInAnyCase) {
  const Options o = *parse("-d BFLOAT16 -o Max -r ALL").options;
  EXPECT_EQ(o.types, std::vector{tuttiBfloat16});
  EXPECT_EQ(o.ops, std::vector{Op::kMax});
  EXPECT_EQ(o.root, -1);
  EXPECT_TRUE(parse("-o All").options->all_ops);
}

TEST(Options, HelpSucceeds) {
  for (const char* line : {"-h", "--help"}) {
    const ParseOutcome outcome = parse(line);
    EXPECT_FALSE(outcome.options);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.text.find("--stepfactor"), std::string::npos);
  }
}

TEST(ParseBytes, SuffixesAreBinary) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("8"), 8u);
  EXPECT_EQ(parse_bytes("1K"), 1024u);
  EXPECT_EQ(parse_bytes("1k"), 1024u);
  EXPECT_EQ(parse_bytes("1.5M"), 1'572'864u);
  EXPECT_EQ(parse_bytes("2GB"), 2'147'483'648u);
  EXPECT_EQ(parse_bytes("2GiB"), 2'147'483'648u);
  for (const char* text : {"", "K", "-1", "1X", "1KK", "1 K", "nan", "inf", "1e400", "9999999999G"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

TEST(Sizes, FactorStepAndTheirEnds) {
  using V = std::vector<std::uint64_t>;
  EXPECT_EQ(sizes_of(*parse("-b 8 -e 64K -f 4").options), (V{8, 32, 128, 512, 2048, 8192, 32'768}));
  EXPECT_EQ(sizes_of(*parse("-b 10 -e 30 -i 10").options), (V{10, 20, 30}));
  EXPECT_EQ(sizes_of(*parse("").options), (V{33'554'432}));
  EXPECT_EQ(sizes_of(*parse("-b 0 -e 8 -f 2").options), (V{0}));
  EXPECT_EQ(sizes_of(*parse("-b 0 -e 16 -i 8").options), (V{0, 8, 16}));
}

}  // namespace
}  // namespace tutti::perf
