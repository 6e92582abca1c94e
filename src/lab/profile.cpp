// SPDX-License-Identifier: Apache-2.0
#include "lab/profile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "algorithms/algorithm.hpp"
#include "base/text.hpp"
#include "lab/profiles.hpp"
#include "topology/json_reader.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double kMostNs = 1e9, kMostBytes = 1e18;
constexpr std::size_t kMostProtocols = 8, kMostAlgorithms = 32, kMostGroups = 64,
                      kMostConstants = 64;
constexpr std::array<std::string_view, kHopCount> kHopNames{"shared", "device", "network"};

// The constants of a protocol by name, beside those of its hops: one table for reading, writing and
// fitting.
struct Constant {
  std::string_view name;
  double Costs::*member;
};
constexpr auto kConstants = std::to_array<Constant>({
    {"step_ns", &Costs::step_ns},
    {"operand_ns_per_byte", &Costs::operand_ns_per_byte},
    {"remote_ns", &Costs::remote_ns},
    {"remote_ns_per_byte", &Costs::remote_ns_per_byte},
    {"switch_ns", &Costs::switch_ns},
    {"start_ns", &Costs::start_ns},
    {"gap_ns", &Costs::gap_ns},
});

Status read_hop(const JsonReader& protocol, std::size_t hop, HopCosts& costs) {
  const std::string_view name = kHopNames[hop];
  if (!protocol.has(name)) return {};
  TUTTI_TRY_ASSIGN(const JsonReader reader, JsonReader::open(protocol.get(name), protocol.at(name),
                                                             {"alpha_ns", "efficiency"}));
  TUTTI_TRY(reader.read("alpha_ns", costs.alpha_ns, 0, kMostNs));
  return reader.read("efficiency", costs.efficiency, 1e-3, 1);
}

Status read_protocol(const json& value, const JsonWhere& where, ProtocolProfile& protocol) {
  TUTTI_TRY_ASSIGN(
      const JsonReader reader,
      JsonReader::open(
          value, where,
          {"name", "shared", "device", "network", "step_ns", "operand_ns_per_byte", "remote_ns",
           "remote_ns_per_byte", "switch_ns", "start_ns", "gap_ns", "chunk_bytes",
           "least_chunk_bytes", "least_bytes", "most_bytes", "jitter_ns"}));
  if (!reader.has("name")) return where.refuse("has no \"name\"");
  TUTTI_TRY(reader.read("name", protocol.name));
  for (std::size_t hop = 0; hop < kHopNames.size(); ++hop)
    TUTTI_TRY(read_hop(reader, hop, protocol.costs.hops[hop]));
  for (const Constant& constant : kConstants)
    TUTTI_TRY(reader.read(constant.name, protocol.costs.*constant.member, 0, kMostNs));
  TUTTI_TRY(reader.read("chunk_bytes", protocol.chunk_bytes, 0, kMostBytes));
  TUTTI_TRY(reader.read("least_chunk_bytes", protocol.least_chunk_bytes, 64, kMostBytes));
  TUTTI_TRY(reader.read("least_bytes", protocol.least_bytes, 0, kMostBytes));
  TUTTI_TRY(reader.read("most_bytes", protocol.most_bytes, 0, kMostBytes));
  return reader.read("jitter_ns", protocol.jitter_ns, 0, kMostNs);
}

Status read_algorithm(const json& value, const JsonWhere& where, AlgorithmProfile& algorithm) {
  TUTTI_TRY_ASSIGN(const JsonReader reader,
                   JsonReader::open(value, where,
                                    {"name", "schedule", "pipelined", "lockstep", "efficiency",
                                     "latency_scale"}));
  if (!reader.has("name")) return where.refuse("has no \"name\"");
  TUTTI_TRY(reader.read("name", algorithm.name));
  algorithm.schedule = algorithm.name;
  TUTTI_TRY(reader.read("schedule", algorithm.schedule));
  if (algorithm.schedule.find('{') == std::string::npos) {
    const auto found = find_algorithm(algorithm.schedule);
    if (!found) return where.at("schedule").refuse(found.error().message);
  }
  TUTTI_TRY(reader.read("pipelined", algorithm.pipelined));
  TUTTI_TRY(reader.read("lockstep", algorithm.lockstep));
  TUTTI_TRY(reader.read("efficiency", algorithm.efficiency, 1e-3, 1));
  return reader.read("latency_scale", algorithm.latency_scale, 1e-3, 1e3);
}

