// SPDX-License-Identifier: Apache-2.0
// Hierarchical: an all-reduce, all-gather or broadcast over groups of ranks, put together from
// other algorithms.
//
//   The idea is as old as clusters of multiprocessors: Karonis et al. 2000, Exploiting hierarchy in
//   parallel computer networks to optimize collective operation performance. Rails: Cho et al.
//   2019, BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy.
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
// All-gather is the rails' second half: all ranks i of the groups all-gather, then each group does,
// so each block comes to a group once. Its groups are of equal size. Broadcast is that of the
// leaders, the root in its own group, and then each group's.
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
// all of them: one step if inner and outer are trees, at any depth.
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
// rabenseifner, circulant or two_shot for rails; ring, tree, butterfly, rabenseifner or one_shot for
// leaders.
// Without groups: equal ones of about sqrt(p) ranks if p has such a divisor, else a smaller last
// one; of an all-gather equal ones in any case. 2, 3 and 5 ranks are one group: inner alone.
// Without a form, broadcast has leaders; without outer, it has tree between them, others circulant.
//
// Each value is completed by outer, whose ranks all have the same bits, and then copied.
//
// Proved by the test suite: either form with each of these, and any other family as outer; g groups
// of n for all g*n = 1..33, 48, 64, 96, 128, every way to cut up to 7 ranks into groups, and some
// unequal ones of more; with 1, 2 and 4 replicas (over 64 ranks with 1). All-gather and
// broadcast: with their defaults at the listed rank counts, with other parts in some groups. Any
// other is proved when its plan is compiled.
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "algorithms/compose.hpp"
#include "algorithms/families.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

enum class Form : std::uint8_t { kRails, kLeader };

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

// Consecutive ranks in groups.
class Grouping {
 public:
  explicit Grouping(std::vector<std::int32_t> sizes) : sizes_(std::move(sizes)) {
    firsts_.resize(sizes_.size());
    std::exclusive_scan(sizes_.begin(), sizes_.end(), firsts_.begin(), 0);
    different_ = sizes_;
    std::ranges::sort(different_);
    const auto rest = std::ranges::unique(different_);
    different_.erase(rest.begin(), rest.end());
  }

  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(sizes_.size()); }
  [[nodiscard]] const std::vector<std::int32_t>& sizes() const { return sizes_; }
  // Each size once, ascending.
  [[nodiscard]] const std::vector<std::int32_t>& different_sizes() const { return different_; }
  [[nodiscard]] std::int32_t size(std::int32_t group) const { return sizes_[at(group)]; }
  [[nodiscard]] Rank first(std::int32_t group) const { return firsts_[at(group)]; }
  [[nodiscard]] std::int32_t ranks() const { return firsts_.back() + sizes_.back(); }
  [[nodiscard]] std::int32_t group_of(Rank rank) const {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), rank);
    return static_cast<std::int32_t>(after - firsts_.begin()) - 1;
  }
  // As many rails as the largest group has ranks; rank i of a group of s serves those from
  // i*rails/s on, as a cut of columns does (compose.hpp).
  [[nodiscard]] std::int32_t rails() const { return different_.back(); }
  [[nodiscard]] std::int32_t first_rail(std::int32_t group, std::int32_t index) const {
    return static_cast<std::int32_t>(std::int64_t{index} * rails() / size(group));
  }
  [[nodiscard]] Rank server(std::int32_t group, std::int32_t rail) const {
    std::int32_t index = static_cast<std::int32_t>(std::int64_t{rail} * size(group) / rails());
    while (index + 1 < size(group) && first_rail(group, index + 1) <= rail) ++index;
    return first(group) + index;
  }

 private:
  static std::size_t at(std::int32_t group) { return static_cast<std::size_t>(group); }
  std::vector<std::int32_t> sizes_, different_;
  std::vector<Rank> firsts_;
};

// Equal groups of the least divisor of p from ceil(sqrt(p)) on, if it is less than twice that; else
// of ceil(sqrt(p)) and the rest.
std::vector<std::int32_t> default_groups(std::int32_t p) {
  const auto root = static_cast<std::int32_t>(std::ceil(std::sqrt(p)));
  std::int32_t size = root;
  while (size < 2 * root && p % size != 0) ++size;
  if (p % size != 0) size = root;
  std::vector<std::int32_t> groups(static_cast<std::size_t>(p / size), size);
  if (p % size != 0) groups.push_back(p % size);
  return groups;
}

