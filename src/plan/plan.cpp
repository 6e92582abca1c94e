// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "algorithms/arrangement.hpp"
#include "algorithms/orbit_proof.hpp"
#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"
#include "schedule/verify/step_checks.hpp"

namespace tutti {
namespace {

#ifdef NDEBUG
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif

// Proofs made when a plan is compiled must not be felt: this many operands of all ranks cost well
// under 1 ms (2 GHz EPYC, Release), which every rank pays. Larger schedules run on the family's
// seal.
constexpr std::uint64_t kVerifyBudget = 2000;
// Of more, a plan is verified from one rank's program, where ranks are alike.
constexpr std::int32_t kMostWholeRanks = kDebugBuild ? 128 : 16;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;  // of a slice's bytes

// (source, destination, tag): the name of a connection.
using Edge = std::tuple<Rank, Rank, Tag>;

// FNV-1a over 64-bit words; only for identity within one job.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  for (int byte = 0; byte < 8; ++byte) {
    hash ^= (word >> (8 * byte)) & 0xff;
    hash *= 0x100000001b3;
  }
  return hash;
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

const RankOrder& order_of(const PlanOptions& options, std::uint32_t replica) {
  static const RankOrder by_number;
  if (options.orders == nullptr || options.orders->empty()) return by_number;
  return (*options.orders)[replica % options.orders->size()];
}

// Orders in use, each replica's; one where all have the same.
std::uint32_t orders_in(const PlanOptions& options) {
  const std::size_t orders = options.orders == nullptr ? 0 : options.orders->size();
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(orders, 1, options.replicas));
}

std::uint64_t carve_hash(const Algorithm& algorithm, const Problem& problem,
                         const PlanOptions& options, std::uint64_t slot_bytes) {
  std::uint64_t hash = hash_text(algorithm.name);
  for (const std::uint64_t word :
       {static_cast<std::uint64_t>(problem.collective), static_cast<std::uint64_t>(problem.ranks),
        static_cast<std::uint64_t>(problem.root), static_cast<std::uint64_t>(options.protocol),
        std::uint64_t{options.replicas}, std::uint64_t{options.slots}, slot_bytes,
        options.packets ? 1 + static_cast<std::uint64_t>(*options.packets) : 0})
    hash = mix(hash, word);
  for (std::uint32_t replica = 0; replica < orders_in(options); ++replica)
    for (const Rank rank : order_of(options, replica).ranks())
      hash = mix(hash, static_cast<std::uint64_t>(rank));
  return hash;
}

Arrangement arrangement_of(const PlanOptions& options) {
  Arrangement arrangement{.replicas = options.replicas};
  if (options.orders != nullptr) arrangement.orders = *options.orders;
  return arrangement;
}

// All ranks' programs after the passes, one at a time: nobody holds the whole schedule to run.
class Programs {
 public:
  Programs(const Algorithm& algorithm, const Problem& problem, const PlanOptions& options)
      : algorithm_(algorithm), problem_(problem), arrangement_(arrangement_of(options)) {}

  [[nodiscard]] ScheduleShape shape() const {
    return arranged_shape(algorithm_, problem_, arrangement_);
  }
  [[nodiscard]] RankProgram program(Rank rank) const {
    return arranged_program(algorithm_, problem_, arrangement_, rank);
  }

 private:
  const Algorithm& algorithm_;
  const Problem& problem_;
  Arrangement arrangement_;
};

