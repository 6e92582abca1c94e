#include "runtime/communicator.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/host.hpp"
#include "base/process_fd.hpp"
#include "kernels/reduce_copy.hpp"
#include "runtime/faults.hpp"

namespace tutti {
namespace {

// Rounds before the first yield where every rank can have a core: about a millisecond. A yield
// hands the core to whatever else the machine runs, for a scheduler's slice; waits between calls
// that come without pause are far shorter.
constexpr std::uint32_t kSpinsWithCore = 50'000;

// The same of a transport that asks the kernel in every round.
constexpr std::uint32_t kSpinsOfPump = 500;

WaitPolicy make_wait_policy(const Config& config, std::int32_t ranks, std::int32_t cores,
                            bool pumps) {
  WaitPolicy policy;
  const std::uint32_t with_core = pumps ? kSpinsOfPump : kSpinsWithCore;
  policy.spins = config.spin != kSpinAuto ? config.spin : ranks <= cores ? with_core : 0;
  return policy;
}

// Stores go around the cache once the buffers of the machine's ranks together outgrow the last
// level: below, the reader finds them there.
std::uint64_t make_nt_bytes(const Config& config, std::int32_t ranks) {
  if (config.nt_bytes != 0) return config.nt_bytes;
  const std::size_t l3 = l3_cache_bytes();
  constexpr std::size_t kUnknownL3 = std::size_t{32} << 20;
  return (l3 != 0 ? l3 : kUnknownL3) / (2 * static_cast<std::uint64_t>(ranks));
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

// Once a process: which library this is, and how the environment sets it.
void introduce_library(const Log& log, const Config& config) {
  static std::once_flag once;
  std::call_once(once, [&] {
    TUTTI_LOG(log, LogLevel::kVersion, "Tutti {}.{}.{}, NCCL API {}, kernels {}", TUTTI_MAJOR,
              TUTTI_MINOR, TUTTI_PATCH, TUTTI_NCCL_VERSION_CODE, kernel_isa());
    const Config defaults;
    for (const ConfigVariable& variable : config_table()) {
      const std::string value = value_text(config, variable);
      if (value == value_text(defaults, variable)) continue;
      TUTTI_LOG(log, LogLevel::kInfo, "{}={}", variable.name, value);
    }
  });
}

// Once a process: every rank of it would say the same.
void warn_of_log_file(const Log& log, const Error& error) {
  static std::once_flag once;
  std::call_once(once, [&] {
    TUTTI_LOG(log, LogLevel::kError, "{}; logging to stderr, see TUTTI_DEBUG_FILE", error.message);
  });
}

// Sets a value for the time of a scope.
template <typename T>
class Meanwhile {
 public:
  Meanwhile(std::atomic<T>& variable, T value)
      : variable_(variable), before_(variable.exchange(value, std::memory_order_relaxed)) {}
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile() { variable_.store(before_, std::memory_order_relaxed); }

 private:
  std::atomic<T>& variable_;
  const T before_;
};

// Tells the board of a gathering, for the time of a scope.
class Gathered {
 public:
  Gathered(Board& board, Gathering gathering) : board_(board) { board_.gather(gathering); }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;
  ~Gathered() { board_.gather(Gathering::kNone); }

 private:
  Board& board_;
};

}  // namespace

Communicator::Communicator(Rank rank, std::int32_t ranks, const CommunicatorOptions& options)
    : rank_(rank),
      ranks_(ranks),
      generation_(fork_generation()),
      config_(options.config),
      device_(options.device),
      blocks_(options.blocks),
      platform_(options.platform) {
  if (auto log = Log::open(config_.log_level, config_.log_file, rank)) {
    log_ = *std::move(log);
  } else {
    log_ = Log(config_.log_level, rank);
    warn_of_log_file(log_, log.error());
  }
}

Communicator::~Communicator() {
  // What is enqueued ends; at once where there was an error.
  if (!of_this_process()) {
    static_cast<void>(on_device_.release());  // its kernels and memory are the parent's
  } else if (on_device_ != nullptr) {
    if (board_ && error()) on_device_->abort();
    control_->look_when(nullptr);
    on_device_.reset();
  }
  leave();
}

Result<std::unique_ptr<Communicator>> Communicator::create(const UniqueId& id, Rank rank,
                                                           std::int32_t ranks,
                                                           const CommunicatorOptions& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return make_error(Code::kInvalidArgument,
                      fmt::format("rank {} of {}: a rank is 0 <= rank < nranks", rank, ranks));
  std::unique_ptr<Communicator> communicator(new Communicator(rank, ranks, options));
  const Meet meet = [&, own = communicator.get()](Deadline deadline) {
    return ControlPlane::join(id, rank, ranks,
                              {.deadline = deadline,
                               .host_id_text = own->config_.host_id,
                               .interfaces = own->config_.interfaces,
                               .log = own->log_,
                               .cancel = options.cancel});
  };
  return settle(std::move(communicator), meet, options.cancel);
}

Result<std::unique_ptr<Communicator>> Communicator::create(std::unique_ptr<ControlPlane> control,
                                                           const CommunicatorOptions& options) {
  const auto ranks = static_cast<std::int32_t>(control->peers().size());
  std::unique_ptr<Communicator> communicator(new Communicator(control->rank(), ranks, options));
  const Meet met = [&](Deadline) { return std::move(control); };
  return settle(std::move(communicator), met, options.cancel);
}

Result<std::unique_ptr<Communicator>> Communicator::settle(
    std::unique_ptr<Communicator> communicator, const Meet& meet, const std::stop_token& cancel) {
  introduce_library(communicator->log_, communicator->config_);
  warn_of_unknown_variables(communicator->log_);
  const Status joined = communicator->join(meet, cancel);
  if (joined) return communicator;
  // What the machine refuses this rank alone must not keep the others waiting.
  if (joined.error().code == Code::kSystemError && communicator->control_)
    communicator->control_->call_off();
  const auto& board = communicator->board_;
  // The same of an abort: who has this board hears of it from there.
  if (board && cancel.stop_requested())
    board->poison({.code = Code::kRemoteError,
                   .culprit = communicator->rank_,
                   .reporter = communicator->rank_,
                   .kind = Poison::Kind::kAbort});
  // Where a call was cut short by poison, the poison says why.
  if (board && board->poisoned())
    return tl::unexpected(communicator->error().value_or(joined.error()));
  return tl::unexpected(joined.error());
}

Status Communicator::join(const Meet& meet, const std::stop_token& cancel) {
  const Deadline deadline = Deadline::in_ns(config_.init_timeout_ns);
  // Only rank 0 prices, while the others come.
  const Result<Settings> settings = decide();
  TUTTI_TRY_ASSIGN(control_, meet(deadline));
  const std::stop_callback cancelled(cancel, [this] { control_->interrupt(); });
  peers_ = control_->peers();
  const std::uint64_t host = peers_[static_cast<std::size_t>(rank_)].host_id;
  host_ranks_ = static_cast<std::int32_t>(std::count_if(
      peers_.begin(), peers_.end(), [&](const PeerInfo& peer) { return peer.host_id == host; }));
  if (ranks_ > 1) {
    TUTTI_TRY_ASSIGN(transport_, make_transport(deadline));
    TUTTI_TRY(transport_->listen());
  }
  TUTTI_TRY_ASSIGN(
      board_, Board::open(*control_, deadline, {.flight_dir = config_.flight_dir, .log = log_}));
  board_->set_state(RankState::kAlive);
  dead_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(ranks_));
  control_->end_calls_when([this] { return calls_are_over(); });
  if (ranks_ > 1)
    control_->watch_peers([this](Rank dead) {
      // Release pairs with the acquire in Operation::hopeless.
      dead_[static_cast<std::size_t>(dead)].store(true, std::memory_order_release);
      const RankState state = board_->state(dead);
      if (state == RankState::kLeaving || state == RankState::kLeft) return;
      board_->poison(death_of(dead));
    });
  if (ranks_ > 1 && !control_->has_pidfd())
    TUTTI_LOG(log_, LogLevel::kWarn, "deaths are noticed late: {}", control_->note());
  if (!settings) return tl::unexpected(settings.error());
  settings_ = *settings;
  TUTTI_TRY(agree_on_settings(deadline));
  allocate_on_device();
  wait_policy_ = make_wait_policy(config_, machine_ranks_, machine_cores_,
                                  transport_ && transport_->capabilities().pumps);
  nt_bytes_ = make_nt_bytes(config_, machine_ranks_);
  TUTTI_LOG(log_, LogLevel::kInfo, "joined: {} ranks, {} on this host, by {}, {} cores, spins {}",
            ranks_, host_ranks_, transport_ ? transport_->name() : "nothing", machine_cores_,
            wait_policy_.spins);
  return {};
}

Status Communicator::set_algorithm(std::string_view name) {
  TUTTI_TRY_ASSIGN(const Forced named, parse_forced(name));
  return force(named);
}

namespace {

Error out_of_reach(const Algorithm& algorithm, const AccessView& view) {
  const std::string why = view.error == 0 ? fmt::format("rank {} has TUTTI_CMA=off", view.rank)
                          : view.error == EREMOTE
                              ? std::string("messages go over a wire here")
                              : fmt::format("rank {} may not read the memory of rank {}: {}",
                                            view.rank, view.refused, std::strerror(view.error));
  return {Code::kNotSupported,
          fmt::format("{} reads other ranks' memory, and {}; choose another algorithm or auto, or "
                      "call with buffers in windows (tuttiCommWindowRegister)",
                      algorithm.name, why),
          kNoRank};
}

}  // namespace

Status Communicator::force(const Forced& named) {
  TUTTI_TRY_ASSIGN(const Forced configured, parse_forced(settings_.forced_name()));
  const Forced& wanted = named.name.empty() ? configured : named;
  Result<ChoiceRow> plain = choices(wanted, settings_.direct.access),
                    window = choices(wanted, PeerAccess::kMapped);
  // What would refuse every call is refused here.
  const bool some = plain || (window && !windows_->empty());
  if (!some) return tl::unexpected(plain.error());
  plain_row_ = std::move(plain);
  window_row_ = std::move(window);
  forced_ = forced_by(settings_, wanted);
  chosen_.fill({});
  return {};
}

Result<ChoiceRow> Communicator::choices(const Forced& named, PeerAccess access) const {
  const bool direct =
      named.algorithm != nullptr &&
      std::ranges::find(direct_algorithms(), named.algorithm) != direct_algorithms().end();
  if (direct && ranks_ > 1 && access == PeerAccess::kNone)
    return tl::unexpected(out_of_reach(*named.algorithm, settings_.direct));
  // Rank 0 priced what the settings force, so also every algorithm unless they say more.
  if (const ChoiceRow* const row = find_row(table_, settings_, named, access)) return *row;
  TUTTI_TRY_ASSIGN(const std::vector<Contender> all,
                   contenders(settings_, forced_by(settings_, named), ranks_, wire_hosts_));
  ChoiceRow row = make_row(settings_, all, access);
  if (row.empty()) TUTTI_TRY(price_candidates(settings_, all, 1, access));
  return row;
}

Result<Candidate> Communicator::look_up(std::uint64_t bytes, bool in_windows) const {
  const Result<ChoiceRow>& row = in_windows ? window_row_ : plain_row_;
  if (!row) return tl::unexpected(row.error());
  const std::size_t in_class = size_class(bytes);
  if (!row->has(in_class))
    return make_error(
        Code::kNotSupported,
        fmt::format("no plan for an all_reduce of {} bytes by {}; use slots", bytes, forced_.name));
  const ChoiceRow::Entry entry = row->at(in_class);
  const Algorithm& algorithm =
      forced_.algorithm != nullptr ? *forced_.algorithm : *listed_algorithms()[entry.algorithm];
  return make_candidate(settings_, forced_, with_groups(settings_, algorithm, ranks_), ranks_,
                        entry.shape);
}

Result<Explanation> Communicator::explain(std::uint64_t bytes, bool in_windows) {
  TUTTI_TRY_ASSIGN(const Candidate running, look_up(bytes, in_windows));
  if (!explained_) {
    TUTTI_TRY_ASSIGN(explained_,
                     contenders(settings_, forced_by(settings_, {}), ranks_, wire_hosts_));
  }
  const PeerAccess access = in_windows ? PeerAccess::kMapped : settings_.direct.access;
  TUTTI_TRY_ASSIGN(const std::vector<Priced> priced,
                   price_candidates(settings_, *explained_, bytes, access));
  Explanation explanation{.bytes = bytes,
                          .ranks = ranks_,
                          .where = fmt::format("{} cores", settings_.cores),
                          .forced = forced_.name,
                          .source = settings_.cost_source.data(),
                          .note = order_text(),
                          .candidates = explain_candidates(priced, running)};
  for (ExplainedCandidate& one : explanation.candidates)
    if (const MeasuredPlan* const time =
            find_measured(measured_, ranks_, size_class(bytes), one.name))
      one.measured_ns = time->time_us * 1e3;
  return explanation;
}

const char* Communicator::keep_text(std::string text) {
  kept_text_ = std::move(text);
  return kept_text_.c_str();
}

bool Communicator::may_lend(const void* memory, std::uint64_t bytes) const {
  return transport_ != nullptr &&
         transport_->may_lend({static_cast<const std::byte*>(memory), bytes});
}

bool Communicator::in_windows(const AllReduceCall& call) const {
  if (windows_->empty()) return false;
  const std::uint64_t bytes = call.count * element_bytes(call.type);
  return windows_->cover(call.input, bytes) && windows_->cover(call.output, bytes);
}

Result<Communicator::BoundPlan*> Communicator::plan_for(std::uint64_t bytes, bool in_windows) {
  const std::uint64_t key = 2 * bytes + (in_windows ? 1 : 0);
  Chosen& chosen = chosen_[(key * 0x9e3779b97f4a7c15u) >> 58];
  if (chosen.key == key) return last_plan_ = chosen.plan;
  TUTTI_TRY_ASSIGN(const Candidate candidate, look_up(bytes, in_windows));
  TUTTI_TRY_ASSIGN(last_plan_, bind(candidate));
  chosen = {key, last_plan_};
  return last_plan_;
}

Result<Communicator::BoundPlan*> Communicator::bind(const Candidate& candidate) {
  const Problem problem{.collective = Collective::kAllReduce, .ranks = ranks_};
  PlanOptions options = candidate.options;
  options.orders = &orders_.of(*candidate.algorithm, ranks_);
  const std::uint64_t id = plan_id(*candidate.algorithm, problem, options);
  if (const auto found = plans_.find(id); found != plans_.end()) return found->second.get();
  auto bound = std::make_unique<BoundPlan>();
  TUTTI_TRY_ASSIGN(bound->plan, compile_plan(*candidate.algorithm, problem, options, rank_));
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

Status Communicator::manageable(bool also_revoked) const {
  if (!of_this_process())
    return make_error(Code::kInvalidUsage, "this communicator was inherited by fork");
  if (board_->state(rank_) == RankState::kLeaving)
    return make_error(Code::kInvalidUsage, "the communicator has been finalized");
  const auto error = this->error();
  if (!error) return {};
  const auto poison = board_->read_poison();
  if (also_revoked && poison && poison->kind == Poison::Kind::kAbort) return {};
  return tl::unexpected(*error);
}

bool Communicator::calls_are_over() const {
  if (leaving_.load(std::memory_order_relaxed)) return false;
  // Acquire pairs with the release in abort().
  if (aborted_.load(std::memory_order_acquire)) return true;
  if (!board_->poisoned()) return false;
  const Regrouping regrouping = regrouping_.load(std::memory_order_relaxed);
  if (regrouping != Regrouping::kSplit) return regrouping == Regrouping::kNone;
  return std::ranges::any_of(
      peers_, [&](const PeerInfo& peer) { return board_->state(peer.rank) == RankState::kLeft; });
}

Error Communicator::broken(const Error& error) {
  // What this rank alone knows is said here, whoever was first to poison.
  const bool own = error.code == Code::kSystemError;
  if (board_->poisoned()) return own ? error : this->error().value_or(error);
  // The others' machines are well: to them it is a rank that failed.
  poison({.code = own ? Code::kRemoteError : error.code,
          .culprit = error.culprit != kNoRank ? error.culprit : rank_,
          .reporter = rank_,
          .kind = Poison::Kind::kFailure});
  return error;
}

Status Communicator::add_window(const WindowRequest& request) {
  TUTTI_TRY(manageable(false));
  if (host_ranks_ != ranks_)
    return make_error(Code::kNotSupported,
                      "windows are shared memory, and this communicator's ranks are on several "
                      "hosts; split it by host first (tuttiCommSplit)");
  const Gathered here(*board_, Gathering::kWindow);
  Result<Status> added = windows_->add(request, Deadline::in_ns(config_.op_timeout_ns));
  return added ? *std::move(added) : tl::unexpected(broken(added.error()));
}

Result<std::unique_ptr<ControlPlane>> Communicator::split(std::int32_t color, std::int32_t key) {
  TUTTI_TRY(manageable(true));
  const Gathered here(*board_, Gathering::kSplit);
  const Meanwhile now(regrouping_, board_->poisoned() ? Regrouping::kSplit : Regrouping::kNone);
  try {
    return tutti::split(*control_, color, key, Deadline::in_ns(config_.op_timeout_ns))
        .map_error([this](const Error& error) { return broken(error); });
  } catch (...) {
    cannot_come();
    throw;
  }
}

void Communicator::cannot_come() {
  board_->poison({.code = Code::kRemoteError,
                  .culprit = rank_,
                  .reporter = rank_,
                  .kind = Poison::Kind::kFailure});
}

Result<std::unique_ptr<ControlPlane>> Communicator::shrink(std::vector<Rank> excluded,
                                                           bool revoke_first) {
  if (revoke_first) revoke();
  TUTTI_TRY(revoke_first ? Status() : manageable(true));
  const Gathered here(*board_, Gathering::kShrink);
  const Meanwhile now(regrouping_, Regrouping::kShrink);
  return shrink_->run({.excluded = std::move(excluded),
                       .is_dead =
                           [this](Rank rank) {
                             // Acquire pairs with the release where deaths are noticed.
                             return dead_[static_cast<std::size_t>(rank)].load(
                                        std::memory_order_acquire) ||
                                    board_->state(rank) == RankState::kLeft || died_far(rank);
                           },
                       .cancelled = [this] { return aborted_.load(std::memory_order_acquire); },
                       .deadline = Deadline::in_ns(config_.op_timeout_ns)});
}

Status Communicator::remove_window(std::uint64_t id) { return windows_->remove(id); }

Result<std::uint64_t> Communicator::register_memory(std::span<std::byte> memory) {
  std::uint64_t key = 0;
  if (transport_ != nullptr) {
    TUTTI_TRY_ASSIGN(key, transport_->register_memory(memory));
  }
  // Of all communicators, so that another one's is not taken for one of this.
  static std::atomic<std::uint64_t> last{0};  // relaxed: only to differ
  const std::uint64_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  registered_.emplace(id, key);
  return id;
}

Status Communicator::deregister_memory(std::uint64_t id) {
  const auto found = registered_.find(id);
  if (found == registered_.end())
    return make_error(Code::kInvalidArgument,
                      "the communicator has no registration of that handle");
  if (transport_ != nullptr) transport_->unregister_memory(found->second);
  registered_.erase(found);
  return {};
}

Poison Communicator::death_of(Rank dead) const {
  const std::optional<OperationSignature> last =
      board_->signature(dead, board_->last_entered(dead));
  return {.code = Code::kRemoteError,
          .culprit = dead,
          .reporter = rank_,
          .kind = Poison::Kind::kDeath,
          .mine = board_->current(dead).value_or(OperationSignature{}),
          .theirs = last.value_or(OperationSignature{})};
}

Error Communicator::poison(const Poison& poison, std::string_view cause) {
  const bool first = board_->poison(poison);
  if (on_device_ != nullptr) on_device_->abort();
  // Another rank may have been first: everybody tells the same story.
  const Error error = first ? poison_error(poison, peers_, cause)
                            : poison_error(board_->read_poison().value_or(poison), peers_);
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
  const auto poison = board_->poisoned() ? board_->read_poison() : std::nullopt;
  // A kernel's fault says more than that a rank failed.
  if (!poison || poison->kind == Poison::Kind::kFailure)
    if (auto fault = device_fault()) return fault;
  if (!poison) return std::nullopt;  // or claimed, about to be published
  return poison_error(*poison, peers_);
}

bool Communicator::of_this_process() const { return generation_ == fork_generation(); }

void Communicator::abort() {
  if (!of_this_process()) return;
  // Release pairs with the acquire in disturbed(): the user thread leaves its wait.
  aborted_.store(true, std::memory_order_release);
  revoke();
}

void Communicator::revoke() {
  if (!of_this_process()) return;
  poison({.code = Code::kRemoteError,
          .culprit = rank_,
          .reporter = rank_,
          .kind = Poison::Kind::kAbort});
  Waiter waiter({.spins = 100});
  // Acquire pairs with the release of the carrier's last access.
  while (carried_.load(std::memory_order_acquire) != 0) (void)waiter.wait();
}

Status Communicator::finalize() {
  if (on_device_ != nullptr) {
    on_device_->drain();
    static_cast<void>(look_on_device());
  }
  if (const auto error = this->error()) return tl::unexpected(*error);
  if (board_->state(rank_) == RankState::kAlive) board_->set_state(RankState::kLeaving);
  return {};
}

void Communicator::leave() {
  if (!control_) return;
  // An inherited copy shares board and connections with its parent, who is still alive.
  if (of_this_process()) part();
  control_->forget_peers();
  if (transport_) transport_->close();
  control_->close();
}

Communicator::Info Communicator::info() const {
  Info info;
  info.host = peers_[static_cast<std::size_t>(rank_)].host;
  info.transport = transport_ ? std::string(transport_->name()) : std::string{};
  info.forced_algorithm = forced_.name;
  info.host_ranks = host_ranks_;
  info.poisoned = error().has_value();
  const Plan* const last = last_plan_ != nullptr   ? &last_plan_->plan
                           : on_device_ != nullptr ? on_device_->last_plan()
                                                   : nullptr;
  if (last != nullptr) {
    info.last_algorithm = last->algorithm->name;
    info.last_protocol = ranks_ == 1 ? "local" : name_of(last->options.protocol);
    info.last_plan = last->id;
    info.last_slices = last_slices_;
    info.last_replicas = last->options.replicas;
  }
  info.operations = completed_;
  for (const auto& [id, bound] : plans_) {
    info.payload_bytes_sent += bound->executor->traffic().payload_bytes;
    info.messages_sent += bound->executor->traffic().messages;
    info.lent_bytes_sent += bound->executor->traffic().lent_bytes;
  }
  info.mapped_bytes = transport_ ? transport_->mapped_bytes() : 0;
  info.mapped_bytes += windows_->mapped_bytes();
  return info;
}

}  // namespace tutti
