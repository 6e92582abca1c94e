// SPDX-License-Identifier: Apache-2.0
// Hierarchical: a collective over groups of ranks, put together from other algorithms.
//
//   The idea is as old as clusters of multiprocessors: Karonis et al. 2000, Exploiting hierarchy in
//   parallel computer networks to optimize collective operation performance. Rails: Cho et al.
//   2019, BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy.
//   All-to-all: Traeff, Rougier 2014, MPI collectives and datatypes for hierarchical all-to-all
//   communication.
//
// Ranks of one group are near each other, ranks of different groups are far. Two forms:
//
//   leader    Each group reduces to its first rank, the first ranks all-reduce, each group
//             broadcasts. Least messages between groups: one pair of ranks talks for all.
//
//   rails     Each group reduce-scatters, so that its rank i holds part i of the group's sum; all
//             ranks i of the groups all-reduce that part, all parts at the same time, each on a
//             rail of its own; each group all-gathers. All adapters of a host carry data.
//
// Of the other collectives, these go on rails, in groups of equal size:
//
//   all-gather       All ranks i of the groups all-gather, then each group does, so each block
//                    comes to a group once.
//   reduce-scatter   The same backwards: each group does, then all ranks i of the groups.
//   all-to-all       Each rank gives rank i of its group what it has for the ranks i of all groups;
//                    then all ranks i exchange what their groups have for each other. A message
//                    between groups carries s blocks, one from each rank of a group. For groups
//                    2+2, and xy the block of rank x for rank y:
//
//         rank   has               after the group    after the ranks of that number
//          0     00 01 02 03       00 10 02 12        00 10 20 30
//          1     10 11 12 13       01 11 03 13        01 11 21 31
//          2     20 21 22 23       20 30 22 32        02 12 22 32
//          3     30 31 32 33       21 31 23 33        03 13 23 33
//
// These have leaders, the root in its own group: a broadcast or a scatter is one among the leaders
// and then each group's; a reduce or a gather is each group's and then one among the leaders. The
// groups of gather and scatter are of equal size.
//
// Groups of the others may differ in size. There are as many rails as the largest group has ranks;
// in a smaller group a rank serves several. For groups 3+2, rails 0..2 are served by
//
//     group 0 (ranks 0 1 2)     0    1    2
//     group 1 (ranks 3 4)       3    4    4
//
// Two ranks that meet on several rails need a connection for each.
//
// The parts run on lanes of their own: while one slice is between the groups, the next is reduced
// inside them, and the one before is spread. So a slice adds the time of the longest lane, not of
// all of them: one step if inner and outer are trees, at any depth. Where a rank has no output for
// what one part leaves to the next, it is in scratch, of which there are two versions:
//
//   scratch, reduce           n, on the leaders
//   scratch, reduce-scatter   n/s; n if inner keeps sums in scratch itself
//   scratch, gather, scatter  a group's s blocks, on the leaders; outer's own slots hold them, if
//   any
//
// For p ranks in g groups of s, n bytes; `outer` is the all-reduce between groups:
//
//   messages in a row, leader    reduce(s) + outer(g) + broadcast(s)
//   messages in a row, rails     reduce_scatter(s) + outer(g) + all_gather(s)
//   messages in a row, others    outer(g) + inner(s), of the collective itself
//   bytes sent by a rank, rails  2(s-1)/s n inside, and what outer sends of n/s between;
//                                on average, if inner is rabenseifner and s no power of two
//   bytes sent by a group        to others what outer sends of n, in either form: 2(g-1)/g n
//                                where outer sends the least
//   reduced by a rank, rails     (s-1)/s n, and what outer reduces of n/s
//   reduce-scatter               (p-1)/p n sent by a rank, of which (g-1)/p n between groups
//   all-to-all                   (s-1)/s n sent by a rank inside, (g-1)/g n between; the rank has
//                                s + g - 2 partners instead of p - 1
//   gather, scatter              the root meets s + g - 2 ranks instead of p - 1, at (p-1)/p n
//
// Wins where links between groups are slower than those inside. Any p if inner and outer take it.
//
// Names:
//
//   hierarchical:form=rails:inner=two_shot:outer=circulant:groups=4+4+1
//
// with form=leader for the other form, and groups=2x4 for two groups of four; up to 2^20 ranks. A
// parameter of inner or outer has their key before its own, in any place:
//
//   hierarchical:inner=circulant:inner.radix=3:outer=circulant:outer.radix=4:groups=2x4
//
// Inner may be whatever has the two parts that the form needs and sends runs of chunks: ring,
// rabenseifner, circulant or two_shot for rails, ring, tree, butterfly, rabenseifner or one_shot
// for leaders. A collective is served if inner and outer have it, with these exceptions, where what
// a part moves would not be a regular span of the whole:
//
//   reduce-scatter    neither part may send runs around the end: no pat, and circulant only where
//                     it sends one chunk at a time, among at most 3 ranks or as many as its radix
//   all-to-all        inner is two_shot
//   gather, scatter   inner is one_shot, or butterfly in groups of at most 3
//
// Without groups: equal ones of about sqrt(p) ranks if p has such a divisor, else a smaller last
// one; of other collectives than all-reduce and broadcast equal ones in any case. 2, 3 and 5 ranks
// are one group: inner alone. Without a form, collectives with a root have leaders. Without inner:
// one_shot for leaders, two_shot for rails. Without outer: circulant, but tree for broadcast and
// reduce, rabenseifner for reduce-scatter, two_shot for all-to-all, one_shot for gather and
// scatter.
//
// Each value is completed by outer, whose ranks all have the same bits, and then copied.
//
// Proved by the test suite: either form with each of these, and any other family as outer; g groups
// of n for all g*n = 1..33, 48, 64, 96, 128, every way to cut up to 7 ranks into groups, and some
// unequal ones of more; with 1, 2 and 4 replicas (over 64 ranks with 1). The other collectives in
// the same groups, with three of the roots. Any other is proved when its plan is compiled.
#include "algorithms/hierarchical.hpp"

