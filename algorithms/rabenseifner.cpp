// SPDX-License-Identifier: Apache-2.0
// Rabenseifner: reduce-scatter by recursive halving, all-gather by recursive doubling.
//
//   Rabenseifner: Optimization of collective reduction operations, ICCS 2004.
//
// The data is cut into as many chunks as there are ranks. In round k a rank and the one whose
// number differs in bit k hold the same range of chunks; each gives the other half of it and keeps
// the sum of its own half (the lower one if bit k is clear). After log2 p rounds each holds the
// whole sum of one chunk, and the same exchanges backwards collect all chunks. For p = 4, the range
// that each rank keeps:
//
//     rank          0      1      2      3
//     round 0     0..1   2..3   0..1   2..3     the largest messages go the shortest way
//     round 1      0      2      1      3
//
//   messages in a row       2 log2 p, of n/2, n/4, ... n/p, n/p, ... n/2 bytes
//   bytes sent by a rank    2(p-1)/p * n, the least there is
//   reduced by a rank       (p-1)/p * n, the least as well
//   time                    2 log2 p alpha + 2(p-1)/p n beta + (p-1)/p n gamma
//
// Wins for middle and large data on a power of two of ranks. Any other number is folded (fold.hpp):
// two more messages, of all n bytes; there circulant is the better choice. Each chunk is completed
// by one rank, in rank order, so all ranks end with the same bits.
//
// Reduce-scatter and all-gather alone halve by the top bit first, so that rank r ends with chunk r
// and every message is a run of chunks; and take any p without folding. A range of m ranks and
// chunks is cut into its first ceil(m/2) and the rest. The i-th ranks of both parts exchange, each
// giving the chunks of the other's part; with m odd, the first part's last rank has no partner: it
// gives to the second part's last one, and takes from nobody. For p = 5, who gives to whom:
//
//     0..4           0-3  1-4  2>4
//     0..2, 3..4     0-2  1>2          3-4
//     0..1           0-1
//
//   messages in a row       at most ceil(log2 p) each; floor(log2 p) up to 5/4 of a power of two
//   bytes sent by a rank    (p-1)/p * n, all alike, in a reduce-scatter
//   received by a rank      (p-1)/p * n, all alike, in an all-gather, which is the same backwards
//   connections to a rank   at most floor(log2 p) + (ones of p in binary) - 1, or ceil(log2 p)
//   scratch of a rank       ceil(p/2) chunks in a reduce-scatter: the sums before the last, as the
//                           output holds the own chunk alone
//
// Broadcast is a scatter and an all-gather (Barnett, Gupta, Payne, Shuler, van de Geijn, Watts
// 1994, Building a high-performance collective communication library; in MPICH for long messages).
// Chunks and cuts are counted from the root on. In the scatter the first rank of a range has all
// its chunks, and gives those of the second part to that part's first rank. In the all-gather it
// has them still, and is sent none of them. For p = 5, who sends which chunks to whom:
//
//     scatter       0>3: 3..4    0>2: 2       3>4: 4       0>1: 1
//     all-gather    0>1: 0       2>1: 2       3>4: 3       0>2: 0..1
//                   0>3: 0..2    1>4: 0..2    4>1: 3..4    4>2: 3..4
//
//   messages in a row       at most 2 ceil(log2 p) - 1
//   bytes sent by a rank    2(p-1)/p * n by the root at a power of two; all together (p-1) n, the
//                           least there is
//   connections to a rank   at most ceil(log2 p)
//
// Reduce is the reduce-scatter, counted from the root on, and then the scatter backwards: the first
// rank of each range collects the sums of its second part.
//
//   messages in a row       at most 2 ceil(log2 p)
//   bytes sent by a rank    (p-1)/p * n and what it collected, at most n/2 and its own chunk
//   scratch of a rank       ceil(p/2) chunks: it has an output at the root alone
#include <bit>
#include <vector>

#include "algorithms/families.hpp"
#include "algorithms/fold.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

// A range of chunks and its halves.
struct Range {
  std::uint32_t first, count;

