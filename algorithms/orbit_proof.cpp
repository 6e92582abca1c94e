// SPDX-License-Identifier: Apache-2.0
#include "algorithms/orbit_proof.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "algorithms/orbit_moves.hpp"
#include "schedule/verify/step_checks.hpp"

namespace tutti {
namespace {

using proof::fall;
using proof::Rule;

constexpr std::uint32_t kMinSlots = 2;
constexpr std::uint32_t kMaxSlots = 64;
constexpr std::uint32_t kNone = ~std::uint32_t{0};
// Of all ranks together, where their programs are verified together. The sets of contributing ranks
// are counted as if no two sums were equal: a butterfly takes a tenth of that.
constexpr std::uint64_t kMostLocations = std::uint64_t{1} << 26;
constexpr std::uint64_t kMostOperands = std::uint64_t{1} << 24;
constexpr std::uint64_t kMostSetBytes = std::uint64_t{1} << 34;

// Spans may be written in several ways.
bool same_chunks(const Span& a, const Span& b, std::uint32_t chunks) {
  if (a == b) return true;
  if (a.count() != b.count()) return false;
  for (std::uint32_t k = 0; k < a.count(); ++k)
    if (a.at(k, chunks) != b.at(k, chunks)) return false;
  return true;
}

// A set of ranks as disjoint runs [first, end), ascending.
using Run = std::pair<Rank, Rank>;
struct Value {
  std::vector<Run> ranks;
  bool finished = false;
  std::uint32_t roundings = 0;
};

class Prover {
 public:
  Prover(const Algorithm& algorithm, const Problem& problem, const VerifyOptions& options,
         Moves moves, RankProgram program)
      : algorithm_(algorithm),
        problem_(problem),
        options_(options),
        moves_(std::move(moves)),
        schedule_{algorithm.shape(problem), {}},
        shape_(schedule_.shape) {
    schedule_.ranks.push_back(std::move(program));
  }

  Result<Proof> prove(std::span<const Rank> compare) {
    TUTTI_TRY(compare_images(compare));
    TUTTI_TRY(check_form());
    TUTTI_TRY(match());
    TUTTI_TRY(check_memory());
    TUTTI_TRY(check_progress());
    TUTTI_TRY(check_data());
    count_traffic();
    return facts_;
  }

 private:
  // A message of the orbit, as rank 0 sends it and as rank 0 receives its image.
  struct Message {
    std::uint32_t send_step, receive_step;
    Rank to;
    const Span *sent, *received;
  };
  struct End {
    std::uint32_t step, number;  // number: among the rank's sends, or receives
    const Span* span;
  };
  using Connections = std::map<std::pair<Rank, Tag>, std::vector<End>>;

  [[nodiscard]] const RankProgram& program() const { return schedule_.ranks.front(); }
  [[nodiscard]] const std::vector<Step>& steps() const { return program().lanes.front().steps; }
  [[nodiscard]] tl::unexpected<Error> fall_at(Rule rule, std::uint32_t step,
                                              std::string_view text) const {
    return fall(rule, schedule_, {0, 0, step}, text);
  }

  // The generators, and what is asked for.
  Status compare_images(std::span<const Rank> asked) {
    std::vector<Rank> ranks(asked.begin(), asked.end());
    for (Rank unit = 1; unit < problem_.ranks; unit *= 2) ranks.push_back(unit);
    ranks.push_back(problem_.ranks - 1);
    for (const Rank rank : ranks)
      if (!is_image(algorithm_.program(problem_, rank), program(), moves_, rank))
        return not_by_orbit(algorithm_,
                            fmt::format("rank {} does not do what rank 0 does, moved", rank));
    return {};
  }

  Status check_form() {
    if (program().lanes.size() != 1 || shape_.replicas != 1)
      return not_by_orbit(algorithm_, "its ranks have several lanes");
    const Lane& lane = program().lanes.front();
    if (lane.steps.empty()) return fall_at(Rule::kLane, 0, "it has no step");
    proof::StepChecker checker(schedule_, 0);
    for (std::uint32_t i = 0; i < lane.steps.size(); ++i) {
      const Step& step = lane.steps[i];
      TUTTI_TRY(checker.check({0, 0, i}, lane, step));
      if (!step.waits.empty()) return not_by_orbit(algorithm_, "its steps wait for other lanes");
      TUTTI_TRY(check_names(i));
    }
    return {};
  }