#include <fmt/core.h>

#include <array>

#include "algorithms/compose.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

// Is it a collective of which a rank keeps sums for which it has no output?
bool keeps_sums(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kReduceScatter;
}
bool moves_rooted_blocks(Collective collective) {
  return collective == Collective::kGather || collective == Collective::kScatter;
}

// Are all spans runs that do not go around the end? The last rank's program tells: of those that
// count from the own rank on, it is the first to come to the end.
bool keeps_to_runs(const Algorithm& part, const Problem& problem) {
  if (problem.ranks == 1) return true;
  const std::uint32_t chunks = part.shape(problem).chunks;
  const auto is_run = [&](const Operand& operand) {
    return operand.span.repetitions == 1 &&
           ((operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kScratch) ||
            operand.span.first + operand.span.run <= chunks);
  };
  for (const Lane& lane : part.program(problem, problem.ranks - 1).lanes)
    for (const Step& step : lane.steps)
      if (!std::ranges::all_of(step.sources, is_run) ||
          !std::ranges::all_of(step.destinations, is_run))
        return false;
  return true;
}

}  // namespace

Parts parts_of(Form form, Collective collective) {
  using enum Collective;
  const bool rails = form == Form::kRails;
  switch (collective) {
    case kAllReduce:
      return {rails ? kReduceScatter : kReduce, kAllReduce, rails ? kAllGather : kBroadcast};
    case kAllGather:
      return rails ? Parts{kNone, kAllGather, kAllGather} : Parts{};
    case kReduceScatter:
    case kAllToAll:
      return rails ? Parts{collective, collective, kNone} : Parts{};
    case kBroadcast:
    case kScatter:
      return rails ? Parts{} : Parts{kNone, collective, collective};
    case kReduce:
    case kGather:
      return rails ? Parts{} : Parts{collective, collective, kNone};
    default:
      return {};
  }
}

Hierarchical::Hierarchical(std::optional<Form> form, const Algorithm* inner, const Algorithm* outer,
                           std::vector<std::int32_t> groups)
    : Algorithm("hierarchical",
                "inner(p/g) + outer(g) steps, outer's bytes between g groups: slow links between",
                "Karonis et al. 2000 (leaders); Cho et al. 2019, BlueConnect (rails)",
                "form=rails|leader, inner=A, outer=B, inner.K=V, outer.K=V (parameters of A and "
                "B), groups=4+4+1 or 2x4"),
      form_(form),
      inner_(inner),
      outer_(outer),
      groups_(groups.empty() ? nullptr : std::make_shared<const Grouping>(std::move(groups))) {
  takes_groups = groups_ == nullptr;
}