// The connections into (or out of) a rank, sorted: the order is the layout.
std::vector<Edge> edges_of(const RankProgram& program, Rank rank, OperandKind kind) {
  std::vector<Edge> edges;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      for (const Operand& operand : kind == OperandKind::kSend ? step.destinations : step.sources)
        if (operand.kind == kind)
          edges.push_back(kind == OperandKind::kSend ? Edge{rank, operand.peer, operand.tag}
                                                     : Edge{operand.peer, rank, operand.tag});
  if (!std::ranges::is_sorted(edges)) std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

// A message holds an element of each of its chunks, whatever the type.
Status check_message(const ScheduleShape& shape, std::uint64_t message_bytes) {
  constexpr std::uint64_t kLargestElement = 8;
  if (message_bytes >= shape.max_message_chunks * kLargestElement) return {};
  return make_error(
      Code::kInvalidArgument,
      fmt::format("{} among {} ranks sends {} chunks in a message, which do not fit into {} bytes; "
                  "raise TUTTI_SLOT_BYTES or TUTTI_ARENA_BYTES",
                  shape.algorithm, shape.ranks, shape.max_message_chunks, message_bytes));
}

// Payload bytes of a message; sets o.slot_bytes to what a slot really takes.
Result<std::uint64_t> lay_out_capacity(const ScheduleShape& shape, PlanOptions& o) {
  if (shape.max_per_pair > o.connections_per_pair)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} with {} replicas needs {} connections between two ranks, but there are {}; "
                    "use fewer replicas (TUTTI_REPLICAS), or another algorithm or grouping",
                    shape.algorithm, o.replicas, shape.max_per_pair, o.connections_per_pair));
  if (o.slots > kMaxSlots)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} slots per connection are too many: at most {}; lower TUTTI_SLOTS", o.slots,
                    kMaxSlots));
  if (o.protocol != Protocol::kSlots) {
    const std::uint64_t pair = std::max<std::uint64_t>(shape.max_per_pair, 1);
    const std::uint64_t cells = o.cells_per_pair / (pair * o.slots);
    if (cells == 0)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{} needs {} connections of {} slots per pair of ranks, but the protocol "
                      "flagged has room for {}; use @slots or fewer replicas",
                      shape.algorithm, shape.max_per_pair, o.slots, o.cells_per_pair));
    if (o.protocol == Protocol::kDirect) return o.slot_bytes == 0 ? kNoLimit : o.slot_bytes;
    o.slot_bytes = cells * kCellBytes;
    return o.packets ? packet_capacity(*o.packets, o.slot_bytes, shape.max_message_chunks)
                     : cells * kCellPayloadBytes;
  }
  const std::uint64_t incoming = std::max<std::uint64_t>(shape.max_incoming, 1);
  const std::uint64_t share =
      o.arena_bytes / (incoming * o.slots) / kCacheLineBytes * kCacheLineBytes;
  o.slot_bytes = (o.slot_bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  o.slot_bytes =
      std::min(o.slot_bytes, share > kPageBytes ? share / kPageBytes * kPageBytes : share);
  if (o.slot_bytes < 2 * kSlotHeaderBytes)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} among {} ranks needs {} connections of {} slots, which do not fit into the "
                    "receive buffer of {} bytes; raise TUTTI_ARENA_BYTES",
                    shape.algorithm, shape.ranks, incoming, o.slots, o.arena_bytes));
  return o.slot_bytes - kSlotHeaderBytes;
}

// Of the protocols with cells.
std::uint32_t cells_per_slot(const PlanOptions& o) {
  return o.protocol == Protocol::kDirect ? 1
                                         : static_cast<std::uint32_t>(o.slot_bytes / kCellBytes);
}

// A connection's part of the pair's short cells: divided as the connections may be, by all plans.
std::uint32_t share_of_short_cells(const ScheduleShape& shape) {
  return kShortCellsPerPair / std::bit_ceil(std::max(shape.max_per_pair, 1u));
}

// Collectives with a root have them, whose messages go one way. Where ranks answer each other
// nobody runs ahead, and many cells only take longer: the processor fetches ones that the peer will
// write.
std::uint32_t short_slots(const Plan& plan) {
  const PlanOptions& o = plan.options;
  const bool has = info_of(plan.shape.collective).rooted && o.protocol == Protocol::kFlagged;
  return has && !o.packets ? share_of_short_cells(plan.shape) : 0;
}

ConnectionSpec make_spec(const Plan& plan, const Edge& edge, std::uint32_t index,
                         std::uint32_t inbox_position) {
  const PlanOptions& o = plan.options;
  const bool direct = o.protocol == Protocol::kDirect;
  ConnectionSpec spec{.source = std::get<0>(edge),
                      .destination = std::get<1>(edge),
                      .index = index,
                      .protocol = direct ? Protocol::kFlagged : o.protocol,
                      .slots = o.slots};
  if (o.protocol != Protocol::kSlots) {
    spec.cells_per_slot = cells_per_slot(o);
    spec.first_cell = index * o.slots * spec.cells_per_slot;
    spec.short_slots = short_slots(plan);
    spec.slot_bytes = spec.cells_per_slot * kCellBytes;
  } else {
    spec.slot_bytes = o.slot_bytes;
    spec.arena_offset_bytes =
        o.arena_begin + std::uint64_t{inbox_position} * o.slots * o.slot_bytes;
  }
  return spec;
}