Status read_group(const json& value, const JsonWhere& where, Profile& profile) {
  TUTTI_TRY_ASSIGN(const JsonReader reader,
                   JsonReader::open(value, where, {"name", "constants", "spread"}));
  FitGroup group;
  TUTTI_TRY(reader.read("name", group.name));
  TUTTI_TRY(reader.read("spread", group.spread, 1.001, 1e3));
  const json empty = json::array();
  const json& constants = reader.has("constants") ? reader.get("constants") : empty;
  if (!constants.is_array() || constants.empty() || constants.size() > kMostConstants)
    return where.at("constants")
        .refuse(
            fmt::format("{} is not a list of 1 to {} constants", shown(constants), kMostConstants));
  for (const json& constant : constants) {
    const std::string name = constant.is_string() ? constant.get<std::string>() : std::string();
    const double* const found = find_constant(profile, name);
    if (found == nullptr || *found == 0)
      return where.at("constants")
          .refuse(fmt::format("{} is not a constant of the profile that is above 0; examples: "
                              "LL.network.alpha_ns, LL.step_ns, algorithm:tree.efficiency",
                              shown(constant)));
    group.constants.push_back(name);
  }
  profile.fit.push_back(std::move(group));
  return {};
}

// Each element of the list at `key`, at most `most`.
template <typename Read>
Status read_list(const JsonReader& top, std::string_view key, std::size_t most, const Read& read) {
  if (!top.has(key)) return {};
  const json& list = top.get(key);
  if (!list.is_array() || list.size() > most)
    return top.at(key).refuse(
        fmt::format("{} is not a list [...] of at most {} entries", shown(list), most));
  for (std::size_t i = 0; i < list.size(); ++i)
    TUTTI_TRY(read(list[i], top.at(key).at(std::to_string(i))));
  return {};
}

// The text between `prefix` and the end of `name`, or nothing.
bool strip(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

double* constant_of(ProtocolProfile& protocol, std::string_view name) {
  for (std::size_t hop = 0; hop < kHopNames.size(); ++hop) {
    std::string_view rest = name;
    if (!strip(rest, kHopNames[hop]) || !strip(rest, ".")) continue;
    HopCosts& costs = protocol.costs.hops[hop];
    if (rest == "alpha_ns") return &costs.alpha_ns;
    if (rest == "efficiency") return &costs.efficiency;
  }
  if (name == "jitter_ns") return &protocol.jitter_ns;
  for (const Constant& constant : kConstants)
    if (constant.name == name) return &(protocol.costs.*constant.member);
  return nullptr;
}

}  // namespace

const AlgorithmProfile* Profile::find(std::string_view algorithm) const {
  const auto found = std::ranges::find(algorithms, algorithm, &AlgorithmProfile::name);
  return found == algorithms.end() ? nullptr : &*found;
}

double* find_constant(Profile& profile, std::string_view name) {
  if (strip(name, "algorithm:"))
    for (AlgorithmProfile& algorithm : profile.algorithms) {
      std::string_view rest = name;
      if (!strip(rest, algorithm.name) || !strip(rest, ".")) continue;
      if (rest == "efficiency") return &algorithm.efficiency;
      if (rest == "latency_scale") return &algorithm.latency_scale;
    }
  for (ProtocolProfile& protocol : profile.protocols) {
    std::string_view rest = name;
    if (strip(rest, protocol.name) && strip(rest, "."))
      if (double* const found = constant_of(protocol, rest)) return found;
  }
  return nullptr;
}

