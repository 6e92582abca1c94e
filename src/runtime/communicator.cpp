#include "runtime/communicator.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/host.hpp"
#include "runtime/control/control_fd.hpp"
#include "runtime/faults.hpp"
#include "transports/shm/shm_transport.hpp"

namespace tutti {
namespace {

// Rounds before the first yield where every rank can have a core: about a millisecond. A yield
// hands the core to whatever else the machine runs, for a scheduler's slice; waits between calls
// that come without pause are far shorter.
constexpr std::uint32_t kSpinsWithCore = 50'000;

WaitPolicy make_wait_policy(const Config& config, std::int32_t host_ranks, std::int32_t cores) {
  WaitPolicy policy;
  policy.spins = config.spin != kSpinAuto ? config.spin : host_ranks <= cores ? kSpinsWithCore : 0;
  return policy;
}

// Stores go around the cache once the buffers of the host's ranks together outgrow the last level:
// below, the reader finds them there.
std::uint64_t make_nt_bytes(const Config& config, std::int32_t host_ranks) {
  if (config.nt_bytes != 0) return config.nt_bytes;
  const std::size_t l3 = l3_cache_bytes();
  constexpr std::size_t kUnknownL3 = std::size_t{32} << 20;
  return (l3 != 0 ? l3 : kUnknownL3) / (2 * static_cast<std::uint64_t>(host_ranks));
}

// Once a process: a misspelt variable should not go unnoticed.
void warn_of_unknown_variables(const Log& log) {
  static std::once_flag once;
  std::call_once(once, [&] {
    for (const UnknownVariable& unknown : unknown_variables(environ))
      TUTTI_LOG(log, LogLevel::kWarn, "environment variable {} is unknown{}", unknown.name,
                unknown.nearest.empty() ? "" : fmt::format("; did you mean {}?", unknown.nearest));
  });
}

// Once a process: every rank of it would say the same.
void warn_of_log_file(const Log& log, const Error& error) {
  static std::once_flag once;
  std::call_once(once, [&] {
    TUTTI_LOG(log, LogLevel::kError, "{}; logging to stderr, see TUTTI_DEBUG_FILE", error.message);
  });
}

}  // namespace

Communicator::Communicator(Rank rank, std::int32_t ranks, const CommunicatorOptions& options)
    : rank_(rank), ranks_(ranks), generation_(control::fork_generation()), config_(options.config) {
  if (auto log = Log::open(config_.log_level, config_.log_file, rank)) {
    log_ = *std::move(log);
  } else {
    log_ = Log(config_.log_level, rank);
    warn_of_log_file(log_, log.error());
  }
}

Communicator::~Communicator() { leave(); }

Result<std::unique_ptr<Communicator>> Communicator::create(const UniqueId& id, Rank rank,
                                                           std::int32_t ranks,
                                                           const CommunicatorOptions& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return make_error(Code::kInvalidArgument,
                      fmt::format("rank {} of {}: a rank is 0 <= rank < nranks", rank, ranks));
  std::unique_ptr<Communicator> communicator(new Communicator(rank, ranks, options));
  warn_of_unknown_variables(communicator->log_);
  TUTTI_TRY(communicator->join(id, options.cancel));
  return communicator;
}

Status Communicator::join(const UniqueId& id, const std::stop_token& cancel) {
  const Deadline deadline = Deadline::in_ns(config_.init_timeout_ns);
  TUTTI_TRY_ASSIGN(
      control_,
      ControlPlane::join(
          id, rank_, ranks_,
          {.deadline = deadline, .host_id_text = config_.host_id, .log = log_, .cancel = cancel}));
  const std::stop_callback cancelled(cancel, [this] { control_->interrupt(); });
  peers_ = control_->peers();
  const std::uint64_t host = peers_[static_cast<std::size_t>(rank_)].host_id;
  host_ranks_ = static_cast<std::int32_t>(std::count_if(
      peers_.begin(), peers_.end(), [&](const PeerInfo& peer) { return peer.host_id == host; }));
  if (ranks_ > 1) {
    TUTTI_TRY_ASSIGN(transport_, make_shm_transport(
                                     *control_, {.arena_bytes = config_.arena_bytes, .log = log_}));
    for (const PeerInfo& peer : peers_)
      if (!transport_->reaches(peer))
        return make_error(Code::kNotSupported,
                          fmt::format("{} is on another host; this version reaches only ranks of "
                                      "one host",
                                      describe_rank(peers_, peer.rank)),
                          peer.rank);
    TUTTI_TRY(transport_->listen());
  }
  TUTTI_TRY_ASSIGN(board_, Board::open(*control_, deadline));
  board_->set_state(RankState::kAlive);
  dead_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(ranks_));
  // Acquire pairs with the release in abort().
  control_->end_calls_when(
      [this] { return aborted_.load(std::memory_order_acquire) || board_->poisoned(); });
  if (ranks_ > 1)
    control_->watch_peers([this](Rank dead) {
      // Release pairs with the acquire in Operation::hopeless.
      dead_[static_cast<std::size_t>(dead)].store(true, std::memory_order_release);
      const RankState state = board_->state(dead);
      if (state == RankState::kLeaving || state == RankState::kLeft) return;
      board_->poison({.code = Code::kRemoteError,
                      .culprit = dead,
                      .reporter = rank_,
                      .kind = Poison::Kind::kDeath});
    });
  if (ranks_ > 1 && !control_->has_pidfd())
    TUTTI_LOG(log_, LogLevel::kWarn, "deaths are noticed late: {}", control_->note());
  TUTTI_TRY(agree_on_settings(deadline));
  wait_policy_ = make_wait_policy(config_, host_ranks_, usable_cpus());
  nt_bytes_ = make_nt_bytes(config_, host_ranks_);
  TUTTI_LOG(log_, LogLevel::kInfo, "joined: {} ranks, {} on this host, {} cores, spins {}", ranks_,
            host_ranks_, settings_.cores, wait_policy_.spins);
  return {};
}

