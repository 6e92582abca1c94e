// SPDX-License-Identifier: Apache-2.0
// Circulant: reduce-scatter and all-gather in ceil(log_k p) rounds each, for every p at the least
// bytes, with nothing folded.
//
//   Traeff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv 2410.14234, 2024.
//   Radix k as the k-port form of it.
//
// Rank r numbers the chunks from its own on: R[i] is chunk (r+i) mod p. Of the s' chunks that it
// still has to see to it keeps the first s = ceil(s'/k) and gives the others away in messages of at
// most s: R[j*s ...] goes to rank r + j*s, for whom those are the first ones. At s = 1 it holds the
// whole sum of its own chunk. The all-gather is the same backwards. For p = 5, k = 2:
//
//     s'   s   sends to      what           then holds
//      5   3   r+3           R[3..4]        R[0..2], the first two with r-3's added
//      3   2   r+2           R[2]           R[0..1]
//      2   1   r+1           R[1]           R[0], complete
//
//   messages in a row       2 ceil(log_k p), at most k-1 at once
//   bytes sent by a rank    2(p-1)/p * n, the least there is
//   reduced by a rank       (p-1)/p * n, the least as well
//   time                    2 ceil(log_k p) (alpha + (k-2) o) + 2(p-1)/p n beta + (p-1)/p n gamma
//
// The default for middle and large data where messages cost and p is no power of two. Any p. A
// larger radix (circulant:radix=4) has fewer rounds of more messages, for many ports. Its first
// round sends the most the farthest: on networks with levels let hierarchical use it per level.
// Each chunk is completed by one rank, so all ranks end with the same bits. An all-reduce keeps its
// sums in the output; a reduce-scatter has the output of its own chunk alone, and keeps them in
// ceil(p/k) scratch rooms.
//
// All-to-all goes by the same kind of skips, the powers of k:
//
//   Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in
//   multiport message-passing systems, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997 (index).
//
// The block for the rank i places on waits in room i, goes k^x d places on in the round x of each
// digit d != 0 that i has to the base k, and stays in room i of whoever has it. After ceil(log_k p)
// rounds room i holds the block that comes from the rank i places back. For p = 5, k = 2, a rank
// sends rooms 1 and 3 to r+1, 2 and 3 to r+2, and 4 to r+4.
//
//   messages in a row       ceil(log_k p), at most k-1 at once, or twice as many in a round where p
//                           cuts a run of rooms short
//   bytes sent by a rank    about (k-1)/k log_k p * n, and each block is copied into a room and out
//
// Wins for small blocks; two_shot sends the least bytes.
#include <fmt/core.h>

#include <charconv>
#include <set>
#include <span>
#include <vector>

#include "algorithms/families.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;
constexpr std::int32_t kMaxRadix = 64;

// One message of a round: the partner's distance, and how many chunks it carries.
struct Part {
  std::int32_t distance, count;
};

// One round: of `before` chunks the first `kept` stay.
struct Round {
  std::int32_t before, kept;
  std::vector<Part> parts;
};

// The rounds of the reduce-scatter; the same for all ranks.
std::vector<Round> rounds_of(Rank p, std::int32_t radix) {
  std::vector<Round> rounds;
  for (std::int32_t before = p; before > 1;) {
    Round round{before, (before + radix - 1) / radix, {}};
    for (std::int32_t at = round.kept; at < before; at += round.kept)
      round.parts.push_back({at, std::min(round.kept, before - at)});
    before = round.kept;
    rounds.push_back(std::move(round));
  }
  return rounds;
}

// A rank's view of the chunks and its partners.
struct View {
  Rank ranks, rank;
  bool in_scratch;  // the sums

  [[nodiscard]] Rank at(std::int32_t distance) const { return (rank + distance + ranks) % ranks; }
  [[nodiscard]] Span own(std::int32_t first, std::int32_t count) const {
    return chunks(static_cast<std::uint32_t>(at(first)), static_cast<std::uint32_t>(count));
  }
  // Says where the sums of R[first...] are between the rounds: room i is that of R[i].
  [[nodiscard]] Operand sums(std::int32_t first, std::int32_t count) const {
    if (!in_scratch) return output(own(first, count));
    return scratch(chunks(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)));
  }
};

