// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/values.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "schedule/verify/step_checks.hpp"

namespace tutti::proof {
namespace {

class Symbolic {
 public:
  explicit Symbolic(const Model& model)
      : model_(model),
        shape_(model.shape()),
        values_{Trees(shape_.ranks), {}},
        stride_(locations_of(shape_)),
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
  Status check_sizes(std::uint32_t number, std::uint32_t k, TreeId value) const;
  // Sizes. A value is as long as the chunk that it carries, and an operand gives it the size of the
  // chunk that it names. In an all-to-all each end of a message names a block by a number of its
  // own. Blocks are of one size, so there a size is a chunk's number within its block.
  [[nodiscard]] std::uint32_t size_carried(TreeId value) const {
    return size_class(values_.trees.facts(value).chunk);
  }
  [[nodiscard]] std::uint32_t size_named(const Span& span, std::uint32_t k) const {
    return size_class(span.at(k, shape_.chunks));
  }
  [[nodiscard]] std::uint32_t size_class(std::uint32_t chunk) const {
    return transposed_ ? chunk % chunks_per_block_ : chunk;
  }

  // Output (and input, in place or apart) and the one scratch version that a slice uses.
  TreeId& place(Rank rank, const Operand& operand, std::uint32_t k) {
    const Rank owner = operand.kind == OperandKind::kLocal ? rank : operand.peer;
    return memory_[static_cast<std::size_t>(owner) * stride_ +
                   location_of(shape_, model_.replica, operand, k)];
  }

