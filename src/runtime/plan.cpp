#include "runtime/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

// Proofs made when a plan is compiled must not be felt: this many steps of all ranks cost well
// under 5 ms (2 GHz EPYC, Release). Larger schedules run on the family's seal.
constexpr std::uint64_t kVerifyStepBudget = 2000;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;  // of a slice's bytes
#ifdef NDEBUG
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif

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

// All ranks' programs after the passes, one at a time: nobody holds the whole schedule to run.
class Programs {
 public:
  Programs(const Algorithm& algorithm, const Problem& problem, const PlanOptions& options)
      : algorithm_(algorithm),
        problem_(problem),
        options_(options),
        replicas_(options.replicas),
        base_(algorithm.shape(problem)) {}

  [[nodiscard]] ScheduleShape shape() const {
    return replicas_ == 1 ? base_ : replicate_shape(base_, replicas_);
  }
  [[nodiscard]] RankProgram program(Rank rank) const {
    if (orders_in(options_) == 1) {
      const RankProgram one = in_order(order_of(options_, 0), rank);
      return replicas_ == 1 ? one : replicate_program(base_, one, replicas_);
    }
    std::vector<RankProgram> each;
    for (std::uint32_t replica = 0; replica < replicas_; ++replica)
      each.push_back(in_order(order_of(options_, replica), rank));
    return replicate_programs(base_, each);
  }

 private:
  [[nodiscard]] RankProgram in_order(const RankOrder& order, Rank rank) const {
    return reorder_program(algorithm_.program(problem_, order.place_of(rank)), order);
  }

  const Algorithm& algorithm_;
  const Problem& problem_;
  const PlanOptions& options_;
  std::uint32_t replicas_;
  ScheduleShape base_;
};

Status check_orders(const Problem& problem, const PlanOptions& options) {
  bool by_number = true;
  for (std::uint32_t replica = 0; replica < orders_in(options); ++replica)
    by_number = by_number && order_of(options, replica).is_by_number();
  if (by_number) return {};
  if (!can_reorder(problem.collective))
    return make_error(Code::kNotSupported,
                      fmt::format("{} has chunks that belong to ranks: it runs by their numbers",
                                  name_of(problem.collective)));
  if (orders_in(options) > 1 && problem.collective != Collective::kAllReduce)
    return make_error(Code::kNotSupported,
                      fmt::format("{} has a root, which stands at one place: replicas cannot have "
                                  "orders of their own",
                                  name_of(problem.collective)));
  return {};
}

// The connections into (or out of) a rank, sorted: the order is the layout.
std::set<Edge> edges_of(const RankProgram& program, Rank rank, OperandKind kind) {
  std::set<Edge> edges;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      for (const Operand& operand : kind == OperandKind::kSend ? step.destinations : step.sources)
        if (operand.kind == kind)
          edges.insert(kind == OperandKind::kSend ? Edge{rank, operand.peer, operand.tag}
                                                  : Edge{operand.peer, rank, operand.tag});
  return edges;
}

// A message holds an element of each of its chunks, whatever the type.
Status check_message(const ScheduleShape& shape, std::uint64_t message_bytes) {
  constexpr std::uint64_t kLargestElement = 8;
  if (message_bytes >= shape.max_message_chunks * kLargestElement) return {};
  return make_error(
      Code::kInvalidArgument,
      fmt::format("{} among {} ranks sends {} chunks in a message; one of {} bytes "
                  "does not hold them; raise TUTTI_SLOT_BYTES or TUTTI_ARENA_BYTES",
                  shape.algorithm, shape.ranks, shape.max_message_chunks, message_bytes));
}

// Payload bytes of a message; sets o.slot_bytes to what a slot really takes.
Result<std::uint64_t> lay_out_capacity(const ScheduleShape& shape, PlanOptions& o) {
  if (shape.max_per_pair > o.connections_per_pair)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} with {} replicas needs {} connections between two ranks; there are {}; "
                    "use fewer replicas (TUTTI_REPLICAS) or another algorithm or grouping",
                    shape.algorithm, o.replicas, shape.max_per_pair, o.connections_per_pair));
  if (o.slots > kMaxSlots)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} slots a connection; at most {}; lower TUTTI_SLOTS", o.slots, kMaxSlots));
  if (o.protocol != Protocol::kSlots) {
    const std::uint64_t pair = std::max<std::uint64_t>(shape.max_per_pair, 1);
    const std::uint64_t cells = o.cells_per_pair / (pair * o.slots);
    if (cells == 0)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{} needs {} connections a pair of {} slots; the flagged cells "
                      "of a pair hold {}",
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
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} among {} ranks needs {} connections of {} slots in an inbox "
                                  "arena of {} bytes; raise TUTTI_ARENA_BYTES",
                                  shape.algorithm, shape.ranks, incoming, o.slots, o.arena_bytes));
  return o.slot_bytes - kSlotHeaderBytes;
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
    spec.cells_per_slot = direct ? 1 : static_cast<std::uint32_t>(o.slot_bytes / kCellBytes);
    spec.first_cell = index * o.slots * spec.cells_per_slot;
    spec.slot_bytes = spec.cells_per_slot * kCellBytes;
  } else {
    spec.slot_bytes = o.slot_bytes;
    spec.arena_offset_bytes = std::uint64_t{inbox_position} * o.slots * o.slot_bytes;
  }
  return spec;
}