std::shared_ptr<const Grouping> Hierarchical::grouping(const Problem& problem) const {
  using enum Collective;
  if (groups_ != nullptr) return groups_;
  return std::make_shared<const Grouping>(is_among(problem.collective, {kAllReduce, kBroadcast})
                                              ? default_groups(problem.ranks)
                                              : default_equal_groups(problem.ranks));
}

Form Hierarchical::form_for(Collective collective) const {
  return form_.value_or(info_of(collective).rooted ? Form::kLeader : Form::kRails);
}

const Algorithm& Hierarchical::inner_for(Collective collective) const {
  if (inner_ != nullptr) return *inner_;
  return form_for(collective) == Form::kRails ? two_shot() : one_shot();
}

const Algorithm& Hierarchical::outer_for(Collective collective) const {
  if (outer_ != nullptr) return *outer_;
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
      return tree();
    case Collective::kGather:
    case Collective::kScatter:
      return one_shot();
    case Collective::kReduceScatter:
      return rabenseifner();
    case Collective::kAllToAll:
      return two_shot();
    default:
      return circulant();
  }
}

bool Hierarchical::supports(const Problem& problem) const {
  const Parts parts = parts_for(problem.collective);
  if (parts.between == Collective::kNone) return false;
  const auto held = grouping(problem);
  const Grouping& groups = *held;
  const std::vector<std::int32_t>& sizes = groups.different_sizes();
  if (groups.ranks() != problem.ranks || (info_of(problem.collective).blocks && sizes.size() > 1) ||
      !takes(outer_for(problem.collective), parts.between, groups.count()))
    return false;
  const Algorithm& inner = inner_for(problem.collective);
  return std::ranges::all_of(sizes,
                             [&](std::int32_t size) {
                               return std::ranges::all_of(
                                   std::array{parts.gather, parts.spread}, [&](Collective part) {
                                     return part == Collective::kNone || takes(inner, part, size);
                                   });
                             }) &&
         parts_fit(problem, groups);
}

bool Hierarchical::parts_fit(const Problem& problem, const Grouping& groups) const {
  const Algorithm& inner = inner_for(problem.collective);
  const Algorithm& outer = outer_for(problem.collective);
  const auto part_of = [&](std::int32_t ranks) {
    return Problem{.collective = problem.collective, .ranks = ranks};
  };
  const std::int32_t size = groups.rails();
  if (keeps_sums(problem.collective))
    return keeps_to_runs(outer, part_of(groups.count())) &&
           std::ranges::all_of(groups.different_sizes(), [&](std::int32_t each) {
             return keeps_to_runs(inner, part_of(each));
           });
  // A message of several blocks may go around the end of the group, where another one begins.
  if (moves_rooted_blocks(problem.collective)) {
    const ScheduleShape shape = inner.shape(part_of(size));
    return shape.max_message_chunks == 1 && shape.scratch_chunks == 0;
  }
  if (problem.collective == Collective::kAllToAll)
    return inner.shape(part_of(size)).scratch_chunks == 0 && keeps_to_runs(inner, part_of(size));
  return true;
}

// Both the shape and the programs follow this.
struct Hierarchical::Layout {
  Layout(const Hierarchical& own, const Problem& problem)
      : held(own.grouping(problem)),
        collective(problem.collective),
        leads(own.form_for(collective) == Form::kLeader),
        parts(own.parts_for(collective)),
        inside(own.inner_for(collective)),
        outside(own.outer_for(collective)),
        root(info_of(collective).rooted ? problem.root : 0),
        outer(outside.shape({.collective = parts.between, .ranks = groups.count()})) {
    std::uint32_t columns = 1;
    for (const std::int32_t size : groups.different_sizes()) {
      const ScheduleShape gather = inner_shape(parts.gather, size);
      const ScheduleShape spread = inner_shape(parts.spread, size);
      columns = std::max({columns, gather.chunks, spread.chunks});
      inner_slots = std::max({inner_slots, gather.scratch_chunks, spread.scratch_chunks});
      gather_tags = std::max(gather_tags, gather.tags);
      spread_tags = std::max(spread_tags, spread.tags);
    }
    grid = {between() ? outer.chunks : 1, columns};
    rails = leads ? 1 : static_cast<std::uint32_t>(groups.rails());
    lay_out_scratch();
  }