// Adds what the messages of a round bring, all that are equally long in one step. The last step of
// the last round has the own chunk and is the caller's to finish.
StepBuilder add_sums(const View& view, const Round& round, bool first, LaneBuilder& lane) {
  const std::int32_t longest = round.parts.front().count;
  const std::int32_t shortest = round.parts.back().count;
  // A chunk to which no message adds must be where the next round looks for it.
  if (first && longest < round.kept) {
    const std::int32_t rest = round.kept - longest;
    lane.step().to(view.sums(longest, rest)).from(input(view.own(longest, rest)));
  }
  const auto add = [&](std::int32_t count, bool from_input) {
    const Span span = view.own(0, count);
    const Operand sums = view.sums(0, count);
    StepBuilder step = lane.step().to(round.kept == 1 ? output(span) : sums);
    step.from(from_input ? input(span) : sums);
    for (const Part& part : round.parts)
      if (part.count == count) step.from(recv(view.at(-part.distance), kTag, span));
    return step;
  };
  StepBuilder sum = add(longest, first);
  return shortest == longest ? sum : add(shortest, false);
}

StepBuilder add_reduce_scatter(const View& view, std::span<const Round> rounds, LaneBuilder& lane) {
  for (std::size_t i = 0;; ++i) {
    for (const Part& part : rounds[i].parts) {
      const Span given = view.own(part.distance, part.count);
      lane.step()
          .to(send(view.at(part.distance), kTag, given))
          .from(i == 0 ? input(given) : view.sums(part.distance, part.count));
    }
    StepBuilder sum = add_sums(view, rounds[i], i == 0, lane);
    if (i + 1 == rounds.size()) return sum.finish();
  }
}

// `own` is the step that has the own chunk's value: it feeds the first round.
void add_all_gather(const View& view, std::span<const Round> rounds, StepBuilder own,
                    LaneBuilder& lane) {
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    for (const Part& part : round->parts) {
      const Span mine = view.own(0, part.count);
      const Operand to = send(view.at(-part.distance), kTag, mine);
      if (round == rounds.rbegin()) {
        own.to(to);
      } else {
        lane.step().to(to).from(output(mine));
      }
    }
    for (const Part& part : round->parts) {
      const Span theirs = view.own(part.distance, part.count);
      lane.step().to(output(theirs)).from(recv(view.at(part.distance), kTag, theirs));
    }
  }
}

// The rooms of an all-to-all whose number has this digit at this place of its digits to the base k:
// runs of `weight` rooms, the last of which may be shorter.
struct Rooms {
  std::int32_t distance;    // digit * weight: that of the first room, and how far its blocks go
  std::vector<Span> parts;  // a message each: the full runs, and what p leaves of a run
};

// The rounds of an all-to-all: one for each digit, in each one of each value that there is.
std::vector<std::vector<Rooms>> rounds_of_rooms(Rank p, std::int32_t radix) {
  std::vector<std::vector<Rooms>> rounds;
  for (std::int64_t weight = 1; weight < p; weight *= radix) {
    std::vector<Rooms>& round = rounds.emplace_back();
    for (std::int64_t first = weight; first < std::min<std::int64_t>(weight * radix, p);
         first += weight) {
      const std::int64_t stride = weight * radix;
      const std::int64_t full = first + weight > p ? 0 : (p - first - weight) / stride + 1;
      const std::int64_t next = first + full * stride;
      const auto narrow = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
      Rooms& rooms = round.emplace_back(Rooms{static_cast<std::int32_t>(first), {}});
      if (full > 0)
        rooms.parts.push_back({narrow(first), narrow(weight), narrow(stride), narrow(full)});
      if (next < p) rooms.parts.push_back({narrow(next), narrow(p - next), 0, 1});
    }
  }
  return rounds;
}

// Room i is scratch slot i-1: the own block needs none. Messages name the blocks by their rooms,
// counted from the own rank on.
class RoomView {
 public:
  RoomView(Rank p, Rank rank)
      : ranks_(static_cast<std::uint32_t>(p)), rank_(static_cast<std::uint32_t>(rank)) {}
  [[nodiscard]] Operand room(Span rooms) const {
    --rooms.first;
    return scratch(rooms);
  }
  [[nodiscard]] Span named(Span rooms) const {
    rooms.first = (rooms.first + rank_) % ranks_;
    return rooms;
  }
  // The blocks for the ranks 1, 2, ... places on, and those from the ranks as far back.
  [[nodiscard]] Span onward() const { return {(rank_ + 1) % ranks_, ranks_ - 1, 0, 1}; }
  [[nodiscard]] Span backward() const {
    return {(rank_ + ranks_ - 1) % ranks_, 1, ranks_ - 1, ranks_ - 1};
  }

 private:
  std::uint32_t ranks_, rank_;
};

RankProgram all_to_all_program(Rank p, Rank rank, std::int32_t radix) {
  const RoomView view(p, rank);
  const Span own = chunk(static_cast<std::uint32_t>(rank));
  const Span all{1, static_cast<std::uint32_t>(p - 1), 0, 1};
  LaneBuilder lane("circulant");
  lane.step().to(view.room(all)).from(input(view.onward()));
  lane.step().to(output(own)).from(input(own));
  for (const std::vector<Rooms>& round : rounds_of_rooms(p, radix)) {
    for (const Rooms& rooms : round)
      for (const Span& part : rooms.parts)
        lane.step()
            .to(send((rank + rooms.distance) % p, kTag, view.named(part)))
            .from(view.room(part));
    for (const Rooms& rooms : round)
      for (const Span& part : rooms.parts)
        lane.step()
            .to(view.room(part))
            .from(recv((rank + p - rooms.distance) % p, kTag, view.named(part)));
  }
  lane.step().to(output(view.backward())).from(view.room(all));
  return assemble(std::move(lane));
}

