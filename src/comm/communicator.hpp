// SPDX-License-Identifier: Apache-2.0
// A communicator: one rank's membership in a job, what it needs to run operations, and what it may
// do beside them.
//
// Its parts have a duty each: Membership says who is there and what ended the job, Agreement what
// all ranks decided at start, the transport moves bytes, PlanCache holds the plans, RankOnDevice
// the device. Operations (operation.hpp) run in the thread that calls run_operations(); they are
// numbered in issue order, equal on all ranks. One user thread at a time, except where a function
// says otherwise. A communicator of one rank has no thread, socket or shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "comm/agreement.hpp"
#include "comm/apart_output.hpp"
#include "comm/call_slot.hpp"
#include "comm/made_ops.hpp"
#include "comm/membership.hpp"
#include "comm/operation_counts.hpp"
#include "comm/plan_cache.hpp"
#include "comm/rank_on_device.hpp"
#include "comm/repeats.hpp"
#include "comm/shrink.hpp"
#include "comm/transfers.hpp"
#include "comm/window.hpp"
#include "exec/waiter.hpp"
#include "stream/worker.hpp"
#include "transports/transport.hpp"

namespace tutti {

struct CommunicatorOptions {
  Config config;
  std::stop_token cancel;                // ends create() early
  std::optional<int> device = {};        // of this rank, for calls with device memory
  device::BlockRange blocks = {};        // that a rank takes of it
  device::Platform* platform = nullptr;  // of the devices; null: CUDA's, if there is one
  bool blocking = true;                  // false: the caller of the C API does not wait for it
  CallWord* call_word = nullptr;         // of its handle, which outlives it; null: its own
};

class Communicator {
 public:
  // Collective over all ranks, which meet at the roots of these ids (ControlPlane::join); blocks
  // until all have joined or config.init_timeout_ns is over.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> create(
      std::span<const UniqueId> ids, Rank rank, std::int32_t ranks,
      const CommunicatorOptions& options);
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> create(
      const UniqueId& id, Rank rank, std::int32_t ranks, const CommunicatorOptions& options) {
    return create(std::span(&id, 1), rank, ranks, options);
  }
  // Creates a communicator of a job whose ranks already know each other.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> create(
      std::unique_ptr<ControlPlane> control, const CommunicatorOptions& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] Rank rank() const { return members_.rank(); }
  [[nodiscard]] std::int32_t ranks() const { return members_.ranks(); }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const { return members_.peers(); }
  // As it was created.
  [[nodiscard]] const Config& config() const { return members_.config(); }
  [[nodiscard]] const device::BlockRange& blocks() const { return blocks_; }

  // Forces plans, as parse_forced_set takes them; "" or "auto" gives the choice back.
  [[nodiscard]] Status set_algorithm(std::string_view text);

  // Registers a part of a window, on all ranks together and in the same order. Blocks until all
  // have come, or the operation timeout is over. Errors: those of WindowTable::add, on all ranks
  // alike; after others the communicator is poisoned.
  [[nodiscard]] Status add_window(const WindowRequest& request);
  [[nodiscard]] Status remove_window(std::uint64_t id);
  // Does all that the call reads and writes lie in symmetric windows?
  [[nodiscard]] bool in_windows(const Call& call) const;
  // Lets transports send from this rank's memory where it lies; the id is for deregister_memory().
  // Errors: those of Transport::register_memory.
  [[nodiscard]] Result<std::uint64_t> register_memory(std::span<std::byte> memory);
  // kInvalidArgument if there is none with this id.
  [[nodiscard]] Status deregister_memory(std::uint64_t id);

  // Make a communicator of the ranks of one color (null: of kNoColor), or of those that are not
  // excluded (sorted, not this one) and live. Collective over them, blocking; errors as of
  // regroup.hpp and shrink.hpp. A split that breaks down poisons. A poisoned communicator is
  // refused, unless it was revoked or `also_poisoned`.
  [[nodiscard]] Result<std::unique_ptr<Communicator>> split(std::int32_t color, std::int32_t key,
                                                            const CommunicatorOptions& options);
  [[nodiscard]] Result<std::unique_ptr<Communicator>> shrink(std::vector<Rank> excluded,
                                                             bool also_poisoned,
                                                             const CommunicatorOptions& options);
  // Tells the others that this rank fails in a collective that they wait for it in. Allocates
  // nothing: it may be out of memory.
  void cannot_come() { members_.cannot_come(); }
  // Ends every operation on every rank, for good, also where a death has poisoned before; this
  // rank's calls have returned afterwards. Splitting, shrinking and leaving are all that is left to
  // do. Any thread, but not within a call.
  void revoke();

  // What the communicator suffers from, if anything. Any thread.
  [[nodiscard]] std::optional<Error> error() const { return members_.error(); }
  // Ends every operation on every rank: those under way return an error. Any thread. Returns when
  // this rank's own operation, if any, has returned, and calls on streams have ended.
  void abort();
  // Says that this rank issues no more; everything issued has completed already. Later operations
  // are kInvalidUsage. The poison's error if there is one.
  [[nodiscard]] Status finalize();
  // Says goodbye, so that this rank's end is not taken for a death. Idempotent.
  void leave();

  // Null: a host communicator.
  [[nodiscard]] RankOnDevice* on_device() const { return on_device_.get(); }
  // Makes a launch of a call with device memory; nothing where there is nothing to do. The user's
  // thread. Poisons after an error that other ranks do not find as well.
  [[nodiscard]] Result<std::optional<device::Issue>> prepare_on_device(const Call& call);
  // Would such a call be refused before it has a number? The error of that.
  [[nodiscard]] Status check_on_device(const Call& call);

  // Every way to run a call like this one, of which no buffer is looked at, with prices; what was
  // measured, on rank 0. Counts all schedules of the collective the first time. The user's thread.
  // Errors: those of the call.
  [[nodiscard]] Result<Explanation> explain(const Call& call, bool in_windows) {
    return plans_->explain(call, in_windows);
  }
  // What sends and receives of one group would take this rank, in nanoseconds.
  [[nodiscard]] double price(std::span<const Call> transfers) const {
    return price_transfers(transfers, rank(), ranks(), agreement_);
  }
  // An explanation with device memory, as a text; "" where the rank has no device.
  [[nodiscard]] Result<std::string> explain_on_device(const Call& call);
  // Every call but those that any thread may make holds this.
  [[nodiscard]] CallSlot& call_slot() { return call_slot_; }
  // Carries out the calls on streams.
  [[nodiscard]] Worker& progress() { return progress_; }
  // Blocks until the calls on streams have ended; after an error they wait for nothing. Errors:
  // those of Completion::wait().
  [[nodiscard]] Status complete_issued();
  // Keeps a text for the C API's user until the next one.
  [[nodiscard]] const char* keep_text(std::string text);

  struct Info {
    std::string host, transport, forced_algorithm, last_algorithm, last_protocol;
    std::int32_t host_ranks = 1;
    bool poisoned = false;
    std::uint64_t last_plan = 0;
    std::uint32_t last_slices = 0, last_replicas = 0;
    std::uint64_t operations = 0, payload_bytes_sent = 0, messages_sent = 0, mapped_bytes = 0;
    std::uint64_t lent_bytes_sent = 0, received_in_place_bytes = 0;
  };
  [[nodiscard]] Info info() const;

  // For operations.
  [[nodiscard]] Membership& members() { return members_; }
  [[nodiscard]] PlanCache& plans() { return *plans_; }
  [[nodiscard]] PairConnections& pairs() { return *pairs_; }
  [[nodiscard]] Transport* transport() const { return transport_.get(); }  // null: one rank
  [[nodiscard]] OperationCounts& counts() { return counts_; }
  [[nodiscard]] Repeats& repeats() { return repeats_; }
  // Do all messages pass by memory, so that none needs this rank later?
  [[nodiscard]] bool shares_everything() const {
    return transport_ != nullptr && !transport_->capabilities().pumps;
  }
  [[nodiscard]] WaitPolicy& wait_policy() { return wait_policy_; }
  [[nodiscard]] MadeOps& made_ops() { return made_ops_; }
  [[nodiscard]] CallMemory& fp32_memory() { return fp32_memory_; }
  [[nodiscard]] CallMemory& apart_memory() { return apart_memory_; }
  // The data of a barrier, which nobody looks at.
  [[nodiscard]] std::byte* barrier_data() { return &barrier_data_; }
  // Data of so many bytes is stored around the cache.
  [[nodiscard]] std::uint64_t nt_bytes() const { return nt_bytes_; }

 private:
  using Meet = std::function<Result<std::unique_ptr<ControlPlane>>(Deadline)>;

  Communicator(Rank rank, std::int32_t ranks, const CommunicatorOptions& options);
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> settle(
      std::unique_ptr<Communicator> communicator, const Meet& meet, const std::stop_token& cancel);
  [[nodiscard]] Status join(const Meet& meet, const std::stop_token& cancel);
  [[nodiscard]] Status agree_on_plans(Deadline deadline);
  // The ranks to which some plan, send or receive has a connection.
  [[nodiscard]] std::set<Rank> connected() const;
  // Before the exchange of settings, so that ranks of one process know each other's devices after
  // it.
  [[nodiscard]] Status join_on_device();

  Membership members_;
  const std::optional<int> device_;
  const device::BlockRange blocks_;
  device::Platform* const platform_;
  std::unique_ptr<Transport> transport_;
  Agreement agreement_;
  LentMemory lent_;                       // of the operation at hand, to peers that read it
  std::optional<WindowTable> windows_;    // there once joined
  std::optional<PlanCache> plans_;        // the same
  std::optional<PairConnections> pairs_;  // the same
  std::optional<Shrink> shrink_;          // the same
  std::unique_ptr<RankOnDevice> on_device_;
  std::map<std::uint64_t, std::uint64_t> registered_;  // the transport's key, by id
  OperationCounts counts_;
  WaitPolicy wait_policy_;
  std::uint64_t nt_bytes_ = 0;
  std::string kept_text_;
  std::byte barrier_data_{};
  MadeOps made_ops_;
  CallMemory fp32_memory_;
  CallMemory apart_memory_;
  Worker progress_{"tutti-progress"};
  CallSlot call_slot_;
  Repeats repeats_{*this};
};

}  // namespace tutti