// Specs for `edges` (sorted), with the index within each pair, and the inbox position that
// `position_of` gives.
template <typename PositionOf>
std::map<Edge, std::uint16_t> add_specs(const Plan& plan, const std::vector<Edge>& edges,
                                        std::vector<ConnectionSpec>& specs,
                                        PositionOf position_of) {
  std::map<Edge, std::uint16_t> numbers;
  std::uint32_t index = 0;
  std::pair<Rank, Rank> pair{kNoRank, kNoRank};
  for (const Edge& edge : edges) {
    const std::pair<Rank, Rank> own{std::get<0>(edge), std::get<1>(edge)};
    index = own == pair ? index + 1 : 0;
    pair = own;
    numbers[edge] = static_cast<std::uint16_t>(specs.size());
    specs.push_back(make_spec(plan, edge, index, position_of(edge)));
  }
  return numbers;
}

struct ConnectionNumbers {
  std::map<Edge, std::uint16_t> sends, recvs;
};

ConnectionNumbers lay_out_connections(Plan& plan, const Programs& programs,
                                      const RankProgram& own) {
  const auto position_in = [](const std::vector<Edge>& inbox, const Edge& edge) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(inbox, edge) - inbox.begin());
  };
  ConnectionNumbers numbers;
  const std::vector<Edge> incoming = edges_of(own, plan.rank, OperandKind::kRecv);
  numbers.recvs = add_specs(plan, incoming, plan.recvs,
                            [&](const Edge& edge) { return position_in(incoming, edge); });
  Rank cached = kNoRank;
  std::vector<Edge> inbox;
  const std::vector<Edge> outgoing = edges_of(own, plan.rank, OperandKind::kSend);
  numbers.sends = add_specs(plan, outgoing, plan.sends, [&](const Edge& edge) -> std::uint32_t {
    if (plan.options.protocol != Protocol::kSlots) return 0;
    if (const Rank peer = std::get<1>(edge); peer != cached) {
      inbox = edges_of(programs.program(peer), peer, OperandKind::kRecv);
      cached = peer;
    }
    return position_in(inbox, edge);
  });
  return numbers;
}

// Refuses what the executors cannot run. They use peers' input and output under kDirect, whose
// messages carry no data, and no remote operand elsewhere.
Status check_remotes(const Plan& plan, const RankProgram& program) {
  const bool direct = plan.options.protocol == Protocol::kDirect;
  const auto refuse = [&](std::string_view what) {
    return make_error(Code::kNotSupported,
                      fmt::format("{} {}, which the protocol {} cannot do", plan.shape.algorithm,
                                  what, name_of(plan.options.protocol)));
  };
  // Calls in place are made to fit by Operation, which direct plans always run by.
  if (plan.shape.apart && !direct) return refuse("keeps input and output apart");
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps) {
      for (const auto* side : {&step.destinations, &step.sources})
        for (const Operand& operand : *side) {
          if (direct && operand.kind == OperandKind::kSend && operand.span.count() > 0)
            return refuse("sends data");
          if (operand.kind != OperandKind::kRemote) continue;
          if (!direct) return refuse("works in a peer's memory");
          if (plan.shape.apart && operand.buffer == BufferKind::kOutput)
            return refuse("works in a peer's output, which may not be the program's,");
          if (operand.buffer == BufferKind::kScratch) return refuse("works in a peer's scratch");
        }
    }
  return {};
}

std::uint16_t number_of(std::vector<Rank>& remotes, Rank peer) {
  const auto found = std::ranges::find(remotes, peer);
  const auto number = static_cast<std::uint16_t>(found - remotes.begin());
  if (found == remotes.end()) remotes.push_back(peer);
  return number;
}