Result<Profile> parse_profile(std::string_view text, std::string_view name) {
  const std::string file = printable(name);
  TUTTI_TRY_ASSIGN(const json root, parse_json(text, file));
  TUTTI_TRY_ASSIGN(const JsonReader top, JsonReader::open(root, {file, {}},
                                                          {"name", "description", "rails", "slots",
                                                           "protocols", "algorithms", "fit"}));
  Profile profile;
  if (!top.has("name")) return top.where().refuse("has no \"name\"");
  TUTTI_TRY(top.read("name", profile.name));
  TUTTI_TRY(top.read("description", profile.description));
  TUTTI_TRY(top.read("rails", profile.rails));
  std::int32_t slots = 2;
  TUTTI_TRY(top.read("slots", slots, 1024));
  profile.slots = static_cast<std::uint32_t>(slots);
  TUTTI_TRY(read_list(top, "protocols", kMostProtocols, [&](const json& each, const JsonWhere& at) {
    return read_protocol(each, at, profile.protocols.emplace_back());
  }));
  TUTTI_TRY(
      read_list(top, "algorithms", kMostAlgorithms, [&](const json& each, const JsonWhere& at) {
        return read_algorithm(each, at, profile.algorithms.emplace_back());
      }));
  if (profile.protocols.empty()) return top.where().refuse("has no \"protocols\"");
  if (profile.algorithms.empty()) return top.where().refuse("has no \"algorithms\"");
  TUTTI_TRY(read_list(top, "fit", kMostGroups, [&](const json& each, const JsonWhere& at) {
    return read_group(each, at, profile);
  }));
  return profile;
}

std::string to_json(const Profile& profile) {
  ordered_json root{{"name", profile.name},
                    {"description", profile.description},
                    {"rails", profile.rails},
                    {"slots", profile.slots}};
  for (const ProtocolProfile& protocol : profile.protocols) {
    ordered_json each{{"name", protocol.name}};
    for (std::size_t hop = 0; hop < kHopNames.size(); ++hop) {
      const HopCosts& costs = protocol.costs.hops[hop];
      if (costs.alpha_ns != 0 || costs.efficiency != 1)
        each[std::string(kHopNames[hop])] = {{"alpha_ns", costs.alpha_ns},
                                             {"efficiency", costs.efficiency}};
    }
    for (const Constant& constant : kConstants)
      if (protocol.costs.*constant.member != 0)
        each[std::string(constant.name)] = protocol.costs.*constant.member;
    if (protocol.jitter_ns > 0) each["jitter_ns"] = protocol.jitter_ns;
    if (protocol.chunk_bytes > 0) each["chunk_bytes"] = protocol.chunk_bytes;
    each["least_chunk_bytes"] = protocol.least_chunk_bytes;
    if (protocol.least_bytes > 0) each["least_bytes"] = protocol.least_bytes;
    if (protocol.most_bytes < kMostBytes) each["most_bytes"] = protocol.most_bytes;
    root["protocols"].push_back(std::move(each));
  }
  for (const AlgorithmProfile& algorithm : profile.algorithms)
    root["algorithms"].push_back({{"name", algorithm.name},
                                  {"schedule", algorithm.schedule},
                                  {"pipelined", algorithm.pipelined},
                                  {"lockstep", algorithm.lockstep},
                                  {"efficiency", algorithm.efficiency},
                                  {"latency_scale", algorithm.latency_scale}});
  for (const FitGroup& group : profile.fit)
    root["fit"].push_back(
        {{"name", group.name}, {"constants", group.constants}, {"spread", group.spread}});
  return root.dump(2, ' ', true, json::error_handler_t::replace);
}

std::vector<std::string_view> known_profiles() {
  std::vector<std::string_view> names;
  for (const ProfileText& each : compiled_in_profiles()) names.push_back(each.name);
  return names;
}

Result<Profile> load_profile(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".json")) {
    TUTTI_TRY_ASSIGN(const std::string text, read_json_file(name));
    return parse_profile(text, name);
  }
  for (const ProfileText& each : compiled_in_profiles())
    if (each.name == name) return parse_profile(each.text, each.name);
  std::string known;
  for (const std::string_view each : known_profiles())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", each);
  return make_error(
      Code::kInvalidArgument,
      fmt::format(
          "unknown profile '{}'; choose one of {}, or give a file's path with '/' or '.json'",
          printable(name, 64), known));
}

std::string default_profile(const Cluster& cluster) {
  if (!cluster.profile.empty()) return cluster.profile;
  if (cluster.gpu == nullptr) return "openmpi";
  return cluster.gpu->vendor == GpuVendor::kAmd ? "rccl" : "nccl";
}

}  // namespace tutti