  [[nodiscard]] bool between() const { return groups.count() > 1; }
  // Of a part that there is not, nothing.
  [[nodiscard]] ScheduleShape inner_shape(Collective part, std::int32_t size) const {
    if (part != Collective::kNone) return inside.shape({.collective = part, .ranks = size});
    return {.algorithm = {}, .tags = 0, .max_per_pair = 0, .max_message_chunks = 0};
  }
  // Tags: gathering, spreading, then the rails.
  [[nodiscard]] Tag rail_tag(std::uint32_t rail) const {
    return static_cast<Tag>(gather_tags + spread_tags + rail * outer.tags);
  }
  // The member of a group that meets the other groups' on rail 0 of leaders: the root in its own.
  [[nodiscard]] Rank leader(std::int32_t group) const {
    return groups.group_of(root) == group ? root : groups.first(group);
  }
  // How many columns lie on a rail.
  [[nodiscard]] std::uint32_t rail_width() const {
    return leads || collective == Collective::kAllToAll ? grid.columns : 1;
  }
  // How many rows a chunk of an inner part lies on.
  [[nodiscard]] std::uint32_t inner_rows() const {
    return moves_rooted_blocks(collective) ? 1 : grid.rows;
  }
  // A rank's sums are of its own column alone, if its inner part keeps none on the way.
  [[nodiscard]] std::uint32_t tile_columns() const {
    return collective == Collective::kReduceScatter && inner_slots == 0 ? 1 : grid.columns;
  }
  [[nodiscard]] std::uint32_t slots() const { return std::max(tile_slots, outer_slots); }
  // Two versions let one slice be between the groups while the next one is inside them.
  [[nodiscard]] std::uint32_t scratch_versions() const {
    return tile_slots > 0 && between() && groups.rails() > 1 ? 2 : 1;
  }

  std::shared_ptr<const Grouping> held;
  const Grouping& groups = *held;
  Collective collective;
  bool leads;  // the form
  Parts parts;
  const Algorithm &inside, &outside;
  Rank root;  // 0 of a collective without one
  ScheduleShape outer;
  std::uint32_t gather_tags = 0, spread_tags = 0;
  Grid grid;
  std::uint32_t rails = 1;
  // Scratch is a tile of the grid, or the slots of the outer part, or both: the first slot of a
  // gather's or scatter's outer part has the own block, which is the tile.
  std::uint32_t inner_slots = 0;  // of the inner parts alone
  std::uint32_t tile_slots = 0, outer_slots = 0;

 private:
  void lay_out_scratch() {
    const bool inner = groups.rails() > 1, handed_on = inner && between();
    if (keeps_sums(collective)) {
      const bool sums = (inner && inner_slots > 0) || (between() && outer.scratch_chunks > 0);
      if (handed_on || sums) tile_slots = grid.rows * tile_columns();
    } else if (collective == Collective::kAllToAll || moves_rooted_blocks(collective)) {
      if (collective != Collective::kAllToAll && handed_on) tile_slots = grid.columns;
      if (between()) outer_slots = outer.scratch_chunks * grid.columns;
    }
  }
};