Status Communicator::agree_on_settings(Deadline deadline) {
  // Only rank 0 counts schedules; the others' counts travel as zeros.
  if (rank_ == 0) {
    TUTTI_TRY_ASSIGN(settings_, make_settings(config_, ranks_, usable_cpus()));
  } else {
    TUTTI_TRY_ASSIGN(settings_, forced_settings(config_));
  }
  if (ranks_ == 1) return force_algorithm(nullptr);
  // Before the exchange, so that ranks of one process find each other's after it.
  lent_ = LentMemory(control_->session(), rank_, board_->call_record(rank_));
  settings_.direct = look_at_peers();
  // Also the barrier after which every rank can be connected to.
  const std::span own(reinterpret_cast<const std::byte*>(&settings_), sizeof settings_);
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> all, control_->allgather(own, deadline));
  TUTTI_TRY(compare_settings(all));
  std::memcpy(&settings_, all.data(), sizeof settings_);
  for (std::int32_t rank = 1; rank < ranks_; ++rank) {
    Settings other;
    std::memcpy(&other, all.data() + static_cast<std::size_t>(rank) * sizeof other, sizeof other);
    if (other.direct.access < settings_.direct.access) settings_.direct = other.direct;
  }
  TUTTI_TRY(check_settings(settings_));
  return force_algorithm(nullptr);
}

// All ranks compare the same bytes, so all find the same difference.
Status Communicator::compare_settings(std::span<const std::byte> all) const {
  Settings first;
  std::memcpy(&first, all.data(), sizeof first);
  for (std::int32_t rank = 1; rank < ranks_; ++rank) {
    Settings other;
    std::memcpy(&other, all.data() + static_cast<std::size_t>(rank) * sizeof other, sizeof other);
    if (const std::string difference = first_difference(first, other); !difference.empty())
      return make_error(Code::kInvalidUsage,
                        fmt::format("{} differs: {} ({}) and {} do not agree; set it alike on all "
                                    "ranks",
                                    difference, describe_rank(peers_, 0), "rank 0 decides",
                                    describe_rank(peers_, rank)),
                        rank);
  }
  return {};
}

