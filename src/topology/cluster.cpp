// SPDX-License-Identifier: Apache-2.0
#include "topology/cluster.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/text.hpp"
#include "topology/json_reader.hpp"

namespace tutti {
namespace {

using nlohmann::json;

constexpr double kMostGBps = 1e6, kMostLatencyNs = 1e9, kMostOversubscription = 1e3;

constexpr double kLeastGBps = 1e-3;

// A technology by the key `kind`; its numbers may be given beside.
Status read_link(const JsonReader& reader, std::string_view GBps_key,
                 std::initializer_list<TechnologyKind> kinds, ClusterLink& link) {
  std::string name;
  TUTTI_TRY(reader.read("kind", name));
  if (!name.empty()) {
    const auto found = find_technology(name);
    if (!found) return reader.at("kind").refuse(found.error().message);
    if (std::ranges::find(kinds, (*found)->kind) == kinds.end())
      return reader.at("kind").refuse(fmt::format(
          "'{}' is a {}, not a {}", name, name_of((*found)->kind), name_of(*kinds.begin())));
    link = {*found, (*found)->GBps, (*found)->latency_ns};
  }
  if (link.technology == nullptr)
    return reader.where().refuse("has no \"kind\"; name a technology, for example \"ndr200\"");
  TUTTI_TRY(reader.read(GBps_key, link.GBps, kLeastGBps, kMostGBps));
  return reader.read("latency_ns", link.latency_ns, 0.0, kMostLatencyNs);
}

Status read_intra(const JsonReader& top, Cluster& cluster) {
  const bool gpus = cluster.gpu != nullptr;
  if (gpus) {
    const std::string_view usual =
        cluster.gpu->intra.empty() ? cluster.gpu->pcie : cluster.gpu->intra;
    const Technology* const technology = *find_technology(usual);
    cluster.intra = {technology, technology->GBps, technology->latency_ns};
    cluster.switched = cluster.ranks_per_node > Cluster::kMostMeshed ||
                       (cluster.gpu->switched && cluster.ranks_per_node > 4);
  } else {
    const Technology* const technology = *find_technology("shm");
    cluster.intra = {technology, technology->GBps, technology->latency_ns};
    cluster.memory_GBps = (*find_technology("ddr4"))->GBps;
  }
  if (!top.has("intra")) return {};
  TUTTI_TRY_ASSIGN(
      const JsonReader reader,
      JsonReader::open(top.get("intra"), top.at("intra"),
                       {"kind", "GBps", "GBps_per_gpu", "latency_ns", "form", "memory_GBps"}));
  if (reader.has("GBps") && reader.has("GBps_per_gpu"))
    return reader.at("GBps").refuse("cannot be combined with GBps_per_gpu; give one of them");
  const std::string_view key = reader.has("GBps_per_gpu") ? "GBps_per_gpu" : "GBps";
  if (gpus) {
    TUTTI_TRY(
        read_link(reader, key, {TechnologyKind::kDevice, TechnologyKind::kPcie}, cluster.intra));
  } else {
    TUTTI_TRY(read_link(reader, key, {TechnologyKind::kShared}, cluster.intra));
  }
  if (cluster.intra.technology->name.starts_with("nvswitch")) cluster.switched = true;
  TUTTI_TRY(reader.read("memory_GBps", cluster.memory_GBps, kLeastGBps, kMostGBps));
  std::string form;
  TUTTI_TRY(reader.read("form", form));
  if (!form.empty() && form != "switch" && form != "mesh")
    return reader.at("form").refuse(fmt::format("'{}' is neither \"switch\" nor \"mesh\"", form));
  if (!form.empty()) cluster.switched = form == "switch";
  if (!cluster.switched && cluster.ranks_per_node > Cluster::kMostMeshed) {
    if (!form.empty())
      return reader.at("form").refuse(
          fmt::format("a mesh has {} GPUs, but at most {} are supported", cluster.ranks_per_node,
                      Cluster::kMostMeshed));
    cluster.switched = true;
  }
  return {};
}

Status read_nic(const JsonReader& top, Cluster& cluster) {
  cluster.nics_per_node = cluster.gpu != nullptr ? cluster.ranks_per_node : 1;
  TUTTI_TRY(top.read("nics_per_node", cluster.nics_per_node, Cluster::kMostRanksPerNode));
  if (!top.has("nic")) {
    if (cluster.nodes > 1)
      return top.where().refuse(
          fmt::format("there are {} nodes but no \"nic\"; describe the network, for example "
                      "\"nic\": {{\"kind\": \"ndr200\"}}",
                      cluster.nodes));
    return {};
  }
  TUTTI_TRY_ASSIGN(
      const JsonReader reader,
      JsonReader::open(top.get("nic"), top.at("nic"), {"kind", "GBps", "latency_ns", "pcie"}));
  TUTTI_TRY(read_link(reader, "GBps", {TechnologyKind::kNic}, cluster.nic));
  std::string pcie;
  TUTTI_TRY(reader.read("pcie", pcie));
  if (pcie.empty()) return {};
  const auto found = find_technology(pcie);
  if (!found) return reader.at("pcie").refuse(found.error().message);
  if ((*found)->kind != TechnologyKind::kPcie)
    return reader.at("pcie").refuse(
        fmt::format("'{}' is not a PCIe technology; example: \"pcie4x16\"", pcie));
  cluster.pcie = *found;
  return {};
}

Status read_switches(const JsonReader& top, Cluster& cluster) {
  TUTTI_TRY(top.read("rails", cluster.rails));
  if (!top.has("switches")) return {};
  const json& levels = top.get("switches");
  const JsonWhere where = top.at("switches");
  if (!levels.is_array() || levels.size() > Cluster::kMostLevels)
    return where.refuse(fmt::format("{} is not a list [...] of at most {} levels", shown(levels),
                                    Cluster::kMostLevels));
  std::int32_t below = 1;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    TUTTI_TRY_ASSIGN(
        const JsonReader reader,
        JsonReader::open(levels[i], where.at(std::to_string(i)),
                         {"name", "nodes_per_group", "oversubscription", "latency_ns"}));
    SwitchLevel level{.nodes_per_group = Cluster::kMostNodes};
    TUTTI_TRY(reader.read("nodes_per_group", level.nodes_per_group, Cluster::kMostNodes));
    TUTTI_TRY(reader.read("oversubscription", level.oversubscription, 1.0, kMostOversubscription));
    TUTTI_TRY(reader.read("latency_ns", level.latency_ns, 0.0, kMostLatencyNs));
    if (level.nodes_per_group < below)
      return reader.at("nodes_per_group")
          .refuse(fmt::format("{} is less than the {} of the level below", level.nodes_per_group,
                              below));
    below = level.nodes_per_group;
    cluster.switches.push_back(level);
  }
  return {};
}

// As cubic as `dimensions` factors of `nodes` can be: primes, largest first, to the shortest side.
std::vector<std::int32_t> cubic(std::int32_t nodes, std::size_t dimensions) {
  std::vector<std::int32_t> primes, shape(dimensions, 1);
  for (std::int32_t prime = 2; nodes > 1; ++prime) {
    if (std::int64_t{prime} * prime > nodes) prime = nodes;
    for (; nodes % prime == 0; nodes /= prime) primes.push_back(prime);
  }
  for (auto prime = primes.rbegin(); prime != primes.rend(); ++prime)
    *std::ranges::min_element(shape) *= *prime;
  std::ranges::sort(shape, std::greater<>());
  return shape;
}

Status read_torus(const JsonReader& top, Cluster& cluster) {
  if (!top.has("torus")) return {};
  if (!cluster.switches.empty())
    return top.at("torus").refuse("cannot be combined with switches; give one of them");
  TUTTI_TRY_ASSIGN(const JsonReader reader, JsonReader::open(top.get("torus"), top.at("torus"),
                                                             {"shape", "link_GBps", "hop_ns"}));
  if (!reader.has("shape")) return reader.where().refuse("has no \"shape\"; example: [4, 4, 4]");
  const json& shape = reader.get("shape");
  bool good = shape.is_array() && !shape.empty() && shape.size() <= Cluster::kMostDimensions;
  std::int64_t nodes = 1;
  for (const json& side : good ? shape : json::array()) {
    good = good && side.is_number_integer() && side.get<std::int64_t>() >= 1 &&
           side.get<std::int64_t>() <= Cluster::kMostNodes;
    if (!good) break;
    nodes *= side.get<std::int64_t>();
    good = nodes <= Cluster::kMostNodes;
    cluster.torus.shape.push_back(static_cast<std::int32_t>(side.get<std::int64_t>()));
  }
  if (!good || nodes != cluster.nodes)
    return reader.at("shape").refuse(
        fmt::format("{} is not a list of 1 to {} sides whose product is the {} nodes", shown(shape),
                    Cluster::kMostDimensions, cluster.nodes));
  cluster.torus.link_GBps = cluster.nic.GBps;
  cluster.torus.hop_ns = 100;  // TofuD: Ajima et al. 2018, 0.1 us a hop
  TUTTI_TRY(reader.read("link_GBps", cluster.torus.link_GBps, kLeastGBps, kMostGBps));
  return reader.read("hop_ns", cluster.torus.hop_ns, 0.0, kMostLatencyNs);
}

Status check_bounds(const Cluster& cluster, const JsonWhere& where) {
  const std::int32_t each = std::max(cluster.ranks_per_node, cluster.nics_per_node);
  const std::int64_t all = std::int64_t{cluster.nodes} * each;
  if (all <= Cluster::kMostRanks) return {};
  return where.refuse(
      fmt::format("{} nodes of {} have {} ranks or ports, but at most {} are supported",
                  cluster.nodes, each, all, Cluster::kMostRanks));
}

Status read_ranks(const JsonReader& top, Cluster& cluster) {
  if (!top.has("name")) return top.where().refuse("has no \"name\"");
  if (!top.has("nodes")) return top.where().refuse("has no \"nodes\"; give the number of nodes");
  TUTTI_TRY(top.read("name", cluster.name));
  TUTTI_TRY(top.read("nodes", cluster.nodes, Cluster::kMostNodes));
  if (top.has("gpus_per_node") == top.has("ranks_per_node"))
    return top.where().refuse("needs either \"gpus_per_node\" or \"ranks_per_node\"");
  const bool gpus = top.has("gpus_per_node");
  TUTTI_TRY(top.read(gpus ? "gpus_per_node" : "ranks_per_node", cluster.ranks_per_node,
                     Cluster::kMostRanksPerNode));
  TUTTI_TRY(top.read("cores_per_node", cluster.cores_per_node, 1 << 16));
  if (!gpus && top.has("gpu"))
    return top.at("gpu").refuse("is given without \"gpus_per_node\"; add it");
  std::string gpu;
  TUTTI_TRY(top.read("gpu", gpu));
  if (gpus && gpu.empty()) return top.where().refuse("has no \"gpu\"; example: \"h100\"");
  if (!gpu.empty()) {
    const auto found = find_gpu_model(gpu);
    if (!found) return top.at("gpu").refuse(found.error().message);
    cluster.gpu = *found;
  }
  return {};
}

Result<Cluster> read_json(const json& root, std::string_view name, const std::string& path = {}) {
  TUTTI_TRY_ASSIGN(
      const JsonReader top,
      JsonReader::open(root, JsonWhere{name, path},
                       {"name", "nodes", "gpus_per_node", "ranks_per_node", "gpu", "cores_per_node",
                        "intra", "nics_per_node", "nic", "rails", "switches", "torus", "profile"}));
  Cluster cluster;
  TUTTI_TRY(read_ranks(top, cluster));
  TUTTI_TRY(read_intra(top, cluster));
  TUTTI_TRY(read_nic(top, cluster));
  TUTTI_TRY(check_bounds(cluster, top.where()));
  TUTTI_TRY(read_switches(top, cluster));
  TUTTI_TRY(read_torus(top, cluster));
  TUTTI_TRY(top.read("profile", cluster.profile));
  return cluster;
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view text, std::string_view name) {
  const std::string file = printable(name);
  TUTTI_TRY_ASSIGN(const json root, parse_json(text, file));
  return read_json(root, file);
}

Result<Cluster> read_cluster(const std::string& path) {
  TUTTI_TRY_ASSIGN(const std::string text, read_json_file(path));
  return parse_cluster(text, path);
}

Result<Cluster> cluster_of(const json& value, std::string_view file, const std::string& path) {
  return read_json(value, file, path);
}

Result<Cluster> resize(const Cluster& cluster, std::int32_t nodes) {
  const JsonWhere where{cluster.name, "/nodes"};
  if (nodes < 1 || nodes > Cluster::kMostNodes)
    return where.refuse(
        fmt::format("{} is not a number of nodes from 1 to {}", nodes, Cluster::kMostNodes));
  if (nodes > 1 && cluster.nic.technology == nullptr)
    return where.refuse(
        fmt::format("there are {} nodes but no \"nic\"; describe the network", nodes));
  Cluster other = cluster;
  other.nodes = nodes;
  if (!other.torus.shape.empty()) other.torus.shape = cubic(nodes, other.torus.shape.size());
  TUTTI_TRY(check_bounds(other, where));
  return other;
}

}  // namespace tutti
