// SPDX-License-Identifier: Apache-2.0
// tutti-info: what was built in, what this machine offers, the algorithms, and the one table of
// configuration variables; `tutti-info ranks`: what the ranks of this host do and whom they wait
// for; `tutti-info topo`: the machine as a graph, with rings and trees on it. Exit status: 0, also
// where no rank runs; 1 if a variable has a value that the library refuses, a board or a topology
// cannot be read or the output cannot be written; 2 for bad usage.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/output.hpp"
#include "facts.hpp"
#include "perf/common/flags.hpp"
#include "ranks.hpp"
#include "topo.hpp"

extern char** environ;

namespace {

void complain(const std::string& message) {
  static_cast<void>(std::fputs(("tutti-info: " + message + "\n").c_str(), stderr));
}

bool written() {
  const tutti::Status status = tutti::finish_output();
  if (!status) complain(status.error().message);
  return status.has_value();
}

struct RanksFlags {
  std::vector<std::string> files;
  std::size_t history = 0;
  double after_s = 1;
};

void add_ranks(CLI::App& app, RanksFlags& flags) {
  CLI::App* const ranks = app.add_subcommand("ranks",
                                             "show what the ranks of this host do, which ranks "
                                             "they wait for, and which rank holds them up");
  ranks->add_option(
      "files", flags.files,
      "read these flight recorder files (TUTTI_FLIGHT_DIR) instead of running processes");
  ranks->add_option("--history", flags.history, "list this many of each rank's last operations");
  ranks
      ->add_option("--after", flags.after_s,
                   "call a wait a stall after this many seconds (default 1)")
      ->check(CLI::Range(0.0, 1e9));
  ranks->fallthrough();
}

int show_ranks(const RanksFlags& flags, bool json) {
  using namespace tutti::info;
  const Jobs jobs = flags.files.empty() ? find_jobs() : read_jobs(flags.files);
  const RanksOptions options{.history = flags.history,
                             .after_ns = static_cast<std::int64_t>(flags.after_s * 1e9)};
  const Moment now = moment_now();
  const std::string text = json ? ranks_json(jobs, now, options) : ranks_text(jobs, now, options);
  static_cast<void>(std::fputs(text.c_str(), stdout));
  for (const std::string& problem : jobs.problems) complain(problem);
  return written() && jobs.problems.empty() ? 0 : 1;
}

void add_topo(CLI::App& app, tutti::info::TopoFlags& flags) {
  CLI::App* const topo = app.add_subcommand(
      "topo",
      "show how devices are connected: a matrix, and the rings and trees that ranks would form");
  topo->add_option("--hwloc", flags.hwloc, "hwloc's XML of another machine; repeat for more hosts");
  topo->add_option("--nccl", flags.nccl, "a topology file of NCCL or RCCL; repeat for more hosts");
  topo->add_option("--synthetic", flags.synthetic,
                   "a machine description, e.g. \"package:2 numa:1 l3:2 core:4 pu:1\"");
  topo->add_option(
      "--cluster", flags.cluster,
      "a cluster file, which describes the network of several hosts (src/topology/README.md)");
  topo->add_option("--svg", flags.svg, "draw the machine into this file");
  topo->fallthrough();
}

tutti::Status save(const std::string& text, const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  bool saved = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) saved = std::fclose(file) == 0 && saved;
  if (saved) return {};
  return tutti::errno_error(path + " cannot be written", errno);
}

int show_topo(const tutti::info::TopoFlags& flags, bool json) {
  using namespace tutti::info;
  // Damaged exports make hwloc print lines of its own; ours say what matters.
  static_cast<void>(::setenv("HWLOC_HIDE_ERRORS", "2", 0));
  const tutti::Result<Topo> topo = look_at_topology(flags);
  if (!topo) {
    complain(topo.error().message);
    return 1;
  }
  if (!flags.svg.empty()) {
    const tutti::Status saved = save(topo_svg(*topo), flags.svg);
    if (!saved) {
      complain(saved.error().message);
      return 1;
    }
  }
  const std::string text = json ? topo_json(*topo) : topo_text(*topo);
  static_cast<void>(std::fputs(text.c_str(), stdout));
  return written() ? 0 : 1;
}

int show_facts(bool json) {
  const tutti::info::Facts facts = tutti::info::gather(environ);
  const std::string text = json ? tutti::info::to_json(facts) : tutti::info::to_text(facts);
  static_cast<void>(std::fputs(text.c_str(), stdout));
  return facts.config_ok && written() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kBadUsage = 2;
  CLI::App app("Shows this build, this machine, the algorithms and the configuration.",
               "tutti-info");
  bool json = false;
  RanksFlags ranks;
  tutti::info::TopoFlags topo;
  app.add_flag("--json", json, "as JSON");
  add_ranks(app, ranks);
  add_topo(app, topo);
  tutti::perf::add_version_flag(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    static_cast<void>(app.exit(asked));
    return written() ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    complain(std::string(error.what()) + " (see tutti-info --help)");
    return kBadUsage;
  }
  if (app.got_subcommand("topo")) return show_topo(topo, json);
  return app.got_subcommand("ranks") ? show_ranks(ranks, json) : show_facts(json);
}