  // All operands of a step that name chunks name the same ones.
  Status check_names(std::uint32_t number) {
    const Step& step = steps()[number];
    const Span* named = nullptr;
    for (const auto* side : {&step.destinations, &step.sources})
      for (const Operand& operand : *side) {
        if (operand.kind == OperandKind::kRemote)
          return not_by_orbit(algorithm_, "it works in other ranks' memory");
        if (operand.buffer == BufferKind::kScratch && !proof::is_message(operand) &&
            !moves_.shifts())
          return not_by_orbit(algorithm_, "its scratch is not the same on all ranks");
        if (!proof::is_logical(operand)) continue;
        if (named == nullptr) named = &operand.span;
        if (!same_chunks(*named, operand.span, shape_.chunks))
          return fall_at(Rule::kChunkAgreement, number, "operands that name different chunks");
      }
    return {};
  }
  // Those that a step's chunks have in common; check_names() has seen that there are any.
  static const Span& names_of(const Step& step) {
    for (const auto* side : {&step.destinations, &step.sources})
      for (const Operand& operand : *side)
        if (proof::is_logical(operand)) return operand.span;
    return step.destinations.front().span;
  }

  Status match() {
    Connections sent, received;
    for (std::uint32_t i = 0; i < steps().size(); ++i) {
      for (const Operand& o : steps()[i].destinations)
        if (o.kind == OperandKind::kSend) sent[{o.peer, o.tag}].push_back({i, sends_++, &o.span});
      for (const Operand& o : steps()[i].sources)
        if (o.kind == OperandKind::kRecv)
          received[{o.peer, o.tag}].push_back({i, receives_++, &o.span});
    }
    if (received.size() > shape_.max_incoming)
      return fall(Rule::kDeclared, fmt::format("{} connections come to a rank, the shape says {}",
                                               received.size(), shape_.max_incoming));
    message_of_receive_.assign(receives_, kNone);
    messages_.resize(sends_);
    for (const auto& [to, sends] : sent) {
      const auto& [peer, tag] = to;
      const auto found = received.find({moves_.back(peer), tag});
      const std::size_t taken = found == received.end() ? 0 : found->second.size();
      if (taken != sends.size())
        return fall_at(Rule::kBalance, sends.front().step,
                       fmt::format("on {} -> {} tag {}, {} messages sent and {} received a slice",
                                   0, peer, tag, sends.size(), taken));
      connection_messages_.push_back(sends.size());
      for (std::size_t k = 0; k < taken; ++k) {
        const End& end = found->second[k];
        messages_[sends[k].number] = {sends[k].step, end.step, peer, sends[k].span, end.span};
        connection_of_.resize(sends_);
        connection_of_[sends[k].number] =
            static_cast<std::uint32_t>(connection_messages_.size() - 1);
        message_of_receive_[end.number] = sends[k].number;
        TUTTI_TRY(check_message(messages_[sends[k].number]));
      }
    }
    for (const auto& [from, ends] : received)
      if (message_of_receive_[ends.front().number] == kNone)
        return fall_at(
            Rule::kBalance, ends.front().step,
            fmt::format("receives from rank {} tag {} what nobody sends", from.first, from.second));
    return check_pairs(sent);
  }

  Status check_message(const Message& message) const {
    if (message.sent->count() > shape_.max_message_chunks)
      return fall_at(Rule::kDeclared, message.send_step,
                     fmt::format("a message of {} chunks, the shape says {}", message.sent->count(),
                                 shape_.max_message_chunks));
    if (message.sent->count() != message.received->count())
      return fall_at(Rule::kSpanCount, message.receive_step,
                     fmt::format("receives {} chunks, {} were sent", message.received->count(),
                                 message.sent->count()));
    if (message.sent->count() == 0) return {};
    const std::optional<Span> taken = moves_.span(*message.received, message.to);
    if (taken && same_chunks(*taken, *message.sent, shape_.chunks)) return {};
    return fall_at(Rule::kChunkAgreement, message.receive_step,
                   "a message whose ends name different chunks");
  }

  Status check_pairs(const Connections& sent) const {
    std::map<Rank, std::uint32_t> to;
    for (const auto& [connection, ends] : sent)
      if (++to[connection.first] > shape_.max_per_pair)
        return fall(Rule::kDeclared, fmt::format("more than {} connections from rank 0 to rank {}",
                                                 shape_.max_per_pair, connection.first));
    return {};
  }

