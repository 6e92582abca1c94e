// SPDX-License-Identifier: Apache-2.0
#include "model/machine_profile.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/host.hpp"
#include "base/text.hpp"
#include "topology/json_reader.hpp"

namespace tutti {
namespace {

using nlohmann::json;

// 1: one cost per byte, of messages too; 2: measured plans of all-reduce alone; 3: a plan for each
// size, whatever its cores; 4: times of short messages of 112 bytes at most
constexpr int kLayout = 5;
constexpr double kMostNs = 1e12;
constexpr std::size_t kMostMeasured = 100'000, kMostTimes = 1000;

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with("model name")) continue;
    return printable(std::string_view(line).substr(std::min(colon + 2, line.size())), 80);
  }
  return "unknown CPU";
}

Result<HostCosts> read_costs(const JsonReader& all, std::string_view name, HostCosts costs) {
  if (!all.has(name)) return costs;
  TUTTI_TRY_ASSIGN(const JsonReader one,
                   JsonReader::open(all.get(name), all.at(name),
                                    {"alpha_ns", "step_ns", "beta_ns_per_byte",
                                     "message_ns_per_byte", "switch_ns", "remote_ns",
                                     "remote_ns_per_byte", "remote_crowd_ns_per_byte"}));
  for (const HostCostsMember& member : kHostCostsMembers)
    TUTTI_TRY(one.read(member.name, costs.*member.value, 0, kMostNs));
  return costs;
}

Result<DeviceProfile> read_device(const json& value, const JsonWhere& where) {
  TUTTI_TRY_ASSIGN(const JsonReader one,
                   JsonReader::open(value, where, {"name", "packets", "slots"}));
  DeviceProfile device{.name = {}, .costs = kPriorDeviceCosts};
  TUTTI_TRY(one.read("name", device.name));
  for (const DeviceCostsMember& member : kDeviceCostsMembers) {
    HostCosts& costs = device.costs.*member.costs;
    TUTTI_TRY_ASSIGN(costs, read_costs(one, member.name, costs));
  }
  return device;
}

// [bytes, us], of a larger size than the one before.
Result<MeasuredTime> read_time(const json& value, const JsonWhere& where, std::uint64_t before) {
  constexpr double kMostBytes = 1e15;  // of a size
  if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number())
    return where.refuse("must be two numbers: bytes and microseconds");
  const double bytes = value[0].get<double>(), us = value[1].get<double>();
  if (!(bytes >= 1 && bytes <= kMostBytes) || !(us > 0 && us <= kMostNs))
    return where.refuse(fmt::format("needs 1 to {} bytes, and more than 0 to {} microseconds",
                                    kMostBytes, kMostNs));
  const auto size = static_cast<std::uint64_t>(bytes);
  if (size <= before) return where.refuse("is out of order: sizes must rise");
  return MeasuredTime{size, us};
}

Result<MeasuredPlan> read_measured(const json& value, const JsonWhere& where) {
  TUTTI_TRY_ASSIGN(
      const JsonReader one,
      JsonReader::open(value, where, {"collective", "ranks", "cores", "windows", "name", "times"}));
  MeasuredPlan plan;
  std::string collective;
  TUTTI_TRY(one.read("collective", collective));
  const auto known = parse_collective(collective);
  if (!known) return where.refuse("\"collective\" is not a known collective");
  plan.collective = *known;
  TUTTI_TRY(one.read("ranks", plan.ranks, 1 << 24));
  TUTTI_TRY(one.read("cores", plan.cores, 1 << 24));
  TUTTI_TRY(one.read("windows", plan.windows));
  TUTTI_TRY(one.read("name", plan.name));
  if (plan.ranks < 1 || plan.cores < 1 || plan.name.empty() || !one.has("times"))
    return where.refuse("a measured plan needs ranks and cores above 0, a name, and times");
  const json& times = one.get("times");
  if (!times.is_array() || times.size() > kMostTimes)
    return one.at("times").refuse(fmt::format("must be a list of at most {} times", kMostTimes));
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    TUTTI_TRY_ASSIGN(const MeasuredTime time,
                     read_time(times[i], one.at("times").at(std::to_string(i)), before));
    plan.times.push_back(time);
    before = time.bytes;
  }
  return plan;
}

json to_object(const HostCosts& costs) {
  json object;
  for (const HostCostsMember& member : kHostCostsMembers) object[member.name] = costs.*member.value;
  return object;
}

json to_object(const MeasuredPlan& plan) {
  json times = json::array();
  for (const MeasuredTime& time : plan.times)
    times.push_back(json::array({time.bytes, time.time_us}));
  return {{"collective", name_of(plan.collective)},
          {"ranks", plan.ranks},
          {"cores", plan.cores},
          {"windows", plan.windows},
          {"name", plan.name},
          {"times", std::move(times)}};
}

}  // namespace

std::string describe_machine() {
  return fmt::format("{}, {} cores, L2 {} KiB, L3 {} KiB", cpu_model(), machine_cpus(),
                     l2_cache_bytes() / 1024, l3_cache_bytes() / 1024);
}

std::string fingerprint_of(std::string_view machine) {
  return fmt::format("{:016x}", hash_bytes(machine));
}

std::optional<std::string> profile_path(std::string_view setting) {
  if (setting == "off") return std::nullopt;
  if (setting != "auto") return std::string(setting);
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const bool has_cache = cache != nullptr && *cache == '/';
  if (!has_cache && (home == nullptr || *home != '/')) return std::nullopt;
  return fmt::format("{}/tutti/{}.json",
                     has_cache ? std::string(cache) : std::string(home) + "/.cache",
                     fingerprint_of(describe_machine()));
}

