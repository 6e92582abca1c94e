// A communicator: one rank's membership in a job, and the operations it runs.
//
// Owns the control plane, the board, the transport and the plans made so far. One user thread at a
// time, except abort(), error() and last_message(), which any thread may call. Operations run in
// the thread that calls run_operations(); they are numbered in issue order, equal on all ranks. A
// communicator of one rank has no thread, socket or shared memory.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "base/config.hpp"
#include "base/log.hpp"
#include "runtime/choice_table.hpp"
#include "runtime/control/board.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/explain.hpp"
#include "runtime/host_executor.hpp"
#include "runtime/layout_exchange.hpp"
#include "runtime/rank_on_device.hpp"
#include "runtime/regroup.hpp"
#include "runtime/waiter.hpp"
#include "runtime/window.hpp"
#include "transports/transport.hpp"

namespace tutti {

struct CommunicatorOptions {
  Config config;
  std::stop_token cancel;                // ends create() early
  std::optional<int> device = {};        // of this rank, for calls with device memory
  device::BlockRange blocks = {};        // that a rank takes of it
  device::Platform* platform = nullptr;  // of the devices; null: CUDA's, if there is one
};

// One call, validated by the C boundary for type and operation ranges.
struct AllReduceCall {
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool on_device = false;  // the buffers lie in device memory
  void* stream = nullptr;  // of those
};

class Communicator;
class Operation;

// A call, and what keeps its communicator alive until it has ended; null: the caller does.
struct HeldCall {
  Communicator* communicator = nullptr;
  AllReduceCall call;
  std::shared_ptr<const void> hold;
};

class Communicator {
 public:
  // Collective over all ranks; blocks until all have joined or config.init_timeout_ns is over.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> create(
      const UniqueId& id, Rank rank, std::int32_t ranks, const CommunicatorOptions& options);
  // Of a job whose ranks know each other already.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> create(
      std::unique_ptr<ControlPlane> control, const CommunicatorOptions& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] std::int32_t ranks() const { return ranks_; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const { return peers_; }

  // Forces an algorithm by name; "" or "auto" gives the choice back.
  [[nodiscard]] Status set_algorithm(std::string_view name);

  // Registers a part of a window, on all ranks together and in the same order. Blocks until all
  // have come, or the operation timeout is over. Errors: those of WindowTable::add, on all ranks
  // alike; after others the communicator is poisoned.
  [[nodiscard]] Status add_window(const WindowRequest& request);
  [[nodiscard]] Status remove_window(std::uint64_t id);
  // Lets transports send from this rank's memory where it lies; the id is for deregister_memory().
  // Errors: those of Transport::register_memory.
  [[nodiscard]] Result<std::uint64_t> register_memory(std::span<std::byte> memory);
  // kInvalidArgument if there is none with this id.
  [[nodiscard]] Status deregister_memory(std::uint64_t id);

  // Agree on a job of the ranks of one color (null: in none), or of those that are not excluded
  // (sorted, not this one) and live. Collective over them, blocking; errors as of
  // regroup.hpp. A split that breaks down poisons. `revoke_first` is for shrinking where
  // operations may be under way or have failed; otherwise a poisoned communicator is refused, one
  // that was revoked is not.
  [[nodiscard]] Result<std::unique_ptr<ControlPlane>> split(std::int32_t color, std::int32_t key);
  [[nodiscard]] Result<std::unique_ptr<ControlPlane>> shrink(std::vector<Rank> excluded,
                                                             bool revoke_first);
  // Tells the others that this rank fails in a collective that they wait for it in. Allocates
  // nothing: it may be out of memory.
  void cannot_come();
  // Ends every operation on every rank, for good; this rank's have returned afterwards. Splitting,
  // shrinking and leaving are all that is left to do. Any thread.
  void revoke();
  // As it was created.
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const device::BlockRange& blocks() const { return blocks_; }

  // What the communicator suffers from, if anything. Any thread.
  [[nodiscard]] std::optional<Error> error() const;
  // Ends every operation on every rank: those under way return an error. Any thread. Returns when
  // this rank's own operation, if any, has returned.
  void abort();
  // Says that this rank issues no more; everything issued has completed already. Later operations
  // are kInvalidUsage. The poison's error if there is one.
  [[nodiscard]] Status finalize();
  // Says goodbye, so that this rank's end is not taken for a death. Idempotent.
  void leave();

  // One turn of an operation in a group: true if it moved or ended. Only run_operations calls it.
  [[nodiscard]] Result<bool> turn(Operation& operation, bool& started, std::int64_t waited_ns,
                                  bool slow);

  // Null: a host communicator.
  [[nodiscard]] RankOnDevice* on_device() const { return on_device_.get(); }
  // Makes a launch of a call with device memory; nothing where there is nothing to do. The user's
  // thread. Poisons after an error that other ranks do not find as well.
  [[nodiscard]] Result<std::optional<device::Issue>> prepare_on_device(const AllReduceCall& call);
  // Poisons the job with an error of a launch, or with what explains it, and returns that.
  Error fail_on_device(const Error& found);

  // Every way to run an all-reduce of `bytes`, with prices; what was measured, on rank 0. Counts
  // all schedules the first time. The user's thread. Errors: those of a call of that size.
  [[nodiscard]] Result<Explanation> explain(std::uint64_t bytes, bool in_windows);
  // The same of calls with device memory, as a text; "" where the rank has no device.
  [[nodiscard]] Result<std::string> explain_on_device(std::uint64_t bytes);
  // Keeps a text for the C API's user until the next one.
  [[nodiscard]] const char* keep_text(std::string text);

  struct Info {
    std::string host, transport, forced_algorithm, last_algorithm, last_protocol;
    std::int32_t host_ranks = 1;
    bool poisoned = false;
    std::uint64_t last_plan = 0;
    std::uint32_t last_slices = 0, last_replicas = 0;
    std::uint64_t operations = 0, payload_bytes_sent = 0, messages_sent = 0, mapped_bytes = 0;
    std::uint64_t lent_bytes_sent = 0;
  };
  [[nodiscard]] Info info() const;

 private:
  friend class Operation;
  friend Status run_operations(std::span<HeldCall> calls);

  // A plan with its connections, kept for the next call of the same kind.
  struct BoundPlan {
    Plan plan;
    std::unique_ptr<HostExecutor> executor;
    std::uint64_t gate_passed = 0;  // all receivers are known to be done with this operation
  };
  // Which operations last used a kind of memory (flagged cells, arena) under which carve.
  struct CarveUse {
    std::uint64_t carve = 0;
    std::uint64_t barrier = 0;  // operations up to here may have used another carve
  };

  Communicator(Rank rank, std::int32_t ranks, const CommunicatorOptions& options);
  using Meet = std::function<Result<std::unique_ptr<ControlPlane>>(Deadline)>;
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> settle(
      std::unique_ptr<Communicator> communicator, const Meet& meet, const std::stop_token& cancel);
  [[nodiscard]] Status join(const Meet& meet, const std::stop_token& cancel);
  [[nodiscard]] Result<std::unique_ptr<Transport>> make_transport(Deadline deadline);
  [[nodiscard]] Result<std::unique_ptr<Transport>> make_rdma(Deadline deadline);
  [[nodiscard]] Result<std::unique_ptr<Transport>> make_tcp();
  [[nodiscard]] bool is_far(Rank rank) const;  // on another host
  [[nodiscard]] bool died_far(Rank rank) const;
  void drain();
  void tell_why();
  void part();
  // This rank's settings; rank 0 fills in its table.
  [[nodiscard]] Result<Settings> decide();
  [[nodiscard]] Status agree_on_settings(Deadline deadline);
  // Before the exchange, so that ranks of one process know each other's devices after it.
  [[nodiscard]] Status join_on_device(std::optional<int> device);
  // After it, so that all are there.
  void allocate_on_device();
  [[nodiscard]] std::optional<Error> device_fault() const;
  [[nodiscard]] std::int64_t look_on_device();
  [[nodiscard]] std::optional<Poison> trouble_on_device() const;
  [[nodiscard]] Poison poison_of(const device::Job::Found& found) const;
  [[nodiscard]] std::optional<Poison> mismatch_on_device(Rank rank,
                                                         const OperationSignature& mine) const;
  [[nodiscard]] Rank late_for(std::uint64_t operation) const;
  // What follows from knowing all: how many cores there are together, and, if `laid_out`, orders.
  [[nodiscard]] Status agree_again(const OwnPlace& place, std::int32_t cores, bool laid_out,
                                   Deadline deadline);
  // Rank 0's, and prices again where groups have changed.
  void adopt(const AgreedLayout& laid, std::int32_t cores);
  // A line for people; empty where nothing was laid out.
  [[nodiscard]] std::string order_text() const;
  // Nothing named: as the settings say.
  [[nodiscard]] Status force(const Forced& named);
  [[nodiscard]] Result<ChoiceRow> choices(const Forced& named, PeerAccess access) const;
  [[nodiscard]] bool in_windows(const AllReduceCall& call) const;
  [[nodiscard]] bool may_lend(const void* memory, std::uint64_t bytes) const;
  [[nodiscard]] Result<BoundPlan*> plan_for(std::uint64_t bytes, bool in_windows);
  [[nodiscard]] Result<BoundPlan*> bind(const Candidate& candidate);
  [[nodiscard]] Result<Candidate> look_up(std::uint64_t bytes, bool in_windows) const;
  // What this rank alone finds out; the job takes the least of all ranks.
  [[nodiscard]] AccessView look_at_peers();
  [[nodiscard]] Result<PeerMemory> memory_of(Rank peer);
  [[nodiscard]] Status run(const AllReduceCall& call);
  // May this rank take part in a collective that is no operation?
  [[nodiscard]] Status manageable(bool also_revoked) const;
  // Are calls to other ranks' service threads, and exchanges, of no more use? Poison ends them, but
  // those of a split after a revoke only where a rank has left, those of a shrink not at all.
  [[nodiscard]] bool calls_are_over() const;
  // Of a collective that broke down: some ranks may have succeeded, so the communicator is of no
  // more use.
  [[nodiscard]] Error broken(const Error& error);
  [[nodiscard]] Poison death_of(Rank dead) const;
  // Poisons the job (first poison wins) and returns the winning error; if it is this, with `cause`.
  Error poison(const Poison& poison, std::string_view cause = {});
  void set_error(const Error& error);

  // False in a child that inherited the communicator by fork: it must touch nothing shared.
  [[nodiscard]] bool of_this_process() const;
  // The user's forced settings of all ranks must be equal.
  [[nodiscard]] Status compare_settings(std::span<const Settings> all) const;

  const Rank rank_;
  const std::int32_t ranks_;
  const std::uint64_t generation_;  // of forks, when this was made
  const Config config_;
  const std::optional<int> device_;
  const device::BlockRange blocks_;
  device::Platform* const platform_;
  Log log_;
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<Board> board_;
  std::unique_ptr<Transport> transport_;
  std::vector<PeerInfo> peers_;
  std::int32_t host_ranks_ = 1;
  Settings settings_;
  std::vector<std::int32_t> wire_hosts_;  // by rank; messages between unequal ones take a wire
  std::int32_t machine_ranks_ = 1;
  std::int32_t machine_cores_ = 1;  // that the ranks of this machine may use together
  WaitPolicy wait_policy_;
  std::uint64_t nt_bytes_ = 0;
  RankOrders orders_;                   // rank 0's
  std::string order_source_;            // whence these come, for people; empty: by number, unasked
  ChoiceTable table_;                   // the same
  std::vector<MeasuredPlan> measured_;  // rank 0's, of its profile
  Forced forced_;
  // What the next calls run, for buffers anywhere and in windows; an error where what is forced
  // cannot.
  Result<ChoiceRow> plain_row_, window_row_;
  std::optional<std::vector<Contender>> explained_;  // all there are; once asked for
  std::string kept_text_;

  std::unique_ptr<RankOnDevice> on_device_;
  std::optional<WindowTable> windows_;  // there once joined
  std::optional<Shrink> shrink_;        // the same
  LentMemory lent_;                     // of the operation at hand, to peers that read it
  std::map<std::uint64_t, std::uint64_t> registered_;          // the transport's key, by id
  std::map<std::uint64_t, std::unique_ptr<BoundPlan>> plans_;  // by plan id
  // What was chosen for a size, direct-mapped: the price is asked once per size and slot.
  struct Chosen {
    std::uint64_t key = 0;  // 0: empty; no call of 0 bytes is planned
    BoundPlan* plan = nullptr;
  };
  std::array<Chosen, 64> chosen_{};
  BoundPlan* last_plan_ = nullptr;  // of the last call; null: that was on a device, or none
  CarveUse flagged_use_, arena_use_;
  std::uint64_t operation_ = 0;  // number of the last one issued
  std::uint64_t completed_ = 0;
  std::uint32_t last_slices_ = 0;

  // By rank: its process has ended. Set on the service thread, read where an operation waits.
  std::unique_ptr<std::atomic<bool>[]> dead_;
  std::atomic<bool> aborted_{false};  // set by abort(), polled by the user thread's waits
  // Relaxed: read by the thread that sets it.
  enum class Regrouping : std::uint8_t { kNone, kSplit, kShrink };
  std::atomic<Regrouping> regrouping_{Regrouping::kNone};
  std::atomic<bool> leaving_{false};  // the same
  // Threads that carry operations of this communicator. abort() waits for 0.
  std::atomic<int> carried_{0};
  mutable std::mutex error_mutex_;
  std::optional<Error> error_;  // guarded by error_mutex_; the first one stays
};