  [[nodiscard]] Span span() const { return chunks(first, count); }
  [[nodiscard]] Range half(bool upper) const {
    return {upper ? first + count / 2 : first, count / 2};
  }
};

// One level of the parts: of a rank's range of ranks, and of chunks, the part that it is in.
struct Cut {
  Range kept, given;
  std::vector<Rank> to, from;  // of the reduce-scatter; the all-gather goes the other way

  [[nodiscard]] bool upper() const { return kept.first > given.first; }
};

Cut cut_of(const Range& range, Rank rank) {
  const std::uint32_t half = (range.count + 1) / 2, rest = range.count - half;
  const Range low{range.first, half}, high{range.first + half, rest};
  const auto own = static_cast<std::uint32_t>(rank);
  const bool upper = own >= high.first;
  Cut cut{upper ? high : low, upper ? low : high, {}, {}};
  const std::uint32_t index = own - cut.kept.first;
  const auto partner = static_cast<Rank>(cut.given.first + std::min(index, rest - 1));
  cut.to.push_back(partner);
  if (index < rest) cut.from.push_back(partner);
  if (upper && rest < half && index == rest - 1)
    cut.from.push_back(static_cast<Rank>(low.first + half - 1));
  return cut;
}

// From all ranks down to the rank alone.
std::vector<Cut> cuts_of(Rank p, Rank rank) {
  std::vector<Cut> cuts;
  for (Range range{0, static_cast<std::uint32_t>(p)}; range.count > 1; range = cuts.back().kept)
    cuts.push_back(cut_of(range, rank));
  return cuts;
}

// The scratch rooms of chunks that the rank still has after its first cut.
Operand rooms_of(const std::vector<Cut>& cuts, const Range& range) {
  return scratch(chunks(range.first - cuts.front().kept.first, range.count));
}

// `at` says which rank is the i-th; the own chunk ends in `result`. A rank's last cut is of two
// ranks, or of three with this one alone in the second part: it takes a message in either, so the
// last step completes the own chunk.
template <typename At>
void add_reduce_scatter(const std::vector<Cut>& cuts, At at, const Operand& result,
                        LaneBuilder& lane) {
  bool summed = false;  // does scratch hold the sums so far, or the input still?
  const auto rooms = [&](const Range& range) { return rooms_of(cuts, range); };
  for (const Cut& cut : cuts) {
    const auto sum = [&](const Range& range) {
      return summed ? rooms(range) : input(range.span());
    };
    lane.step().to(send(at(cut.to.front()), kTag, cut.given.span())).from(sum(cut.given));
    if (cut.from.empty()) continue;
    const bool last = &cut == &cuts.back();
    StepBuilder step = lane.step().to(last ? result : rooms(cut.kept));
    if (!cut.upper()) step.from(sum(cut.kept));
    for (const Rank from : cut.from) step.from(recv(at(from), kTag, cut.kept.span()));
    if (cut.upper()) step.from(sum(cut.kept));
    if (last) step.finish();
    summed = true;
  }
}

void add_all_gather(const std::vector<Cut>& cuts, LaneBuilder& lane) {
  bool first = true;  // the own chunk comes from the input and goes to the output as well
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const Span mine = cut->kept.span(), theirs = cut->given.span();
    if (!cut->from.empty()) {
      StepBuilder spread = lane.step().from(first ? input(mine) : output(mine));
      if (first) spread.to(output(mine));
      for (const Rank to : cut->from) spread.to(send(to, kTag, mine));
    }
    lane.step().to(output(theirs)).from(recv(cut->to.front(), kTag, theirs));
    first = false;
  }
}

// The ranks counted from the root on, and the cuts of one of them.
struct FromRoot {
  Rank ranks, root;
  std::uint32_t own;
  std::vector<Cut> cuts;

  FromRoot(const Problem& problem, Rank rank)
      : ranks(problem.ranks),
        root(problem.root),
        own(static_cast<std::uint32_t>((rank - root + ranks) % ranks)),
        cuts(cuts_of(ranks, static_cast<Rank>(own))) {}
  [[nodiscard]] Rank at(std::int64_t index) const {
    return static_cast<Rank>((index + root) % ranks);
  }
  static std::uint32_t first_of(const Cut& cut) {
    return std::min(cut.kept.first, cut.given.first);
  }
};

