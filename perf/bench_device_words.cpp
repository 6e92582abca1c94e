// SPDX-License-Identifier: Apache-2.0
// What the parts of an operation cost on one GPU, each by itself, beside what was predicted before
// the first run; and the costs that follow for `auto`.
//
//   bench_device_words [--mib 256] [--json FILE] [--profile FILE]
//
// The exit status is 0 where all was measured, whatever the figures; 1 if a message held other
// bytes than were sent, a wait came to its end, or a file cannot be written.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/flags.hpp"
#include "device_words/costs.hpp"
#include "model/machine_profile.hpp"

namespace tutti {
namespace {

using probe::Figure;
using probe::Words;

// Further from its prediction than half again, either way.
constexpr double kFarOff = 1.5;

nlohmann::json to_json(const HostCosts& costs) {
  return {{"alpha_ns", costs.alpha_ns},
          {"step_ns", costs.step_ns},
          {"beta_ns_per_byte", costs.beta_ns_per_byte}};
}

nlohmann::json to_json(const Words& words, const probe::DerivedCosts& derived, double seconds) {
  nlohmann::json root{{"program", "bench_device_words"}, {"device", words.device},
                      {"blocks", words.blocks},          {"seconds", seconds},
                      {"faults", words.faults},          {"figures", nlohmann::json::array()}};
  for (const Figure& figure : words.figures) {
    nlohmann::json row{{"name", figure.name},
                       {"unit", figure.unit},
                       {"value", figure.value},
                       {"spread", figure.spread}};
    if (const double predicted = probe::predicted(figure.name); predicted > 0) {
      row["predicted"] = predicted;
      row["ratio"] = figure.value / predicted;
    }
    root["figures"].push_back(std::move(row));
  }
  for (const DeviceCostsMember& member : kDeviceCostsMembers) {
    root["costs"][member.name] = to_json(derived.costs.*member.costs);
    root["prior_costs"][member.name] = to_json(kPriorDeviceCosts.*member.costs);
  }
  root["missing"] = derived.missing;
  return root;
}

void print_figures(const Words& words) {
  fmt::print("# {}, {} blocks; predictions are of an H100; '!': off by more than half again\n",
             words.device, words.blocks);
  fmt::print("{:<26} {:>12} {:>5} {:>9} {:>12} {:>7}\n", "figure", "measured", "unit", "spread",
             "predicted", "ratio");
  for (const Figure& figure : words.figures) {
    const double predicted = probe::predicted(figure.name), ratio = figure.value / predicted;
    const bool off = predicted > 0 && (ratio > kFarOff || ratio < 1 / kFarOff);
    fmt::print("{:<26} {:>12.4g} {:>5} {:>7.1f} % {:>12.4g} {:>7.2f}{}\n", figure.name,
               figure.value, figure.unit, figure.spread * 100, predicted, ratio, off ? " !" : "");
  }
}

void print_costs(const DeviceCosts& costs) {
  fmt::print("{:<26} {:>12} {:>12} {:>12}\n", "costs of a block", "alpha ns", "step ns",
             "beta ns/B");
  const auto print = [](const std::string& name, const HostCosts& of) {
    fmt::print("{:<26} {:>12.4g} {:>12.4g} {:>12.4g}\n", name, of.alpha_ns, of.step_ns,
               of.beta_ns_per_byte);
  };
  for (const DeviceCostsMember& member : kDeviceCostsMembers) {
    print(std::string(member.name), costs.*member.costs);
    print(fmt::format("{}, prior", member.name), kPriorDeviceCosts.*member.costs);
  }
}

int fail(std::string_view what) {
  fmt::print(stderr, "bench_device_words: {}\n", what);
  return 1;
}

// The host's part of a profile that is there is kept.
int write_device(const std::string& path, const Words& words, const DeviceCosts& costs) {
  MachineProfile profile{.machine = describe_machine(), .created = {}, .measured = {}};
  if (Result<MachineProfile> known = read_profile(path)) profile = *std::move(known);
  profile.created = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  profile.device = DeviceProfile{.name = words.device, .costs = costs};
  if (const Status written = write_profile(profile, path); !written)
    return fail(written.error().message);
  fmt::print("profile written to {}; set TUTTI_PROFILE to use it\n", path);
  return 0;
}

int run(std::size_t mib, const std::string& json_path, const std::string& profile_path) {
  const auto begin = std::chrono::steady_clock::now();
  const Words words = probe::measure_words({.operand_bytes = mib << 20});
  if (words.device.empty()) {
    fmt::print("bench_device_words: skipped: {}\n", words.faults.front());
    return 0;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const probe::DerivedCosts derived = probe::derive_costs(words);
  print_figures(words);
  print_costs(derived.costs);
  fmt::print("measured in {:.1f} s\n", seconds);
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << to_json(words, derived, seconds).dump(1) << '\n';
    if (!file.flush()) return fail(fmt::format("--json: cannot write {}", json_path));
  }
  if (!words.faults.empty()) return fail(fmt::format("{}", fmt::join(words.faults, "; ")));
  if (profile_path.empty()) return 0;
  if (!derived.missing.empty())
    return fail(fmt::format("--profile: these words were not measured: {}",
                            fmt::join(derived.missing, ", ")));
  return write_device(profile_path, words, derived.costs);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  std::size_t mib = 0;
  std::string json_path, profile_path;
  CLI::App app("Measures latencies, messages, launches and bandwidths of one GPU.",
               "bench_device_words");
  app.add_option("--mib", mib, "MiB of each of 9 operands that are moved; not given: 256 on a GPU")
      ->check(CLI::Range(1, 8192));
  app.add_option("--json", json_path, "write all numbers to this file");
  app.add_option(
      "--profile", profile_path,
      "write the costs for devices to this machine profile, and keep what else it holds");
  if (const auto ends = tutti::perf::parse_flags(app, argc, argv)) return *ends;
  return tutti::run(mib, json_path, profile_path);
}
