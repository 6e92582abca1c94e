#include "schedule/verify/values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/verify/step_checks.hpp"

namespace tutti::proof {
namespace {

class Symbolic {
 public:
  explicit Symbolic(const Model& model)
      : model_(model),
        shape_(model.shape()),
        values_{Trees(shape_.ranks), {}},
        stride_(std::size_t{shape_.chunks} + shape_.scratch_chunks),
        memory_(static_cast<std::size_t>(shape_.ranks) * stride_),
        in_flight_(model.message_chunks) {}

  Result<Values> run(const std::vector<std::uint32_t>& order) {
    for (const std::uint32_t number : order) TUTTI_TRY(run_step(number));
    values_.outputs.reserve(static_cast<std::size_t>(shape_.ranks) * shape_.chunks);
    for (std::size_t r = 0; r < static_cast<std::size_t>(shape_.ranks); ++r) {
      const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(r * stride_);
      values_.outputs.insert(values_.outputs.end(), first, first + shape_.chunks);
    }
    return std::move(values_);
  }

 private:
  Status run_step(std::uint32_t number);
  Result<TreeId> load(std::uint32_t number, const Operand& operand, std::uint32_t message,
                      std::uint32_t k);
  Result<TreeId> combine(std::uint32_t number);

  // Output (and, in place, input) and the one scratch version that a slice uses.
  TreeId& place(Rank rank, const Operand& operand, std::uint32_t k) {
    const Rank owner = operand.kind == OperandKind::kLocal ? rank : operand.peer;
    return memory_[static_cast<std::size_t>(owner) * stride_ +
                   location_of(shape_, model_.replica, operand, k)];
  }

  const Model& model_;
  const ScheduleShape& shape_;
  Values values_;
  std::size_t stride_;
  std::vector<TreeId> memory_;     // by rank, then location_of
  std::vector<TreeId> in_flight_;  // by Message::first_value
  std::vector<TreeId> sources_, results_;
};

Result<TreeId> Symbolic::load(std::uint32_t number, const Operand& operand, std::uint32_t message,
                              std::uint32_t k) {
  if (operand.kind == OperandKind::kRecv)
    return in_flight_[model_.messages[message].first_value + k];
  const Rank rank = model_.rank_of(model_.steps[number]);
  const Rank owner = operand.kind == OperandKind::kLocal ? rank : operand.peer;
  const std::uint32_t chunk = operand.span.first;
  const TreeId found = place(rank, operand, k);
  if (operand.buffer == BufferKind::kInput) {
    const std::uint32_t c = operand.span.at(k, shape_.chunks);
    if (found == kNoTree) return values_.trees.leaf(owner, c);
    return model_.fall_at(Rule::kInPlace, number,
                          fmt::format("reads input chunk {} of rank {} after output chunk {} was "
                                      "written there; expected the user's data",
                                      c, owner, c));
  }
  if (found != kNoTree) return found;
  return model_.fall_at(
      Rule::kUninitialised, number,
      fmt::format(
          "reads {} {} of rank {}, which nothing wrote in this slice", name_of(operand.buffer),
          operand.buffer == BufferKind::kOutput ? operand.span.at(k, shape_.chunks) : chunk + k,
          owner));
}

// What the step makes of sources_ at one position.
Result<TreeId> Symbolic::combine(std::uint32_t number) {
  const auto fell = [&](const TreeFault& fault) {
    return model_.fall_at(fault.rule, number, fault.text);
  };
  TreeId value = sources_.front();
  if (sources_.size() > 1) {
    const auto reduced = values_.trees.reduce(sources_);
    if (!reduced) return fell(reduced.error());
    value = *reduced;
  }
  if (!model_.steps[number].step->finish) return value;
  const auto finished = values_.trees.finish(value);
  if (!finished) return fell(finished.error());
  return *finished;
}

Status Symbolic::run_step(std::uint32_t number) {
  const FlatStep& flat = model_.steps[number];
  const Step& step = *flat.step;
  const std::uint32_t count = step.destinations.front().span.count();
  results_.clear();
  for (std::uint32_t k = 0; k < count; ++k) {
    sources_.clear();
    const std::uint32_t* recv = model_.recvs.data() + flat.first_recv;
    for (const Operand& operand : step.sources) {
      const std::uint32_t message = operand.kind == OperandKind::kRecv ? *recv++ : 0;
      TUTTI_TRY_ASSIGN(const TreeId source, load(number, operand, message, k));
      sources_.push_back(source);
    }
    TUTTI_TRY_ASSIGN(const TreeId value, combine(number));
    results_.push_back(value);
  }
  const Rank rank = model_.rank_of(flat);
  const std::uint32_t* send = model_.sends.data() + flat.first_send;
  for (const Operand& operand : step.destinations) {
    if (operand.kind == OperandKind::kSend) {
      std::ranges::copy(results_, in_flight_.begin() + static_cast<std::ptrdiff_t>(
                                                           model_.messages[*send++].first_value));
      continue;
    }
    for (std::uint32_t k = 0; k < count; ++k) place(rank, operand, k) = results_[k];
  }
  return {};
}

// Every chunk on every rank: all contributions, finished, by the tree that rank 0 has.
Status all_reduce_holds(const Model& model, const Values& values) {
  const ScheduleShape& shape = model.shape();
  for (std::size_t i = 0; i < values.outputs.size(); ++i) {
    const auto rank = static_cast<Rank>(i / shape.chunks);
    const auto chunk = static_cast<std::uint32_t>(i % shape.chunks);
    const TreeId tree = values.outputs[i];
    const auto lacking = [&](std::string_view what) {
      return fall(Rule::kMissing, fmt::format("rank {}, replica {}, output chunk {}: {}", rank,
                                              model.replica, chunk, what));
    };
    if (tree == kNoTree) return lacking("never written");
    const TreeFacts& facts = values.trees.facts(tree);
    if (facts.chunk != chunk)
      return lacking(fmt::format("holds contributions to chunk {}", facts.chunk));
    if (const Rank missing = values.trees.first_missing(tree); missing != kNoRank)
      return lacking(fmt::format("lacks rank {}'s contribution: found {}", missing,
                                 values.trees.to_text(tree)));
    if (facts.kind != TreeKind::kFinish)
      return lacking(fmt::format("not finished: found {}", values.trees.to_text(tree)));
    if (tree != values.outputs[chunk])
      return fall(Rule::kSameTree,
                  fmt::format("rank {}, replica {}, output chunk {}: found {}, expected {} as on "
                              "rank 0",
                              rank, model.replica, chunk, values.trees.to_text(tree),
                              values.trees.to_text(values.outputs[chunk])));
  }
  return {};
}

struct PostCondition {
  Collective collective;
  Status (*holds)(const Model& model, const Values& values);
};

constexpr PostCondition kPostConditions[] = {{Collective::kAllReduce, all_reduce_holds}};

}  // namespace

Result<Values> run_symbolically(const Model& model, const std::vector<std::uint32_t>& order) {
  return Symbolic(model).run(order);
}

Status check_post_condition(const Model& model, const Values& values) {
  for (const PostCondition& condition : kPostConditions)
    if (condition.collective == model.shape().collective) return condition.holds(model, values);
  return make_error(Code::kNotSupported, fmt::format("the verifier has no post-condition for {}",
                                                     name_of(model.shape().collective)));
}

}  // namespace tutti::proof
