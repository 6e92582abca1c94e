// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <fmt/core.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "base/host.hpp"
#include "comm/either_stops.hpp"
#include "comm/regroup.hpp"
#include "comm/ways.hpp"
#include "kernels/reduce_copy.hpp"

namespace tutti {
namespace {

// Does this rank alone know why it cannot join: by itself, or because of a peer that it knows?
// Errors of the call, the program or the settings are mostly found by all alike.
bool is_of_one_rank(const Error& error) {
  const bool by_peer = error.code == Code::kRemoteError || error.code == Code::kTimeout;
  return by_peer ? error.culprit != kNoRank
                 : error.code == Code::kSystemError || error.code == Code::kUnhandledCudaError;
}

// Rounds before the first yield where every rank can have a core: about a millisecond. A yield
// hands the core to whatever else the machine runs, for a scheduler's slice; waits between calls
// that come without pause are far shorter.
constexpr std::uint32_t kSpinsWithCore = 50'000;

// The same of a transport that asks the kernel in every round.
constexpr std::uint32_t kSpinsOfPump = 500;

WaitPolicy make_wait_policy(const Config& config, const Machine& machine, bool pumps) {
  WaitPolicy policy;
  const std::uint32_t with_core = pumps ? kSpinsOfPump : kSpinsWithCore;
  policy.spins = config.spin != kSpinAuto         ? config.spin
                 : machine.ranks <= machine.cores ? with_core
                                                  : 0;
  // Of more ranks on a core than these, waking up each millisecond would take most of its time.
  constexpr std::int64_t kFewSharers = 150, kMoreSleepNs = 40'000, kMostSleepNs = 100'000'000;
  const std::int64_t more = machine.ranks / std::max(machine.cores, 1) - kFewSharers;
  if (more > 0)
    policy.max_sleep_ns = std::min(policy.max_sleep_ns + more * kMoreSleepNs, kMostSleepNs);
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

// Once a process: what its ranks will not do, before the first call that wants it.
void warn_of_cuda_fault(const Log& log) {
  static std::atomic<bool> told{false};
  const std::string_view fault = device::cuda_fault();
  // Relaxed: it guards nothing but the line.
  if (fault.empty() || told.exchange(true, std::memory_order_relaxed)) return;
  TUTTI_LOG(
      log, LogLevel::kWarn,
      "the program uses CUDA, but this build cannot use it: {}; calls with device memory will "
      "fail",
      fault);
}

}  // namespace

Communicator::Communicator(Rank rank, std::int32_t ranks, const CommunicatorOptions& options)
    : members_(rank, ranks, options.config),
      device_(options.device),
      blocks_(options.blocks),
      platform_(options.platform),
      call_slot_(progress_, options.call_word) {}

Communicator::~Communicator() {
  static_cast<void>(complete_issued());
  progress_.end();
  // What is enqueued ends; at once where there was an error.
  if (!members_.of_this_process()) {
    static_cast<void>(on_device_.release());  // its kernels and memory are the parent's
  } else if (on_device_ != nullptr) {
    if (members_.page() != nullptr && error()) on_device_->abort();
    on_device_.reset();
  }
  leave();
}

Result<std::unique_ptr<Communicator>> Communicator::create(std::span<const UniqueId> ids, Rank rank,
                                                           std::int32_t ranks,
                                                           const CommunicatorOptions& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("rank is {} and nranks is {}; use 0 <= rank < nranks", rank, ranks));
  std::unique_ptr<Communicator> communicator(new Communicator(rank, ranks, options));
  const Meet meet = [&, own = &communicator->members_](Deadline deadline) {
    return ControlPlane::join(ids, rank, ranks,
                              {.deadline = deadline,
                               .host_id_text = own->config().host_id,
                               .interfaces = own->config().interfaces,
                               .log = own->log(),
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
  Membership& members = communicator->members_;
  introduce_library(members.log(), members.config());
  warn_of_unknown_variables(members.log());
  const Status joined = communicator->join(meet, cancel);
  if (joined) return communicator;
  // What the machine refuses this rank alone must not keep the others waiting.
  if (joined.error().code == Code::kSystemError && members.entered()) members.control().call_off();
  Board* const board = members.page();
  if (board == nullptr) return tl::unexpected(joined.error());
  // The same of an abort: who has this board hears of it from there.
  if (cancel.stop_requested()) board->poison(members.own_poison(Poison::Kind::kAbort));
  // And of what not all ranks find: others may have joined already, and are about to wait for this
  // one in a call.
  else if (is_of_one_rank(joined.error()))
    return tl::unexpected(members.broken(joined.error()));
  // If an abort record cut a call short, the record says why.
  if (board->poisoned()) return tl::unexpected(members.error().value_or(joined.error()));
  return tl::unexpected(joined.error());
}

Status Communicator::join(const Meet& meet, const std::stop_token& cancel) {
  const Deadline deadline = Deadline::in_ns(config().init_timeout_ns);
  // Only rank 0 prices, while the others come.
  Result<Agreement> proposed = propose_agreement(members_);
  TUTTI_TRY_ASSIGN(std::unique_ptr<ControlPlane> control, meet(deadline));
  members_.enter(std::move(control));
  const std::stop_callback cancelled(cancel, [this] { members_.control().interrupt(); });
  if (ranks() > 1) {
    TUTTI_TRY_ASSIGN(transport_, open_transport(members_, deadline));
    TUTTI_TRY(transport_->listen());
  }
  shrink_.emplace(members_.control());
  TUTTI_TRY(members_.watch(deadline, [this](Rank dead) { shrink_->note_death(dead); }));
  if (!proposed) return tl::unexpected(proposed.error());
  agreement_ = *std::move(proposed);
  TUTTI_TRY(agree_on_plans(deadline));
  members_.control().connect_watches(deadline);
  if (on_device_ != nullptr) {
    const Settings& agreed = agreement_.settings;
    on_device_->price_by({agreed.device_costs, agreed.device_cost_source.data()});
    on_device_->allocate();
  }
  wait_policy_ = make_wait_policy(config(), agreement_.machine,
                                  transport_ && transport_->capabilities().pumps);
  nt_bytes_ = make_nt_bytes(config(), agreement_.machine.ranks);
  TUTTI_LOG(members_.log(), LogLevel::kInfo,
            "joined: {} ranks, {} on this host, by {}, {} cores, spins {}", ranks(),
            members_.host_ranks(), transport_ ? transport_->name() : "nothing",
            agreement_.machine.cores, wait_policy_.spins);
  return {};
}

Status Communicator::agree_on_plans(Deadline deadline) {
  windows_.emplace(members_.control());
  TUTTI_TRY(join_on_device());
  plans_.emplace(members_, agreement_, transport_.get(), lent_, *windows_);
  pairs_.emplace(members_, transport_.get());
  if (ranks() > 1) {
    // Before the exchange, so that ranks of one process find each other's after it.
    lent_ = LentMemory(members_.control().session(), rank(), members_.board().call_record(rank()));
    // That ranks differ in a setting, and who has died, is said better by agreement.
    const Status receives = transport_->connect(rank(), deadline);
    if (!receives &&
        (receives.error().code == Code::kSystemError || receives.error().code == Code::kTimeout))
      return receives;
    TUTTI_TRY(agree(agreement_, members_, *transport_, look_at_peers(members_), deadline));
    TUTTI_TRY(receives);
  }
  return plans_->force_configured();
}

Status Communicator::join_on_device() {
  warn_of_cuda_fault(members_.log());
  device::Platform* const platform = platform_ != nullptr ? platform_ : device::cuda_platform();
  if (!device_ || platform == nullptr) return {};
  TUTTI_TRY_ASSIGN(on_device_, RankOnDevice::join(*platform, members_, *device_));
  on_device_->limit_blocks(blocks_);
  return {};
}

Status Communicator::set_algorithm(std::string_view text) {
  TUTTI_TRY_ASSIGN(const ForcedSet named, parse_forced_set(text));
  return plans_->force(named);
}

const char* Communicator::keep_text(std::string text) {
  kept_text_ = std::move(text);
  return kept_text_.c_str();
}

Result<std::optional<device::Issue>> Communicator::prepare_on_device(const Call& call) {
  TUTTI_TRY(members_.manageable(false));
  if (call.count == 0) return std::nullopt;
  const std::uint64_t before = counts_.issued;
  Result<device::Issue> issue = on_device_->prepare(call, plans_->forced(call.collective), counts_);
  // Host memory has no part in it; what came before has ended.
  if (transport_ && counts_.issued != before) transport_->publish_done(counts_.issued);
  if (!issue) return tl::unexpected(issue.error());
  plans_->forget_last_plan();
  return std::optional(*std::move(issue));
}

Status Communicator::check_on_device(const Call& call) {
  TUTTI_TRY(members_.manageable(false));
  return on_device_->check(call, plans_->forced(call.collective));
}

Result<std::string> Communicator::explain_on_device(const Call& call) {
  if (on_device_ == nullptr) return std::string();
  return on_device_->explain(call, plans_->forced(call.collective));
}

bool Communicator::in_windows(const Call& call) const {
  if (windows_->empty()) return false;
  return (!call.has_input(rank()) ||
          windows_->cover(call.input, call.input_bytes(rank(), ranks()))) &&
         (!call.has_output(rank()) ||
          windows_->cover(call.output, call.output_bytes(rank(), ranks())));
}

Status Communicator::add_window(const WindowRequest& request) {
  TUTTI_TRY(members_.manageable(false));
  if (members_.host_ranks() != ranks())
    return make_error(Code::kNotSupported,
                      "windows are shared memory, but this communicator's ranks are on several "
                      "hosts; split it by host first (tuttiCommSplit)");
  const Membership::ScopedGathering here(members_, Gathering::kWindow);
  Result<Status> added = windows_->add(request, Deadline::in_ns(config().op_timeout_ns));
  plans_->note_windows();
  return added ? *std::move(added) : tl::unexpected(members_.broken(added.error()));
}

Status Communicator::remove_window(std::uint64_t id) {
  plans_->note_windows();
  return windows_->remove(id);
}

Result<std::uint64_t> Communicator::register_memory(std::span<std::byte> memory) {
  std::uint64_t key = 0;
  if (transport_ != nullptr) {
    TUTTI_TRY_ASSIGN(key, transport_->register_memory(memory));
  }
  // The counter serves all communicators, so that another one's is not taken for one of this.
  static std::atomic<std::uint64_t> last{0};  // relaxed: only to differ
  const std::uint64_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  registered_.emplace(id, key);
  return id;
}

Status Communicator::deregister_memory(std::uint64_t id) {
  const auto found = registered_.find(id);
  if (found == registered_.end())
    return make_error(
        Code::kInvalidArgument,
        "handle does not come from tuttiCommRegister of this communicator, or was deregistered");
  if (transport_ != nullptr) transport_->unregister_memory(found->second);
  registered_.erase(found);
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::split(std::int32_t color, std::int32_t key,
                                                          const CommunicatorOptions& options) {
  TUTTI_TRY(members_.manageable(true));
  const Membership::ScopedGathering here(members_, Gathering::kSplit);
  std::unique_ptr<ControlPlane> job;
  try {
    TUTTI_TRY_ASSIGN(
        job, tutti::split(members_.control(), color, key, Deadline::in_ns(config().op_timeout_ns))
                 .map_error([this](const Error& error) { return members_.broken(error); }));
  } catch (...) {
    cannot_come();
    throw;
  }
  if (job == nullptr) return nullptr;
  return create(std::move(job), options);
}

Result<std::unique_ptr<Communicator>> Communicator::shrink(std::vector<Rank> excluded,
                                                           bool also_poisoned,
                                                           const CommunicatorOptions& options) {
  TUTTI_TRY(also_poisoned ? Status() : members_.manageable(true));
  const Membership::ScopedGathering here(members_, Gathering::kShrink);
  std::unique_ptr<Communicator> made;
  const auto join = [&](std::unique_ptr<ControlPlane> job, const std::stop_token& hopeless) {
    const EitherStops stops(options.cancel, hopeless);
    CommunicatorOptions own = options;
    own.cancel = stops.token();
    return create(std::move(job), own).map([&made](std::unique_ptr<Communicator> joined) {
      made = std::move(joined);
    });
  };
  TUTTI_TRY(shrink_->run({.excluded = std::move(excluded),
                          .is_dead = [this](Rank rank) { return members_.is_gone(rank); },
                          .cancelled = [this] { return members_.aborted(); },
                          .join = join,
                          .drop = [&made] { made.reset(); },
                          .timeout_ns = config().op_timeout_ns,
                          .join_timeout_ns = options.config.init_timeout_ns}));
  return made;
}

void Communicator::abort() {
  if (!members_.of_this_process()) return;
  members_.end_calls();
  revoke();
}

void Communicator::revoke() {
  if (!members_.of_this_process()) return;
  members_.revoke();
  progress_.hurry();
  call_slot_.await_free();
  static_cast<void>(call_slot_.drain());
}

Status Communicator::complete_issued() {
  if (progress_.idle() || !members_.of_this_process()) return {};
  if (error()) progress_.hurry();
  return call_slot_.drain();
}

Status Communicator::finalize() {
  if (on_device_ != nullptr) on_device_->drain();
  if (const auto error = this->error()) return tl::unexpected(*error);
  Board& board = members_.board();
  if (board.state(rank()) == RankState::kAlive) board.set_state(RankState::kLeaving);
  members_.control().leave_watches();
  return {};
}

std::set<Rank> Communicator::connected() const {
  std::set<Rank> peers;
  if (plans_) peers = plans_->connected();
  if (pairs_) peers.merge(pairs_->connected());
  return peers;
}

void Communicator::leave() {
  if (!members_.entered()) return;
  // An inherited copy shares board and connections with its parent, who is still alive.
  if (members_.of_this_process())
    part(
        members_, transport_.get(), [this] { return connected(); }, counts_.issued);
  members_.control().forget_peers();
  if (transport_) transport_->close();
  members_.control().close();
}

Communicator::Info Communicator::info() const {
  Info info;
  info.host = members_.own().host;
  info.transport = transport_ ? std::string(transport_->name()) : std::string{};
  info.forced_algorithm = plans_->forced_text();
  info.host_ranks = members_.host_ranks();
  info.poisoned = error().has_value();
  const Plan* const last = plans_->last_plan() != nullptr ? plans_->last_plan()
                           : on_device_ != nullptr        ? on_device_->last_plan()
                                                          : nullptr;
  if (last != nullptr) {
    info.last_algorithm = last->algorithm->name;
    info.last_protocol = ranks() == 1 ? "local" : name_of(last->options.protocol);
    info.last_plan = last->id;
    info.last_slices = counts_.last_slices;
    info.last_replicas = last->options.replicas;
  }
  info.operations = counts_.completed;
  TrafficCounters traffic = plans_->traffic();
  traffic += pairs_->traffic();
  info.payload_bytes_sent = traffic.payload_bytes + traffic.stored_bytes;
  info.messages_sent = traffic.messages;
  info.lent_bytes_sent = traffic.lent_bytes;
  info.received_in_place_bytes = traffic.placed_bytes;
  info.mapped_bytes = transport_ ? transport_->mapped_bytes() : 0;
  info.mapped_bytes += windows_->mapped_bytes();
  return info;
}

}  // namespace tutti
