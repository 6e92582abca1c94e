// SPDX-License-Identifier: Apache-2.0
// tutti-tune: what plans cost on this machine, measured in under two seconds and kept for `auto`.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/host.hpp"
#include "common/contest.hpp"
#include "common/flags.hpp"
#include "common/launch.hpp"
#include "tutti-tune/choose.hpp"
#include "tutti-tune/fit_costs.hpp"
#include "tutti-tune/plans.hpp"

namespace tutti::tune {
namespace {

struct Options {
  std::string output;  // "": where the library looks
  bool dry_run = false;
  bool verbose = false;
  double seconds = 1.2;  // for measuring
};

// A machine may change its speed within a second, and where memory lies differs from job to job. So
// everything is measured in turn, a little at a time and in several jobs: what changes disturbs all
// that is priced against each other alike.
constexpr int kPasses = 5;

// One line a sample.
void measure_session(Communicator& comm, Communicator& barrier, const Session& session,
                     double seconds, std::FILE* samples) {
  for (const std::uint64_t bytes : session.bytes) {
    const perf::ContestOptions options{
        .collective = Collective::kAllReduce,
        .min_bytes = bytes,
        .max_bytes = bytes,
        .repetitions = 3,
        .least_repetitions = 1,
        .seconds_a_size = seconds / static_cast<double>(session.bytes.size()),
        .series_us = 300,
        .names = session.plans,
        .windows = session.windows,
        .fresh_from = perf::kFreshBytes};
    for (const perf::ContestSize& size : perf::run_contest(comm, barrier, options))
      for (const perf::Competitor& one : size.competitors)
        for (const double time_us : one.times_us)
          if (samples != nullptr)
            fmt::print(samples, "{} {} {} {} {}\n", session.ranks, session.windows ? 1 : 0,
                       one.name, bytes, time_us);
  }
}

// In one process of a job that runs sessions of as many ranks, each for so long; the first one
// writes what all measured.
int measure(perf::Job& job, const std::vector<Session>& sessions, double seconds,
            std::FILE* samples) {
  try {
    const tuttiUniqueId id = job.share([] { return UniqueId::create().value; });
    Communicator comm(UniqueId{id}, job.processes(), job.process());
    Communicator barrier = comm.split(0, comm.rank());
    for (const Session& session : sessions)
      measure_session(comm, barrier, session, seconds, job.process() == 0 ? samples : nullptr);
    static_cast<void>(std::fflush(samples));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    if (job.claim_failure(error.what())) fmt::print(stderr, "tutti-tune: {}\n", error.what());
    return EXIT_FAILURE;
  }
}

// The status of the first job that failed; 0.
int measure_all(const std::vector<Session>& all, double seconds, std::FILE* samples) {
  std::map<int, std::vector<Session>> jobs;  // by ranks
  for (const Session& session : all) jobs[session.ranks].push_back(session);
  const double seconds_each = seconds / kPasses / static_cast<double>(all.size());
  for (int pass = 0; pass < kPasses; ++pass)
    for (const auto& of_ranks : jobs) {
      const int status = perf::launch(
          {.program = "tutti-tune", .processes = of_ranks.first},
          [&](perf::Job& job) { return measure(job, of_ranks.second, seconds_each, samples); });
      if (status != 0) return status;
    }
  return 0;
}

// Undisturbed, as good as: other programs, and a slow state of the machine, only add to times.
double lower_quartile(std::vector<double> times) {
  const auto quarter = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::ranges::nth_element(times, quarter);
  return *quarter;
}

// One of what was measured alike.
std::vector<Sample> read_samples(std::FILE* file) {
  std::map<std::tuple<int, int, std::uint64_t, std::string>, std::vector<double>> times;
  std::rewind(file);
  int ranks = 0, windows = 0;
  char plan[256];
  std::uint64_t bytes = 0;
  double time_us = 0;
  while (std::fscanf(file, "%d %d %255s %lu %lf", &ranks, &windows, plan, &bytes, &time_us) == 5)
    times[{ranks, windows, bytes, plan}].push_back(time_us);
  std::vector<Sample> samples;
  for (const auto& [what, all] : times) {
    const auto& [of_ranks, in_windows, of_bytes, name] = what;
    samples.push_back({of_ranks, in_windows != 0, name, of_bytes, lower_quartile(all)});
  }
  return samples;
}

void print_report(const std::vector<Sample>& samples, const Fitted& fitted, bool verbose) {
  if (verbose) {
    fmt::print("{:>6} {:>10} {:>12} {:>12} {:>8}  plan\n", "ranks", "bytes", "measured us",
               "priced us", "off");
    for (std::size_t i = 0; i < samples.size(); ++i)
      fmt::print("{:>6} {:>10} {:>12.4g} {:>12.4g} {:>+7.0f}%  {}{}\n", samples[i].ranks,
                 samples[i].bytes, samples[i].time_us, fitted.predicted_us[i],
                 100 * (fitted.predicted_us[i] / samples[i].time_us - 1), samples[i].plan,
                 samples[i].windows ? ", in windows" : "");
  }
  fmt::print("{:<26} {:>10} {:>10} {:>10} {:>10}\n", "cost", "flagged", "slots", "attached",
             "mapped");
  for (const HostCostsMember& member : kHostCostsMembers) {
    fmt::print("{:<26}", member.name);
    for (const CostSetMember& set : kCostSetMembers)
      fmt::print(" {:>10.4g}", fitted.costs.*set.costs.*member.value);
    fmt::print("\n");
  }
  fmt::print("{} samples; median residual {:.0f}%, with the built-in costs {:.0f}%\n",
             samples.size(), 100 * fitted.residual, 100 * fitted.residual_before);
  if (!fitted.at_bound.empty())
    fmt::print(
        "the fit reached its limit for: {}; if the machine was busy, tune again when it is idle\n",
        fmt::join(fitted.at_bound, ", "));
}

int fail(const Error& error) {
  fmt::print(stderr, "tutti-tune: {}\n", error.message);
  return EXIT_FAILURE;
}

int run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto path = options.output.empty() ? profile_to_write() : std::optional(options.output);
  if (!path && !options.dry_run)
    return fail({Code::kInvalidArgument,
                 "neither XDG_CACHE_HOME nor HOME is set; name the file with --output", kNoRank});
  const char* const setting = std::getenv("TUTTI_PROFILE");
  const bool off = setting != nullptr && std::string_view(setting) == "off";
  // The measurement must not depend on an earlier profile, nor on what the user forces.
  perf::force_nothing();
  ::setenv("TUTTI_PROFILE", "off", 1);
  std::FILE* const file = std::tmpfile();
  if (file == nullptr) return fail({Code::kSystemError, "cannot create a temporary file", kNoRank});
  const int cores = usable_cpus();
  std::vector<Session> all = sessions(cores);
  // If no rank may read another's memory, those plans are never chosen.
  const char* const cma = std::getenv("TUTTI_CMA");
  if (!has_cross_memory_attach() || (cma != nullptr && std::string_view(cma) == "off"))
    std::erase_if(all, [](const Session& session) { return attaches(session); });
  if (const int status = measure_all(all, options.seconds, file); status != 0) return status;
  const std::vector<Sample> samples = read_samples(file);
  const Result<Fitted> fitted = fit_costs(samples, cores);
  if (!fitted) return fail(fitted.error());
  print_report(samples, *fitted, options.verbose);
  MachineProfile profile{.machine = describe_machine(),
                         .created = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))),
                         .costs = fitted->costs,
                         .residual = fitted->residual,
                         .measured = {}};
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: measured and fitted in {:.1f} s\n", profile.machine, seconds);
  if (options.dry_run) return EXIT_SUCCESS;
  // What other programs measured of the machine stays, if it can be read.
  if (Result<MachineProfile> known = read_profile(*path)) {
    profile.device = std::move(known->device);
    profile.measured = std::move(known->measured);
  } else if (::access(path->c_str(), F_OK) == 0) {
    fmt::print(stderr, "tutti-tune: {}; it is replaced\n", known.error().message);
  }
  if (const Status written = write_profile(profile, *path); !written) return fail(written.error());
  fmt::print("written to {}{}\n", *path,
             !options.output.empty() ? "; set TUTTI_PROFILE to use it"
             : off ? "; the automatic choice uses it where TUTTI_PROFILE is not off"
                   : "; the automatic choice uses it from now on");
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace tutti::tune

