// SPDX-License-Identifier: Apache-2.0
#include "comm/membership.hpp"

#include <algorithm>
#include <utility>

#include "base/process_fd.hpp"
#include "board/faults.hpp"

namespace tutti {
namespace {

// Once a process: every rank of it would say the same.
void warn_of_log_file(const Log& log, const Error& error) {
  static std::once_flag once;
  std::call_once(once, [&] {
    TUTTI_LOG(log, LogLevel::kError, "{}; the log goes to stderr; correct TUTTI_DEBUG_FILE",
              error.message);
  });
}

}  // namespace

Membership::Membership(Rank rank, std::int32_t ranks, const Config& config)
    : rank_(rank), ranks_(ranks), generation_(fork_generation()), config_(config) {
  if (auto log = Log::open(config_.log_level, config_.log_file, rank)) {
    log_ = *std::move(log);
  } else {
    log_ = Log(config_.log_level, rank);
    warn_of_log_file(log_, log.error());
  }
}

void Membership::enter(std::unique_ptr<ControlPlane> control) {
  control_ = std::move(control);
  peers_ = control_->peers();
  host_ranks_ = static_cast<std::int32_t>(std::ranges::count_if(
      peers_, [&](const PeerInfo& peer) { return peer.host_id == own().host_id; }));
}

Status Membership::watch(Deadline deadline, std::function<void(Rank)> on_death) {
  TUTTI_TRY_ASSIGN(
      board_, Board::open(*control_, deadline, {.flight_dir = config_.flight_dir, .log = log_}));
  board_->set_state(RankState::kAlive);
  dead_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(ranks_));
  on_death_ = std::move(on_death);
  control_->end_calls_when([this] { return calls_are_over(); });
  if (ranks_ > 1) control_->watch_peers([this](Rank dead) { return note_death(dead); });
  control_->watch_revokes([this](Rank by) {
    board_->poison({.code = Code::kRemoteError,
                    .culprit = by,
                    .reporter = rank_,
                    .kind = Poison::Kind::kAbort});
    board_->revoke();
  });
  if (ranks_ > 1 && !control_->has_pidfd())
    TUTTI_LOG(log_, LogLevel::kWarn, "the library notices dead ranks late: {}", control_->note());
  return {};
}

std::string Membership::describe(Rank rank) const { return describe_rank(peers_, rank); }

bool Membership::is_gone(Rank rank) const {
  if (has_died(rank) || board_->state(rank) == RankState::kLeft) return true;
  const auto poison = board_->read_poison();  // another rank may have heard first
  return poison && poison->kind == Poison::Kind::kDeath && poison->culprit == rank;
}

bool Membership::note_death(Rank dead) {
  // Release pairs with the acquire in has_died().
  dead_[static_cast<std::size_t>(dead)].store(true, std::memory_order_release);
  const RankState state = board_->state(dead);
  const bool died = state != RankState::kLeaving && state != RankState::kLeft;
  if (died) board_->poison(death_of(dead));
  on_death_(dead);
  return died;
}

bool Membership::calls_are_over() const {
  if (leaving_.load(std::memory_order_relaxed)) return false;
  if (aborted()) return true;
  if (!board_->poisoned()) return false;
  const Gathering regrouping = regrouping_.load(std::memory_order_relaxed);
  if (regrouping != Gathering::kSplit) return regrouping == Gathering::kNone;
  return std::ranges::any_of(
      peers_, [&](const PeerInfo& peer) { return board_->state(peer.rank) == RankState::kLeft; });
}

Membership::ScopedGathering::ScopedGathering(Membership& members, Gathering gathering)
    : members_(members) {
  Board& board = members_.board();
  board.gather(gathering);
  const bool goes_on =
      gathering == Gathering::kShrink || (gathering == Gathering::kSplit && board.poisoned());
  if (goes_on) members_.regrouping_.store(gathering, std::memory_order_relaxed);
}

Membership::ScopedGathering::~ScopedGathering() {
  members_.regrouping_.store(Gathering::kNone, std::memory_order_relaxed);
  members_.board().gather(Gathering::kNone);
}

Status Membership::open_to_calls() const {
  if (!of_this_process())
    return make_error(Code::kInvalidUsage,
                      "this communicator was inherited by fork; only the process that made it may "
                      "use it");
  if (board_->state(rank_) == RankState::kLeaving)
    return make_error(Code::kInvalidUsage,
                      "the communicator was finalized; no operation may follow tuttiCommFinalize");
  return {};
}

Status Membership::manageable(bool also_revoked) {
  TUTTI_TRY(open_to_calls());
  const auto error = this->error();
  if (!error) return {};
  const auto poison = board_->read_poison();
  if (also_revoked && poison && poison->kind == Poison::Kind::kAbort) return {};
  give_up();
  return tl::unexpected(*error);
}

std::optional<Error> Membership::error() const {
  {
    const std::lock_guard lock(error_mutex_);
    if (error_) return error_;
  }
  const auto poison = board_->poisoned() ? board_->read_poison() : std::nullopt;
  // A kernel's fault says more than that a rank failed.
  if (device_.fault && (!poison || poison->kind == Poison::Kind::kFailure))
    if (auto fault = device_.fault()) return fault;
  if (!poison) return std::nullopt;  // or claimed, about to be published
  return poison_error(*poison, peers_);
}

void Membership::set_error(const Error& error) {
  const std::lock_guard lock(error_mutex_);
  if (!error_) error_ = error;
}

Error Membership::poison(const Poison& poison, std::string_view cause) {
  const bool first = board_->poison(poison);
  if (device_.abort) device_.abort();
  // Another rank may have been first: everybody tells the same story.
  const Error error = first ? poison_error(poison, peers_, cause)
                            : poison_error(board_->read_poison().value_or(poison), peers_);
  set_error(error);
  return error;
}

Error Membership::poison_as_failed(const OperationSignature& mine) {
  Poison own = own_poison(Poison::Kind::kFailure);
  own.mine = mine;
  return poison(own);
}

Poison Membership::death_of(Rank dead) const {
  const std::optional<OperationSignature> last =
      board_->signature(dead, board_->last_entered(dead));
  return {.code = Code::kRemoteError,
          .culprit = dead,
          .reporter = rank_,
          .kind = Poison::Kind::kDeath,
          .mine = board_->current(dead).value_or(OperationSignature{}),
          .theirs = last.value_or(OperationSignature{})};
}

Error Membership::broken(const Error& error) {
  // What this rank alone knows is said here, whoever was first to poison.
  const bool own = error.code == Code::kSystemError;
  if (board_->poisoned()) {
    give_up();
    return own ? error : this->error().value_or(error);
  }
  if (error.culprit != kNoRank && has_died(error.culprit)) {
    poison(death_of(error.culprit));
    return error;
  }
  // The others' machines are well: to them it is a rank that failed.
  poison({.code = own ? Code::kRemoteError : error.code,
          .culprit = error.culprit != kNoRank ? error.culprit : rank_,
          .reporter = rank_,
          .kind = Poison::Kind::kFailure});
  return error;
}

void Membership::give_up() {
  if (disturbed()) board_->set_state(RankState::kFailed);
}

void Membership::cannot_come() {
  if (of_this_process()) board_->poison(own_poison(Poison::Kind::kFailure));
}

// Release pairs with the acquire in aborted(): the user thread leaves its wait.
void Membership::end_calls() { aborted_.store(true, std::memory_order_release); }

void Membership::revoke() {
  poison(own_poison(Poison::Kind::kAbort));
  board_->revoke();
  control_->tell_revoke();
}

}  // namespace tutti