// One operation of one communicator, carried forward by turns.
class Operation {
 public:
  Operation(Communicator& communicator, const AllReduceCall& call)
      : communicator_(communicator), call_(call) {}

  // Numbers, announces and plans the operation. After an error, or where nothing is to do, done().
  [[nodiscard]] Status start();
  [[nodiscard]] bool done() const { return done_; }
  // Fires what is ready; true if anything moved.
  [[nodiscard]] Result<bool> advance();
  // Nothing has moved for waited_ns: looks at peers, poison and clocks.
  [[nodiscard]] Status look_around(std::int64_t waited_ns);
  // Sleeps until something may have moved, at most `ns`; false: nothing would wake it.
  [[nodiscard]] bool block(std::int64_t ns);
  // Does the rank that is waited for run on the core of this thread?
  [[nodiscard]] bool peer_shares_core() const;
  // The cheap check of every waiting round.
  [[nodiscard]] bool disturbed() const;
  // Ends an operation that failed, and tells those who wait for this rank.
  void give_up();
  // The same for one that an exception ended: poisons the job first.
  void give_up_by_exception();
  [[nodiscard]] Communicator& communicator() { return communicator_; }

 private:
  [[nodiscard]] bool gate_open();
  [[nodiscard]] Rank blocked_on() const;
  [[nodiscard]] bool hopeless() const;
  [[nodiscard]] std::optional<Error> departed(Rank peer);
  // Whether the way to a peer holds; of one of another host, now and then, what it does.
  [[nodiscard]] std::optional<Error> lost_way(Rank peer, std::int64_t waited_ns);
  [[nodiscard]] std::optional<Error> mismatch_with(Rank peer);
  [[nodiscard]] bool has_died(Rank peer) const;
  [[nodiscard]] Error fault_error();
  [[nodiscard]] bool is_gone(Rank peer);
  [[nodiscard]] Error unprepared(const Error& cause);
  // To the others it is this rank that failed.
  void poison_as_failed();
  [[nodiscard]] Error mismatch(Rank peer, const OperationSignature& theirs);
  [[nodiscard]] Rank culprit_of_wait(Rank peer) const;
  [[nodiscard]] bool is_stopped(Rank rank) const;
  [[nodiscard]] bool has_left(Rank peer) const;
  [[nodiscard]] Error timed_out(Rank culprit);
  void tell_wait(Rank peer, std::int64_t waited_ns);
  void finish();

  Communicator& communicator_;
  AllReduceCall call_;
  OperationSignature signature_;
  Communicator::BoundPlan* plan_ = nullptr;
  std::uint64_t gate_ = 0;
  Rank gate_peer_ = kNoRank;
  bool gated_ = false;
  bool done_ = false;
  bool warned_ = false;
  bool told_wait_ = false;                   // the board says that this operation waits
  std::int64_t ask_after_ns_ = kFirstAskNs;  // of waiting for a far peer
  std::int64_t broken_since_ns_ = 0;         // a near peer's connections; 0: not seen so
  static constexpr std::int64_t kFirstAskNs = 20'000'000;
};

// Runs operations in the calling thread until all are done. Those of one communicator run in the
// order given, those of different communicators by turns (so one thread can carry many ranks).
// Returns the first error; every operation has ended then. Of several, what holds a communicator is
// let go as soon as its own have ended, so that an abort waits for no other communicator.
[[nodiscard]] Status run_operations(std::span<HeldCall> calls);

}  // namespace tutti