// Equal groups of the least divisor of p from ceil(sqrt(p)) on, which may be p.
std::vector<std::int32_t> default_equal_groups(std::int32_t p) {
  auto size = static_cast<std::int32_t>(std::ceil(std::sqrt(p)));
  while (p % size != 0) ++size;
  return std::vector<std::int32_t>(static_cast<std::size_t>(p / size), size);
}

bool takes(const Algorithm& algorithm, Collective collective, std::int32_t ranks) {
  return algorithm.supports({.collective = collective, .ranks = ranks});
}

// The collectives of the parts, in the order of the data: inside the groups, between them, inside
// them. kNone: there is no such part.
struct Parts {
  Collective gather = Collective::kNone, between = Collective::kNone, spread = Collective::kNone;
};

// Parts of kNone alone: the form does not have the collective.
Parts parts_of(Form form, Collective collective) {
  using enum Collective;
  const bool rails = form == Form::kRails;
  switch (collective) {
    case kAllReduce:
      return {rails ? kReduceScatter : kReduce, kAllReduce, rails ? kAllGather : kBroadcast};
    case kAllGather:
      return rails ? Parts{kNone, kAllGather, kAllGather} : Parts{};
    case kBroadcast:
      return rails ? Parts{} : Parts{kNone, kBroadcast, kBroadcast};
    default:
      return {};
  }
}

class Hierarchical final : public Algorithm {
 public:
  // Of what is not given, each collective has its own.
  Hierarchical(std::optional<Form> form, const Algorithm* inner, const Algorithm* outer,
               std::vector<std::int32_t> groups)
      : Algorithm(
            "hierarchical",
            "inner(p/g) + outer(g) steps, outer's bytes between g groups: slow links between",
            "Karonis et al. 2000 (leaders); Cho et al. 2019, BlueConnect (rails)",
            "form=rails|leader, inner=A, outer=B, inner.K=V, outer.K=V (parameters of A and B), "
            "groups=4+4+1 or 2x4"),
        form_(form),
        inner_(inner),
        outer_(outer),
        groups_(groups.empty() ? nullptr : std::make_shared<const Grouping>(std::move(groups))) {
    takes_groups = groups_ == nullptr;
  }