  // In the order of the only lane: nothing is read that was not written in this slice, or that was
  // overwritten, and a scratch room holds the chunk that it is read for.
  Status check_memory() {
    std::vector<bool> written(shape_.chunks);
    std::vector<std::uint32_t> in_room(shape_.scratch_chunks, kNone);
    const auto room = [&](const Operand& operand, std::uint32_t k) {
      return proof::location_of(shape_, 0, operand, k) - shape_.chunks;
    };
    for (std::uint32_t i = 0; i < steps().size(); ++i) {
      const Step& step = steps()[i];
      const Span& names = names_of(step);
      for (std::uint32_t k = 0; k < names.count(); ++k) {
        const std::uint32_t chunk = names.at(k, shape_.chunks);
        for (const Operand& o : step.sources) {
          if (proof::is_message(o)) continue;
          if (o.buffer == BufferKind::kInput && written[chunk])
            return fall_at(Rule::kInPlace, i,
                           fmt::format("reads input chunk {} after output chunk {} was written",
                                       chunk, chunk));
          if (o.buffer == BufferKind::kOutput && !written[chunk])
            return fall_at(Rule::kUninitialised, i,
                           fmt::format("reads output {}, which nothing wrote", chunk));
          if (o.buffer == BufferKind::kScratch && in_room[room(o, k)] != chunk)
            return fall_at(
                Rule::kUninitialised, i,
                fmt::format("reads scratch {}, which does not hold chunk {}", room(o, k), chunk));
        }
      }
      for (std::uint32_t k = 0; k < names.count(); ++k)
        for (const Operand& o : step.destinations) {
          const std::uint32_t chunk = names.at(k, shape_.chunks);
          if (proof::is_message(o)) continue;
          if (o.buffer == BufferKind::kOutput) written[chunk] = true;
          if (o.buffer == BufferKind::kScratch) in_room[room(o, k)] = chunk;
        }
    }
    return {};
  }

  // Runs rank 0's lane, and all others with it; false where it is stuck.
  bool completes(std::uint32_t slots) {
    std::vector<std::uint32_t> waiting(connection_messages_.size());
    std::uint32_t send = 0, receive = 0;
    for (const Step& step : steps()) {
      std::uint32_t next_receive = receive, next_send = send;
      for (const Operand& o : step.sources)
        if (o.kind == OperandKind::kRecv &&
            waiting[connection_of_[message_of_receive_[next_receive++]]] == 0)
          return false;
      for (const Operand& o : step.destinations)
        if (o.kind == OperandKind::kSend && waiting[connection_of_[next_send++]] == slots)
          return false;
      for (; receive < next_receive; ++receive)
        --waiting[connection_of_[message_of_receive_[receive]]];
      for (; send < next_send; ++send) ++waiting[connection_of_[send]];
      ++facts_.events;
    }
    return true;
  }

  Status check_progress() {
    facts_.minimal_slots = kMinSlots;
    while (!completes(facts_.minimal_slots))
      if (++facts_.minimal_slots > kMaxSlots)
        return fall(Rule::kDeadlock, "rank 0 is stuck with any number of slots");
    if (options_.slots >= facts_.minimal_slots) return {};
    return fall(Rule::kSlots, fmt::format("{} slots a connection, expected at least {}",
                                          options_.slots, facts_.minimal_slots));
  }

  Status check_data() {
    const auto orbits = moves_.orbits();
    if (!orbits) return not_by_orbit(algorithm_, "all ranks work on the same chunk");
    // Which rank a chunk of rank 0's program belongs to, when one chunk is followed.
    std::vector<Rank> rank_of(shape_.chunks);
    for (const std::uint32_t chunk : *orbits) {
      std::ranges::fill(rank_of, kNoRank);
      for (Rank to = 0; to < problem_.ranks; ++to)
        rank_of[moves_.chunk(chunk, moves_.back(to))] = to;
      TUTTI_TRY(follow(chunk, rank_of));
    }
    return {};
  }

