// SPDX-License-Identifier: Apache-2.0
#include "advise.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "step_walk.hpp"
#include "training_time.hpp"

namespace tutti::zero_memory {
namespace {

// Memory traffic of an Adam update in bytes per parameter: reads gradient, master copy and two
// moments, writes the last three, in fp32.
constexpr double kUpdateBytes = 28;

// What a strategy's collectives cost, unit by unit.
struct UnitTimes {
  std::vector<double> gather, reduce, last_reduce;  // last_reduce: in a step's last microstep
  double after_update = 0;
};

Result<double> priced(const Price& price, Group group, std::uint64_t ranks, Collective collective,
                      std::uint64_t bytes) {
  if (ranks <= 1 || bytes == 0) return 0.0;
  return price(group, collective, bytes);
}

Result<UnitTimes> unit_times(const AdviseQuestion& question, const Price& price,
                             const Sharding& sharding, const std::vector<std::uint64_t>& padded) {
  const Accounting& bytes = question.accounting;
  const Group group = sharding.replicas() > 1 ? Group::kHost : Group::kAll;
  const std::uint64_t shards = sharding.shards();
  UnitTimes times;
  for (const std::uint64_t elements : padded) {
    if (sharding.stage == Stage::kDdp) {
      TUTTI_TRY_ASSIGN(const double all, priced(price, group, shards, Collective::kAllReduce,
                                                elements * bytes.gradient));
      times.gather.push_back(0);
      times.reduce.push_back(0);
      times.last_reduce.push_back(all);
      continue;
    }
    TUTTI_TRY_ASSIGN(const double scatter, priced(price, group, shards, Collective::kReduceScatter,
                                                  elements * bytes.gradient));
    TUTTI_TRY_ASSIGN(const double gather, priced(price, group, shards, Collective::kAllGather,
                                                 elements * bytes.parameter));
    TUTTI_TRY_ASSIGN(const double between,
                     priced(price, Group::kBetween, sharding.replicas(), Collective::kAllReduce,
                            elements / shards * bytes.gradient));
    const bool before_use = shards_parameters(sharding.stage);
    times.gather.push_back(before_use ? gather : 0);
    times.reduce.push_back(shards_gradients(sharding.stage) ? scatter + between : 0);
    times.last_reduce.push_back(scatter + between);
    if (!before_use) times.after_update += gather;
  }
  return times;
}

// A unit's share of a microstep's work, in seconds: forward 2 P D, backward 4 P D, and what is
// recomputed in backward. Attention is shared out as the parameters are.
std::vector<UnitWork> unit_work(const AdviseQuestion& question, const Advice& advice,
                                const std::vector<std::uint64_t>& units, const UnitTimes& times,
                                bool last) {
  const auto parameters = static_cast<double>(question.model.parameters);
  const double tokens = static_cast<double>(advice.microbatch * question.sequence);
  GptShape shape = question.model.shape.value_or(GptShape{});
  shape.sequence = question.sequence;
  double useful = training_flops(parameters, tokens);
  if (question.attention) useful += attention_flops(shape, tokens);
  const double again = recomputation_flops(parameters, shape, tokens, advice.recomputation);
  const double rate = question.peak_flops * question.mfu;
  std::vector<UnitWork> work;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const double share = static_cast<double>(units[i]) / parameters / rate;
    work.push_back({.forward = useful / 3 * share,
                    .backward = (useful * 2 / 3 + again) * share,
                    .gather = times.gather[i],
                    .reduce = last ? times.last_reduce[i] : times.reduce[i]});
  }
  return work;
}

AdvisedTime step_time(const AdviseQuestion& question, const Advice& advice,
                      const std::vector<std::uint64_t>& units, const UnitTimes& times) {
  const StepWalk walk = walk_step(unit_work(question, advice, units, times, false),
                                  unit_work(question, advice, units, times, true),
                                  advice.sharding.microsteps, question.buffers.prefetch > 0);
  AdvisedTime time;
  time.compute = walk.compute;
  time.communication = walk.communication + times.after_update;
  time.exposed = walk.total - walk.compute + times.after_update;
  if (question.memory_GBps > 0) {
    const auto shards =
        static_cast<double>(advice.sharding.stage == Stage::kDdp ? 1 : advice.sharding.shards());
    time.update = kUpdateBytes * static_cast<double>(question.model.parameters) / shards /
                  (question.memory_GBps * 1e9);
  }
  return time;
}

AdvisedMemory memory_needed(const AdviseQuestion& question, const Advice& advice,
                            const std::vector<std::uint64_t>& padded) {
  AdvisedMemory memory;
  const Stage stage = advice.sharding.stage;
  memory.state = exact_state_bytes(padded, stage, question.accounting, advice.sharding.shards());
  memory.transient = transient_bytes(padded, stage, question.accounting, question.buffers);
  if (question.model.shape) {
    GptShape shape = *question.model.shape;
    shape.sequence = question.sequence;
    memory.activations = activation_bytes(shape, advice.microbatch, advice.recomputation).total();
  }
  return memory;
}

std::string why_impossible(const Advice& least, double usable) {
  constexpr double kGB = 1e9;
  const AdvisedMemory& memory = least.memory;
  return fmt::format(
      "needs {:.4g} GB (state {:.4g}, unit buffers {:.4g}, activations {:.4g} with microbatch {} "
      "and {} recomputation), usable are {:.4g}",
      memory.total() / kGB, static_cast<double>(memory.state.total()) / kGB,
      static_cast<double>(memory.transient.total()) / kGB, memory.activations / kGB,
      least.microbatch, name_of(least.recomputation), usable / kGB);
}

std::vector<std::uint64_t> divisors_of(std::uint64_t number) {
  std::vector<std::uint64_t> divisors;
  for (std::uint64_t d = 1; d <= number; ++d)
    if (number % d == 0) divisors.push_back(d);
  return divisors;
}

bool faster(const Advice& a, const Advice& b) {
  if (a.time.total() != b.time.total()) return a.time.total() < b.time.total();
  return a.memory.total() < b.memory.total();
}

// The best of all microbatches and recomputations; where none fits, the one that needs least.
Result<Advice> best_of(const AdviseQuestion& question, const Price& price, Advice advice,
                       const std::vector<std::uint64_t>& units) {
  const std::vector<std::uint64_t> padded = padded_units(units, advice.sharding.shards());
  TUTTI_TRY_ASSIGN(const UnitTimes times, unit_times(question, price, advice.sharding, padded));
  const std::uint64_t sequences = question.batch / question.ranks;
  const double usable =
      static_cast<double>(question.memory_bytes) - static_cast<double>(question.reserve_bytes);
  std::optional<Advice> best, least;
  for (const Recomputation recomputation : kRecomputations) {
    if (!question.model.shape && recomputation != Recomputation::kNone) continue;
    for (const std::uint64_t microbatch : divisors_of(sequences)) {
      advice.recomputation = recomputation;
      advice.microbatch = microbatch;
      advice.sharding.microsteps = sequences / microbatch;
      advice.memory = memory_needed(question, advice, padded);
      if (!least || advice.memory.total() < least->memory.total()) least = advice;
      if (advice.memory.total() > usable) continue;
      advice.time = step_time(question, advice, units, times);
      if (!best || faster(advice, *best)) best = advice;
    }
  }
  Advice& found = best ? *best : *least;
  if (!best) found.impossible = why_impossible(found, usable);
  found.volume = volume_bytes(std::accumulate(padded.begin(), padded.end(), std::uint64_t{0}),
                              question.accounting, found.sharding);
  return found;
}

Status check(const AdviseQuestion& question) {
  if (question.batch % question.ranks != 0)
    return make_error(Code::kInvalidArgument,
                      fmt::format("--batch {} is not divisible by the cluster's {} ranks",
                                  question.batch, question.ranks));
  if (const std::uint64_t each = question.batch / question.ranks; each > kMostSequencesPerRank)
    return make_error(Code::kInvalidArgument,
                      fmt::format("--batch {} gives each rank {} sequences; the most are {}",
                                  question.batch, each, kMostSequencesPerRank));
  if (question.reserve_bytes >= question.memory_bytes)
    return make_error(Code::kInvalidArgument,
                      fmt::format("--reserve {} leaves nothing of --gpu-memory {}",
                                  question.reserve_bytes, question.memory_bytes));
  return {};
}

}  // namespace

std::string Advice::name() const {
  return fmt::format("{}{}", name_of(sharding.stage), hybrid ? " in hosts" : "");
}

Result<std::vector<Advice>> advise(const AdviseQuestion& question, const Price& price) {
  TUTTI_TRY(check(question));
  const std::vector<std::uint64_t> units = units_of(question.model, question.units);
  const bool hosts = question.ranks_per_host > 1 && question.ranks > question.ranks_per_host;
  std::vector<Advice> possible, impossible;
  for (const bool hybrid : {false, true})
    for (const Stage stage : kStages) {
      if (hybrid && (!hosts || stage == Stage::kDdp)) continue;
      Advice advice;
      advice.sharding = {stage, question.ranks, hybrid ? question.ranks_per_host : 0};
      advice.hybrid = hybrid;
      TUTTI_TRY_ASSIGN(const Advice found, best_of(question, price, advice, units));
      (found.impossible.empty() ? possible : impossible).push_back(found);
    }
  std::ranges::stable_sort(possible, faster);
  std::ranges::stable_sort(impossible, {}, [](const Advice& a) { return a.memory.total(); });
  possible.insert(possible.end(), impossible.begin(), impossible.end());
  return possible;
}

}  // namespace tutti::zero_memory