  [[nodiscard]] bool supports(const Problem& problem) const override {
    const Parts parts = parts_for(problem.collective);
    if (parts.between == Collective::kNone) return false;
    const auto held = grouping(problem);
    const Grouping& groups = *held;
    const std::vector<std::int32_t>& sizes = groups.different_sizes();
    if (groups.ranks() != problem.ranks ||
        (info_of(problem.collective).blocks && sizes.size() > 1) ||
        !takes(outer_for(problem.collective), parts.between, groups.count()))
      return false;
    const Algorithm& inner = inner_for(problem.collective);
    return std::ranges::all_of(sizes, [&](std::int32_t size) {
      return std::ranges::all_of(std::array{parts.gather, parts.spread}, [&](Collective part) {
        return part == Collective::kNone || takes(inner, part, size);
      });
    });
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override;
  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override;
  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override;
  [[nodiscard]] Result<std::unique_ptr<Algorithm>> with(
      std::span<const Parameter> given) const override;

 private:
  struct Layout;  // of one problem

  // May it be a part? kInvalidArgument says which one may not, and why.
  [[nodiscard]] Status check_inner() const;
  [[nodiscard]] Status check_outer() const;

  [[nodiscard]] std::shared_ptr<const Grouping> grouping(const Problem& problem) const {
    if (groups_ != nullptr) return groups_;
    return std::make_shared<const Grouping>(info_of(problem.collective).blocks
                                                ? default_equal_groups(problem.ranks)
                                                : default_groups(problem.ranks));
  }
  [[nodiscard]] static bool from_leaders(Collective collective) {
    return collective == Collective::kBroadcast;
  }
  [[nodiscard]] Form form_for(Collective collective) const {
    return form_.value_or(from_leaders(collective) ? Form::kLeader : Form::kRails);
  }
  [[nodiscard]] const Algorithm& inner_for(Collective collective) const {
    if (inner_ != nullptr) return *inner_;
    return form_for(collective) == Form::kRails ? two_shot() : one_shot();
  }
  [[nodiscard]] const Algorithm& outer_for(Collective collective) const {
    if (outer_ != nullptr) return *outer_;
    return from_leaders(collective) ? tree() : circulant();
  }
  [[nodiscard]] Parts parts_for(Collective collective) const {
    return parts_of(form_for(collective), collective);
  }

  std::optional<Form> form_;
  const Algorithm* inner_;                  // null: by inner_for
  const Algorithm* outer_;                  // null: by outer_for
  std::shared_ptr<const Grouping> groups_;  // null: by grouping
};

// Both the shape and the programs follow this.
struct Hierarchical::Layout {
  Layout(const Hierarchical& own, const Problem& problem)
      : held(own.grouping(problem)),
        form(own.form_for(problem.collective)),
        parts(own.parts_for(problem.collective)),
        inside(own.inner_for(problem.collective)),
        outside(own.outer_for(problem.collective)),
        root(info_of(problem.collective).rooted ? problem.root : 0),
        outer(outside.shape({.collective = parts.between, .ranks = groups.count()})) {
    std::uint32_t columns = 1;
    for (const std::int32_t size : groups.different_sizes()) {
      const ScheduleShape gather = inner_shape(parts.gather, size);
      const ScheduleShape spread = inner_shape(parts.spread, size);
      columns = std::max({columns, gather.chunks, spread.chunks});
      gather_tags = std::max(gather_tags, gather.tags);
      spread_tags = std::max(spread_tags, spread.tags);
    }
    grid = {groups.count() == 1 ? 1 : outer.chunks, columns};
    rails = form == Form::kRails ? static_cast<std::uint32_t>(groups.rails()) : 1;
  }
  // Of a part that there is not, nothing.
  [[nodiscard]] ScheduleShape inner_shape(Collective collective, std::int32_t size) const {
    if (collective != Collective::kNone)
      return inside.shape({.collective = collective, .ranks = size});
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

  std::shared_ptr<const Grouping> held;
  const Grouping& groups = *held;
  Form form;
  Parts parts;
  const Algorithm &inside, &outside;
  Rank root;  // 0 of a collective without one
  ScheduleShape outer;
  std::uint32_t gather_tags = 0, spread_tags = 0;
  Grid grid;
  std::uint32_t rails = 1;
};

// The connections are counted as if one rank had the most of every part: an upper bound.
ScheduleShape Hierarchical::shape(const Problem& problem) const {
  const Layout layout(*this, problem);
  const bool between = layout.groups.count() > 1, leads = layout.form == Form::kLeader;
  ScheduleShape shape{.algorithm = std::string(name),
                      .collective = problem.collective,
                      .ranks = problem.ranks,
                      .root = problem.root,
                      .chunks = layout.grid.rows * layout.grid.columns,
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
    // A broadcast's leaders hear from other groups alone, the others from their own.
    const bool apart = problem.collective == Collective::kBroadcast;
    shape.max_incoming = std::max(shape.max_incoming, apart ? std::max(near, far) : near + far);
    shape.max_per_pair = std::max(shape.max_per_pair, gather.max_per_pair + spread.max_per_pair);
    if (size == 1) continue;
    const std::uint32_t most = std::max(gather.max_message_chunks, spread.max_message_chunks);
    const std::uint32_t chunks = std::max(gather.chunks, spread.chunks);
    const std::uint32_t columns =
        std::min(layout.grid.columns, most * ceil_div(layout.grid.columns, chunks));
    shape.max_message_chunks = std::max(shape.max_message_chunks, columns * layout.grid.rows);
  }
  if (!between) return shape;
  const std::uint32_t width = leads ? layout.grid.columns : 1;
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
    const Move spread = move_of(inner, parts.spread, size);
    const bool alone = parts.gather == Collective::kNone;
    if (alone || spread == move_of(inner, parts.gather, size)) whole.members = spread;
  }
  return whole;
}

RankProgram Hierarchical::program(const Problem& problem, Rank rank) const {
  const Layout layout(*this, problem);
  const Grouping& groups = layout.groups;
  const Parts& parts = layout.parts;
  if (problem.ranks == 1) return copy_alone(problem, layout.grid.rows * layout.grid.columns);
  const std::int32_t group = groups.group_of(rank), size = groups.size(group);
  const Rank first = groups.first(group);
  const Rank leader = layout.leader(group);
  const bool between = groups.count() > 1, leads = layout.form == Form::kLeader;
  Composition whole(layout.grid);

  const auto add_inner = [&](Collective collective, Tag tag, BufferKind input, const char* lanes) {
    if (size == 1 || collective == Collective::kNone) return;
    const Problem part{.collective = collective,
                       .ranks = size,
                       .root = info_of(collective).rooted ? leader - first : 0};
    whole.add(layout.inside.program(part, rank - first),
              {.axis = Placement::Axis::kColumns,
               .chunks = layout.inner_shape(collective, size).chunks,
               .rank_of = [first](Rank index) { return first + index; },
               .input = input,
               .first_tag = tag,
               .finish = !between,
               .name = lanes});
  };
  const bool gathers = size > 1 && parts.gather != Collective::kNone;
  const auto add_rail = [&](std::int32_t rail, std::uint32_t width) {
    const Problem part{
        .collective = parts.between, .ranks = groups.count(), .root = groups.group_of(layout.root)};
    whole.add(layout.outside.program(part, group),
              {.axis = Placement::Axis::kRows,
               .chunks = layout.outer.chunks,
               .first_column = static_cast<std::uint32_t>(rail),
               .width = width,
               .rank_of =
                   [&layout, rail, leads](Rank other) {
                     return leads ? layout.leader(other) : layout.groups.server(other, rail);
                   },
               .input = gathers ? BufferKind::kOutput : BufferKind::kInput,
               .first_tag = layout.rail_tag(static_cast<std::uint32_t>(rail)),
               .finish = true,
               .name = fmt::format("rail{} ", rail)});
  };

  add_inner(parts.gather, 0, BufferKind::kInput, "gather ");
  if (between && !leads) {
    const std::int32_t index = rank - first;
    for (std::int32_t rail = groups.first_rail(group, index);
         rail < groups.first_rail(group, index + 1); ++rail)
      add_rail(rail, 1);
  } else if (between && rank == leader) {
    add_rail(0, layout.grid.columns);
  }
  add_inner(parts.spread, static_cast<Tag>(layout.gather_tags),
            between || gathers ? BufferKind::kOutput : BufferKind::kInput, "spread ");
  return whole.take();
}

// "4+4+1", "2x4", "2x4+1": sizes of the groups.
Result<std::vector<std::int32_t>> parse_groups(std::string_view text) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  std::vector<std::int32_t> groups;
  std::int64_t ranks = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (bool more = true; more;) {
    std::int32_t count = 1, size = 0;
    std::from_chars_result read = std::from_chars(at, end, size);
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == 'x') {
      count = size;
      read = std::from_chars(read.ptr + 1, end, size);
    }
    more = read.ptr != end && *read.ptr == '+';
    at = read.ptr + 1;
    if (read.ec != std::errc{} || (!more && read.ptr != end) || size < 1 || count < 1)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("hierarchical: groups={} is not a list of group sizes; examples: 4+4+1, 2x4",
                      text));
    ranks += std::int64_t{count} * size;  // of int32 each: no overflow before the next line
    if (ranks > kMostRanks)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("hierarchical: groups={} adds up to more than {} ranks", text, kMostRanks));
    groups.insert(groups.end(), static_cast<std::size_t>(count), size);
  }
  return groups;
}