// The connections are counted as if one rank had the most of every part: an upper bound.
ScheduleShape Hierarchical::shape(const Problem& problem) const {
  const Layout layout(*this, problem);
  const bool between = layout.between(), leads = layout.leads;
  ScheduleShape shape{.algorithm = std::string(name),
                      .collective = problem.collective,
                      .ranks = problem.ranks,
                      .root = problem.root,
                      .chunks = layout.grid.rows * layout.grid.columns,
                      .scratch_chunks = layout.slots(),
                      .scratch_versions = layout.scratch_versions(),
                      .tags = layout.rail_tag(between ? layout.rails : 0),
                      .max_per_pair = 0};
  if (problem.ranks == 1) shape.tags = 1;
  for (const std::int32_t size : layout.groups.different_sizes()) {
    const ScheduleShape gather = layout.inner_shape(layout.parts.gather, size);
    const ScheduleShape spread = layout.inner_shape(layout.parts.spread, size);
    const std::uint32_t served =
        leads ? 1 : ceil_div(layout.rails, static_cast<std::uint32_t>(size));
    const std::uint32_t near = gather.max_incoming + spread.max_incoming;
    const std::uint32_t far = between ? served * layout.outer.max_incoming : 0;
    // Leaders that only spread hear from other groups alone, the others from their own.
    const bool only_spreads = leads && layout.parts.gather == Collective::kNone;
    shape.max_incoming =
        std::max(shape.max_incoming, only_spreads ? std::max(near, far) : near + far);
    shape.max_per_pair = std::max(shape.max_per_pair, gather.max_per_pair + spread.max_per_pair);
    if (size == 1) continue;
    const std::uint32_t most = std::max(gather.max_message_chunks, spread.max_message_chunks);
    const std::uint32_t chunks = std::max(gather.chunks, spread.chunks);
    const std::uint32_t columns =
        std::min(layout.grid.columns, most * ceil_div(layout.grid.columns, chunks));
    shape.max_message_chunks = std::max(shape.max_message_chunks, columns * layout.inner_rows());
  }
  if (!between) return shape;
  const std::uint32_t width = layout.rail_width();
  shape.max_message_chunks =
      std::max(shape.max_message_chunks, layout.outer.max_message_chunks * width);
  // Two ranks share at most as many rails as the one in the larger group serves.
  std::vector<std::int32_t> sizes = layout.groups.sizes();
  std::nth_element(sizes.begin(), sizes.begin() + 1, sizes.end());
  const std::uint32_t shared =
      leads ? 1 : ceil_div(layout.rails, static_cast<std::uint32_t>(sizes[1]));
  shape.max_per_pair = std::max(shape.max_per_pair, shared * layout.outer.max_per_pair);
  return shape;
}

// Equal groups move as outer's ranks do; on rails their members as inner's do, and the rails with
// them. No two members of a leader are alike.
Symmetry Hierarchical::symmetry(const Problem& problem) const {
  const auto groups = grouping(problem);
  const std::int32_t size = groups->rails();
  if (groups->different_sizes().size() > 1 || info_of(problem.collective).rooted) return {};
  const auto move_of = [](const Algorithm& part, Collective collective, std::int32_t ranks) {
    const Symmetry symmetry = part.symmetry({.collective = collective, .ranks = ranks});
    return symmetry.group == 1 ? symmetry.groups : Move::kNone;
  };
  const Parts parts = parts_for(problem.collective);
  const Algorithm& inner = inner_for(problem.collective);
  Symmetry whole{.groups = move_of(outer_for(problem.collective), parts.between, groups->count()),
                 .group = size};
  if (form_for(problem.collective) == Form::kRails) {
    const bool gathers = parts.gather != Collective::kNone;
    const bool spreads = parts.spread != Collective::kNone;
    const Move first = move_of(inner, gathers ? parts.gather : parts.spread, size);
    if (!gathers || !spreads || first == move_of(inner, parts.spread, size)) whole.members = first;
  }
  return whole;
}

// Puts the parts of one rank's program where its data lies.
class Hierarchical::Assembly {
 public:
  Assembly(const Layout& layout, Rank rank)
      : layout_(layout),
        rank_(rank),
        group_(layout.groups.group_of(rank)),
        size_(layout.groups.size(group_)),
        first_(layout.groups.first(group_)),
        gathers_(size_ > 1 && layout.parts.gather != Collective::kNone),
        spreads_(size_ > 1 && layout.parts.spread != Collective::kNone),
        whole_(layout.grid, layout.slots(), layout.scratch_versions()) {}

