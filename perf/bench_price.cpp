// SPDX-License-Identifier: Apache-2.0
// How long a price takes: model and one price of every all-reduce, at large numbers of ranks.
//
//   bench_price --ranks 100000 --node 8 --slices 1,64
//
// on a made-up cluster of equal nodes with a port for each rank and --adapters to the network.
// Prints a line for each algorithm: ranks that were walked, steps walked of all there are,
// milliseconds to make the model and to price it, and the price itself.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "lab/event_price.hpp"
#include "lab/simulator.hpp"
#include "model/event_graph.hpp"
#include "perf/common/flags.hpp"

namespace tutti {
namespace {

struct Options {
  std::int32_t ranks = 100000, node = 8, adapters = 4;
  std::uint64_t bytes = 1 << 20;
  std::vector<std::uint32_t> slices{1};
  std::uint32_t replicas = 1;
  std::uint32_t most_slices = 32;
  std::vector<std::string> algorithms;
  bool simulate = false;
};

class Nodes final : public Network {
 public:
  explicit Nodes(const Options& options) : options_(options) {
    for (std::int32_t node = 0; node < options.ranks / options.node; ++node) {
      links_.insert(links_.end(), 2 * static_cast<std::size_t>(options.node), 1.0 / 450);
      links_.insert(links_.end(), 2 * static_cast<std::size_t>(options.adapters), 1.0 / 50);
    }
  }
  [[nodiscard]] std::int32_t ranks() const override { return options_.ranks; }
  [[nodiscard]] std::span<const double> link_ns_per_byte() const override { return links_; }
  [[nodiscard]] Rank block() const override { return options_.node; }
  [[nodiscard]] std::int32_t pool_ranks() const override { return 1; }
  [[nodiscard]] std::int32_t pool_workers() const override { return 1; }
  [[nodiscard]] Route route(Rank from, Rank to) const override {
    const Rank size = options_.node, node = from / size, other = to / size;
    const bool inside = node == other;
    const auto link = [&](Rank of, Rank number) {
      return static_cast<LinkId>(of * 2 * (size + options_.adapters) + number);
    };
    Route route{.hop = inside ? Hop::kDevice : Hop::kNetwork,
                .latency_ns = inside ? 600.0 : 3000.0,
                .link_count = 2};
    if (inside) {
      route.link_ids = {link(node, 2 * (from % size)), link(node, 2 * (to % size) + 1)};
    } else {
      route.link_ids = {link(node, 2 * (size + from % size % options_.adapters)),
                        link(other, 2 * (size + to % size % options_.adapters) + 1)};
    }
    return route;
  }

 private:
  Options options_;
  std::vector<double> links_;
};

Costs costs() {
  Costs costs;
  for (HopCosts& hop : costs.hops) hop = {.alpha_ns = 1000, .efficiency = 0.9};
  costs.step_ns = 200;
  costs.operand_ns_per_byte = 0.001;
  return costs;
}

// Milliseconds of this thread's core: what else runs on the machine does not count.
double cpu_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
double ms_since(double start_ms) { return cpu_ms() - start_ms; }

// Milliseconds that it takes, and what comes out.
std::string simulation(const PlanModel& model, const Options& options, std::uint32_t slices) {
  const double start = cpu_ms();
  const Result<Simulation> result =
      simulate(model, costs(), {.bytes = options.bytes, .slices = slices});
  if (!result) return result.error().message;
  return fmt::format("{:>11.1f} {:>12.1f}", ms_since(start), result->time_ns / 1e3);
}

void measure(const Algorithm& algorithm, const Options& options, const Nodes& network) {
  const double start = cpu_ms();
  const Result<PlanModel> model =
      PlanModel::make(algorithm, {.collective = Collective::kAllReduce, .ranks = options.ranks},
                      network, options.replicas);
  const double model_ms = ms_since(start);
  if (!model) {
    fmt::print("{:<44} {}\n", algorithm.name, model.error().message);
    return;
  }
  for (const std::uint32_t slices : options.slices) {
    const double before = cpu_ms();
    const Result<PlanPrice> price = model->price(
        costs(), {.bytes = options.bytes, .slices = slices, .most_slices = options.most_slices});
    const double price_ms = ms_since(before);
    const std::string simulated = options.simulate ? simulation(*model, options, slices) : "";
    if (!price) {
      fmt::print("{:<44} {:>6} {}\n", algorithm.name, slices, price.error().message);
      continue;
    }
    fmt::print("{:<44} {:>6} {:>8} {:>10} {:>10.2e} {:>9.1f} {:>9.1f} {:>12.1f} {}\n",
               algorithm.name, slices, model->graph().ranks.size(), price->events,
               price->total_events, model_ms, price_ms, price->time_ns / 1e3, simulated);
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures how long it takes to price schedules.", "bench_price");
  app.add_option("--ranks", options.ranks)->check(CLI::Range(1, 1 << 20));
  app.add_option("--node", options.node, "ranks of a node")->check(CLI::Range(1, 1024));
  app.add_option("--adapters", options.adapters, "of a node")->check(CLI::Range(1, 1024));
  app.add_option("--bytes", options.bytes);
  app.add_option("--slices", options.slices)->delimiter(',');
  app.add_option("--replicas", options.replicas)->check(CLI::Range(1, 64));
  app.add_option("--most-slices", options.most_slices, "number of ranks that are walked; 0: all");
  app.add_option("--algorithms", options.algorithms)->delimiter(',');
  app.add_flag("--simulate", options.simulate, "every slice, at flow level, as well");
  if (const auto status = perf::parse_flags(app, argc, argv)) return *status;
  if (options.ranks % options.node != 0) {
    fmt::print(stderr, "bench_price: --ranks {} is not a multiple of the {} ranks of a node\n",
               options.ranks, options.node);
    return 2;
  }
  if (options.algorithms.empty()) {
    for (const Algorithm* algorithm : all_algorithms())
      options.algorithms.emplace_back(algorithm->name);
    const std::string groups =
        fmt::format(":groups={}x{}", options.ranks / options.node, options.node);
    options.algorithms.push_back("hierarchical:outer=ring" + groups);
    options.algorithms.push_back("hierarchical:form=leader:outer=circulant" + groups);
    options.algorithms.push_back("hierarchical:form=leader:inner=tree:outer=tree" + groups);
  }
  const Nodes network(options);
  fmt::print("{:<44} {:>6} {:>8} {:>10} {:>10} {:>9} {:>9} {:>12} {}\n", "algorithm", "slices",
             "ranks", "walked", "of", "model ms", "price ms", "price us",
             options.simulate ? "simulate ms simulated us" : "");
  for (const std::string& name : options.algorithms) {
    const Result<const Algorithm*> algorithm = find_algorithm(name);
    if (!algorithm) {
      fmt::print(stderr, "{}\n", algorithm.error().message);
      return 1;
    }
    measure(**algorithm, options, network);
  }
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run(argc, argv); }