  // Follows `chunk` through all ranks. In the order of rank 0's steps, which is one in which the
  // steps of all ranks can fire.
  Status follow(std::uint32_t chunk, const std::vector<Rank>& rank_of) {
    std::vector<Value> outputs(static_cast<std::size_t>(problem_.ranks));
    std::unordered_map<std::uint64_t, Value> in_flight, rooms;
    std::uint64_t finished = 0;
    std::uint32_t send = 0, receive = 0;
    for (std::uint32_t i = 0; i < steps().size(); ++i) {
      const Step& step = steps()[i];
      const Span& names = names_of(step);
      for (std::uint32_t k = 0; k < names.count(); ++k) {
        const Rank rank = rank_of[names.at(k, shape_.chunks)];
        if (rank == kNoRank) continue;
        ++facts_.events;
        Value value;
        std::uint32_t r = receive;
        bool first = true;
        for (const Operand& o : step.sources) {
          Value source;
          if (o.kind == OperandKind::kRecv) {
            const std::uint32_t number = message_of_receive_[r++];
            const auto found = in_flight.find(key(moves_.rank(o.peer, rank), number));
            if (found == in_flight.end())
              return fall_at(Rule::kUninitialised, i, "receives a message before it is sent");
            source = std::move(found->second);
            in_flight.erase(found);
          } else if (o.buffer == BufferKind::kInput) {
            source.ranks = {{rank, rank + 1}};
          } else if (o.buffer == BufferKind::kOutput) {
            source = outputs[static_cast<std::size_t>(rank)];
          } else {
            source = rooms[key(rank, proof::location_of(shape_, 0, o, k))];
          }
          if (first) {
            value = std::move(source);
          } else {
            TUTTI_TRY(add(value, source, i));
          }
          first = false;
        }
        if (step.sources.size() > 1) ++value.roundings;
        if (step.finish) {
          if (value.finished) return fall_at(Rule::kFinish, i, "finishes a finished value");
          value.finished = true;
          ++finished;
        }
        std::uint32_t s = send;
        for (const Operand& o : step.destinations) {
          if (o.kind == OperandKind::kSend)
            in_flight[key(rank, s++)] = value;
          else if (o.buffer == BufferKind::kOutput)
            outputs[static_cast<std::size_t>(rank)] = value;
          else
            rooms[key(rank, proof::location_of(shape_, 0, o, k))] = value;
        }
      }
      for (const Operand& o : step.sources) receive += o.kind == OperandKind::kRecv ? 1 : 0;
      for (const Operand& o : step.destinations) send += o.kind == OperandKind::kSend ? 1 : 0;
    }
    return check_outputs(chunk, outputs, finished);
  }

  static std::uint64_t key(Rank rank, std::uint32_t number) {
    return std::uint64_t{static_cast<std::uint32_t>(rank)} << 32 | number;
  }

  Status add(Value& to, const Value& from, std::uint32_t step) const {
    if (to.finished || from.finished)
      return fall_at(Rule::kFinish, step, "reduces a finished value");
    std::vector<Run> all;
    std::ranges::merge(to.ranks, from.ranks, std::back_inserter(all));
    std::vector<Run> joined;
    for (const Run& run : all) {
      if (!joined.empty() && run.first < joined.back().second)
        return fall_at(Rule::kDuplicate, step,
                       fmt::format("rank {}'s contribution comes twice, expected once", run.first));
      if (!joined.empty() && run.first == joined.back().second)
        joined.back().second = run.second;
      else
        joined.push_back(run);
    }
    to.ranks = std::move(joined);
    to.roundings = std::max(to.roundings, from.roundings);
    return {};
  }

  Status check_outputs(std::uint32_t chunk, const std::vector<Value>& outputs,
                       std::uint64_t finished) {
    const CollectiveInfo& info = info_of(problem_.collective);
    const BlockMap blocks = block_map(shape_, 0);
    const bool reduces = info.outcome == Outcome::kReduction;
    const Run all{0, problem_.ranks};
    for (Rank rank = 0; rank < problem_.ranks; ++rank) {
      if (!proof::holds(shape_, info.output, blocks, rank, chunk)) continue;
      const Value& value = outputs[static_cast<std::size_t>(rank)];
      const Rank owner = blocks.owner_of(chunk);
      const Run expected = reduces ? all : Run{owner, owner + 1};
      if (value.ranks.size() != 1 || value.ranks.front() != expected || value.finished != reduces)
        return fall(Rule::kMissing,
                    fmt::format("rank {}, output chunk {}: not {}", rank, chunk,
                                reduces ? "the finished sum of every rank's contribution"
                                        : fmt::format("rank {}'s input", owner)));
      facts_.max_roundings = std::max(facts_.max_roundings, value.roundings);
    }
    if (reduces && finished != 1)
      return not_by_orbit(algorithm_,
                          fmt::format("chunk {} is summed up on {} ranks", chunk, finished));
    return {};
  }