// Columns are runs of chunks: what sends strided ones cannot lie on them.
bool sends_strided(const Algorithm& algorithm, Collective collective) {
  constexpr std::int32_t kRanks = 8;  // enough to tell
  for (const Lane& lane : algorithm.program({.collective = collective, .ranks = kRanks}, 0).lanes)
    for (const Step& step : lane.steps)
      for (const Operand& operand : step.destinations)
        if (operand.span.repetitions > 1) return true;
  return false;
}

// Parts are placed in buffers of one rank.
bool reads_peers(const Algorithm& algorithm, Collective collective) {
  for (const Lane& lane : algorithm.program({.collective = collective, .ranks = 2}, 0).lanes)
    for (const Step& step : lane.steps)
      for (const Operand& operand : step.sources)
        if (operand.kind == OperandKind::kRemote) return true;
  return false;
}

// The name of a part, put together from the parameters `key` and `key`.K.
class PartName {
 public:
  PartName(std::string_view key, std::string_view fallback) : key_(key), family_(fallback) {}

  // Is it one of this part's?
  bool take(const Parameter& parameter) {
    if (parameter.key == key_) {
      family_ = parameter.value;
      return given_ = true;
    }
    const std::size_t dot = key_.size();
    if (!parameter.key.starts_with(key_) || parameter.key.substr(dot, 1) != "." ||
        parameter.key.size() == dot + 1)
      return false;
    parameters_ += fmt::format(":{}={}", parameter.key.substr(dot + 1), parameter.value);
    return given_ = true;
  }
  // Null: no parameter names it.
  [[nodiscard]] Result<const Algorithm*> find() const {
    if (!given_) return nullptr;
    return find_algorithm(family_ + parameters_).map_error([&](Error error) {
      error.message = fmt::format("hierarchical: {}={}: {}", key_, family_, error.message);
      return error;
    });
  }

