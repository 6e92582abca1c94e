// SPDX-License-Identifier: Apache-2.0
#include "tutti-validate/bundle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/profile.hpp"

namespace tutti::validate {
namespace {

using nlohmann::json;

constexpr const char* kProfile = "profile.json";
constexpr const char* kMachine = "machine.json";

std::string family_of(const std::string& name) { return name.substr(0, name.find('@')); }
// Is it a family as the profile `tutti` knows them? Those that read other ranks' memory are not.
bool is_listed(const perf::Competitor& one) {
  return one.name != "auto" && family_of(one.name).find(':') == std::string::npos;
}

// To four digits: more would only make the file longer.
double rounded(double value) { return std::stod(fmt::format("{:.4g}", value)); }

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (file) return {};
  return make_error(Code::kSystemError,
                    fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

std::string table_name(const Study& study) {
  return fmt::format("{}.csv", name_of(study.collective));
}

std::string table_of(const Study& study) {
  std::string text = "size_bytes,algorithm,time_us,candidate,priced_us\n";
  for (const perf::ContestSize& size : study.sizes)
    for (const perf::Competitor& one : size.competitors)
      if (is_listed(one))
        text += fmt::format("{},{},{:.4f},{},{:.4f}\n", size.bytes, family_of(one.name),
                            perf::median(one.times_us), one.name, one.priced_us);
  return text;
}

// The profile `tutti` with the costs of this run.
Result<Profile> profile_of(const Run& run) {
  TUTTI_TRY_ASSIGN(Profile profile, load_profile("tutti"));
  profile.name = "tutti-" + run.host;
  profile.description = "Tutti with what auto priced with: " + run.cost_source;
  const auto set = [&](const char* protocol, const HostCosts& costs) {
    const auto constant = [&](const char* name, double value) {
      if (double* const found = find_constant(profile, fmt::format("{}.{}", protocol, name)))
        *found = value;
    };
    constant("shared.alpha_ns", costs.alpha_ns);
    constant("step_ns", costs.step_ns);
    constant("operand_ns_per_byte", costs.beta_ns_per_byte);
    constant("switch_ns", costs.switch_ns);
  };
  set("flagged", run.profile.costs.flagged);
  set("slots", run.profile.costs.slotted);
  return profile;
}

json manifest_of(const Run& run) {
  json root;
  root["clusters"]["here"] = {{"name", run.host},
                              {"nodes", 1},
                              {"ranks_per_node", run.ranks},
                              {"cores_per_node", run.cores},
                              {"intra", {{"kind", "shm"}}}};
  root["studies"] = json::array();
  for (const Study& study : run.studies) {
    json algorithms;
    for (const perf::ContestSize& size : study.sizes)
      for (const perf::Competitor& one : size.competitors)
        if (is_listed(one)) algorithms[family_of(one.name)] = family_of(one.name);
    root["studies"].push_back(
        {{"name", fmt::format("{} on {}, forced", name_of(study.collective), run.host)},
         {"profile", kProfile},
         {"leave_out", "nothing"},
         {"tables", json::array({{{"file", table_name(study)},
                                  {"cluster", "here"},
                                  {"collective", name_of(study.collective)},
                                  {"algorithms", algorithms}}})}});
  }
  return root;
}

}  // namespace

Status write_bundle(const Run& run, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return make_error(Code::kSystemError,
                      fmt::format("{}: cannot be made: {}", folder, error.message()));
  for (const Study& study : run.studies)
    TUTTI_TRY(write_text(fmt::format("{}/{}", folder, table_name(study)), table_of(study)));
  TUTTI_TRY_ASSIGN(const Profile profile, profile_of(run));
  TUTTI_TRY(write_text(fmt::format("{}/{}", folder, kProfile), to_json(profile) + "\n"));
  TUTTI_TRY(write_text(fmt::format("{}/{}", folder, kMachine), to_json(run.profile) + "\n"));
  return write_text(folder + "/manifest.json", manifest_of(run).dump(1) + "\n");
}

void take_profile(Run& run) {
  run.profile = {.machine = describe_machine(), .created = "not tuned", .measured = {}};
  run.cost_source = "the library's own costs";
  const char* const setting = std::getenv("TUTTI_PROFILE");
  const auto path = profile_path(setting == nullptr || *setting == 0 ? "auto" : setting);
  if (!path) return;
  Result<MachineProfile> found = read_profile(*path);
  if (!found) return;
  run.profile = *std::move(found);
  run.cost_source = *path + ", of " + run.profile.created;
}

void learn(const Run& run, MachineProfile& profile) {
  for (const Study& study : run.studies) {
    if (study.sizes.empty()) continue;
    const std::uint64_t least = study.sizes.front().bytes, most = study.sizes.back().bytes;
    std::map<std::string, MeasuredPlan> plans;
    std::erase_if(profile.measured, [&](const MeasuredPlan& plan) {
      const bool same = plan.collective == study.collective && plan.ranks == run.ranks &&
                        plan.cores == run.cores && plan.windows == run.windows;
      if (same) plans.emplace(plan.name, plan);
      return same;
    });
    for (auto& [name, plan] : plans)
      std::erase_if(plan.times, [&](const MeasuredTime& time) {
        return time.bytes >= least && time.bytes <= most;
      });
    for (const perf::ContestSize& size : study.sizes)
      for (const perf::Competitor& one : size.competitors) {
        if (one.name == "auto") continue;
        MeasuredPlan fresh{study.collective, run.ranks, run.cores, run.windows, one.name};
        plans.try_emplace(one.name, std::move(fresh))
            .first->second.times.push_back({size.bytes, rounded(perf::median(one.times_us))});
      }
    for (auto& [name, plan] : plans) {
      std::ranges::sort(plan.times, {}, &MeasuredTime::bytes);
      if (!plan.times.empty()) profile.measured.push_back(std::move(plan));
    }
  }
}

}  // namespace tutti::validate
