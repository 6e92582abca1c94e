// SPDX-License-Identifier: Apache-2.0
// tutti-plan: list, show, verify and draw schedules. Parses flags; commands.hpp does the work.
//
// Exit status: 0, 1 if a schedule fell or could not be written out, 2 for bad usage or output that
// cannot be written, with one line that says what is wrong.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "algorithms/algorithm.hpp"
#include "base/output.hpp"
#include "commands.hpp"
#include "number_list.hpp"
#include "perf/common/flags.hpp"

namespace {

using namespace tutti;

constexpr int kBadUsage = 2;

int report(const Result<int>& result) {
  const Status written = finish_output();
  if (result && written) return *result;
  fmt::print(stderr, "tutti-plan: {}\n", (result ? written.error() : result.error()).message);
  return kBadUsage;
}

// The flags as text; lists are parsed after CLI11 is done, for errors in our own words.
struct Flags {
  CollectiveOptions collective;
  ShowOptions show;
  std::string format = "text";
  std::string algorithm;
  bool all = false;
  std::string ranks, slices, replicas;
  std::uint32_t slots = 2;
  std::string file;
};

void add_collective_flags(CLI::App& command, Flags& flags) {
  command.add_option("--collective", flags.collective.name,
                     "all_reduce (default), all_gather, alltoall, ...");
  command.add_option("--root", flags.collective.root, "of broadcast, reduce, gather and scatter");
}

void add_shape_flags(CLI::App& command, Flags& flags) {
  add_collective_flags(command, flags);
  command.add_option("algorithm", flags.show.algorithm, "a name from `tutti-plan list`")
      ->required();
  command.add_option("--ranks", flags.show.ranks, "number of ranks")
      ->required()
      ->check(CLI::Range(std::uint32_t{1}, kMaxRanks));
  command.add_option("--slices", flags.show.slices, "unroll this many slices, one after another")
      ->check(CLI::Range(std::uint32_t{1}, kMaxSlices));
  command
      .add_option("--replicas", flags.show.replicas, "copies of the lanes, which pipeline slices")
      ->check(CLI::Range(std::uint32_t{1}, kMaxReplicas));
}

void add_verify_flags(CLI::App& command, Flags& flags) {
  add_collective_flags(command, flags);
  auto* algorithm =
      command.add_option("algorithm", flags.algorithm, "a name from `tutti-plan list`");
  auto* all = command.add_flag("--all", flags.all, "every algorithm that has the collective")
                  ->excludes(algorithm);
  auto* ranks = command.add_option("--ranks", flags.ranks, "rank counts, e.g. 1-9,16");
  command.add_option(
      "--slices", flags.slices,
      "slice counts to verify one by one, e.g. 1-4,8; not given: all at once, by composition");
  auto* replicas =
      command.add_option("--replicas", flags.replicas, "replica counts, e.g. 1,2 (default 1)");
  command.add_option("--slots", flags.slots, "message slots of a connection (default 2)")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{1} << 16));
  command.add_option("--file", flags.file, "verify this schedule (JSON) instead of an algorithm")
      ->excludes(algorithm)
      ->excludes(all)
      ->excludes(ranks)
      ->excludes(replicas);
}

Result<int> run_show(Flags& flags, bool picture) {
  static const std::map<std::string, Format> kFormats{
      {"text", Format::kText}, {"json", Format::kJson}, {"svg", Format::kSvg}};
  const auto format = kFormats.find(picture ? "svg" : flags.format);
  if (format == kFormats.end())
    return make_error(Code::kInvalidArgument,
                      fmt::format("--format '{}' is not one of text, json, svg", flags.format));
  flags.show.format = format->second;
  flags.show.collective = flags.collective;
  return show(flags.show, stdout);
}

Result<int> run_verify(const Flags& flags) {
  VerifyCommandOptions options;
  options.collective = flags.collective;
  options.slots = flags.slots;
  options.file = flags.file;
  if (flags.file.empty()) {
    if (!flags.all && flags.algorithm.empty())
      return make_error(
          Code::kInvalidArgument,
          "verify needs an algorithm, --all or --file; the algorithms are " + known_algorithms());
    if (flags.ranks.empty())
      return make_error(Code::kInvalidArgument, "verify needs --ranks, e.g. --ranks 1-9,16");
    TUTTI_TRY_ASSIGN(options.ranks, parse_number_list("--ranks", flags.ranks, kMaxWholeRanks));
  }
  if (!flags.algorithm.empty()) options.algorithms.push_back(flags.algorithm);
  if (!flags.slices.empty()) {
    TUTTI_TRY_ASSIGN(options.slices, parse_number_list("--slices", flags.slices, kMaxSlices));
  }
  if (!flags.replicas.empty()) {
    TUTTI_TRY_ASSIGN(options.replicas,
                     parse_number_list("--replicas", flags.replicas, kMaxReplicas));
  }
  return verify_cases(options, stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Lists, shows, verifies and draws the schedules of Tutti's algorithms.",
               "tutti-plan");
  app.require_subcommand(1);
  CLI::App* list =
      app.add_subcommand("list", "list every algorithm: steps, bytes, where it wins, source");
  CLI::App* show = app.add_subcommand("show", "print the steps of a schedule");
  add_shape_flags(*show, flags);
  show->add_option("--rank", flags.show.rank, "print only this rank");
  show->add_option("--format", flags.format, "text, json or svg");
  CLI::App* verify =
      app.add_subcommand("verify", "verify schedules; the exit status is 1 if any fails");
  add_verify_flags(*verify, flags);
  CLI::App* draw = app.add_subcommand("draw", "draw a space-time diagram as SVG");
  add_shape_flags(*draw, flags);
  draw->add_option("-o,--output", flags.show.file, "the file to write (default: standard output)");

  // CLI11 would only say that a command is missing.
  std::string commands;
  bool known = argc < 2 || argv[1][0] == '-';
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands += fmt::format("{}{}", commands.empty() ? "" : ", ", command->get_name());
    known = known || command->get_name() == argv[1];
  }
  if (!known) {
    fmt::print(stderr, "tutti-plan: unknown command '{}'; choose one of {}\n", argv[1], commands);
    return kBadUsage;
  }
  perf::add_version_flag(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return report(app.exit(asked));
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "tutti-plan: {} (see tutti-plan --help)\n", error.what());
    return kBadUsage;
  }
  if (list->parsed()) return report(list_algorithms(stdout));
  if (verify->parsed()) return report(run_verify(flags));
  return report(run_show(flags, draw->parsed()));
}