 private:
  std::string_view key_;
  std::string family_, parameters_;
  bool given_ = false;
};

Status refuse_part(std::string_view key, const Algorithm& algorithm, const std::string& why) {
  return make_error(Code::kInvalidArgument,
                    fmt::format("hierarchical: {}={}: {}", key, algorithm.name, why));
}

// A part must serve the form's all-reduce, which needs more of it than any other collective.
Status Hierarchical::check_inner() const {
  const Form form = form_.value_or(Form::kRails);
  const Parts parts = parts_of(form, Collective::kAllReduce);
  const Algorithm& inner = inner_for(Collective::kAllReduce);
  const auto has_parts = [&](const Algorithm& algorithm) {
    return takes(algorithm, parts.gather, 2) && takes(algorithm, parts.spread, 2);
  };
  std::string suitable;
  for (const Algorithm* algorithm : all_algorithms())
    if (has_parts(*algorithm) && dynamic_cast<const Hierarchical*>(algorithm) == nullptr &&
        !sends_strided(*algorithm, parts.gather))
      suitable += fmt::format("{}{}", suitable.empty() ? "" : ", ", algorithm->name);
  const std::string_view form_name = form == Form::kRails ? "rails" : "leader";
  if (dynamic_cast<const Hierarchical*>(&inner) != nullptr)
    return refuse_part(
        "inner", inner,
        fmt::format("hierarchies of more than two levels are not built; form={} takes {}",
                    form_name, suitable));
  if (!has_parts(inner))
    return refuse_part(
        "inner", inner,
        fmt::format("it has no {} and {} of its own; form={} takes {}", name_of(parts.gather),
                    name_of(parts.spread), form_name, suitable));
  if (sends_strided(inner, parts.gather))
    return refuse_part(
        "inner", inner,
        fmt::format("its messages are strided, so it can only be outer; form={} takes {}",
                    form_name, suitable));
  if (reads_peers(inner, parts.gather))
    return refuse_part("inner", inner,
                       "it reads its peers' memory, which no part of a hierarchy may do; choose "
                       "another algorithm");
  return {};
}

Status Hierarchical::check_outer() const {
  const Algorithm& outer = outer_for(Collective::kAllReduce);
  if (dynamic_cast<const Hierarchical*>(&outer) != nullptr)
    return refuse_part(
        "outer", outer,
        "hierarchies of more than two levels are not built; choose another algorithm");
  if (reads_peers(outer, Collective::kAllReduce))
    return refuse_part("outer", outer,
                       "it reads its peers' memory, which no part of a hierarchy may do; choose "
                       "another algorithm");
  return {};
}

Result<std::unique_ptr<Algorithm>> Hierarchical::with(std::span<const Parameter> given) const {
  std::optional<Form> form;
  for (const auto& [key, value] : given)
    if (key == "form") form = value == "leader" ? Form::kLeader : Form::kRails;
  PartName inner("inner", form == Form::kLeader ? one_shot().name : two_shot().name);
  PartName outer("outer", circulant().name);
  std::vector<std::int32_t> groups;
  for (const Parameter& parameter : given) {
    const auto [key, value] = parameter;
    if (key == "groups") {
      TUTTI_TRY_ASSIGN(groups, parse_groups(value));
    } else if (!(key == "form" && (value == "rails" || value == "leader")) &&
               !inner.take(parameter) && !outer.take(parameter)) {
      return refuse(parameter);
    }
  }
  TUTTI_TRY_ASSIGN(const Algorithm* const inside, inner.find());
  TUTTI_TRY_ASSIGN(const Algorithm* const between, outer.find());
  auto made = std::make_unique<Hierarchical>(form, inside, between, std::move(groups));
  TUTTI_TRY(made->check_outer());
  TUTTI_TRY(made->check_inner());
  return made;
}

}  // namespace

const Algorithm& hierarchical() {
  static const NeverDestroyed<Hierarchical> kHierarchical(std::nullopt, nullptr, nullptr,
                                                          std::vector<std::int32_t>{});
  return kHierarchical.value;
}

}  // namespace tutti
