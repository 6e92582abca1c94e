// SPDX-License-Identifier: Apache-2.0
// tutti-validate: every algorithm forced on what the program runs on, beside what `auto` takes and
// what the library thought it would cost. Under any launcher, or with processes of its own.
#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/host.hpp"
#include "base/text.hpp"
#include "common/bytes_flag.hpp"
#include "common/contest.hpp"
#include "common/flags.hpp"
#include "common/launch.hpp"
#include "tutti-validate/bundle.hpp"
#include "tutti-validate/cores.hpp"

namespace tutti::validate {
namespace {

struct Options {
  int procs = 0;  // 0: the launcher's
  std::vector<Collective> collectives{Collective::kAllReduce};
  perf::ContestOptions contest{
      .repetitions = 15, .seconds_a_size = 1, .names = {}, .fresh_from = perf::kFreshBytes};
  std::string folder;
  bool learn = false;
  double most_regret = 1e9;  // percent
};

struct Verdict {
  double regret = 0, price_off = 0;
};

const perf::Competitor& best_of(const perf::ContestSize& size) {
  return *std::ranges::min_element(size.competitors, {}, [](const perf::Competitor& one) {
    return one.name == "auto" ? INFINITY : perf::median(one.times_us);
  });
}

// Prints a size. Both autos are one.
Verdict judge(Collective collective, const perf::ContestSize& size) {
  const perf::Competitor& best = best_of(size);
  const double auto_us = std::min(perf::median(size.competitors[0].times_us),
                                  perf::median(size.competitors[1].times_us));
  const double best_us = std::min(perf::median(best.times_us), auto_us);
  const double priced_us = size.competitors[0].priced_us;
  const Verdict verdict{auto_us / best_us - 1, priced_us / auto_us - 1};
  fmt::print(
      "{:<14} {:>10} {:>10.4g} {:>10.4g} {:>+6.0f}% {:>+7.1f}%  {:<38} {}\n", name_of(collective),
      size.bytes, auto_us, priced_us, 100 * verdict.price_off, 100 * verdict.regret, size.chosen,
      verdict.regret <= 0.05     ? "-"
      : best.name == size.chosen ? fmt::format("the same plan, forced ({:.4g} us): noise", best_us)
                                 : fmt::format("{} ({:.4g} us)", best.name, best_us));
  static_cast<void>(std::fflush(stdout));
  return verdict;
}

// The profile that jobs of this user read.
Result<std::string> learnt_path() {
  if (auto path = profile_to_write()) return *std::move(path);
  return make_error(Code::kInvalidArgument,
                    "--learn: neither XDG_CACHE_HOME nor HOME is set, so there is no place for a "
                    "profile; set one of them");
}

// What it holds so far. A file that nobody can read is not replaced.
Result<MachineProfile> known_profile(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return read_profile(path);
  return MachineProfile{.machine = describe_machine(),
                        .created = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))),
                        .measured = {}};
}

Status keep(const Options& options, const Run& run) {
  if (!options.folder.empty()) {
    TUTTI_TRY(write_bundle(run, options.folder));
    fmt::print("# bundle in {}: tutti-sim validate {}\n", options.folder, options.folder);
  }
  if (!options.learn) return {};
  TUTTI_TRY_ASSIGN(const std::string path, learnt_path());
  TUTTI_TRY_ASSIGN(MachineProfile profile, known_profile(path));
  learn(run, profile);
  TUTTI_TRY(write_profile(profile, path));
  fmt::print("# the times of {} plans are in {}\n", profile.measured.size(), path);
  return {};
}

int report(const Options& options, const Run& run, const std::vector<Verdict>& verdicts) {
  double sum = 0, off = 0;
  for (const Verdict& verdict : verdicts) {
    sum += verdict.regret;
    off += std::abs(verdict.price_off);
  }
  const auto n = static_cast<double>(verdicts.size());
  const double mean = 100 * sum / n;
  const double worst = 100 * std::ranges::max(verdicts, {}, &Verdict::regret).regret;
  fmt::print(
      "# {} ranks: regret of auto mean {:.1f}%, worst {:.1f}%; prices differ from times by {:.0f}% "
      "on average\n",
      run.ranks, mean, worst, 100 * off / n);
  if (const Status kept = keep(options, run); !kept) {
    fmt::print(stderr, "tutti-validate: {}\n", kept.error().message);
    return EXIT_FAILURE;
  }
  if (mean <= options.most_regret) return EXIT_SUCCESS;
  fmt::print(stderr, "tutti-validate: the mean regret of {:.1f}% is above {}%\n", mean,
             options.most_regret);
  return EXIT_FAILURE;
}