  const Model& model_;
  const ScheduleShape& shape_;
  const bool transposed_ = info_of(shape_.collective).outcome == Outcome::kTransposed;
  const std::uint32_t chunks_per_block_ = block_map(shape_, model_.replica).chunks_per_block;
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

// Returns the value that the step makes of sources_ at one position.
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

// Every operand that names a chunk, at either end of a message too, names the value's own: else the
// executor would cut the value short, or read beyond it. Scratch has no names; hence a value that
// passes through it is judged by what it carries. Sources are of one chunk (Trees::reduce).
Status Symbolic::check_sizes(std::uint32_t number, std::uint32_t k, TreeId value) const {
  const Step& step = *model_.steps[number].step;
  const std::uint32_t carried = size_carried(value);
  const Span* agreed = nullptr;
  for (const auto* side : {&step.destinations, &step.sources}) {
    for (const Operand& operand : *side) {
      if (!is_logical(operand) || (agreed != nullptr && operand.span == *agreed)) continue;
      const std::uint32_t named = size_named(operand.span, k);
      if (named != carried)
        return model_.fall_at(
            Rule::kChunkAgreement, number,
            fmt::format("names {0} {1} at position {2} of {3} {4}, expected {0} {5} as in the "
                        "value there, {6}",
                        transposed_ ? "part of a block" : "chunk", named, k,
                        side == &step.destinations ? "destination" : "source",
                        &operand - side->data(), carried, values_.trees.to_text(value)));
      agreed = &operand.span;
    }
  }
  return {};
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
    TUTTI_TRY(check_sizes(number, k, value));
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

// Returns the value that an output chunk must hold at the end.
struct Expected {
  enum class Kind : std::uint8_t { kNothing, kReduced, kCopy } kind = Kind::kNothing;
  Rank owner = 0;           // kCopy: whose input
  std::uint32_t chunk = 0;  // kCopy: which chunk of it
};

// `place` is that of the rank's block. nullopt: the verifier does not know the outcome.
std::optional<Expected> expected_at(const ScheduleShape& shape, const BlockMap& blocks, Rank rank,
                                    std::uint32_t place, std::uint32_t chunk) {
  using enum Expected::Kind;
  const CollectiveInfo& info = info_of(shape.collective);
  if (!holds(shape, info.output, blocks, rank, chunk)) return Expected{kNothing};
  switch (info.outcome) {
    case Outcome::kReduction:
      return Expected{kReduced};
    case Outcome::kRootsInput:
      return Expected{kCopy, shape.root, chunk};
    case Outcome::kOwnersInput:
      return Expected{kCopy, blocks.owner_of(chunk), chunk};
    case Outcome::kTransposed:
      return Expected{kCopy, blocks.owner_of(chunk),
                      place * blocks.chunks_per_block + chunk % blocks.chunks_per_block};
    case Outcome::kNothing:
      break;
  }
  return std::nullopt;
}

// Judges output chunks; `first_seen` by chunk: the tree that every rank that reduces must have.
class PostCondition {
 public:
  PostCondition(const Model& model, Values& values)
      : model_(model), values_(values), first_seen_(model.shape().chunks, kNoTree) {}

  Status check(Rank rank, std::uint32_t chunk, TreeId tree, const Expected& expected) {
    if (expected.kind == Expected::Kind::kNothing) return {};
    if (tree == kNoTree) return lacking(rank, chunk, "never written");
    if (expected.kind == Expected::Kind::kCopy) {
      if (tree == values_.trees.leaf(expected.owner, expected.chunk)) return {};
      return lacking(rank, chunk,
                     fmt::format("found {}, chunk {}, expected rank {}'s input, chunk {}",
                                 values_.trees.to_text(tree), values_.trees.facts(tree).chunk,
                                 expected.owner, expected.chunk));
    }
    return check_reduced(rank, chunk, tree);
  }

 private:
  // All contributions, finished, by the tree that the first such rank has.
  Status check_reduced(Rank rank, std::uint32_t chunk, TreeId tree) {
    const Trees& trees = values_.trees;
    const TreeFacts& facts = trees.facts(tree);
    if (facts.chunk != chunk)
      return lacking(rank, chunk, fmt::format("holds contributions to chunk {}", facts.chunk));
    if (const Rank missing = trees.first_missing(tree); missing != kNoRank)
      return lacking(
          rank, chunk,
          fmt::format("lacks rank {}'s contribution: found {}", missing, trees.to_text(tree)));
    if (facts.kind != TreeKind::kFinish)
      return lacking(rank, chunk, fmt::format("not finished: found {}", trees.to_text(tree)));
    TreeId& first = first_seen_[chunk];
    if (first == kNoTree) first = tree;
    if (tree == first) return {};
    return fall(
        Rule::kSameTree,
        fmt::format("rank {}, replica {}, output chunk {}: found {}, expected {} as on the "
                    "ranks before",
                    rank, model_.replica, chunk, trees.to_text(tree), trees.to_text(first)));
  }

  Status lacking(Rank rank, std::uint32_t chunk, std::string_view what) const {
    return fall(Rule::kMissing, fmt::format("rank {}, replica {}, output chunk {}: {}", rank,
                                            model_.replica, chunk, what));
  }

  const Model& model_;
  Values& values_;
  std::vector<TreeId> first_seen_;
};

}  // namespace

Result<Values> run_symbolically(const Model& model, const std::vector<std::uint32_t>& order) {
  return Symbolic(model).run(order);
}

Status check_post_condition(const Model& model, Values& values) {
  const ScheduleShape& shape = model.shape();
  const BlockMap blocks = block_map(shape, model.replica);
  std::vector<std::uint32_t> places(static_cast<std::size_t>(shape.ranks));  // by rank
  for (Rank place = 0; place < shape.ranks; ++place)
    places[static_cast<std::size_t>(blocks.rank_at(place))] = static_cast<std::uint32_t>(place);
  PostCondition condition(model, values);
  for (std::size_t i = 0; i < values.outputs.size(); ++i) {
    const auto rank = static_cast<Rank>(i / shape.chunks);
    const auto chunk = static_cast<std::uint32_t>(i % shape.chunks);
    const std::optional<Expected> expected =
        expected_at(shape, blocks, rank, places[i / shape.chunks], chunk);
    if (!expected)
      return make_error(
          Code::kNotSupported,
          fmt::format("the verifier has no post-condition for {}", name_of(shape.collective)));
    TUTTI_TRY(condition.check(rank, chunk, values.outputs[i], *expected));
  }
  return {};
}

}  // namespace tutti::proof
