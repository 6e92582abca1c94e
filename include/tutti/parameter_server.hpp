// SPDX-License-Identifier: Apache-2.0
// A parameter server: workers compute gradients, servers keep parameters and optimizer state, each
// server one shard of every unit. What ZeRO replaced, on the same model, slots and optimizers, so
// that the two can be compared.
//
//   zero::ParameterServer ps(comm, units, config, {.count = 2});
//   ps.initialize(fill);
//   synchronous, on all ranks:
//     for (int step = 0; step < steps; ++step) {
//       if (ps.works()) train on ps.worker(), as on an Engine: slots(), use(), gradients()
//       ps.step(AdamW{});
//     }
//   asynchronous:
//     if (ps.serves()) ps.serve([](std::uint64_t update) { return AdamW{}; });
//     else { for (...) { train on ps.worker(); ps.push(); }  ps.finish(); }
//
// Ranks 0 to W-1 are the workers. The S servers are the ranks behind them or, with `colocated`, the
// first S workers, which then do both.
//
// Synchronous. A step sums the gradients of all workers' slots, updates once and returns the
// parameters to all. In canonical order the bits are those of an Engine with W ranks that reduces
// once a step; a 16-bit Config::reduce rounds a single worker's gradients too. A worker sends its
// gradients once (a shard to each server) and receives the parameters once; a server receives W
// shards of gradients and sends W of parameters.
//
// Asynchronous. Each push of a worker is an update of its own, in the order in which they arrive at
// server 0. Others may have updated since the worker got its parameters: how many is the update's
// staleness. With Servers::staleness it has a bound, and a worker waits for its parameters where
// they could not be used in time. Servers::arrivals fixes the order of the first updates, which
// makes their bits reproducible.
//
// Threads and errors are those of Engine, as are `worker()`'s; of Config, stage, sync, prefetch,
// overlap, keep_after_forward and shard_ranks say nothing here. Communication takes place in
// step(), push() and serve(), not beside the model.
//
// After Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014; the
// bound is that of Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server, NIPS 2013, on each gradient.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tutti/zero.hpp"

namespace tutti::zero {

struct Servers {
  static constexpr int kUnbounded = -1;
  int count = 1;
  bool colocated = false;  // the first workers serve too; synchronous only
  bool asynchronous = false;
  // Asynchronous: the most updates of others between a worker's parameters and its update.
  int staleness = kUnbounded;
  // Asynchronous: the workers whose pushes are the first, second, ... update, whatever comes first.
  // Pushes that come when the list has ended are taken as they arrive. A worker that the list does
  // not name again gets no parameters before its end, where staleness has a bound.
  std::vector<int> arrivals = {};
};

// An asynchronous update: whose gradients, and how many updates came since its parameters.
struct Arrival {
  int worker = 0, staleness = 0;
  bool operator==(const Arrival&) const = default;
};

using Optimizer = std::variant<AdamW, Sgd>;

// Pure: what rank `rank` will allocate. Throws std::invalid_argument as ParameterServer.
[[nodiscard]] TUTTI_API Memory memory_of(std::span<const Unit> units, const Config& config,
                                         const Servers& servers, int ranks, int rank);

class TUTTI_API ParameterServer {
 public:
  // Collective. `comm` must outlive it. Throws std::invalid_argument for numbers that do not fit
  // each other, and where a rank needs more than Config::memory_limit_bytes.
  ParameterServer(Communicator& comm, std::span<const Unit> units, const Config& config,
                  const Servers& servers);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  [[nodiscard]] int workers() const;
  [[nodiscard]] bool works() const;
  [[nodiscard]] bool serves() const;
  // What the model of a worker uses: slots(), use(), gradients(), loss_scale(). Calls that change
  // or save parameters belong to the ParameterServer. Throws std::invalid_argument on a rank that
  // only serves.
  [[nodiscard]] Engine& worker();

  // Fills the parameters, on the servers; all ranks call it. Asynchronous workers return when
  // serve() gives them the parameters. One serve() and one finish() follow, before the next
  // initialize() or load().
  void initialize(const Engine::Fill& fill);

  // Synchronous, on all ranks, with the same optimizer. As Engine::step(). Before it, each worker
  // has had the gradients of all its slots.
  float step(const Optimizer& optimizer);

  // Asynchronous. A worker's: hands in the gradients of its slots and returns with parameters that
  // are newer, where there is a bound maybe after pushes of others. Returns the norm of its own
  // gradients before clipping.
  float push();
  // A worker's: it pushes no more. Returns when no worker does, with the last parameters.
  void finish();
  // A server's: answers the workers until all have finished. `optimizer_of` is called on every
  // server with the number of an update, from 0, and says the same on all.
  void serve(const std::function<Optimizer(std::uint64_t update)>& optimizer_of);
  // The updates of the serve() that has ended, in order. On all ranks.
  [[nodiscard]] const std::vector<Arrival>& arrivals() const;

  // As Engine's, and with its checkpoints. Not between a worker's passes and its step(), nor while
  // servers serve. load() leaves asynchronous workers waiting as initialize() does.
  void save(const std::filesystem::path& path, const std::string& note = {});
  std::string load(const std::filesystem::path& path);
  void read(int unit, int parameter, std::span<float> values);
  [[nodiscard]] std::uint64_t fingerprint();

  [[nodiscard]] const Layout& layout() const;  // a shard for each server
  [[nodiscard]] const Memory& memory() const;  // of this rank
  // gradient_bytes: what a worker pushed. update_gather_bytes: what a server answered with.
  // stall_seconds: step() and push(), as the model computes nothing meanwhile.
  [[nodiscard]] Usage usage() const;
  void reset_usage();
  [[nodiscard]] std::uint64_t library_bytes() const;  // as Engine's

 private:
  struct Implementation;
  class Decider;
  std::unique_ptr<Implementation> it_;
};

}  // namespace tutti::zero
