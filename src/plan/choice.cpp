// SPDX-License-Identifier: Apache-2.0
#include "plan/choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "algorithms/orbit_proof.hpp"
#include "plan/choice_table.hpp"
#include "plan/rank_orders.hpp"

namespace tutti {
namespace {

// Slot sizes: small ones keep the pipe's fill short, large ones spread the cost of a step. Flagged
// ones are eight, so that in a row of small calls messages of one way are under way together, and
// ranks that share a core change seldom; larger messages than fit are as fast in slots. Of messages
// of some KiB many slots together outgrow a core's own cache: a line has left the reader's for the
// shared one before it is written again, and need not be taken back (measured with 512 KiB and
// 32 MiB). Smaller ones are faster where few slots stay in the first cache, and between more than
// two ranks the slots outgrow the shared one. Between hosts a message is a system call at each end,
// or two, and its credit has a long way: there are large slots, and more small ones, as far as they
// do not crowd the link.
constexpr std::array kShapes{
    PlanShape{Protocol::kFlagged, 1, 8, 0},
    PlanShape{Protocol::kSlots, 1, 32, 40 << 10, PlanShape::For::kPair},
    PlanShape{Protocol::kSlots, 1, 8, 40 << 10, PlanShape::For::kHosts},
    PlanShape{Protocol::kSlots, 1, 2, 256 << 10},
    PlanShape{Protocol::kSlots, 2, 2, 16 << 10},
    PlanShape{Protocol::kSlots, 2, 2, 64 << 10},
    PlanShape{Protocol::kSlots, 2, 2, 128 << 10},
    PlanShape{Protocol::kSlots, 1, 4, 128 << 10, PlanShape::For::kHosts},
    PlanShape{Protocol::kSlots, 1, 2, 512 << 10, PlanShape::For::kHosts},
    PlanShape{Protocol::kDirect, 1, 2, 0},
};
static_assert(kShapes.size() <= kMostPlanShapes);

// The number of ranks of a hierarchy of unequal groups up to which it is priced: beyond, only who
// forces it takes it.
constexpr std::int32_t kMostUnlikeRanks = 1024;

const HostCosts& costs_of(const CostSet& costs, Protocol protocol, PeerAccess access) {
  if (protocol == Protocol::kFlagged) return costs.flagged;
  if (protocol == Protocol::kSlots) return costs.slotted;
  return access == PeerAccess::kMapped ? costs.mapped : costs.attached;
}

std::vector<const Algorithm*> list_algorithms() {
  std::vector<const Algorithm*> list;
  for (const auto& part : {all_algorithms(), direct_algorithms()})
    list.insert(list.end(), part.begin(), part.end());
  list.resize(std::min(list.size(), kMaxAlgorithms));
  return list;
}

// Whoever forces slots or their size names another shape.
bool is_meant_for(const PlanShape& shape, const Forced& forced, const ScheduleCounts& counts) {
  if (shape.whom == PlanShape::For::kAll) return true;
  if (forced.slots != 0 || forced.slot_bytes != 0) return false;
  const bool far = counts.far_depth > 0;
  return shape.whom == PlanShape::For::kHosts ? far : counts.ranks == 2 && !far;
}

// Are too many bytes under way between two ranks of different hosts when all of its large slots are
// full? What is sent and received passes through both ends' caches, so as little as keeps the link
// busy is best: a few times what it carries in a message's latency, there and back.
bool crowds_link(const Settings& settings, const Forced& forced, const Contender& contender,
                 const PlanShape& shape) {
  constexpr std::uint64_t kLargeSlot = 128 << 10;
  constexpr double kAlwaysFine = 768 << 10, kRoundTrips = 2;  // measured over TCP
  if (shape.slot_bytes < kLargeSlot || contender.counts.far_depth == 0) return false;
  if (forced.slots != 0 || forced.slot_bytes != 0) return false;
  const ScheduleShape counted = contender.algorithm->shape(contender.problem);
  const double under_way =
      static_cast<double>(shape.slot_bytes) * shape.slots * shape.replicas * counted.max_per_pair;
  const LinkCost& wire = settings.slots_wire;
  return under_way > std::max(kAlwaysFine, kRoundTrips * 2 * wire.alpha_ns / wire.beta_ns_per_byte);
}

// Candidates of what has been counted.
Contender make_contender(const Settings& settings, const Forced& forced, Contender contender) {
  const bool direct = works_in_peers(contender.counts);
  bool admitted = false;
  for (std::size_t shape = 0; shape < kShapes.size(); ++shape) {
    const Protocol protocol = kShapes[shape].protocol;
    if (direct != (protocol == Protocol::kDirect)) continue;
    if (!is_meant_for(kShapes[shape], forced, contender.counts)) continue;
    if (crowds_link(settings, forced, contender, kShapes[shape])) continue;
    if (forced.protocol && *forced.protocol != protocol) continue;
    admitted = true;
    Result<Candidate> candidate =
        make_candidate(settings, forced, *contender.algorithm, contender.problem, shape);
    if (candidate)
      contender.candidates.push_back(*std::move(candidate));
    else if (contender.why_none.empty())
      contender.why_none = std::move(candidate).error().message;
  }
  if (!admitted)
    contender.why_none = fmt::format("{} does not run with the protocol {}",
                                     contender.algorithm->name, name_of(*forced.protocol));
  return contender;
}

// Of the largest message of a call, without the cut's rounding.
std::uint64_t message_of(const Contender& contender, std::uint64_t bytes) {
  const ScheduleCounts& counts = contender.counts;
  return (bytes + counts.chunks - 1) / counts.chunks * counts.max_message_chunks;
}

std::uint64_t slices_of(const Settings& settings, const Candidate& candidate,
                        std::uint64_t message) {
  return std::max<std::uint64_t>(
      {1, settings.min_slices, (message + candidate.message_bytes - 1) / candidate.message_bytes});
}

// Epochs of flagged cells count messages in 24 bits; far beyond any size where they could win. Half
// of it, as a size class has larger sizes than its own.
bool can_count(const Candidate& candidate, const ScheduleCounts& counts, std::uint64_t slices) {
  return candidate.options.protocol == Protocol::kSlots || slices * counts.max_steps < (1U << 23);
}

// May the candidate's shape be taken for so many bytes? Alike for all sizes of a class, which the
// table looks up: a slot holds the largest of them, too.
bool suits(const Candidate& candidate, const Contender& contender, std::uint64_t bytes) {
  constexpr std::uint64_t kLeastBytes = 3 << 10;
  if (kShapes[candidate.shape].whom != PlanShape::For::kPair) return true;
  const std::uint64_t message = message_of(contender, class_bytes(size_class(bytes)));
  return message >= kLeastBytes && message <= candidate.message_bytes;
}

// What a call that may repeat takes beyond its price: of several slices it does not, nor in peers'
// memory, where no root runs ahead of the others; and of one each step beside those of the path,
// which has a message of its own. Among two ranks the rooted ones come in rows, in which the lanes
// of one call gain nothing by overlapping: each end works on all operands. Within a host: beside
// the latency of a network that is little.
double small_call_ns(const Settings& settings, const Contender& contender, const HostCosts& costs,
                     std::uint64_t bytes, std::uint64_t slices) {
  const ScheduleCounts& counts = contender.counts;
  if (bytes > kMostStraightBytes || counts.far_depth > 0 || counts.ranks > settings.cores) return 0;
  if (slices > 1) return costs.slices_ns;
  const bool rooted = info_of(contender.problem.collective).rooted;
  if (works_in_peers(counts)) return rooted ? costs.rooted_ns : costs.slices_ns;
  const auto beyond = [](std::uint64_t all, std::uint64_t some) {
    return static_cast<double>(all - std::min(all, some));
  };
  double ns = costs.other_message_ns * (beyond(counts.max_steps, counts.lane_steps) +
                                        beyond(counts.path_steps, counts.depth + 1));
  if (counts.ranks == 2 && rooted) {
    const double piece = static_cast<double>(bytes) / counts.chunks;
    if (piece * counts.max_message_chunks > kCellPayloadBytes) ns += costs.long_message_ns;
    ns += piece * costs.beta_ns_per_byte * beyond(2 * counts.max_operands, counts.path_operands);
  }
  return ns;
}

}  // namespace

bool cheaper(const Priced& a, const Priced& b) {
  if (a.cost.time_ns != b.cost.time_ns) return a.cost.time_ns < b.cost.time_ns;
  return a.contender->counts.lane_steps < b.contender->counts.lane_steps;
}

bool works_in_peers(const ScheduleCounts& counts) { return counts.total_remotes > 0; }
bool stores_into_peers(const ScheduleCounts& counts) { return counts.total_stores > 0; }

std::span<const PlanShape> plan_shapes() { return kShapes; }

std::span<const Algorithm* const> listed_algorithms() {
  static const auto* const list = new std::vector<const Algorithm*>(list_algorithms());
  return *list;
}

Result<Candidate> make_candidate(const Settings& settings, const Forced& forced,
                                 const Algorithm& algorithm, const Problem& problem,
                                 std::size_t shape) {
  const PlanShape& own = kShapes[shape];
  Candidate c{.algorithm = &algorithm,
              .shape = shape,
              .options = {.protocol = own.protocol,
                          .replicas = forced.replicas != 0 ? forced.replicas : own.replicas,
                          .slots = forced.slots != 0 ? forced.slots : own.slots,
                          .slot_bytes = forced.slot_bytes != 0 ? forced.slot_bytes : own.slot_bytes,
                          .arena_bytes = settings.arena_bytes,
                          .min_slices = std::max(forced.min_slices, 1u)}};
  Result<std::uint64_t> capacity = message_capacity(algorithm, problem, c.options);
  // A pair's cells are few where it has several connections, or messages of many chunks.
  if (own.protocol == Protocol::kFlagged && forced.slots == 0)
    for (std::uint32_t slots = own.slots / 2; !capacity && slots >= 2; slots /= 2) {
      c.options.slots = slots;
      capacity = message_capacity(algorithm, problem, c.options);
    }
  TUTTI_TRY_ASSIGN(c.message_bytes, std::move(capacity));
  return c;
}

const Algorithm& with_groups(const Settings& settings, const Algorithm& algorithm,
                             const Problem& problem) {
  const std::string_view groups = settings.group_text();
  if (groups.empty() || !algorithm.takes_groups) return algorithm;
  const auto grouped = find_algorithm(fmt::format("{}:groups={}", algorithm.name, groups));
  return grouped && (*grouped)->supports(problem) ? **grouped : algorithm;
}

namespace {

// The host of the rank at each place. Replicas with orders of their own are as the first one.
std::vector<std::int32_t> hosts_of_places(const Algorithm& algorithm,
                                          std::span<const std::int32_t> hosts,
                                          const RankOrders* orders) {
  std::vector<std::int32_t> at(hosts.begin(), hosts.end());
  if (orders == nullptr || hosts.empty()) return at;
  const auto ranks = static_cast<std::int32_t>(hosts.size());
  const std::vector<RankOrder>& own = orders->of(algorithm, ranks);
  for (Rank place = 0; place < ranks && !own.empty(); ++place)
    at[static_cast<std::size_t>(place)] =
        hosts[static_cast<std::size_t>(own.front().rank_at(place))];
  return at;
}

// Between hosts nobody works in another rank's memory. And the messages of many ranks of which none
// are alike would take long to count.
bool is_out_of_question(const Algorithm& algorithm, const Problem& problem,
                        std::span<const std::int32_t> hosts) {
  constexpr std::int32_t kMostUnlikeDirectRanks = 128;
  if (!is_direct(algorithm)) return false;
  return std::ranges::adjacent_find(hosts, std::not_equal_to<>()) != hosts.end() ||
         (problem.ranks > kMostUnlikeDirectRanks && info_of(problem.collective).rooted);
}

}  // namespace

Result<std::vector<Contender>> contenders(const Settings& settings, const Forced& forced,
                                          const Problem& problem,
                                          std::span<const std::int32_t> hosts,
                                          const RankOrders* orders) {
  const std::span<const Algorithm* const> tried =
      forced.algorithm != nullptr ? std::span(&forced.algorithm, 1) : listed_algorithms();
  std::vector<Contender> list;
  for (const Algorithm* const algorithm : tried) {
    if (forced.algorithm == nullptr && !algorithm->supports(problem)) continue;
    if (forced.algorithm == nullptr && is_out_of_question(*algorithm, problem, hosts)) continue;
    const Algorithm& grouped = with_groups(settings, *algorithm, problem);
    // Programs of unequal groups are all different, and each takes its time.
    const bool unlike = &grouped != algorithm && grouped.symmetry(problem) == Symmetry{};
    // And what could not be verified would not run. Whoever forces it learns why.
    if (forced.algorithm == nullptr && problem.ranks > kMostUnlikeRanks &&
        (unlike || !check_provable(grouped, problem)))
      continue;
    const Result<ScheduleCounts> counts =
        count_schedule(grouped, problem, hosts_of_places(grouped, hosts, orders));
    // What is too large to be priced is for those who force it.
    if (!counts && forced.algorithm == nullptr && counts.error().code == Code::kNotSupported)
      continue;
    if (!counts) return tl::unexpected(counts.error());
    list.push_back(
        make_contender(settings, forced, {&grouped, algorithm, problem, *counts, {}, {}}));
  }
  return list;
}

ContenderPrices::ContenderPrices(const Settings& settings, const Contender& contender,
                                 PeerAccess access, const MeasuredByName& measured)
    : settings_(settings), contender_(contender), access_(access) {
  prices_.reserve(contender.candidates.size());
  for (const Candidate& candidate : contender.candidates) {
    const PlanOptions& options = candidate.options;
    const bool flagged = options.protocol == Protocol::kFlagged;
    prices_.emplace_back(
        contender.counts, costs_of(settings.costs, options.protocol, access),
        PlanSetting{.replicas = options.replicas,
                    .slots = options.slots,
                    .cores = settings.cores,
                    .wire = flagged ? settings.flagged_wire : settings.slots_wire});
    // A plan that is cut into more slices is another one than its name says.
    if (measured.empty() || settings.min_slices > 1) continue;
    const auto found = measured.find(plan_name(*candidate.algorithm, options));
    measured_.push_back(found == measured.end() ? nullptr : found->second);
  }
}

std::string_view ContenderPrices::why_refused() const {
  if (works_in_peers(contender_.counts) && access_ == PeerAccess::kNone)
    return "it works in other ranks' memory, and their buffers are out of reach from here";
  if (stores_into_peers(contender_.counts) && access_ != PeerAccess::kMapped)
    return "it stores into other ranks' memory, which ranks of other processes allow in windows "
           "alone; pass buffers in windows (tuttiCommWindowRegister)";
  return {};
}

void ContenderPrices::append(std::uint64_t bytes, std::vector<Priced>& to) const {
  if (!why_refused().empty()) return;
  const std::uint64_t message = message_of(contender_, bytes);
  for (std::size_t i = 0; i < prices_.size(); ++i) {
    const Candidate& candidate = contender_.candidates[i];
    if (!suits(candidate, contender_, bytes)) continue;
    const std::uint64_t slices = slices_of(settings_, candidate, message);
    if (!can_count(candidate, contender_.counts, slices)) continue;
    PlanCost cost = prices_[i].at(bytes, static_cast<std::uint32_t>(slices));
    const HostCosts& costs = costs_of(settings_.costs, candidate.options.protocol, access_);
    const double small_ns = small_call_ns(settings_, contender_, costs, bytes, slices);
    cost.steps_ns += small_ns;
    cost.time_ns += small_ns;
    to.push_back({&contender_, &candidate, static_cast<std::uint32_t>(slices), cost});
    if (!measured_.empty() && measured_[i] != nullptr)
      to.back().measured_us = time_at(*measured_[i], bytes);
  }
}

std::string ContenderPrices::why_none(std::uint64_t bytes) const {
  if (const std::string_view why = why_refused(); !why.empty()) return std::string(why);
  const std::uint64_t message = message_of(contender_, bytes);
  for (const Candidate& candidate : contender_.candidates)
    if (!can_count(candidate, contender_.counts, slices_of(settings_, candidate, message)))
      return fmt::format("{} needs more messages than the protocol flagged can count; use @slots",
                         contender_.algorithm->name);
  return contender_.why_none;
}

Result<std::vector<Priced>> price_candidates(const Settings& settings,
                                             std::span<const Contender> contenders,
                                             std::uint64_t bytes, PeerAccess access,
                                             const MeasuredByName& measured) {
  std::vector<Priced> all;
  for (const Contender& contender : contenders)
    ContenderPrices(settings, contender, access, measured).append(bytes, all);
  if (all.empty()) {
    std::string_view what = "a call";
    std::string why = "no algorithm implements it";
    if (!contenders.empty()) {
      what = name_of(contenders.front().problem.collective);
      why = ContenderPrices(settings, contenders.front(), access).why_none(bytes);
    }
    return make_error(Code::kNotSupported,
                      fmt::format("there is no plan for {} of {} bytes: {}", what, bytes, why));
  }
  std::stable_sort(all.begin(), all.end(), cheaper);
  return all;
}

}  // namespace tutti
