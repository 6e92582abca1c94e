// SPDX-License-Identifier: Apache-2.0
#include "lab/predict.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "algorithms/algorithm.hpp"
#include "lab/simulator.hpp"
#include "model/event_graph.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kMostSlices = 4096;
// Slices whose steps are walked where they do not repeat sooner: as many as have so many steps, but
// no fewer than let a pipeline be seen. Trees keep a pace for each level, so they never repeat.
constexpr std::uint64_t kMostWalked = std::uint64_t{1} << 18;
constexpr std::uint32_t kLeastWalkedSlices = 8;
constexpr std::size_t kMostKnown = 4096;  // predictions kept, some hundred bytes each
// A finer cut is taken if it saves this share; beyond that it only costs more to find.
constexpr double kWorthwhile = 0.005;

void replace(std::string& text, std::string_view what, std::int32_t with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what))
    text.replace(at, what.size(), fmt::format("{}", with));
}

// 1 + 1/2 + ... + 1/n, to a thousandth.
double harmonic(std::int32_t n) {
  double sum = 0;
  for (std::int32_t i = 1; i <= std::min(n, 100); ++i) sum += 1.0 / i;
  return n <= 100 ? sum : sum + std::log(n / 100.0);
}

// The protocol's constants as this algorithm has them.
Costs costs_of(const ProtocolProfile& protocol, const AlgorithmProfile& algorithm,
               std::int32_t nodes) {
  Costs costs = protocol.costs;
  if (algorithm.lockstep && nodes > 1) costs.gap_ns += protocol.jitter_ns * harmonic(nodes);
  for (HopCosts& hop : costs.hops) hop.alpha_ns *= algorithm.latency_scale;
  costs.hops[static_cast<std::size_t>(Hop::kNetwork)].efficiency *= algorithm.efficiency;
  return costs;
}

// Around a ring in the order of ranks a message crosses one link of a torus, its own (two where a
// row ends): a switch one hop away is the same, and there all nodes are alike.
Cluster without_torus(Cluster cluster) {
  if (cluster.torus.shape.empty()) return cluster;
  cluster.nic.latency_ns += cluster.torus.hop_ns;
  cluster.nic.GBps = std::min(cluster.nic.GBps, cluster.torus.link_GBps);
  cluster.torus = {};
  return cluster;
}

}  // namespace

std::string schedule_for(const AlgorithmProfile& algorithm, const Cluster& cluster) {
  std::string name = algorithm.schedule;
  replace(name, "{nodes}", cluster.nodes);
  replace(name, "{local}", cluster.ranks_per_node);
  return name;
}

Cluster rail_of(const Cluster& cluster, std::uint32_t rails) {
  Cluster rail = cluster;
  if (rails == 1) return rail;
  rail.nics_per_node = 1;
  rail.rails = false;
  rail.intra.GBps /= rails;
  rail.memory_GBps /= rails;
  rail.switched = true;  // rings of different rails take different links of a mesh
  return rail;
}

Result<Predictor> Predictor::make(const Cluster& cluster, const Profile& profile,
                                  const AlgorithmProfile& algorithm, Collective collective) {
  const std::string name = schedule_for(algorithm, cluster);
  TUTTI_TRY_ASSIGN(const Algorithm* const schedule, find_algorithm(name));
  const bool rails = profile.rails && cluster.nodes > 1 && cluster.gpu != nullptr;
  const auto count = rails ? static_cast<std::uint32_t>(cluster.nics_per_node) : 1U;
  Cluster part = rail_of(cluster, count);
  if (algorithm.lockstep) part = without_torus(std::move(part));
  auto network = std::make_unique<ClusterNetwork>(std::move(part));
  const Problem problem{.collective = collective, .ranks = cluster.ranks()};
  TUTTI_TRY(check_problem(*schedule, problem));
  TUTTI_TRY_ASSIGN(PlanModel model, PlanModel::make(*schedule, problem, *network));
  Predictor predictor(std::move(network), std::move(model));
  predictor.algorithm_ = algorithm.name;
  predictor.schedule_ = name;
  predictor.shape_ = schedule->shape(problem);
  predictor.rails_ = count;
  return predictor;
}