int main(int argc, char** argv) {
  tutti::tune::Options options;
  CLI::App app(
      "Measures communication costs on this machine; the library uses them to choose algorithms.",
      "tutti-tune");
  app.add_option("-o,--output", options.output,
                 "file of the profile; not given: the one that the library reads");
  app.add_flag("-n,--dry-run", options.dry_run, "write nothing");
  app.add_flag("-v,--verbose", options.verbose, "print every sample");
  app.add_option("--seconds", options.seconds, "for measuring")
      ->check(CLI::Range(0.2, 600.0))
      ->default_val(1.2);
  tutti::tune::ChooseOptions job;
  CLI::App* const choose = app.add_subcommand(
      "choose",
      "print the plan that each size would take in a job, without running or measuring it");
  choose->add_option("--ranks", job.ranks)->required()->check(CLI::Range(1, 1 << 20));
  choose
      ->add_option("--ranks-per-host", job.ranks_per_host,
                   "ranks per host; not given: all on one host")
      ->check(CLI::Range(1, 1 << 20));
  choose->add_option("--cores", job.cores, "cores of all hosts together; not given: one per rank")
      ->check(CLI::Range(1, 1 << 24));
  choose->add_option("--wire-alpha-ns", job.wire_alpha_ns, "latency of a message between hosts")
      ->check(CLI::Range(0.0, 1e9));
  choose->add_option("--wire-GBps", job.wire_GBps, "bandwidth of a host's interface")
      ->check(CLI::Range(1e-3, 1e4));
  if (const auto status = tutti::perf::parse_flags(app, argc, argv)) return *status;
  if (!choose->parsed()) return tutti::tune::run(options);
  const tutti::Status chosen = tutti::tune::choose(job, stdout);
  return chosen ? EXIT_SUCCESS : tutti::tune::fail(chosen.error());
}
