// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/model.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "schedule/verify/step_checks.hpp"

namespace tutti::proof {
namespace {

// One end of one message.
struct End {
  Rank from;
  Rank to;
  Tag tag;
  std::uint32_t step;     // flat
  std::uint32_t operand;  // place in Model::sends or recvs
  const Span* span;
};

auto connection_of(const End& end) { return std::tuple(end.from, end.to, end.tag); }

class Builder {
 public:
  Builder(const Schedule& schedule, std::uint32_t replica) : checker_(schedule, replica) {
    model_.schedule = &schedule;
    model_.replica = replica;
  }

  Result<Model> build() {
    TUTTI_TRY(add_lanes());
    TUTTI_TRY(add_waits());
    TUTTI_TRY(match());
    return std::move(model_);
  }

 private:
  Status add_lanes();
  Status add_step(const Lane& lane, std::uint32_t flat_lane, std::uint32_t index);
  Status add_waits();
  Status match();
  Status match_connection(std::span<const End> sent, std::span<const End> received);
  Status check_one_lane(std::span<const End> ends) const;
  Status check_counts(const End& sent, const End& received) const;

  Model model_;
  StepChecker checker_;
  std::vector<End> sent_, received_;
};

Status Builder::add_lanes() {
  const Schedule& schedule = *model_.schedule;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    model_.rank_lanes.push_back(static_cast<std::uint32_t>(model_.lanes.size()));
    const std::vector<Lane>& lanes = schedule.ranks[r].lanes;
    for (std::uint32_t l = 0; l < lanes.size(); ++l) {
      const Lane& lane = lanes[l];
      const Rank rank = static_cast<Rank>(r);
      if (lane.replica >= schedule.shape.replicas)
        return fall(Rule::kLane,
                    fmt::format("rank {}, lane {} '{}': replica {}, expected 0..{}", rank, l,
                                lane.name, lane.replica, schedule.shape.replicas - 1));
      if (lane.replica != model_.replica) continue;
      if (lane.steps.empty())
        return fall(Rule::kLane,
                    fmt::format("rank {}, lane {} '{}': the lane has no step", rank, l, lane.name));
      if (model_.steps.size() + lane.steps.size() > kMaxSteps)
        return fall(Rule::kShape, "the schedule has more steps than the verifier accepts (2^28)");
      const auto flat_lane = static_cast<std::uint32_t>(model_.lanes.size());
      const auto steps = static_cast<std::uint32_t>(lane.steps.size());
      model_.lanes.push_back({rank, l, static_cast<std::uint32_t>(model_.steps.size()), steps});
      for (std::uint32_t i = 0; i < steps; ++i) TUTTI_TRY(add_step(lane, flat_lane, i));
    }
  }
  model_.rank_lanes.push_back(static_cast<std::uint32_t>(model_.lanes.size()));
  return {};
}

Status Builder::add_step(const Lane& lane, std::uint32_t flat_lane, std::uint32_t index) {
  const Step& step = lane.steps[index];
  const FlatLane& owner = model_.lanes[flat_lane];
  TUTTI_TRY(checker_.check({owner.rank, owner.lane, index}, lane, step));
  FlatStep flat{.step = &step, .lane = flat_lane, .index = index};
  const auto number = static_cast<std::uint32_t>(model_.steps.size());
  flat.first_send = static_cast<std::uint32_t>(sent_.size());
  for (const Operand& operand : step.destinations) {
    if (operand.kind != OperandKind::kSend) continue;
    const auto place = static_cast<std::uint32_t>(sent_.size());
    sent_.push_back({owner.rank, operand.peer, operand.tag, number, place, &operand.span});
  }
  flat.sends = static_cast<std::uint32_t>(sent_.size()) - flat.first_send;
  flat.first_recv = static_cast<std::uint32_t>(received_.size());
  for (const Operand& operand : step.sources) {
    if (operand.kind != OperandKind::kRecv) continue;
    const auto place = static_cast<std::uint32_t>(received_.size());
    received_.push_back({operand.peer, owner.rank, operand.tag, number, place, &operand.span});
  }
  flat.recvs = static_cast<std::uint32_t>(received_.size()) - flat.first_recv;
  model_.steps.push_back(flat);
  return {};
}

Status Builder::add_waits() {
  for (std::uint32_t number = 0; number < model_.steps.size(); ++number) {
    FlatStep& flat = model_.steps[number];
    flat.first_wait = static_cast<std::uint32_t>(model_.waits.size());
    const Rank rank = model_.rank_of(flat);
    const auto first = model_.lanes.begin() + model_.rank_lanes[static_cast<std::size_t>(rank)];
    const auto last = model_.lanes.begin() + model_.rank_lanes[static_cast<std::size_t>(rank) + 1];
    for (const Wait& wait : flat.step->waits) {
      const auto lane =
          std::find_if(first, last, [&](const FlatLane& l) { return l.lane == wait.lane; });
      if (lane == last)
        return model_.fall_at(
            Rule::kWait, number,
            fmt::format("waits for lane {}, which is not a lane of replica {} of this rank",
                        wait.lane, model_.replica));
      if (wait.step >= lane->steps)
        return model_.fall_at(Rule::kWait, number,
                              fmt::format("waits for step {} of lane {}, which has {} steps",
                                          wait.step, wait.lane, lane->steps));
      model_.waits.push_back({lane->first_step + wait.step, wait.back});
    }
    flat.waits = static_cast<std::uint32_t>(model_.waits.size()) - flat.first_wait;
  }
  return {};
}

// Both ends of all messages, sorted by connection and in program order within one, side by side.
Status Builder::match() {
  const auto order = [](const End& a, const End& b) {
    return std::tuple_cat(connection_of(a), std::tuple(a.operand)) <
           std::tuple_cat(connection_of(b), std::tuple(b.operand));
  };
  model_.sends.resize(sent_.size());
  model_.recvs.resize(received_.size());
  model_.messages.reserve(sent_.size());
  std::sort(sent_.begin(), sent_.end(), order);
  std::sort(received_.begin(), received_.end(), order);
  const auto run_of = [](const std::vector<End>& ends, std::size_t from, const End& head) {
    std::size_t to = from;
    while (to < ends.size() && connection_of(ends[to]) == connection_of(head)) ++to;
    return std::span(ends).subspan(from, to - from);
  };
  for (std::size_t s = 0, r = 0; s < sent_.size() || r < received_.size();) {
    const bool by_sender =
        r == received_.size() ||
        (s < sent_.size() && connection_of(sent_[s]) <= connection_of(received_[r]));
    const End& head = by_sender ? sent_[s] : received_[r];
    const auto sent = run_of(sent_, s, head), received = run_of(received_, r, head);
    s += sent.size();
    r += received.size();
    TUTTI_TRY(match_connection(sent, received));
  }
  return {};
}

Status Builder::check_one_lane(std::span<const End> ends) const {
  for (const End& end : ends) {
    const std::uint32_t lane = model_.steps[end.step].lane;
    const std::uint32_t owner = model_.steps[ends.front().step].lane;
    if (lane != owner)
      return model_.fall_at(Rule::kOwner, end.step,
                            fmt::format("the connection {} -> {} tag {} belongs to lane {} of "
                                        "this rank",
                                        end.from, end.to, end.tag, model_.lanes[owner].lane));
  }
  return {};
}

Status Builder::check_counts(const End& sent, const End& received) const {
  const std::uint32_t count = sent.span->count();
  if (received.span->count() != count)
    return model_.fall_at(Rule::kSpanCount, received.step,
                          fmt::format("receives {} chunks from rank {} tag {}, expected {} as sent "
                                      "by {}",
                                      received.span->count(), sent.from, sent.tag, count,
                                      describe(*model_.schedule, model_.site_of(sent.step))));
  return {};
}

Status Builder::match_connection(std::span<const End> sent, std::span<const End> received) {
  TUTTI_TRY(check_one_lane(sent));
  TUTTI_TRY(check_one_lane(received));
  if (sent.size() != received.size()) {
    const std::size_t both = std::min(sent.size(), received.size());
    const End& surplus = sent.size() > both ? sent[both] : received[both];
    return model_.fall_at(
        Rule::kBalance, surplus.step,
        fmt::format("on {} -> {} tag {}, {} messages sent and {} received a slice", surplus.from,
                    surplus.to, surplus.tag, sent.size(), received.size()));
  }
  const auto connection = static_cast<std::uint32_t>(model_.connections.size());
  const End& first = sent.front();
  model_.connections.push_back({first.from, first.to, first.tag, model_.steps[first.step].lane,
                                model_.steps[received.front().step].lane});
  for (std::size_t k = 0; k < sent.size(); ++k) {
    TUTTI_TRY(check_counts(sent[k], received[k]));
    const auto message = static_cast<std::uint32_t>(model_.messages.size());
    model_.sends[sent[k].operand] = message;
    model_.recvs[received[k].operand] = message;
    model_.messages.push_back({sent[k].step, received[k].step, connection,
                               static_cast<std::uint32_t>(k), model_.message_chunks});
    const std::uint32_t count = sent[k].span->count();
    model_.message_chunks += count;
    model_.max_message_chunks = std::max(model_.max_message_chunks, count);
  }
  return {};
}

// The lanes of one replica of one rank, by their numbers in the schedule.
std::vector<std::uint32_t> lanes_of(const RankProgram& program, std::uint32_t replica) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t l = 0; l < program.lanes.size(); ++l)
    if (program.lanes[l].replica == replica) found.push_back(l);
  return found;
}