// Only the root has an output.
void add_reduce(const Problem& problem, Rank rank, LaneBuilder& lane) {
  const FromRoot view(problem, rank);
  const auto sums = [&](const Range& range) {
    return view.own == 0 ? output(range.span()) : rooms_of(view.cuts, range);
  };
  add_reduce_scatter(
      view.cuts, [&](Rank index) { return view.at(index); }, sums({view.own, 1}), lane);
  for (auto cut = view.cuts.rbegin(); cut != view.cuts.rend(); ++cut) {
    const Span given = cut->given.span(), kept = cut->kept.span();
    if (view.own == FromRoot::first_of(*cut)) {
      lane.step().to(sums(cut->given)).from(recv(view.at(cut->given.first), kTag, given));
    } else if (view.own == cut->kept.first) {
      lane.step().to(send(view.at(cut->given.first), kTag, kept)).from(sums(cut->kept));
    }
  }
}

// Only the root's data is in its input.
void add_broadcast(const Problem& problem, Rank rank, LaneBuilder& lane) {
  const FromRoot view(problem, rank);
  const auto& [ranks, root, own, cuts] = view;
  const auto at = [&](std::int64_t index) { return view.at(index); };
  const auto first_of = [](const Cut& cut) { return FromRoot::first_of(cut); };
  for (const Cut& cut : cuts) {
    if (own == first_of(cut)) {
      const Span theirs = cut.given.span();
      StepBuilder give = lane.step().to(send(at(cut.given.first), kTag, theirs));
      if (own == 0) give.to(output(theirs));
      give.from(own == 0 ? input(theirs) : output(theirs));
    } else if (own == cut.kept.first) {
      const Span mine = cut.kept.span();
      lane.step().to(output(mine)).from(recv(at(cut.given.first), kTag, mine));
    }
  }
  bool first = own == 0;  // the root's own chunk is in the input still
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const Span mine = cut->kept.span(), theirs = cut->given.span();
    std::vector<Rank> lacking = cut->from;
    std::erase(lacking, static_cast<Rank>(first_of(*cut)));
    if (!lacking.empty()) {
      StepBuilder spread = lane.step().from(first ? input(mine) : output(mine));
      if (first) spread.to(output(mine));
      for (const Rank to : lacking) spread.to(send(at(to), kTag, mine));
    }
    if (own != first_of(*cut))
      lane.step().to(output(theirs)).from(recv(at(cut->to.front()), kTag, theirs));
    first = false;
  }
}

void add_part(const Problem& problem, Rank rank, LaneBuilder& lane) {
  if (problem.collective == Collective::kBroadcast) return add_broadcast(problem, rank, lane);
  if (problem.collective == Collective::kReduce) return add_reduce(problem, rank, lane);
  const std::vector<Cut> cuts = cuts_of(problem.ranks, rank);
  if (problem.collective == Collective::kAllGather) return add_all_gather(cuts, lane);
  const auto at = [](Rank index) { return index; };
  add_reduce_scatter(cuts, at, output(cuts.back().kept.span()), lane);
}