  [[nodiscard]] RankProgram program() {
    if (gathers_)
      add_inner(layout_.parts.gather, {.input = BufferKind::kInput,
                                       .output = layout_.between() ? handed() : BufferKind::kOutput,
                                       .first_tag = 0,
                                       .name = "gather "});
    const std::int32_t index = rank_ - first_;
    if (layout_.between() && !layout_.leads) {
      for (std::int32_t rail = layout_.groups.first_rail(group_, index);
           rail < layout_.groups.first_rail(group_, index + 1); ++rail)
        add_rail(rail);
    } else if (layout_.between() && rank_ == layout_.leader(group_)) {
      add_rail(0);
    }
    if (spreads_)
      add_inner(layout_.parts.spread,
                {.input = layout_.between() || gathers_ ? handed() : BufferKind::kInput,
                 .first_tag = static_cast<Tag>(layout_.gather_tags),
                 .name = "spread "});
    return whole_.take();
  }

 private:
  // Where a part leaves what the next one finds: in the output, unless the rank has none for it.
  [[nodiscard]] BufferKind handed() const {
    if (layout_.collective == Collective::kReduceScatter) return BufferKind::kScratch;
    if (layout_.collective == Collective::kReduce || layout_.collective == Collective::kGather)
      return rank_ == layout_.root ? BufferKind::kOutput : BufferKind::kScratch;
    if (layout_.collective == Collective::kScatter)  // the root's data need not be moved
      return rank_ == layout_.root ? BufferKind::kInput : BufferKind::kScratch;
    return BufferKind::kOutput;
  }
  [[nodiscard]] BufferKind sums() const {
    return keeps_sums(layout_.collective) ? handed() : BufferKind::kOutput;
  }
  [[nodiscard]] Tile tile() const {
    Tile tile{.columns = layout_.tile_columns()};
    if (moves_rooted_blocks(layout_.collective))
      tile.first_row = static_cast<std::uint32_t>(group_);
    if (tile.columns < layout_.grid.columns)
      tile.first_column = static_cast<std::uint32_t>(rank_ - first_);
    return tile;
  }

  void add_inner(Collective collective, Placement at) {
    const Rank leader = layout_.leader(group_);
    const Problem part{.collective = collective,
                       .ranks = size_,
                       .root = info_of(collective).rooted ? leader - first_ : 0};
    if (moves_rooted_blocks(collective)) {
      at.axis = Placement::Axis::kRow;
      at.row = static_cast<std::uint32_t>(group_);
    }
    at.chunks = layout_.inner_shape(collective, size_).chunks;
    at.rank_of = [first = first_](Rank index) { return first + index; };
    at.sums = sums();
    at.tile = tile();
    at.finish = !layout_.between();
    whole_.add(layout_.inside.program(part, rank_ - first_), at);
  }

  void add_rail(std::int32_t rail) {
    const Grouping& groups = layout_.groups;
    const Problem part{.collective = layout_.parts.between,
                       .ranks = groups.count(),
                       .root = groups.group_of(layout_.root)};
    const std::uint32_t width = layout_.rail_width();
    Placement at{.axis = Placement::Axis::kRows,
                 .chunks = layout_.outer.chunks,
                 .first_column = width == 1 ? static_cast<std::uint32_t>(rail) : 0,
                 .width = width,
                 .rank_of =
                     [this, rail](Rank other) {
                       return layout_.leads ? layout_.leader(other)
                                            : layout_.groups.server(other, rail);
                     },
                 .input = gathers_ ? handed() : BufferKind::kInput,
                 .output = spreads_ ? handed() : BufferKind::kOutput,
                 .sums = sums(),
                 .tile = tile(),
                 .first_tag = layout_.rail_tag(static_cast<std::uint32_t>(rail)),
                 .finish = true,
                 .name = fmt::format("rail{} ", rail)};
    at.own_slots = layout_.outer_slots > 0;
    whole_.add(layout_.outside.program(part, group_), at);
  }

  const Layout& layout_;
  Rank rank_;
  std::int32_t group_, size_;
  Rank first_;
  bool gathers_, spreads_;  // has it such a part?
  Composition whole_;
};

RankProgram Hierarchical::program(const Problem& problem, Rank rank) const {
  const Layout layout(*this, problem);
  if (problem.ranks == 1) return copy_alone(problem, layout.grid.rows * layout.grid.columns);
  return Assembly(layout, rank).program();
}

const Algorithm& hierarchical() {
  static const NeverDestroyed<Hierarchical> kHierarchical(std::nullopt, nullptr, nullptr,
                                                          std::vector<std::int32_t>{});
  return kHierarchical.value;
}

}  // namespace tutti