ScheduleShape all_to_all_shape(std::string_view name, const Problem& problem, std::int32_t radix) {
  const auto p = static_cast<std::uint32_t>(problem.ranks);
  std::uint32_t incoming = 0, longest = 1;
  for (const std::vector<Rooms>& round : rounds_of_rooms(problem.ranks, radix))
    for (const Rooms& rooms : round) {
      ++incoming;
      for (const Span& part : rooms.parts) longest = std::max(longest, part.count());
    }
  return {.algorithm = std::string(name),
          .collective = problem.collective,
          .ranks = problem.ranks,
          .root = problem.root,
          .chunks = p,
          .scratch_chunks = p - 1,
          .max_incoming = incoming,
          .max_per_pair = p > 1 ? 1U : 0U,
          .max_message_chunks = longest};
}

class Circulant final : public Algorithm {
 public:
  explicit constexpr Circulant(std::int32_t radix)
      : Algorithm("circulant",
                  "2 ceil(log_k p) steps, 2(p-1)/p*n bytes sent a rank: middle to large, any p",
                  "Traeff 2024, Optimal, non-pipelined reduce-scatter and allreduce algorithms",
                  "radix=2..64"),
        radix_(radix) {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective, {kAllReduce, kReduceScatter, kAllGather, kAllToAll});
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const Rank p = problem.ranks;
    if (problem.collective == Collective::kAllToAll) return all_to_all_shape(name, problem, radix_);
    std::set<std::int32_t> partners;  // by distance of whom a rank hears
    std::int32_t longest = 1;
    const std::vector<Round> rounds = rounds_of(p, radix_);
    const bool in_scratch = keeps_in_scratch(problem) && rounds.size() > 1;
    for (const Round& round : rounds)
      for (const Part& part : round.parts) {
        if (problem.collective != Collective::kAllGather) partners.insert(p - part.distance);
        if (problem.collective != Collective::kReduceScatter) partners.insert(part.distance);
        longest = std::max(longest, part.count);
      }
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = p,
            .root = problem.root,
            .chunks = static_cast<std::uint32_t>(p),
            .scratch_chunks = in_scratch ? static_cast<std::uint32_t>(rounds.front().kept) : 0,
            .max_incoming = static_cast<std::uint32_t>(partners.size()),
            .max_per_pair = p > 1 ? 1U : 0U,
            .max_message_chunks = static_cast<std::uint32_t>(longest)};
  }

  [[nodiscard]] Symmetry symmetry(const Problem& /*problem*/) const override {
    return {.groups = Move::kShift};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const View view{problem.ranks, rank, keeps_in_scratch(problem)};
    if (problem.ranks == 1) return copy_alone(problem, 1);
    if (problem.collective == Collective::kAllToAll)
      return all_to_all_program(problem.ranks, rank, radix_);
    const std::vector<Round> rounds = rounds_of(problem.ranks, radix_);
    LaneBuilder lane("circulant");
    if (problem.collective == Collective::kAllGather) {
      const Span own = view.own(0, 1);
      add_all_gather(view, rounds, lane.step().to(output(own)).from(input(own)), lane);
    } else {
      const StepBuilder own = add_reduce_scatter(view, rounds, lane);
      if (problem.collective == Collective::kAllReduce) add_all_gather(view, rounds, own, lane);
    }
    return assemble(std::move(lane));
  }

  [[nodiscard]] Result<std::unique_ptr<Algorithm>> with(
      std::span<const Parameter> given) const override {
    static_assert(kMaxRadix == 64, "the constructor says so to users");
    std::int32_t radix = 2;
    for (const Parameter& parameter : given) {
      const std::string_view value = parameter.value;
      const char* const end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, radix);
      if (parameter.key != "radix" || error != std::errc{} || stop != end || radix < 2 ||
          radix > kMaxRadix)
        return refuse(parameter);
    }
    return std::make_unique<Circulant>(radix);
  }

 private:
  static bool keeps_in_scratch(const Problem& problem) {
    return problem.collective == Collective::kReduceScatter;
  }

  std::int32_t radix_;
};

}  // namespace

const Algorithm& circulant() {
  static constinit const NeverDestroyed<Circulant> kCirculant(2);
  return kCirculant.value;
}

}  // namespace tutti
