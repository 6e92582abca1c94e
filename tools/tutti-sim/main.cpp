// SPDX-License-Identifier: Apache-2.0
// tutti-sim: predicts collectives on described clusters and scores predictions against measured
// tables. Parses flags; the commands' files do the work.
//
// Exit status: 0, or 2 for bad usage, bad files or output that cannot be written, with one line
// that says what is wrong.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "base/output.hpp"
#include "map_command.hpp"
#include "perf/common/flags.hpp"
#include "predict_command.hpp"
#include "sizes.hpp"
#include "validate_command.hpp"

namespace {

using namespace tutti;
using namespace tutti::sim;

constexpr int kBadUsage = 2;

int report(const Status& result) {
  const Status written = finish_output();
  if (result && written) return 0;
  fmt::print(stderr, "tutti-sim: {}\n", (result ? written.error() : result.error()).message);
  return kBadUsage;
}

struct Flags {
  std::string cluster, collective = "all_reduce", sizes = "8-512M", profile;
  std::vector<std::string> algorithms;
  std::int32_t nodes = 0;
  std::vector<std::int32_t> map_nodes{2, 4, 8, 16, 32, 64};
  std::string format = "text";
  bool csv = false, simulate = false;
  ValidateOptions validate;
};

Result<Collective> find_collective(const std::string& name) {
  if (const auto known = parse_collective(name)) return *known;
  return make_error(Code::kInvalidArgument,
                    fmt::format("--collective '{}' is not one of {}", name, known_collectives()));
}

// Adds the flags that predict and map have in common.
Result<PredictOptions> options_of(const Flags& flags) {
  PredictOptions options;
  TUTTI_TRY_ASSIGN(options.cluster, read_cluster(flags.cluster));
  if (flags.nodes > 0) {
    TUTTI_TRY_ASSIGN(options.cluster, resize(options.cluster, flags.nodes));
  }
  const std::string profile =
      flags.profile.empty() ? default_profile(options.cluster) : flags.profile;
  TUTTI_TRY_ASSIGN(options.profile, load_profile(profile));
  TUTTI_TRY_ASSIGN(options.collective, find_collective(flags.collective));
  TUTTI_TRY_ASSIGN(options.sizes_bytes, parse_sizes(flags.sizes));
  options.algorithms = flags.algorithms;
  if (options.algorithms.empty())
    for (const AlgorithmProfile& each : options.profile.algorithms)
      options.algorithms.push_back(each.name);
  options.csv = flags.csv;
  options.simulate = flags.simulate;
  return options;
}

Status run_predict(const Flags& flags) {
  TUTTI_TRY_ASSIGN(const PredictOptions options, options_of(flags));
  return predict_table(options, stdout);
}

Status run_map(const Flags& flags) {
  MapOptions options;
  static const std::map<std::string, MapFormat> kFormats{
      {"text", MapFormat::kText}, {"csv", MapFormat::kCsv}, {"svg", MapFormat::kSvg}};
  const auto format = kFormats.find(flags.format);
  if (format == kFormats.end())
    return make_error(Code::kInvalidArgument,
                      fmt::format("--format '{}' is not one of text, csv, svg", flags.format));
  options.format = format->second;
  options.nodes = flags.map_nodes;
  TUTTI_TRY_ASSIGN(options.predict, options_of(flags));
  return print_map(options, stdout);
}

void add_common_flags(CLI::App& command, Flags& flags) {
  command.add_option("--cluster", flags.cluster, "a cluster file (src/topology/README.md)")
      ->required();
  command.add_option("--collective", flags.collective, "all_reduce, all_gather, ...");
  command
      .add_option("--algos", flags.algorithms, "algorithms of the profile, or Tutti's schedules")
      ->delimiter(',');
  command.add_option("--sizes", flags.sizes, "bytes, e.g. 8,1K,64M,1G or 8-512M");
  command.add_option("--profile", flags.profile, "an implementation: a name or a JSON file");
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Predicts collectives on described clusters.", "tutti-sim");
  app.require_subcommand(1);
  CLI::App* predict = app.add_subcommand("predict", "print times by size and algorithm");
  add_common_flags(*predict, flags);
  predict->add_option("--nodes", flags.nodes, "number of nodes, instead of the file's")
      ->check(CLI::Range(1, Cluster::kMostNodes));
  predict->add_flag("--csv", flags.csv, "size_bytes,algorithm,time_us");
  predict->add_flag("--simulate", flags.simulate, "use the flow simulator instead of the price");
  CLI::App* map = app.add_subcommand("map", "print which algorithm wins, by nodes and size");
  add_common_flags(*map, flags);
  map->add_option("--nodes", flags.map_nodes, "numbers of nodes, e.g. 2,4,8")
      ->delimiter(',')
      ->check(CLI::Range(1, Cluster::kMostNodes));
  map->add_option("--format", flags.format, "text, csv or svg");
  CLI::App* validate = app.add_subcommand(
      "validate", "fit the model to part of the measured tables, score it on the rest");
  validate->add_option("folder", flags.validate.folder, "folder of tables and a manifest.json")
      ->required();
  validate->add_option("--profile", flags.validate.profile, "profile, instead of the manifest's");
  validate->add_flag("--points", flags.validate.points, "write each point left out, as CSV");
  validate->add_option("--save-fit", flags.validate.save_fit,
                       "folder for the profiles that are fitted to all tables");
  perf::add_version_flag(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "tutti-sim: {} (see tutti-sim --help)\n", error.what());
    return kBadUsage;
  }
  if (predict->parsed()) return report(run_predict(flags));
  if (map->parsed()) return report(run_map(flags));
  return report(validate_folder(flags.validate, stdout));
}
