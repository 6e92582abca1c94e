// SPDX-License-Identifier: Apache-2.0
// The end of a step: the norm of all gradients, clipping, loss scaling, the optimizer on what this
// rank keeps, and the gathering of updated parameters where they are kept whole (kZero1, kZero2).
// The engine's thread uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "zero/gatherer.hpp"
#include "zero/optimizer.hpp"
#include "zero/state.hpp"

namespace tutti::zero {

// What of a run is saved beside the arrays.
struct Progress {
  std::uint64_t steps = 0;  // of the optimizer
  float loss_scale = 1;     // in a checkpoint, 0 where losses were not scaled
  int good_steps = 0;       // since the loss scale last changed
};

class Update {
 public:
  // All of these outlive it.
  Update(const Plan& plan, const Layout& layout, std::span<const Unit> units, State& state,
         Links& links);

  // Returns the norm. Blocks until norm and update are done; gathers may still be on their way.
  template <typename Optimizer>
  float step(const Optimizer& optimizer);

  // The compute copies follow from the fp32 parameters, on all ranks.
  void refresh();
  // Blocks until a unit's parameters are whole again, or all of them.
  void wait(int unit);
  void wait_all();

  Progress progress;
  void begin_anew();
  // As it is saved, and from what was saved by a run that may have scaled losses or not.
  [[nodiscard]] Progress saved() const;
  void restore(const Progress& from);

 private:
  [[nodiscard]] std::span<const float> shard_gradients(int unit);
  // `terms`: digest_of the optimizer's settings, which must be those of all ranks.
  [[nodiscard]] double norm(std::uint64_t terms);
  void leave_out(double norm);
  void grow_scale();
  void run(const AdamWTerms& terms, int unit);
  void run(const SgdTerms& terms, int unit);
  template <typename Terms>
  void run_pieces(const Terms& terms, int unit,
                  void (*loop)(const Terms&, const StepOperands&, std::size_t));
  void gather(int unit);

  const Plan& plan_;
  const Layout& layout_;
  std::span<const Unit> units_;
  State& state_;
  Links& links_;
  std::unique_ptr<Gatherer> gatherer_;  // where updated parameters are gathered
  std::vector<Event> gathered_;         // of each unit
};

}  // namespace tutti::zero