void flatten(Plan& plan, const RankProgram& program, const ConnectionNumbers& numbers) {
  const auto append = [&](const Operand& operand) {
    PlanOperand flat{
        .kind = operand.kind, .buffer = operand.buffer, .peer = operand.peer, .span = operand.span};
    if (operand.kind == OperandKind::kSend)
      flat.connection = numbers.sends.at({plan.rank, operand.peer, operand.tag});
    if (operand.kind == OperandKind::kRecv)
      flat.connection = numbers.recvs.at({operand.peer, plan.rank, operand.tag});
    if (operand.kind == OperandKind::kRemote) {
      flat.connection = number_of(plan.remotes, operand.peer);
      plan.steps.back().remote = true;
    }
    plan.operands.push_back(flat);
  };
  for (const Lane& lane : program.lanes) {
    plan.lanes.push_back({static_cast<std::uint32_t>(plan.steps.size()),
                          static_cast<std::uint32_t>(lane.steps.size()), lane.replica});
    for (const Step& step : lane.steps) {
      plan.steps.push_back({.first_operand = static_cast<std::uint32_t>(plan.operands.size()),
                            .first_wait = static_cast<std::uint32_t>(plan.waits.size()),
                            .destinations = static_cast<std::uint16_t>(step.destinations.size()),
                            .sources = static_cast<std::uint16_t>(step.sources.size()),
                            .waits = static_cast<std::uint16_t>(step.waits.size()),
                            .finish = step.finish});
      for (const Operand& operand : step.destinations) append(operand);
      plan.steps.back().stores = plan.steps.back().remote;
      plan.stores |= plan.steps.back().stores;
      for (const Operand& operand : step.sources) append(operand);
      plan.waits.insert(plan.waits.end(), step.waits.begin(), step.waits.end());
    }
  }
  // Who works in this rank's memory has been told so.
  if (plan.options.protocol == Protocol::kDirect)
    for (const ConnectionSpec& spec : plan.sends) number_of(plan.remotes, spec.destination);
}

// Proofs made in this process, so that ranks that are threads and repeated compiles prove once.
class ProofCache {
 public:
  // `rank` compiles it. Beyond kMostWholeRanks the proof is one of places, which an order only
  // renames, and each rank compares its own program with the one that was proved.
  Status prove(const Algorithm& algorithm, const Problem& problem, const PlanOptions& options,
               Rank rank) {
    std::vector<RankOrder> orders;
    for (std::uint32_t replica = 0; replica < orders_in(options); ++replica)
      orders.push_back(order_of(options, replica));
    const bool large = problem.ranks > kMostWholeRanks;
    const Key key{algorithm.name,   problem.collective, problem.ranks,    problem.root,
                  options.replicas, options.slots,      std::move(orders)};
    const std::lock_guard lock(mutex_);
    if (large) return prove_places(algorithm, problem, options, std::get<6>(key), rank);
    if (proved_.contains(key)) return {};
    TUTTI_TRY_ASSIGN(const Schedule schedule,
                     arranged_schedule(algorithm, problem, arrangement_of(options)));
    TUTTI_TRY(verify(schedule, {.slots = options.slots}));
    proved_.insert(key);
    return {};
  }

 private:
  // Every replica does the same at its places.
  Status prove_places(const Algorithm& algorithm, const Problem& problem,
                      const PlanOptions& options, const std::vector<RankOrder>& orders, Rank rank) {
    TUTTI_TRY(proof::check_shape(replicate_shape(algorithm.shape(problem), options.replicas)));
    for (const RankOrder& order : orders) {
      Problem at_places = problem;
      at_places.root = order.place_of(problem.root);
      const Rank place = order.place_of(rank);
      const PlaceKey key{algorithm.name, problem.collective, problem.ranks,
                         at_places.root, options.slots,      place};
      if (places_.contains(key)) continue;
      const Rank compare[] = {place};
      const VerifyOptions verify_options{.slots = options.slots};
      const Result<Proof> by_orbit = prove_by_orbit(algorithm, at_places, verify_options, compare);
      if (!by_orbit) {
        // The programs of all ranks are verified once for all ranks of this process.
        if (by_orbit.error().code != Code::kNotSupported) return tl::unexpected(by_orbit.error());
        PlaceKey whole = key;
        std::get<5>(whole) = kNoRank;
        if (!places_.contains(whole))
          TUTTI_TRY(prove_for_all(algorithm, at_places, verify_options));
        places_.insert(whole);
      }
      places_.insert(key);
    }
    return {};
  }

  // What every rank finds alike is kNotSupported. A rank that is alone with its own program, since
  // the ranks are not as alike as the algorithm declares, must not look like that.
  static Status prove_for_all(const Algorithm& algorithm, const Problem& problem,
                              const VerifyOptions& options) {
    const Result<Proof> proof = prove_whole(algorithm, problem, options);
    if (proof || proof.error().code != Code::kNotSupported) return proof.map([](const Proof&) {});
    TUTTI_TRY(check_provable(algorithm, problem));
    return make_error(Code::kInternalError,
                      fmt::format("{} declares its {} ranks to be alike, and they are not; report "
                                  "it as a bug, and take another algorithm",
                                  algorithm.name, problem.ranks));
  }

