// SPDX-License-Identifier: Apache-2.0
// One rank's membership in a job: who the others are, which of them live, and what ended the job.
//
// Owns the control plane and the status page. Error, poison and abort are for any thread; the rest
// is for the thread that holds the communicator's call, or, where it says so, the service thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/process_fd.hpp"
#include "board/board.hpp"
#include "control/control_plane.hpp"

namespace tutti {

class Membership {
 public:
  Membership(Rank rank, std::int32_t ranks, const Config& config);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] std::int32_t ranks() const { return ranks_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const Log& log() const { return log_; }
  // False in a child that inherited the communicator by fork: it must touch nothing shared.
  [[nodiscard]] bool of_this_process() const { return is_fork_generation(generation_); }

  // The others, from now on; once.
  void enter(std::unique_ptr<ControlPlane> control);
  [[nodiscard]] bool entered() const { return control_ != nullptr; }
  // Opens the status page and begins to watch the others; `on_death` is told on the service thread.
  // Errors: those of Board::open.
  [[nodiscard]] Status watch(Deadline deadline, std::function<void(Rank)> on_death);

  // Once entered.
  [[nodiscard]] ControlPlane& control() const { return *control_; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const { return peers_; }
  [[nodiscard]] const PeerInfo& peer(Rank rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const PeerInfo& own() const { return peer(rank_); }
  [[nodiscard]] std::int32_t host_ranks() const { return host_ranks_; }
  [[nodiscard]] bool is_far(Rank rank) const { return peer(rank).host_id != own().host_id; }
  [[nodiscard]] bool in_this_process(Rank rank) const {
    return peer(rank).process_token == own().process_token;
  }
  // "rank 2 (pid 4711 on node1)".
  [[nodiscard]] std::string describe(Rank rank) const;

  // Once it watches; null before.
  [[nodiscard]] Board* page() const { return board_.get(); }
  [[nodiscard]] Board& board() const { return *board_; }
  // Has its process ended, or left this communicator? Any thread.
  [[nodiscard]] bool is_gone(Rank rank) const;
  // Has its process ended, as the service thread noticed? Any thread.
  [[nodiscard]] bool has_died(Rank rank) const {
    // Acquire pairs with the release where deaths are noticed.
    return dead_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }

  // What the communicator suffers from, if anything. Any thread.
  [[nodiscard]] std::optional<Error> error() const;
  // The first one stays. Any thread.
  void set_error(const Error& error);
  // Poisons the job (first poison wins) and returns the winning error; if it is this, with `cause`.
  Error poison(const Poison& poison, std::string_view cause = {});
  // A poison of which this rank is the culprit and the reporter.
  [[nodiscard]] Poison own_poison(Poison::Kind kind) const {
    return {.code = Code::kRemoteError, .culprit = rank_, .reporter = rank_, .kind = kind};
  }
  // To the others it is this rank that failed, in `mine` if it was in an operation.
  Error poison_as_failed(const OperationSignature& mine = {});
  [[nodiscard]] Poison death_of(Rank dead) const;
  // Poisons after a collective that broke down: some ranks may have succeeded, so the communicator
  // is of no more use. Returns the error of the call.
  [[nodiscard]] Error broken(const Error& error);
  // Tells the others that this rank fails in a collective that they wait for it in. Allocates
  // nothing: it may be out of memory.
  void cannot_come();
  // After a disturbance: this rank sends nothing more, and nobody need wait for it. Any thread.
  void give_up();

  // Ends this rank's calls; who waits sees it.
  void end_calls();
  [[nodiscard]] bool aborted() const {
    // Acquire pairs with the release in end_calls().
    return aborted_.load(std::memory_order_acquire);
  }
  // The cheap check of every waiting round.
  [[nodiscard]] bool disturbed() const { return aborted() || board_->poisoned(); }
  // Ends every operation on every rank, for good.
  void revoke();
  [[nodiscard]] bool is_open() const { return of_this_process() && !board_->is_leaving(); }
  // kInvalidUsage: the communicator was inherited by fork, or has been finalized.
  [[nodiscard]] Status open_to_calls() const;
  // May this rank take part in a collective that is no operation? Errors: those of open_to_calls(),
  // and what the communicator suffers from; this rank has given up then.
  [[nodiscard]] Status manageable(bool also_revoked);

  // A device's part in errors; null functions: there is none. Before anything is poisoned.
  struct DeviceSide {
    std::function<void()> abort;                  // ends its kernels; any thread
    std::function<std::optional<Error>()> fault;  // what a kernel found; any thread
  };
  void attach(DeviceSide device) { device_ = std::move(device); }

  // Tells the page of a gathering for the time of a scope, in which a split after a revoke, or a
  // shrink, goes on although the job is poisoned.
  class [[nodiscard]] ScopedGathering {
   public:
    ScopedGathering(Membership& members, Gathering gathering);
    ScopedGathering(const ScopedGathering&) = delete;
    ScopedGathering& operator=(const ScopedGathering&) = delete;
    ~ScopedGathering();

   private:
    Membership& members_;
  };

  // What this rank sends its peers of an error goes out although the job is poisoned.
  void begin_to_leave() { leaving_.store(true, std::memory_order_relaxed); }

 private:
  // On the service thread. True: it died, and has not left in order.
  [[nodiscard]] bool note_death(Rank dead);
  // Are calls to other ranks' service threads, and exchanges, of no more use? Poison ends them, but
  // those of a split after a revoke only where a rank has left, those of a shrink not at all.
  [[nodiscard]] bool calls_are_over() const;

  const Rank rank_;
  const std::int32_t ranks_;
  const std::uint64_t generation_;  // of forks, when this was made
  const Config config_;
  Log log_;
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<Board> board_;
  std::vector<PeerInfo> peers_;
  std::int32_t host_ranks_ = 1;
  DeviceSide device_;
  std::function<void(Rank)> on_death_;
  // By rank: its process has ended. Set on the service thread, read where an operation waits.
  std::unique_ptr<std::atomic<bool>[]> dead_;
  std::atomic<bool> aborted_{false};
  // Relaxed: read by the thread that sets it.
  std::atomic<Gathering> regrouping_{Gathering::kNone};
  std::atomic<bool> leaving_{false};  // the same
  mutable std::mutex error_mutex_;
  std::optional<Error> error_;  // guarded by error_mutex_
};

}  // namespace tutti