  void count_traffic() {
    std::vector<std::uint32_t> sent_depth(sends_);
    std::uint32_t depth = 0, send = 0, receive = 0;
    for (const Step& step : steps()) {
      for (const Operand& o : step.sources)
        if (o.kind == OperandKind::kRecv)
          depth = std::max(depth, sent_depth[message_of_receive_[receive++]] + 1);
      std::uint64_t copies = 0;
      for (const Operand& o : step.destinations)
        if (o.kind == OperandKind::kSend) {
          sent_depth[send++] = depth;
          ++copies;
        }
      const std::uint64_t chunks = step.destinations.front().span.count();
      facts_.max_sent_chunks += copies * chunks;
      facts_.max_reduced_chunks += (step.sources.size() - 1) * chunks;
    }
    facts_.depth = depth;
    facts_.messages = std::uint64_t{sends_} * static_cast<std::uint64_t>(problem_.ranks);
  }

  const Algorithm& algorithm_;
  const Problem& problem_;
  const VerifyOptions& options_;
  const Moves moves_;
  Schedule schedule_;  // of rank 0 alone
  const ScheduleShape& shape_;
  std::uint32_t sends_ = 0, receives_ = 0;
  std::vector<Message> messages_;                 // by send
  std::vector<std::uint32_t> connection_of_;      // by send
  std::vector<std::size_t> connection_messages_;  // by connection
  std::vector<std::uint32_t> message_of_receive_;
  Proof facts_;
};

// Those whose chunks keep their names on the way: the proof follows a chunk by its name.
bool keeps_names(Collective collective) {
  const Outcome outcome = info_of(collective).outcome;
  return outcome == Outcome::kReduction || outcome == Outcome::kOwnersInput;
}

// Can the programs of all ranks be verified together? By the program of rank 0.
Status check_whole(const Algorithm& algorithm, const Problem& problem) {
  const auto ranks = static_cast<std::uint64_t>(problem.ranks);
  const ScheduleShape shape = algorithm.shape(problem);
  std::uint64_t operands = 0, sums = 0;
  if (ranks * proof::locations_of(shape) <= kMostLocations) {
    for (const Lane& lane : algorithm.program(problem, problem.root).lanes)
      for (const Step& step : lane.steps) {
        operands += step.destinations.size() + step.sources.size();
        if (step.sources.size() > 1) sums += step.destinations.front().span.count();
      }
    // Each sum, and each input chunk, comes with the set of ranks that contribute to it.
    const std::uint64_t set_bytes = ranks * (shape.chunks + sums) * (ranks / 8 + 1);
    if (ranks * operands <= kMostOperands && set_bytes <= kMostSetBytes) return {};
  }
  return make_error(
      Code::kNotSupported,
      fmt::format(
          "{} among {} ranks cannot be verified, and nothing runs unverified: its ranks are "
          "not all alike, and the programs of all of them are too large to hold; take "
          "ring or circulant, or split the communicator",
          algorithm.name, problem.ranks));
}

}  // namespace

Result<Proof> prove_by_orbit(const Algorithm& algorithm, const Problem& problem,
                             const VerifyOptions& options, std::span<const Rank> compare) {
  TUTTI_TRY(check_problem(algorithm, problem));
  TUTTI_TRY(proof::check_shape(algorithm.shape(problem)));
  if (problem.ranks < 2) return not_by_orbit(algorithm, "there is one rank");
  if (!keeps_names(problem.collective))
    return not_by_orbit(algorithm, "its result is neither a reduction nor an all-gather");
  RankProgram program = algorithm.program(problem, 0);
  TUTTI_TRY_ASSIGN(Moves moves, Moves::find(algorithm, problem, program));
  return Prover(algorithm, problem, options, std::move(moves), std::move(program)).prove(compare);
}

Status check_provable(const Algorithm& algorithm, const Problem& problem) {
  const bool blocks = algorithm.shape(problem).chunks >= static_cast<std::uint32_t>(problem.ranks);
  if (is_one_orbit(algorithm, problem) && blocks && keeps_names(problem.collective) &&
      !is_direct(algorithm))
    return {};
  return check_whole(algorithm, problem);
}

Result<Proof> prove_whole(const Algorithm& algorithm, const Problem& problem,
                          const VerifyOptions& options) {
  TUTTI_TRY(check_whole(algorithm, problem));
  TUTTI_TRY_ASSIGN(const Schedule schedule, build_schedule(algorithm, problem));
  return verify(schedule, options);
}

Result<Proof> prove_any(const Algorithm& algorithm, const Problem& problem,
                        const VerifyOptions& options, std::span<const Rank> compare) {
  Result<Proof> proof = prove_by_orbit(algorithm, problem, options, compare);
  if (proof || proof.error().code != Code::kNotSupported) return proof;
  return prove_whole(algorithm, problem, options);
}

}  // namespace tutti