AccessView Communicator::look_at_peers() {
  AccessView view{.access = PeerAccess::kMapped, .rank = rank_};
  for (const PeerInfo& peer : peers_) {
    if (peer.process_token == peers_[static_cast<std::size_t>(rank_)].process_token) continue;
    view.access = PeerAccess::kAttach;
    const bool off = config_.cma == CmaChoice::kOff;
    const int error = off ? 0 : PeerMemory(peer, board_->call_record(peer.rank)).probe();
    if (!off && error == 0) continue;
    TUTTI_LOG(log_, LogLevel::kInfo, "no direct plans: {}",
              off ? "TUTTI_CMA=off"
                  : fmt::format("{} cannot be read: {}", describe_rank(peers_, peer.rank),
                                std::strerror(error)));
    return {.access = PeerAccess::kNone, .refused = peer.rank, .error = error, .rank = rank_};
  }
  return view;
}

Result<PeerMemory> Communicator::memory_of(Rank peer) {
  const PeerInfo& info = peers_[static_cast<std::size_t>(peer)];
  if (info.process_token != peers_[static_cast<std::size_t>(rank_)].process_token)
    return PeerMemory(info, board_->call_record(peer));
  std::shared_ptr<CallRecord> local = find_call_record(control_->session(), peer);
  if (local == nullptr)
    return make_error(Code::kRemoteError,
                      fmt::format("{} has destroyed its communicator", describe_rank(peers_, peer)),
                      peer);
  return PeerMemory(std::move(local));
}

Status Communicator::set_algorithm(std::string_view name) {
  TUTTI_TRY_ASSIGN(const Algorithm* const algorithm, forced_algorithm(name));
  return force_algorithm(algorithm);
}

Status Communicator::force_algorithm(const Algorithm* algorithm) {
  if (algorithm == nullptr) {
    TUTTI_TRY_ASSIGN(algorithm, forced_algorithm(settings_.algorithm.data()));
  }
  TUTTI_TRY_ASSIGN(contenders_, contenders(settings_, ranks_, algorithm));
  forced_algorithm_ = algorithm;
  chosen_.fill({});
  return {};
}

Result<Communicator::BoundPlan*> Communicator::plan_for(const AllReduceCall& call) {
  const std::uint64_t bytes = call.count * element_bytes(call.type);
  Chosen& chosen = chosen_[(bytes * 0x9e3779b97f4a7c15u) >> 58];
  if (chosen.bytes == bytes) return last_plan_ = chosen.plan;
  const std::vector<Candidate> candidates = rank_candidates(settings_, contenders_, bytes);
  if (candidates.empty())
    return make_error(Code::kNotSupported,
                      fmt::format("no algorithm does an all_reduce of {} bytes among {} ranks "
                                  "under the forced settings",
                                  bytes, ranks_));
  TUTTI_TRY_ASSIGN(last_plan_, bind(candidates.front()));
  chosen = {bytes, last_plan_};
  return last_plan_;
}

