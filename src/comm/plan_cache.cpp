// SPDX-License-Identifier: Apache-2.0
#include "comm/plan_cache.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "base/prefault.hpp"
#include "comm/ways.hpp"

namespace tutti {
namespace {

Error out_of_reach(const Algorithm& algorithm, const AccessView& view) {
  const std::string why = view.error == 0 ? fmt::format("rank {} has TUTTI_CMA=off", view.rank)
                          : view.error == EREMOTE
                              ? std::string("ranks exchange messages over a network here")
                              : fmt::format("rank {} may not read the memory of rank {}: {}",
                                            view.rank, view.refused, std::strerror(view.error));
  return {
      Code::kNotSupported,
      fmt::format("{} works in other ranks' memory, but {}; choose another algorithm or auto, or "
                  "pass buffers in windows (tuttiCommWindowRegister)",
                  algorithm.name, why),
      kNoRank};
}

}  // namespace

PlanCache::PlanCache(const Membership& members, const Agreement& agreement, Transport* transport,
                     LentMemory& lent, const WindowTable& windows)
    : members_(members),
      agreement_(agreement),
      settings_(agreement.settings),
      transport_(transport),
      lent_(lent),
      windows_(windows),
      arena_uses_(members.config().arena_bytes) {}

Status PlanCache::force_configured() {
  TUTTI_TRY_ASSIGN(configured_, parse_forced_set(settings_.forced_text()));
  return force({}).map_error(
      [this](Error error) { return of_algorithm_setting(members_.config(), std::move(error)); });
}

Status PlanCache::force(const ForcedSet& named) {
  const ForcedSet& wanted = named.text.empty() ? configured_ : named;
  std::array<Choices, kCollectiveCount> found;
  bool some = false;
  std::optional<Error> refused;
  for (const Collective collective : chosen_collectives(members_.ranks())) {
    const Problem problem{.collective = collective, .ranks = members_.ranks()};
    const Forced& plan = wanted.of(problem);
    Choices& mine = found[static_cast<std::size_t>(collective)];
    mine.forced = forced_by(settings_, plan);
    const auto row_at = [&](PeerAccess access) -> Result<ChoiceRow>& {
      return mine.rows[static_cast<std::size_t>(access)];
    };
    // Those that access_of can name.
    for (const PeerAccess access : {PeerAccess::kNone, PeerAccess::kAttach, PeerAccess::kMapped})
      if (access != PeerAccess::kAttach || access == settings_.direct.access)
        row_at(access) = row_for({problem, plan, access});
    const Result<ChoiceRow>& plain = row_at(settings_.direct.access);
    const Result<ChoiceRow>& window = row_at(PeerAccess::kMapped);
    const bool can = plain || (window && !windows_.empty());
    // What would refuse every call of a collective that is named is refused here.
    if (can)
      some |= plan.algorithm != nullptr || wanted.any.algorithm == nullptr;
    else if (wanted.named[static_cast<std::size_t>(collective)])
      return tl::unexpected(plain.error());
    else if (!refused)
      refused = plain.error();
  }
  if (!some && refused) return tl::unexpected(*refused);
  if (!some)  // a plan for all collectives that have it, and none has
    return check_problem(*wanted.any.algorithm,
                         {.collective = Collective::kAllReduce, .ranks = members_.ranks()});
  choices_ = std::move(found);
  forced_text_ = wanted.text;
  chosen_.fill({});
  ++generation_;
  return {};
}

Result<ChoiceRow> PlanCache::row_for(const RowQuestion& question) const {
  const auto& [problem, named, access] = question;
  if (named.algorithm != nullptr && is_direct(*named.algorithm) && members_.ranks() > 1 &&
      access == PeerAccess::kNone)
    return tl::unexpected(out_of_reach(*named.algorithm, settings_.direct));
  // Rank 0 priced what the settings force, so also every algorithm unless they say more.
  if (const ChoiceRow* const row = find_row(agreement_.table, configured_, question)) return *row;
  TUTTI_TRY_ASSIGN(const std::vector<Contender> all,
                   contenders(settings_, forced_by(settings_, named), problem,
                              agreement_.wire_hosts, &agreement_.orders));
  ChoiceRow row = make_row(settings_, all, access);
  if (row.empty()) TUTTI_TRY(price_candidates(settings_, all, 1, access));
  return row;
}

// Ranks stand by number there; in another order the sums would be in that one (passes.hpp).
Result<PlanCache::Rows> PlanCache::rows_in_order(const Problem& problem,
                                                 const Forced& forced) const {
  TUTTI_TRY_ASSIGN(std::vector<Contender> all,
                   contenders(settings_, forced, problem, agreement_.wire_hosts));
  std::erase_if(all, [&](const Contender& one) { return !one.algorithm->in_rank_order(problem); });
  if (all.empty())
    return make_error(
        Code::kNotSupported,
        fmt::format("{} does not reduce in the order of ranks here, and the operation is not "
                    "commutative; choose another algorithm or auto",
                    forced.name.empty() ? "any algorithm" : forced.name));
  const auto for_access = [&](PeerAccess access) -> Result<ChoiceRow> {
    ChoiceRow row = make_row(settings_, all, access);
    if (row.empty()) TUTTI_TRY(price_candidates(settings_, all, 1, access));
    return row;
  };
  Rows rows;
  for (std::size_t access = 0; access < rows.size(); ++access)
    rows[access] = for_access(static_cast<PeerAccess>(access));
  return rows;
}

PeerAccess PlanCache::access_of(const Call& call, bool in_windows) const {
  // Blocks of sizes of their own may lie elsewhere in a peer's buffer.
  if (call.sizes != nullptr) return PeerAccess::kNone;
  return in_windows ? PeerAccess::kMapped : settings_.direct.access;
}

Result<Candidate> PlanCache::look_up(const Call& call, bool in_windows) {
  Choices& mine = choices_[static_cast<std::size_t>(scheduled_as(call.collective))];
  const bool in_order = call.op == ReduceOp::kUserInOrder;
  if (in_order && !mine.in_order) {
    TUTTI_TRY_ASSIGN(mine.in_order, rows_in_order(problem_of(call), mine.forced));
  }
  const Rows& rows = in_order ? *mine.in_order : mine.rows;
  const Result<ChoiceRow>& row = rows[static_cast<std::size_t>(access_of(call, in_windows))];
  if (!row && call.sizes != nullptr && mine.forced.algorithm != nullptr &&
      is_direct(*mine.forced.algorithm))
    return make_error(
        Code::kNotSupported,
        fmt::format("{} works in other ranks' memory, and blocks of different sizes may "
                    "lie elsewhere there; choose another algorithm or auto",
                    mine.forced.name));
  if (!row) return tl::unexpected(row.error());
  const std::uint64_t bytes = call.data_bytes(members_.ranks());
  const std::size_t in_class = size_class(bytes);
  if (!row->has(in_class))
    return make_error(
        Code::kNotSupported,
        mine.forced.name.empty()
            ? fmt::format("no algorithm of this version implements {} for {} ranks",
                          call.info().name, members_.ranks())
            : fmt::format("there is no plan for {} of {} bytes by {}; use @slots, or auto",
                          call.info().name, bytes, mine.forced.name));
  const ChoiceRow::Entry entry = row->at(in_class);
  const Algorithm& algorithm = mine.forced.algorithm != nullptr
                                   ? *mine.forced.algorithm
                                   : *listed_algorithms()[entry.algorithm];
  const Problem problem = problem_of(call);
  return make_candidate(settings_, mine.forced, with_groups(settings_, algorithm, problem), problem,
                        entry.shape);
}

Result<Explanation> PlanCache::explain(const Call& as_called, bool in_windows) {
  Call call = as_called;
  if (carries_fp32(call)) call.type = DataType::kFloat32;
  TUTTI_TRY_ASSIGN(const Candidate running, look_up(call, in_windows));
  Choices& mine = choices_[static_cast<std::size_t>(scheduled_as(call.collective))];
  const Problem problem = problem_of(call);
  if (!mine.explained) {
    TUTTI_TRY_ASSIGN(mine.explained, contenders(settings_, forced_by(settings_, {}), problem,
                                                agreement_.wire_hosts, &agreement_.orders));
  }
  const std::uint64_t bytes = call.data_bytes(members_.ranks());
  const PeerAccess access = access_of(call, in_windows);
  const MeasuredByName measured =
      measured_for(agreement_.measured, problem, settings_.cores, access);
  TUTTI_TRY_ASSIGN(std::vector<Priced> priced,
                   price_candidates(settings_, *mine.explained, bytes, access, measured));
  // What is forced may be none of those: another form of an algorithm, or other slots.
  std::vector<Contender> forced;
  const auto runs_here = [&](const Priced& one) { return runs(one, running); };
  if (std::ranges::none_of(priced, runs_here)) {
    TUTTI_TRY_ASSIGN(forced, contenders(settings_, mine.forced, problem, agreement_.wire_hosts,
                                        &agreement_.orders));
    TUTTI_TRY_ASSIGN(const std::vector<Priced> own,
                     price_candidates(settings_, forced, bytes, access, measured));
    std::ranges::copy_if(own, std::back_inserter(priced), runs_here);
    std::ranges::stable_sort(priced, cheaper);
  }
  Explanation explanation{.collective = call.collective,
                          .bytes = bytes,
                          .ranks = members_.ranks(),
                          .where = fmt::format("{} cores", settings_.cores),
                          .forced = mine.forced.name,
                          .source = settings_.cost_source.data(),
                          .note = agreement_.order_text(),
                          .candidates = explain_candidates(priced, running)};
  return explanation;
}

Result<BoundPlan*> PlanCache::plan_for(const Call& call, bool in_windows) {
  const std::uint64_t bytes = call.data_bytes(members_.ranks());
  const bool in_order = call.op == ReduceOp::kUserInOrder;
  const std::uint64_t kind =
      static_cast<std::uint64_t>(scheduled_as(call.collective)) << 1 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 8 |
      (call.sizes != nullptr ? 1u << 7 : 0) | (in_order ? 1u << 6 : 0) | (in_windows ? 1 : 0);
  static_assert(kCollectiveCount <= 1 << 5);
  Chosen& chosen = chosen_[((bytes ^ kind << 40) * 0x9e3779b97f4a7c15u) >> 58];
  if (chosen.bytes == bytes && chosen.kind == kind) return last_plan_ = chosen.plan;
  TUTTI_TRY_ASSIGN(const Candidate candidate, look_up(call, in_windows));
  TUTTI_TRY_ASSIGN(last_plan_, bind(problem_of(call), candidate, in_order));
  chosen = {bytes, kind, last_plan_};
  return last_plan_;
}

Result<BoundPlan*> PlanCache::bind(const Problem& problem, const Candidate& candidate,
                                   bool by_number) {
  PlanOptions options = candidate.options;
  if (!by_number) options.orders = &agreement_.orders.of(*candidate.algorithm, members_.ranks());
  const std::uint64_t id = plan_id(*candidate.algorithm, problem, options);
  if (const auto found = plans_.find(id); found != plans_.end()) return found->second.get();
  TUTTI_TRY_ASSIGN(const std::uint64_t arena_bytes,
                   arena_bytes_of(*candidate.algorithm, problem, options));
  options.arena_begin = arena_uses_.next_begin(arena_bytes);
  options.always_verify = members_.config().verify;
  auto bound = std::make_unique<BoundPlan>();
  TUTTI_TRY_ASSIGN(bound->plan,
                   compile_plan(*candidate.algorithm, problem, options, members_.rank()));
  // From here on no error leaves the communicator as it was, so ranges stay equal on all ranks.
  if (plans_.size() >= kMostPlans) forget_oldest_plan();
  if (options.protocol == Protocol::kSlots) bound->arena = &arena_uses_.add(arena_bytes);
  TUTTI_TRY(connect(*bound));
  const Plan& plan = bound->plan;
  TUTTI_LOG(members_.log(), LogLevel::kInfo,
            "plan {:016x}: {} {} replicas {} slots {} x {} bytes, {} lanes, {} steps, {}", id,
            candidate.algorithm->name, name_of(plan.options.protocol), plan.options.replicas,
            plan.options.slots, plan.options.slot_bytes, plan.lanes.size(), plan.steps.size(),
            plan.seal == Seal::kVerified ? "verified" : "proved by family");
  BoundPlan* const raw = bound.get();
  plans_[id] = std::move(bound);
  return raw;
}

namespace {

// Of many slots each of the first calls would meet another one's pages. By the sender, whose first
// stores would make them; a receiver maps many at a fault.
void prefault_many(std::span<const Connection> ends) {
  constexpr std::uint32_t kMany = 8;
  for (const Connection& end : ends)
    if (end.protocol == Protocol::kSlots && end.slots > kMany && end.state->posts == nullptr)
      prefault(end.arena, end.slots * end.slot_bytes);
}

}  // namespace

Status PlanCache::connect(BoundPlan& bound) {
  std::vector<Connection> sends, recvs;
  for (const ConnectionSpec& spec : bound.plan.sends) {
    TUTTI_TRY(
        transport_->connect(spec.destination, Deadline::in_ns(members_.config().op_timeout_ns)));
    TUTTI_TRY_ASSIGN(Connection connection, transport_->open_send(spec));
    sends.push_back(connection);
  }
  for (const ConnectionSpec& spec : bound.plan.recvs) {
    TUTTI_TRY_ASSIGN(Connection connection, transport_->open_recv(spec));
    recvs.push_back(connection);
  }
  prefault_many(sends);
  DirectAccess direct{.own = &lent_, .peers = {}};
  for (const Rank peer : bound.plan.remotes) {
    TUTTI_TRY_ASSIGN(PeerMemory memory, memory_of(peer, members_, windows_));
    direct.peers.push_back(std::move(memory));
  }
  bound.executor = std::make_unique<HostExecutor>(bound.plan, std::move(sends), std::move(recvs),
                                                  std::move(direct));
  return {};
}

Rank PlanCache::find_behind(BoundPlan& plan, std::uint64_t fence) const {
  for (const ConnectionSpec& spec : plan.plan.sends)
    if (transport_->done_of(spec.destination) < fence) return spec.destination;
  plan.fence_passed = fence;
  return kNoRank;
}

// By operations, so the same one on all ranks; none is under way.
void PlanCache::forget_oldest_plan() {
  const auto oldest = std::ranges::min_element(
      plans_, {}, [](const auto& entry) { return entry.second->last_call; });
  if (oldest->second->arena != nullptr) arena_uses_.remove(*oldest->second->arena);
  if (last_plan_ == oldest->second.get()) last_plan_ = nullptr;
  forgotten_ += oldest->second->executor->traffic();
  plans_.erase(oldest);
  chosen_.fill({});
  ++generation_;
}

TrafficCounters PlanCache::traffic() const {
  TrafficCounters all = forgotten_;
  for (const auto& [id, bound] : plans_) all += bound->executor->traffic();
  return all;
}

std::set<Rank> PlanCache::connected() const {
  std::set<Rank> peers;
  for (const auto& [id, bound] : plans_) {
    for (const ConnectionSpec& spec : bound->plan.sends) peers.insert(spec.destination);
    for (const ConnectionSpec& spec : bound->plan.recvs) peers.insert(spec.source);
  }
  return peers;
}

}  // namespace tutti