class Rabenseifner final : public Algorithm {
 public:
  constexpr Rabenseifner()
      : Algorithm(
            "rabenseifner",
            "2 log2 p steps, 2(p-1)/p*n bytes sent a rank: middle to large; folds if p != 2^k",
            "Rabenseifner 2004, Optimization of collective reduction operations") {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective,
                    {kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce});
  }

  [[nodiscard]] bool in_rank_order(const Problem& problem) const override {
    using enum Collective;
    return problem.collective == kAllReduce;
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    if (problem.collective != Collective::kAllReduce) return part_shape(problem);
    const Fold fold{problem.ranks};
    const auto chunks = static_cast<std::uint32_t>(fold.size());
    const int incoming = fold.rounds() + (fold.excess() > 0 ? 1 : 0);
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = chunks,
            .max_incoming = static_cast<std::uint32_t>(incoming),
            .max_per_pair = problem.ranks > 1 ? 1U : 0U,
            .max_message_chunks = fold.excess() > 0 ? chunks : std::max(1U, chunks / 2)};
  }

  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    const Fold fold{problem.ranks};
    if (info_of(problem.collective).rooted) return {};
    if (problem.collective == Collective::kAllReduce || fold.excess() == 0) return fold.symmetry();
    return {};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    if (problem.ranks == 1) return copy_alone(problem, 1);
    LaneBuilder lane("halving");
    if (problem.collective != Collective::kAllReduce) {
      add_part(problem, rank, lane);
      return assemble(std::move(lane));
    }
    const Fold fold{problem.ranks};
    const Range all{0, static_cast<std::uint32_t>(fold.size())};
    if (fold.sits_out(rank)) {
      lane.step().to(send(rank - 1, kTag, all.span())).from(input(all.span()));
      lane.step().to(output(all.span())).from(recv(rank - 1, kTag, all.span()));
      return assemble(std::move(lane));
    }
    const bool paired = fold.is_paired(rank);
    if (paired)
      lane.step()
          .to(output(all.span()))
          .from(input(all.span()))
          .from(recv(rank + 1, kTag, all.span()));
    halve(fold, rank, all, paired, lane);
    if (paired) lane.step().to(send(rank + 1, kTag, all.span())).from(output(all.span()));
    return assemble(std::move(lane));
  }

 private:
  // At a cut of an odd number the second part's last rank takes two messages.
  [[nodiscard]] ScheduleShape part_shape(const Problem& problem) const {
    const auto p = static_cast<std::uint32_t>(problem.ranks);
    const CollectiveInfo& info = info_of(problem.collective);
    // A reduce-scatter of two ranks needs no room: each has one sum, the last.
    const bool keeps_sums = info.reduces() && (info.rooted || p > 2);
    const auto width = static_cast<int>(std::bit_width(info.reduces() ? p : p - 1));
    const int incoming = info.reduces() ? width + std::popcount(p) - 2 : width;
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = p,
            .scratch_chunks = keeps_sums && p > 1 ? (p + 1) / 2 : 0,
            .max_incoming = static_cast<std::uint32_t>(incoming),
            .max_per_pair = p > 1 ? 1U : 0U,
            .max_message_chunks = (p + 1) / 2};
  }

  // The rounds from the one in which `range` is halved on, forth and back.
  static void halve(const Fold& fold, Rank rank, const Range& all, bool summed, LaneBuilder& lane) {
    const std::int32_t index = fold.index_of(rank);
    const auto peer = [&](int round) { return fold.rank_of(index ^ (1 << round)); };
    const auto upper = [&](int round) { return (index >> round & 1) == 1; };
    std::vector<Range> ranges{all};
    for (int round = 0; round < fold.rounds(); ++round) {
      const Range keep = ranges.back().half(upper(round));
      const Range give = ranges.back().half(!upper(round));
      const auto sum = [&](const Range& range) {
        return summed || round > 0 ? output(range.span()) : input(range.span());
      };
      lane.step().to(send(peer(round), kTag, give.span())).from(sum(give));
      const Operand theirs = recv(peer(round), kTag, keep.span());
      StepBuilder step = lane.step().to(output(keep.span()));
      step.from(upper(round) ? theirs : sum(keep)).from(upper(round) ? sum(keep) : theirs);
      if (round + 1 == fold.rounds()) step.to(send(peer(round), kTag, keep.span())).finish();
      ranges.push_back(keep);
    }
    for (int round = fold.rounds() - 1; round >= 0; --round) {
      const Range& whole = ranges[static_cast<std::size_t>(round)];
      const Span other = whole.half(!upper(round)).span();
      lane.step().to(output(other)).from(recv(peer(round), kTag, other));
      if (round > 0)
        lane.step().to(send(peer(round - 1), kTag, whole.span())).from(output(whole.span()));
    }
  }
};

}  // namespace

const Algorithm& rabenseifner() {
  static constinit const NeverDestroyed<Rabenseifner> kRabenseifner;
  return kRabenseifner.value;
}

}  // namespace tutti