  using PlaceKey =
      std::tuple<std::string_view, Collective, std::int32_t, Rank, std::uint32_t, Rank>;
  using Key = std::tuple<std::string_view, Collective, std::int32_t, Rank, std::uint32_t,
                         std::uint32_t, std::vector<RankOrder>>;
  std::mutex mutex_;
  std::set<Key> proved_;       // guarded by mutex_
  std::set<PlaceKey> places_;  // guarded by mutex_
};

ProofCache& proof_cache() {
  static auto* const cache = new ProofCache;  // never destroyed: ranks may outlive main
  return *cache;
}

}  // namespace

Result<std::uint64_t> message_capacity(const Algorithm& algorithm, const Problem& problem,
                                       const PlanOptions& options) {
  PlanOptions laid_out = options;
  const ScheduleShape shape = Programs(algorithm, problem, options).shape();
  TUTTI_TRY_ASSIGN(const std::uint64_t bytes, lay_out_capacity(shape, laid_out));
  TUTTI_TRY(check_message(shape, bytes));
  return bytes;
}

Result<std::uint64_t> arena_bytes_of(const Algorithm& algorithm, const Problem& problem,
                                     const PlanOptions& options) {
  if (options.protocol != Protocol::kSlots) return 0;
  PlanOptions laid_out = options;
  const ScheduleShape shape = Programs(algorithm, problem, options).shape();
  TUTTI_TRY(lay_out_capacity(shape, laid_out));
  return std::uint64_t{shape.max_incoming} * laid_out.slots * laid_out.slot_bytes;
}

std::uint64_t plan_id(const Algorithm& algorithm, const Problem& problem,
                      const PlanOptions& options) {
  return mix(mix(carve_hash(algorithm, problem, options, options.slot_bytes), options.arena_bytes),
             options.min_slices);
}

std::uint64_t Plan::slices_for(std::uint64_t count, std::size_t bytes_each) const {
  const std::uint64_t fit =
      std::max<std::uint64_t>(message_bytes / bytes_each / shape.max_message_chunks, 1);
  if (count <= fit && options.min_slices <= 1) return 1;
  UniformCut cut = cut_of(count, bytes_each, 1);
  const std::uint64_t slices =
      std::max<std::uint64_t>({(cut.max_slice_count() + fit - 1) / fit, options.min_slices, 1});
  if (slices > kMaxSlices) return slices;
  cut.slices = static_cast<std::uint32_t>(slices);
  while (cut.max_slice_count() > fit) ++cut.slices;  // grains round up: one more at most, mostly
  return cut.slices;
}

UniformCut Plan::cut_of(std::uint64_t count, std::size_t bytes_each, std::uint64_t slices) const {
  return {count, shape.chunks, static_cast<std::uint32_t>(slices), grain_elements(bytes_each),
          info_of(shape.collective).blocks_among(shape.ranks)};
}

Result<Plan> compile_plan(const Algorithm& algorithm, const Problem& problem,
                          const PlanOptions& options, Rank rank) {
  if (!algorithm.supports(problem))
    return make_error(Code::kNotSupported,
                      fmt::format("algorithm {} does not implement {} for {} ranks", algorithm.name,
                                  name_of(problem.collective), problem.ranks));
  const Programs programs(algorithm, problem, options);
  Plan plan;
  plan.algorithm = &algorithm;
  plan.options = options;
  plan.rank = rank;
  plan.shape = programs.shape();
  TUTTI_TRY_ASSIGN(plan.message_bytes, lay_out_capacity(plan.shape, plan.options));
  TUTTI_TRY(check_message(plan.shape, plan.message_bytes));
  plan.carve = carve_hash(algorithm, problem, options, plan.options.slot_bytes);
  plan.cells = std::uint64_t{plan.options.slots} << 48 |
               std::uint64_t{share_of_short_cells(plan.shape)} << 32 | cells_per_slot(plan.options);
  plan.id = plan_id(algorithm, problem, options);
  const RankProgram own = programs.program(rank);
  TUTTI_TRY(check_remotes(plan, own));
  flatten(plan, own, lay_out_connections(plan, programs, own));
  const std::uint64_t work = plan.operands.size() * static_cast<std::uint64_t>(problem.ranks);
  // Outside the list that the tests prove, nothing runs unproved, whatever the proof costs.
  const bool prove = kDebugBuild || options.always_verify || work <= kVerifyBudget ||
                     !proved_by_tests(algorithm, problem, arrangement_of(options));
  if (prove) TUTTI_TRY(proof_cache().prove(algorithm, problem, options, rank));
  plan.seal = prove ? Seal::kVerified : Seal::kFamily;
  return plan;
}

}  // namespace tutti