// A fit asks for most points again and again, with other constants of one protocol alone.
std::vector<double> Predictor::key_of(const ProtocolProfile& protocol, const Costs& costs,
                                      const Cut& cut) {
  std::vector<double> key{cut.rail_bytes,
                          static_cast<double>(cut.slots),
                          cut.pipelined ? 1.0 : 0.0,
                          protocol.chunk_bytes,
                          protocol.least_chunk_bytes,
                          costs.step_ns,
                          costs.operand_ns_per_byte,
                          costs.remote_ns,
                          costs.remote_ns_per_byte,
                          costs.switch_ns,
                          costs.gap_ns};
  for (const HopCosts& hop : costs.hops) {
    key.push_back(hop.alpha_ns);
    key.push_back(hop.efficiency);
  }
  return key;
}

Result<Prediction> Predictor::at_best_cut(const ProtocolProfile& protocol, Costs costs,
                                          const Cut& cut) const {
  costs.start_ns = 0;  // once an operation, whatever the cut: added by predict()
  std::vector<double> key = key_of(protocol, costs, cut);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const double message = cut.rail_bytes / shape_.chunks * shape_.max_message_chunks;
  const double least = protocol.chunk_bytes > 0 ? std::ceil(message / protocol.chunk_bytes) : 1;
  const std::uint64_t steps = std::max(1U, model_.graph().step_count());
  const auto most_walked = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kMostWalked / steps, kLeastWalkedSlices, kMostSlices));
  Prediction best;
  for (auto slices = static_cast<std::uint32_t>(std::clamp<double>(least, 1, kMostSlices));
       slices <= kMostSlices; slices *= 2) {
    TUTTI_TRY_ASSIGN(PlanPrice price,
                     model_.price(costs, {.bytes = static_cast<std::uint64_t>(cut.rail_bytes),
                                          .slices = slices,
                                          .slots = cut.slots,
                                          .most_slices = most_walked}));
    if (best.time_ns > 0 && price.time_ns > best.time_ns * (1 - kWorthwhile)) break;
    best = {price.time_ns, 0, slices, price};
    // Twice as fine, as long as that pays.
    if (!cut.pipelined || message / slices < 2 * protocol.least_chunk_bytes) break;
  }
  if (known_.size() > kMostKnown) known_.clear();
  known_.emplace(std::move(key), best);
  return best;
}

Result<Prediction> Predictor::predict(const Profile& profile, std::uint64_t bytes,
                                      std::string_view protocol) const {
  const AlgorithmProfile* const algorithm = profile.find(algorithm_);
  if (algorithm == nullptr)
    return make_error(Code::kInvalidArgument,
                      fmt::format("profile {} has no algorithm '{}'", profile.name, algorithm_));
  const auto size = static_cast<double>(bytes);
  const Cut cut{std::ceil(std::max(1.0, size / rails_)), profile.slots, algorithm->pipelined};
  Prediction best;
  for (std::size_t i = 0; i < profile.protocols.size(); ++i) {
    const ProtocolProfile& each = profile.protocols[i];
    if (!protocol.empty() && each.name != protocol) continue;
    if (protocol.empty() && (size < each.least_bytes || size > each.most_bytes)) continue;
    TUTTI_TRY_ASSIGN(Prediction now,
                     at_best_cut(each, costs_of(each, *algorithm, network_->cluster().nodes), cut));
    now.protocol = i;
    now.time_ns += each.costs.start_ns;
    now.price.time_ns += each.costs.start_ns;
    now.price.terms.start_ns += each.costs.start_ns;
    if (best.time_ns == 0 || now.time_ns < best.time_ns) best = now;
  }
  if (best.time_ns > 0) return best;
  return make_error(Code::kInvalidArgument,
                    fmt::format("profile {} has no protocol {}that carries {} bytes", profile.name,
                                protocol.empty() ? "" : fmt::format("'{}' ", protocol), bytes));
}

Result<Prediction> Predictor::simulate(const Profile& profile, std::uint64_t bytes) const {
  TUTTI_TRY_ASSIGN(Prediction best, predict(profile, bytes));
  const Costs costs = costs_of(profile.protocols[best.protocol], *profile.find(algorithm_),
                               network_->cluster().nodes);
  const double rail_bytes = std::ceil(std::max(1.0, static_cast<double>(bytes) / rails_));
  TUTTI_TRY_ASSIGN(
      const Simulation run,
      tutti::simulate(model_, costs,
                      SimulationRequest{.bytes = static_cast<std::uint64_t>(rail_bytes),
                                        .slices = best.slices,
                                        .slots = profile.slots}));
  best.time_ns = run.time_ns;
  return best;
}

}  // namespace tutti
