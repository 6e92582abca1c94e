// SPDX-License-Identifier: Apache-2.0
// In which order asynchronous updates are made, and when a worker gets parameters: the rules of a
// parameter server's script and of its bound on staleness. Pure.
//
// The version is the number of updates made. A worker that got parameters at version g and whose
// gradients are applied at version v has the staleness v - g. With a bound b,
//   while the script lasts   a worker gets parameters at version v if the script names it next at
//                            a version p with p - v <= b: that is its staleness then.
//   after it                 gradients have the deadline g + b. An update is made only if the
//                            others can still be made in time one after the other: the k-th
//                            earliest deadline of the rest (k = 0, 1, ...) is at least v + 1 + k.
//                            Parameters are given only while at most b workers have some that they
//                            have not answered, so that this holds for the newest deadline.
// When the script ends nobody holds parameters, so the second rule starts afresh. Whoever has
// parameters can always be waited for, so nothing comes to a stop.
//
// After an error that all are to hear of, nothing is applied: each worker is refused when it asks
// for something.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/parameter_server.hpp"

namespace tutti::zero {

class ArrivalOrder {
 public:
  // All workers want parameters. `bound` may be Servers::kUnbounded.
  ArrivalOrder(int workers, int bound, std::vector<int> script);

  // A worker has handed in gradients, or will not any more.
  void pushed(int worker);
  void finished(int worker);

  void fail() { failed_ = true; }

  enum class Act : std::uint8_t {
    kWait,    // for a worker
    kGive,    // it gets parameters
    kApply,   // its gradients are an update, and it wants parameters
    kEnd,     // all have finished, or been refused
    kRefuse,  // it hears of the error
    kDrop     // its gradients are taken and thrown away, then as kRefuse
  };
  struct Decision {
    Act act = Act::kWait;
    int worker = 0;
  };
  // What is to be done now. Throws std::runtime_error if the script names a worker that has
  // finished.
  [[nodiscard]] Decision next();

  [[nodiscard]] const std::vector<Arrival>& arrivals() const { return arrivals_; }

 private:
  enum class Phase : std::uint8_t { kWants, kComputes, kPushed, kFinished, kRefused };
  struct Worker {
    Phase phase = Phase::kWants;
    std::int64_t given = 0;  // version of its parameters
    std::uint64_t turn = 0;  // when it came to this phase, to be served in order
  };

  [[nodiscard]] std::int64_t version() const { return static_cast<std::int64_t>(arrivals_.size()); }
  [[nodiscard]] bool in_script() const { return arrivals_.size() < script_.size(); }
  [[nodiscard]] bool has_parameters(const Worker& worker) const {
    return worker.phase == Phase::kComputes || worker.phase == Phase::kPushed;
  }
  [[nodiscard]] Worker& of(int worker) { return workers_[static_cast<std::size_t>(worker)]; }
  [[nodiscard]] bool may_get(int worker) const;
  [[nodiscard]] bool may_apply(int worker) const;
  // The first, by turns, of the workers in a phase that `may` allows; -1: none.
  [[nodiscard]] int first(Phase phase, bool (ArrivalOrder::*may)(int) const) const;
  void enter(int worker, Phase phase);
  [[nodiscard]] Decision refuse_next();

  const int bound_;
  const std::vector<int> script_;
  std::vector<Worker> workers_;
  std::vector<Arrival> arrivals_;
  std::uint64_t turns_ = 0;
  bool failed_ = false;
};

}  // namespace tutti::zero
