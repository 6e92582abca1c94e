// SPDX-License-Identifier: Apache-2.0
// The verifier's entry: which proof comes after which, and the facts that the proof publishes.
// The ideas have a file each in verify/. Pure; any thread.
#include "schedule/verifier.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "schedule/verify/execution.hpp"
#include "schedule/verify/model.hpp"
#include "schedule/verify/order.hpp"
#include "schedule/verify/step_checks.hpp"
#include "schedule/verify/values.hpp"

namespace tutti {
namespace {

using namespace proof;

constexpr std::uint32_t kMinSlots = 2;   // never fewer: one message goes while another is read
constexpr std::uint32_t kMaxSlots = 64;  // what needs more is called a deadlock

// The fewest slots with which a slice completes, and the order in which it did.
Result<Execution> find_execution(const Model& model, const VerifyOptions& options, Proof& facts) {
  for (std::uint32_t slots = kMinSlots; slots <= kMaxSlots; ++slots) {
    Execution execution = run_slice(model, slots);
    facts.events += execution.order.size();
    if (execution.complete(model)) {
      facts.minimal_slots = std::max(facts.minimal_slots, slots);
      if (options.slots >= slots) return execution;
      const Execution stuck = run_slice(model, options.slots);
      return fall(
          Rule::kSlots,
          fmt::format("{} slots a connection, expected at least {}: {}", options.slots, slots,
                      stuck.complete(model) ? "one message goes while another is read"
                                            : explain_stuck(model, stuck, options.slots)));
    }
    if (slots == kMaxSlots) return fall(Rule::kDeadlock, explain_stuck(model, execution, slots));
  }
  return make_error(Code::kInternalError, "the search for slots has no last step");
}

void count_traffic(const Model& model, const std::vector<std::uint32_t>& order, Proof& facts) {
  std::vector<std::uint32_t> depth(model.steps.size());
  for (const std::uint32_t number : order) {
    const FlatStep& step = model.steps[number];
    std::uint32_t deepest = step.index > 0 ? depth[number - 1] : 0;
    for (const std::uint32_t m : model.recvs_of(step))
      deepest = std::max(deepest, depth[model.messages[m].sender] + 1);
    for (const FlatWait& wait : model.waits_of(step))
      if (wait.back == 0) deepest = std::max(deepest, depth[wait.step]);
    depth[number] = deepest;
    facts.depth = std::max(facts.depth, deepest);
  }
  const auto ranks = static_cast<std::size_t>(model.shape().ranks);
  std::vector<std::uint64_t> sent(ranks), reduced(ranks);
  for (const FlatStep& step : model.steps) {
    const auto rank = static_cast<std::size_t>(model.rank_of(step));
    const std::uint64_t chunks = step.step->destinations.front().span.count();
    sent[rank] += step.sends * chunks;
    reduced[rank] += (step.step->sources.size() - 1) * chunks;
  }
  facts.messages = std::max<std::uint64_t>(facts.messages, model.messages.size());
  facts.max_sent_chunks = std::max(facts.max_sent_chunks, *std::ranges::max_element(sent));
  facts.max_reduced_chunks = std::max(facts.max_reduced_chunks, *std::ranges::max_element(reduced));
}

void count_connections(const Model& model, Proof& facts) {
  std::set<std::pair<Rank, Rank>> pairs;
  for (const Connection& connection : model.connections)
    pairs.emplace(connection.from, connection.to);
  for (const auto& [from, to] : pairs) facts.mutual = facts.mutual && pairs.contains({to, from});
  for (const Message& message : model.messages)
    facts.connection_messages = std::max(facts.connection_messages, message.position + 1);
}

// Counts the trees of finished values; other outputs do not matter at the end.
void count_trees(const Values& values, Proof& facts) {
  std::optional<std::uint32_t> shape;
  for (const TreeId output : values.outputs) {
    if (output == kNoTree) continue;
    const TreeFacts& tree = values.trees.facts(output);
    if (tree.kind != TreeKind::kFinish) continue;
    facts.max_roundings = std::max(facts.max_roundings, tree.roundings);
    facts.in_rank_order = facts.in_rank_order && tree.rank_order;
    facts.canonical = facts.canonical && tree.shape == shape.value_or(tree.shape);
    shape = tree.shape;
  }
}

Status prove(const Model& model, const VerifyOptions& options, Proof& facts) {
  TUTTI_TRY_ASSIGN(const Execution execution, find_execution(model, options, facts));
  // Order first: only without a race do the values of one execution stand for all.
  TUTTI_TRY_ASSIGN(const std::uint64_t walked, check_order(model, execution.order));
  TUTTI_TRY_ASSIGN(Values values, run_symbolically(model, execution.order));
  TUTTI_TRY(check_post_condition(model, values));
  facts.events += walked + execution.order.size();
  count_traffic(model, execution.order, facts);
  count_connections(model, facts);
  count_trees(values, facts);
  return {};
}

}  // namespace

Result<Proof> verify(const Schedule& schedule, const VerifyOptions& options) {
  TUTTI_TRY(check_shape(schedule));
  ConnectionCounts counts;
  std::vector<Model> models;  // of replicas that differ
  for (std::uint32_t replica = 0; replica < schedule.shape.replicas; ++replica) {
    if (replica > 0 && same_replica(schedule, 0, replica)) {
      counts.add(models.front());
      continue;
    }
    TUTTI_TRY_ASSIGN(Model model, build_model(schedule, replica));
    counts.add(model);
    models.push_back(std::move(model));
  }
  TUTTI_TRY(counts.check(schedule.shape));
  Proof facts{.in_rank_order = true, .canonical = true};
  for (const Model& model : models) TUTTI_TRY(prove(model, options, facts));
  return facts;
}

}  // namespace tutti