// Specs for `edges` (sorted), with the index within each pair, and the inbox position that
// `position_of` gives.
template <typename PositionOf>
std::map<Edge, std::uint16_t> add_specs(const Plan& plan, const std::set<Edge>& edges,
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
  const auto position_in = [](const std::set<Edge>& inbox, const Edge& edge) {
    return static_cast<std::uint32_t>(std::distance(inbox.begin(), inbox.find(edge)));
  };
  ConnectionNumbers numbers;
  const std::set<Edge> incoming = edges_of(own, plan.rank, OperandKind::kRecv);
  numbers.recvs = add_specs(plan, incoming, plan.recvs,
                            [&](const Edge& edge) { return position_in(incoming, edge); });
  Rank cached = kNoRank;
  std::set<Edge> inbox;
  const std::set<Edge> outgoing = edges_of(own, plan.rank, OperandKind::kSend);
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

// What this executor can run: loads from peers' input and output under kDirect, whose messages
// carry no data, and no remote operand elsewhere.
Status check_remotes(const Plan& plan, const RankProgram& program) {
  const bool direct = plan.options.protocol == Protocol::kDirect;
  const auto refuse = [&](std::string_view what) {
    return make_error(Code::kNotSupported,
                      fmt::format("{} {} under the protocol {}", plan.shape.algorithm, what,
                                  name_of(plan.options.protocol)));
  };
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps) {
      for (const Operand& operand : step.destinations) {
        if (operand.kind == OperandKind::kRemote) return refuse("stores into a peer's memory");
        if (direct && operand.kind == OperandKind::kSend && operand.span.count() > 0)
          return refuse("sends data");
      }
      for (const Operand& operand : step.sources) {
        if (operand.kind != OperandKind::kRemote) continue;
        if (!direct) return refuse("reads a peer's memory");
        if (operand.buffer == BufferKind::kScratch) return refuse("reads a peer's scratch");
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
      for (const Operand& operand : step.sources) append(operand);
      plan.waits.insert(plan.waits.end(), step.waits.begin(), step.waits.end());
    }
  }
}

// Proofs made in this process, so that ranks that are threads and repeated compiles prove once.
class ProofCache {
 public:
  Status prove(const Algorithm& algorithm, const Problem& problem, const PlanOptions& options) {
    const Key key{algorithm.name, problem.collective, problem.ranks,
                  problem.root,   options.replicas,   options.slots};
    const std::lock_guard lock(mutex_);
    if (proved_.contains(key)) return {};
    TUTTI_TRY_ASSIGN(Schedule schedule, build_schedule(algorithm, problem));
    if (options.replicas > 1) schedule = replicate(schedule, options.replicas);
    TUTTI_TRY(verify(schedule, {.slots = options.slots}));
    proved_.insert(key);
    return {};
  }

 private:
  using Key =
      std::tuple<std::string_view, Collective, std::int32_t, Rank, std::uint32_t, std::uint32_t>;
  std::mutex mutex_;
  std::set<Key> proved_;  // guarded by mutex_
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

std::uint64_t plan_id(const Algorithm& algorithm, const Problem& problem,
                      const PlanOptions& options) {
  return mix(mix(carve_hash(algorithm, problem, options, options.slot_bytes), options.arena_bytes),
             options.min_slices);
}

std::uint64_t Plan::slices_for(std::uint64_t count, std::size_t bytes_each) const {
  const std::uint64_t fit =
      std::max<std::uint64_t>(message_bytes / bytes_each / shape.max_message_chunks, 1);
  if (count <= fit && options.min_slices <= 1) return 1;
  UniformCut cut{count, shape.chunks, 1, grain_elements(bytes_each)};
  const std::uint64_t slices =
      std::max<std::uint64_t>({(cut.max_slice_count() + fit - 1) / fit, options.min_slices, 1});
  if (slices > kMaxSlices) return slices;
  cut.slices = static_cast<std::uint32_t>(slices);
  while (cut.max_slice_count() > fit) ++cut.slices;  // grains round up: one more at most, mostly
  return cut.slices;
}

Result<Plan> compile_plan(const Algorithm& algorithm, const Problem& problem,
                          const PlanOptions& options, Rank rank) {
  if (!algorithm.supports(problem))
    return make_error(Code::kNotSupported,
                      fmt::format("algorithm {} does not do {} among {} ranks", algorithm.name,
                                  name_of(problem.collective), problem.ranks));
  TUTTI_TRY(check_orders(problem, options));
  const Programs programs(algorithm, problem, options);
  Plan plan;
  plan.algorithm = &algorithm;
  plan.options = options;
  plan.rank = rank;
  plan.shape = programs.shape();
  TUTTI_TRY_ASSIGN(plan.message_bytes, lay_out_capacity(plan.shape, plan.options));
  TUTTI_TRY(check_message(plan.shape, plan.message_bytes));
  plan.carve = carve_hash(algorithm, problem, options, plan.options.slot_bytes);
  plan.id = plan_id(algorithm, problem, options);
  const RankProgram own = programs.program(rank);
  TUTTI_TRY(check_remotes(plan, own));
  flatten(plan, own, lay_out_connections(plan, programs, own));
  const std::uint64_t all_steps = plan.steps.size() * static_cast<std::uint64_t>(problem.ranks);
  // Outside the list that the tests prove, nothing runs unproved, whatever the proof costs.
  const bool prove = kDebugBuild || options.always_verify || all_steps <= kVerifyStepBudget ||
                     !proved_by_tests(algorithm, problem.ranks, options.replicas);
  if (prove) TUTTI_TRY(proof_cache().prove(algorithm, problem, options));
  plan.seal = prove ? Seal::kVerified : Seal::kFamily;
  return plan;
}

}  // namespace tutti