int take_part(perf::Job& job, const Options& options, bool launched) {
  try {
    const tuttiUniqueId id = job.share(
        [launched] { return launched ? Launcher::unique_id().value : UniqueId::create().value; });
    Communicator comm(UniqueId{id}, job.processes(), job.process());
    const bool prints = job.process() == 0;
    const std::optional<int> cores = cores_of(comm.get(), job.processes());
    Run run{.host = host_name(),
            .ranks = job.processes(),
            .cores = cores.value_or(machine_cpus()),
            .windows = options.contest.windows,
            .profile = {},
            .cost_source = {},
            .studies = {}};
    if (options.learn && !cores)
      throw std::runtime_error(
          "--learn keeps what ranks of one host take, and these are on several; leave it out, or "
          "start all ranks on one host");
    take_profile(run);
    std::vector<Verdict> verdicts;
    if (prints)
      fmt::print("# {} on {}, {}\n{:<14} {:>10} {:>10} {:>10} {:>7} {:>8}  {:<38} {}\n", run.ranks,
                 run.host, describe_machine(), "collective", "bytes", "auto us", "priced us", "off",
                 "regret", "auto took", "best, if more than 5% better");
    Communicator barrier = comm.split(0, comm.rank());
    for (const Collective collective : options.collectives) {
      perf::ContestOptions contest = options.contest;
      contest.collective = collective;
      run.studies.push_back(
          {collective,
           perf::run_contest(comm, barrier, contest, [&](const perf::ContestSize& size) {
             if (prints) verdicts.push_back(judge(collective, size));
           })});
    }
    barrier.finalize();
    comm.finalize();
    return prints ? report(options, run, verdicts) : EXIT_SUCCESS;
  } catch (const std::exception& error) {
    if (job.claim_failure(error.what())) fmt::print(stderr, "tutti-validate: {}\n", error.what());
    return EXIT_FAILURE;
  }
}

// Says what prevents it; "": nothing does.
std::string prepare_to_learn() {
  const char* const transport = std::getenv("TUTTI_TRANSPORT");
  const std::string_view way = transport == nullptr || *transport == 0 ? "auto" : transport;
  if (way != "auto" && way != "shm")
    return fmt::format(
        "--learn keeps times within a host, but TUTTI_TRANSPORT is {}; unset it, or set it to shm",
        printable(way));
  perf::force_nothing();
  const Result<std::string> path = learnt_path();
  if (!path) return path.error().message;
  const Result<MachineProfile> known = known_profile(*path);
  return known ? "" : known.error().message;
}

int run(const Options& options) {
  if (options.learn)
    if (const std::string mistake = prepare_to_learn(); !mistake.empty()) {
      fmt::print(stderr, "tutti-validate: {}\n", mistake);
      return 2;
    }
  const Launcher launcher = Launcher::find();
  const bool launched = launcher.nranks() > 1;
  if (!launched && options.procs < 2) {
    fmt::print(stderr,
               "tutti-validate: a job of one process has no choice to compare; give --procs N, or "
               "start the tool under a launcher\n");
    return 2;
  }
  if (launched && options.procs != 0) {
    fmt::print(stderr,
               "tutti-validate: --procs cannot be combined with a launcher's {} processes; leave "
               "--procs out, or set TUTTI_LAUNCHER=none\n",
               launcher.nranks());
    return 2;
  }
  perf::LaunchOptions how{.program = "tutti-validate",
                          .processes = launched ? launcher.nranks() : options.procs};
  if (launched) how.launched_process = launcher.rank();
  return perf::launch(how, [&](perf::Job& job) { return take_part(job, options, launched); });
}

}  // namespace
}  // namespace tutti::validate

int main(int argc, char** argv) {
  tutti::validate::Options options;
  CLI::App app(
      "Compares the library's automatic choice with every algorithm, forced, on this machine.",
      "tutti-validate");
  std::vector<std::string> names{"all_reduce"};
  app.add_option("--collectives", names, "e.g. all_gather,alltoall; or all")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--procs", options.procs, "processes to fork; cannot be combined with a launcher")
      ->check(CLI::Range(2, 1024));
  const auto bytes = tutti::perf::as_bytes();
  app.add_option("-b,--minbytes", options.contest.min_bytes)->transform(bytes)->default_val(8);
  app.add_option("-e,--maxbytes", options.contest.max_bytes)
      ->transform(bytes)
      ->default_val(16 << 20);
  app.add_option("-f,--stepfactor", options.contest.factor)
      ->check(CLI::Range(2, 1024))
      ->default_val(2);
  app.add_option("-n,--repetitions", options.contest.repetitions)->check(CLI::Range(4, 1000));
  app.add_option("--seconds", options.contest.seconds_a_size,
                 "time limit per size (a minimum of repetitions always runs)")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_flag("--windows", options.contest.windows, "buffers in symmetric windows");
  app.add_flag(
      "--every", options.contest.every_candidate,
      "measure every candidate near the cheapest, not only the cheapest of each algorithm");
  app.add_option("-o,--output", options.folder,
                 "write a bundle for tutti-sim validate into this folder");
  app.add_flag("--learn", options.learn,
               "keep the medians of every candidate near the cheapest in the machine's profile");
  app.add_option("--most-regret", options.most_regret,
                 "exit with status 1 if the mean regret in percent is above this");
  if (const auto status = tutti::perf::parse_flags(app, argc, argv)) return *status;
  options.contest.min_bytes = std::max<std::uint64_t>(options.contest.min_bytes, sizeof(float));
  // Between two sizes a choice may fall on any of them.
  if (options.learn) options.contest.every_candidate = true;
  if (const std::string mistake =
          tutti::perf::find_collectives(names, options.contest, options.collectives);
      !mistake.empty()) {
    fmt::print(stderr, "tutti-validate: {}\n", mistake);
    return 2;
  }
  try {
    return tutti::validate::run(options);
  } catch (const std::exception& error) {  // the launcher's variables contradict each other
    fmt::print(stderr, "tutti-validate: {}\n", error.what());
    return 2;
  }
}