Result<Communicator::BoundPlan*> Communicator::bind(const Candidate& candidate) {
  const Problem problem{.collective = Collective::kAllReduce, .ranks = ranks_};
  const std::uint64_t id = plan_id(*candidate.algorithm, problem, candidate.options);
  if (const auto found = plans_.find(id); found != plans_.end()) return found->second.get();
  auto bound = std::make_unique<BoundPlan>();
  TUTTI_TRY_ASSIGN(bound->plan,
                   compile_plan(*candidate.algorithm, problem, candidate.options, rank_));
  std::vector<Connection> sends, recvs;
  for (const ConnectionSpec& spec : bound->plan.sends) {
    TUTTI_TRY(transport_->connect(spec.destination, Deadline::in_ns(config_.op_timeout_ns)));
    TUTTI_TRY_ASSIGN(Connection connection, transport_->open_send(spec));
    sends.push_back(connection);
  }
  for (const ConnectionSpec& spec : bound->plan.recvs) {
    TUTTI_TRY_ASSIGN(Connection connection, transport_->open_recv(spec));
    recvs.push_back(connection);
  }
  DirectAccess direct{.own = &lent_, .peers = {}};
  for (const Rank peer : bound->plan.remotes) {
    TUTTI_TRY_ASSIGN(PeerMemory memory, memory_of(peer));
    direct.peers.push_back(std::move(memory));
  }
  bound->executor = std::make_unique<HostExecutor>(bound->plan, std::move(sends), std::move(recvs),
                                                   std::move(direct));
  TUTTI_LOG(log_, LogLevel::kInfo,
            "plan {:016x}: {} {} replicas {} slots {} x {} bytes, {} lanes, {} steps, {}", id,
            candidate.algorithm->name, name_of(bound->plan.options.protocol),
            bound->plan.options.replicas, bound->plan.options.slots, bound->plan.options.slot_bytes,
            bound->plan.lanes.size(), bound->plan.steps.size(),
            bound->plan.seal == Seal::kVerified ? "verified" : "proved by family");
  BoundPlan* const raw = bound.get();
  plans_[id] = std::move(bound);
  return raw;
}

Error Communicator::poison(const Poison& poison) {
  board_->poison(poison);
  // Another rank may have been first: everybody tells the same story.
  const Error error = poison_error(board_->read_poison().value_or(poison), peers_);
  set_error(error);
  return error;
}

void Communicator::set_error(const Error& error) {
  const std::lock_guard lock(error_mutex_);
  if (!error_) error_ = error;
}

std::optional<Error> Communicator::error() const {
  {
    const std::lock_guard lock(error_mutex_);
    if (error_) return error_;
  }
  if (!board_->poisoned()) return std::nullopt;
  if (const auto poison = board_->read_poison()) return poison_error(*poison, peers_);
  return std::nullopt;  // claimed, about to be published
}

bool Communicator::of_this_process() const { return generation_ == control::fork_generation(); }

void Communicator::abort() {
  if (!of_this_process()) return;
  // Release pairs with the acquire in disturbed(): the user thread leaves its wait.
  aborted_.store(true, std::memory_order_release);
  poison({.code = Code::kRemoteError,
          .culprit = rank_,
          .reporter = rank_,
          .kind = Poison::Kind::kAbort});
  Waiter waiter({.spins = 100});
  // Acquire pairs with the release of the group's last access.
  while (groups_running_.load(std::memory_order_acquire) != 0) (void)waiter.wait();
}

Status Communicator::finalize() {
  if (const auto error = this->error()) return tl::unexpected(*error);
  if (board_->state(rank_) == RankState::kAlive) board_->set_state(RankState::kLeaving);
  return {};
}

void Communicator::leave() {
  if (!control_) return;
  // An inherited copy shares the board with its parent, who is still alive.
  if (board_ && of_this_process()) board_->set_state(RankState::kLeft);
  control_->forget_peers();
  if (transport_) transport_->close();
  control_->close();
}

Communicator::Info Communicator::info() const {
  Info info;
  info.host = peers_[static_cast<std::size_t>(rank_)].host;
  info.transport = transport_ ? std::string(transport_->name()) : std::string{};
  if (forced_algorithm_ != nullptr) info.forced_algorithm = forced_algorithm_->name;
  info.host_ranks = host_ranks_;
  info.poisoned = error().has_value();
  if (last_plan_ != nullptr) {
    info.last_algorithm = last_plan_->plan.algorithm->name;
    info.last_protocol = ranks_ == 1 ? "local" : name_of(last_plan_->plan.options.protocol);
    info.last_plan = last_plan_->plan.id;
    info.last_slices = last_slices_;
    info.last_replicas = last_plan_->plan.options.replicas;
  }
  info.operations = completed_;
  for (const auto& [id, bound] : plans_) {
    info.payload_bytes_sent += bound->executor->traffic().payload_bytes;
    info.messages_sent += bound->executor->traffic().messages;
  }
  info.mapped_bytes = transport_ ? transport_->mapped_bytes() : 0;
  return info;
}

}  // namespace tutti