bool same_operands(const std::vector<Operand>& a, const std::vector<Operand>& b, std::uint32_t tags,
                   std::uint32_t rooms) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](Operand x, const Operand& y) {
    if (is_message(x))
      x.tag = static_cast<Tag>(x.tag + tags);
    else if (x.buffer == BufferKind::kScratch)
      x.span.first += rooms;
    return x == y;
  });
}

}  // namespace

Result<Model> build_model(const Schedule& schedule, std::uint32_t replica) {
  return Builder(schedule, replica).build();
}

bool same_replica(const Schedule& schedule, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t tags = (b - a) * schedule.shape.tags;
  const std::uint32_t rooms = (b - a) * schedule.shape.scratch_chunks;
  const std::vector<Rank>& blocks = schedule.shape.block_ranks;
  if (!blocks.empty()) {
    const auto ranks = static_cast<std::size_t>(schedule.shape.ranks);
    const std::span<const Rank> all(blocks);
    if (!std::ranges::equal(all.subspan(a * ranks, ranks), all.subspan(b * ranks, ranks)))
      return false;
  }
  for (const RankProgram& program : schedule.ranks) {
    const auto in_a = lanes_of(program, a), in_b = lanes_of(program, b);
    if (in_a.size() != in_b.size()) return false;
    const auto same_wait = [&](const Wait& x, const Wait& y) {
      const auto place = std::find(in_a.begin(), in_a.end(), x.lane) - in_a.begin();
      return place < std::ssize(in_b) && in_b[static_cast<std::size_t>(place)] == y.lane &&
             x.step == y.step && x.back == y.back;
    };
    for (std::size_t l = 0; l < in_a.size(); ++l) {
      const std::vector<Step>& x = program.lanes[in_a[l]].steps;
      const std::vector<Step>& y = program.lanes[in_b[l]].steps;
      const bool same =
          std::equal(x.begin(), x.end(), y.begin(), y.end(), [&](const Step& s, const Step& t) {
            return s.finish == t.finish &&
                   same_operands(s.destinations, t.destinations, tags, rooms) &&
                   same_operands(s.sources, t.sources, tags, rooms) &&
                   std::equal(s.waits.begin(), s.waits.end(), t.waits.begin(), t.waits.end(),
                              same_wait);
          });
      if (!same) return false;
    }
  }
  return true;
}

void ConnectionCounts::add(const Model& model) {
  incoming.resize(static_cast<std::size_t>(model.shape().ranks));
  for (const Connection& connection : model.connections) {
    ++incoming[static_cast<std::size_t>(connection.to)];
    ++per_pair[{connection.from, connection.to}];
  }
  max_message_chunks = std::max(max_message_chunks, model.max_message_chunks);
}

Status ConnectionCounts::check(const ScheduleShape& shape) const {
  // They lay out memory, so more than is used is only waste.
  const auto declared = [](const char* what, std::uint32_t said, std::uint32_t counted) -> Status {
    if (said >= counted) return {};
    return fall(Rule::kDeclared, fmt::format("{} is {}, counted {}", what, said, counted));
  };
  std::uint32_t most = 0;
  for (const auto& [pair, connections] : per_pair) most = std::max(most, connections);
  TUTTI_TRY(declared("max_incoming", shape.max_incoming,
                     *std::max_element(incoming.begin(), incoming.end())));
  TUTTI_TRY(declared("max_per_pair", shape.max_per_pair, most));
  // At least 1: a message of no chunk at all takes the room of one.
  return declared("max_message_chunks", shape.max_message_chunks, std::max(1U, max_message_chunks));
}

}  // namespace tutti::proof
