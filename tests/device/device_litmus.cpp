// SPDX-License-Identifier: Apache-2.0
// Looks for torn lines and for messages whose data is older than their counter, on one GPU.
//
//   device_litmus [--seconds 2] [--epochs 1000000] [--json FILE]
//
// The exit status is 1 if a judged part saw something wrong, or nothing at all.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/flags.hpp"
#include "litmus_parts.hpp"

namespace tutti::probe {
namespace {

void print(const LitmusResult& result) {
  fmt::print("# {}\n{:<26} {:>14} {:>10} {:>12}\n", result.device, "part", "reads", "wrong",
             "first torn");
  for (const Part& part : result.parts)
    fmt::print("{:<26} {:>14} {:>10} {:>12}{}\n", part.name, part.reads, part.wrong,
               part.first_torn, part.judged ? "" : "  (not judged)");
}

// One for each part that fails.
std::vector<std::string> faults_of(const LitmusResult& result) {
  std::vector<std::string> faults;
  for (const Part& part : result.parts) {
    if (part.reads == 0)
      faults.push_back(part.name + ": nothing was read; were all blocks resident?");
    else if (part.name == kBlindUnlessWrong && part.wrong == 0)
      faults.push_back(part.name + ": shows nothing wrong, so this program sees nothing");
    else if (part.judged && part.wrong != 0)
      faults.push_back(
          fmt::format("{}: {} of {} reads are wrong; in epoch {} {:#x} was expected "
                      "and {:#x} seen",
                      part.name, part.wrong, part.reads, part.epoch, part.expected, part.seen));
  }
  return faults;
}

nlohmann::json to_json(const LitmusResult& result, const std::vector<std::string>& faults) {
  nlohmann::json root{{"program", "device_litmus"},
                      {"device", result.device},
                      {"faults", faults},
                      {"parts", nlohmann::json::array()}};
  for (const Part& part : result.parts)
    root["parts"].push_back({{"name", part.name},
                             {"judged", part.judged},
                             {"loaded", part.loaded},
                             {"reads", part.reads},
                             {"wrong", part.wrong},
                             {"first_torn", part.first_torn}});
  return root;
}

int run(const LitmusOptions& options, const std::string& json_path) {
  const LitmusResult result = run_litmus(options);
  if (result.device.empty()) {
    fmt::print("device_litmus: skipped: {}\n", result.why_none);
    return 0;
  }
  const std::vector<std::string> faults = faults_of(result);
  print(result);
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << to_json(result, faults).dump(1) << '\n';
    if (!file.flush()) {
      fmt::print(stderr, "device_litmus: --json: cannot write {}\n", json_path);
      return 1;
    }
  }
  if (faults.empty()) return 0;
  fmt::print(stderr, "device_litmus: {}\n", fmt::join(faults, "; "));
  return 1;
}

}  // namespace
}  // namespace tutti::probe

int main(int argc, char** argv) {
  tutti::probe::LitmusOptions options{.seconds = 2, .epochs = 1'000'000};
  std::string json_path;
  CLI::App app("Looks for torn lines and stale messages on one GPU.", "device_litmus");
  app.add_option("--seconds", options.seconds, "at most, of each of ten parts")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "at most, of each line or message")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--json", json_path, "write all numbers to this file");
  if (const auto ends = tutti::perf::parse_flags(app, argc, argv)) return *ends;
  return tutti::probe::run(options, json_path);
}