std::optional<std::string> profile_to_read(std::string_view setting) {
  std::optional<std::string> path = profile_path(setting);
  if (path && setting == "auto" && ::access(path->c_str(), F_OK) != 0) return std::nullopt;
  return path;
}

std::optional<std::string> profile_to_write() {
  const char* const setting = std::getenv("TUTTI_PROFILE");
  const bool named = setting != nullptr && *setting != 0 && std::string_view(setting) != "off";
  return profile_path(named ? setting : "auto");
}

Result<MachineProfile> parse_profile(std::string_view text, const std::string& file) {
  TUTTI_TRY_ASSIGN(const json root, parse_json(text, file));
  TUTTI_TRY_ASSIGN(const JsonReader top,
                   JsonReader::open(root, {file, ""},
                                    {"tutti_profile", "fingerprint", "machine", "created", "costs",
                                     "residual", "measured", "device"}));
  MachineProfile profile;
  std::int32_t layout = 0;
  std::string fingerprint;
  TUTTI_TRY(top.read("tutti_profile", layout, 1 << 20));
  if (layout != kLayout)
    return top.at("tutti_profile")
        .refuse(fmt::format(
            "the profile has layout {}, but this library reads layout {}; run tutti-tune again",
            layout, kLayout));
  TUTTI_TRY(top.read("fingerprint", fingerprint));
  TUTTI_TRY(top.read("machine", profile.machine));
  if (fingerprint != fingerprint_of(profile.machine))
    return top.at("fingerprint").refuse("does not match \"machine\"; run tutti-tune again");
  TUTTI_TRY(top.read("created", profile.created));
  TUTTI_TRY(top.read("residual", profile.residual, 0, 1e6));
  if (top.has("costs")) {
    TUTTI_TRY_ASSIGN(const JsonReader costs,
                     JsonReader::open(top.get("costs"), top.at("costs"),
                                      {"flagged", "slots", "attached", "mapped"}));
    for (const CostSetMember& member : kCostSetMembers) {
      TUTTI_TRY_ASSIGN(profile.costs.*member.costs,
                       read_costs(costs, member.name, profile.costs.*member.costs));
    }
  }
  if (top.has("device")) {
    TUTTI_TRY_ASSIGN(profile.device, read_device(top.get("device"), top.at("device")));
  }
  if (!top.has("measured")) return profile;
  const json& measured = top.get("measured");
  if (!measured.is_array() || measured.size() > kMostMeasured)
    return top.at("measured")
        .refuse(fmt::format("must be a list of at most {} plans", kMostMeasured));
  for (std::size_t i = 0; i < measured.size(); ++i) {
    TUTTI_TRY_ASSIGN(MeasuredPlan plan,
                     read_measured(measured[i], top.at("measured").at(std::to_string(i))));
    profile.measured.push_back(std::move(plan));
  }
  return profile;
}

Result<MachineProfile> read_profile(const std::string& path) {
  TUTTI_TRY_ASSIGN(const std::string text, read_json_file(path));
  TUTTI_TRY_ASSIGN(MachineProfile profile, parse_profile(text, path));
  if (const std::string own = describe_machine(); profile.machine != own)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: the profile was measured on another machine ({}), not on "
                                  "this one ({}); run tutti-tune here",
                                  path, printable(profile.machine), own));
  return profile;
}

std::string to_json(const MachineProfile& profile) {
  json root;
  root["tutti_profile"] = kLayout;
  root["fingerprint"] = fingerprint_of(profile.machine);
  root["machine"] = profile.machine;
  root["created"] = profile.created;
  root["residual"] = profile.residual;
  if (profile.costs != prior_costs())
    for (const CostSetMember& member : kCostSetMembers)
      root["costs"][member.name] = to_object(profile.costs.*member.costs);
  if (profile.device) {
    root["device"]["name"] = profile.device->name;
    for (const DeviceCostsMember& member : kDeviceCostsMembers)
      root["device"][member.name] = to_object(profile.device->costs.*member.costs);
  }
  std::string text = root.dump(1, ' ', false, json::error_handler_t::replace);
  text.resize(text.size() - std::string_view("\n}").size());
  // A line for each plan: there may be hundreds.
  text += ",\n \"measured\": [";
  for (const MeasuredPlan& plan : profile.measured)
    text += fmt::format("{}\n  {}", &plan == profile.measured.data() ? "" : ",",
                        to_object(plan).dump(-1, ' ', false, json::error_handler_t::replace));
  return text + "\n ]\n}\n";
}

Status write_profile(const MachineProfile& profile, const std::string& path) {
  const auto failed = [&](const std::string& what) {
    return make_error(Code::kSystemError, fmt::format("{}: cannot be written: {}", path, what));
  };
  const std::string text = to_json(profile);
  if (text.size() > kMostJsonBytes)
    return failed(
        fmt::format("it would have {} bytes, but at most {} are read; learn fewer "
                    "collectives, or sizes that are farther apart",
                    text.size(), kMostJsonBytes));
  std::error_code error;
  // Renaming would put a file in the place of a device or of a pipe.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return failed("it is not a regular file; give the path of one");
  error.clear();
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return failed(error.message());
  const std::string beside = fmt::format("{}.{}", path, ::getpid());
  {
    std::ofstream file(beside, std::ios::trunc);
    file << text;
    file.close();
    if (!file) return failed(std::strerror(errno));
  }
  std::filesystem::rename(beside, path, error);
  if (!error) return {};
  ::unlink(beside.c_str());
  return failed(error.message());
}

}  // namespace tutti
