// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator that share a process, on their devices: the memory of their
// connections, the blocks that they may have resident, launches, and copies.
//
// All memory is allocated before the first call, by whoever comes first, for all ranks, and freed
// when the last has left: a peer may still write a credit to a rank that is through. Ranks of one
// device are one launch, made by the last of them to come: so they run together whatever else the
// device does, and however many hardware queues it has. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/session_id.hpp"
#include "device/budget.hpp"
#include "device/calls.hpp"
#include "device/copies.hpp"
#include "device/interpreter.hpp"
#include "device/platform.hpp"

namespace tutti::device {

// Memory that a rank offers its peers on its device, by default.
inline constexpr std::uint64_t kArenaBytes = std::uint64_t{32} << 20;
// The cells of each ordered pair and each format of flagged messages, which never share memory.
inline constexpr std::uint32_t kCellsPerPairOnDevice = 64;
inline constexpr std::uint32_t kConnectionsPerPairOnDevice = 32;
// The bytes for a rank's plans, until they are used up: to allocate later may wait for kernels of
// other devices.
inline constexpr std::uint64_t kPlanBytes = std::uint64_t{16} << 20;

// One rank's operation, ready to be launched.
struct Issue {
  Rank rank = 0;
  Collective collective = Collective::kNone;
  Stream stream = nullptr;
  std::uint64_t stream_id = 0;  // Platform::id_of; 0: captured
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Messages messages = Messages::kSlots;
  std::uint32_t blocks = 1;
  std::uint64_t plan = 0;
  std::uint64_t capture = 0;  // that its stream is in; 0: none
  std::uint64_t count = 0;    // of the call
  Common common;
  LaunchTask task;
};

class Job {
 public:
  // Makes `rank` known in this process, with its device. Errors: kInvalidUsage where it is already.
  [[nodiscard]] static Result<std::shared_ptr<Job>> join(Platform& platform,
                                                         const SessionId& session, Rank rank,
                                                         std::int32_t ranks, int device,
                                                         std::uint64_t arena_bytes = kArenaBytes);
  Job(Platform& platform, std::int32_t ranks, std::uint64_t arena_bytes);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  // Limits the blocks of `rank`; call it before any rank calls prepare(). The largest of all ranks'
  // `least` holds for all, and before that the smallest `most`.
  void limit_blocks(Rank rank, const BlockRange& range);
  // Returns when all ranks have joined. kTimeout naming one that has not.
  [[nodiscard]] Status await_members(Deadline deadline);
  // Takes all that CUDA may wait for kernels for: memory, access to peers, events. Once; where it
  // fails a later call tries again. All ranks must have joined: kNotSupported where some are in
  // other processes; kSystemError where there is no memory.
  [[nodiscard]] Status allocate();
  // The same, and blocks, which only those need who call: kSystemError where none are left.
  [[nodiscard]] Status prepare();

  [[nodiscard]] Platform& platform() const { return platform_; }
  [[nodiscard]] int device_of(Rank rank) const { return members_[at(rank)].device; }
  [[nodiscard]] std::int32_t ranks() const { return static_cast<std::int32_t>(members_.size()); }
  [[nodiscard]] std::uint64_t arena_bytes() const { return arena_bytes_; }
  // Returns the blocks of every rank, which the fullest device determines.
  [[nodiscard]] std::uint32_t blocks_each() const { return blocks_each_; }
  [[nodiscard]] bool one_device() const { return one_device_; }  // of all ranks
  // Holds for all pairs of the job's devices, and so is the same on all ranks:
  // Platform::whole_lines.
  [[nodiscard]] bool whole_lines() const { return whole_lines_; }
  // All ranks' words, in memory of the rank's device.
  [[nodiscard]] RankWords* const* words_on(Rank rank) const { return members_[at(rank)].table; }
  [[nodiscard]] RankWords* words_of(Rank rank) const;
  [[nodiscard]] HostWords* host_words_of(Rank rank) const { return host_words_.load() + at(rank); }
  // Is it a thread of this process that has joined with a device?
  [[nodiscard]] bool has(Rank rank);
  [[nodiscard]] Copies& copies() { return copies_; }
  [[nodiscard]] Calls& calls_of(Rank rank) { return calls_[at(rank)]; }
  // Number of the last call of `rank` that has ended (Common::call); 0: none.
  [[nodiscard]] std::uint64_t left(Rank rank) const;
  // Returns the fault that the kernel of some rank found, if any. Never blocks.
  struct Found {
    Rank rank = kNoRank;
    FaultFound what;
  };
  [[nodiscard]] std::optional<Found> fault() const;

  // Memory for a plan of `rank`, zeroed, as long as the job lives. The errors of
  // Platform::allocate.
  [[nodiscard]] Result<std::byte*> room_for_plan(Rank rank, std::uint64_t bytes);

  // One end of a connection, as its rank's kernels see it. After prepare(). kInvalidArgument where
  // the spec lies outside.
  [[nodiscard]] Result<Connection> open(const ConnectionSpec& spec, Messages messages,
                                        bool sender) const;

  // The launch that a call is part of, and the stream that goes on behind it.
  struct Pending {
    int device = 0;
    std::uint64_t number = 0;  // of the device's batch
    Stream stream = nullptr;
    std::uint64_t stream_id = 0;
  };
  using Ticket = std::vector<Pending>;
  // Enqueues operations of one thread, at most one a rank. If other ranks use the device as well,
  // the operation is launched when they have called too, which await() waits for, at most
  // `timeout_ns` (0: for ever), by the thread that enqueued: its streams may be its own alone
  // (cudaStreamPerThread). A captured operation is launched at once. Errors: kTimeout naming who
  // did not come, kInvalidUsage where the ranks of a device call different things, kRemoteError
  // after abort().
  [[nodiscard]] Result<Ticket> enqueue(std::span<const Issue> issues);
  [[nodiscard]] Status await(const Ticket& ticket, std::int64_t timeout_ns);
  // Ends all operations on all ranks, and every await(); what is enqueued later is refused. No CUDA
  // call: another thread may be in one that waits for these very kernels.
  void abort();
  // For what a rank's thread enqueues by itself, not captured: lets a stream go on behind the
  // rank's last call, as calls of a communicator run in the order of issue, and makes what is on it
  // now the last.
  [[nodiscard]] Status follow_last(Rank rank, Stream stream);
  [[nodiscard]] Status note_last(Rank rank, Stream stream);
  // Returns when all that this rank has enqueued has ended.
  void drain(Rank rank);

 private:
  struct Member {
    bool joined = false;
    int device = -1;
    BlockRange blocks;
    std::byte* segment = nullptr;
    std::byte* table_room = nullptr;
    RankWords** table = nullptr;
    std::byte* plans = nullptr;
    std::uint64_t plan_bytes = 0;        // taken of these
    std::vector<std::byte*> more_plans;  // once they are full
    Event arrived = nullptr, launched = nullptr, noted = nullptr;
    Event last = nullptr;           // after the last call; one of the device's ranks'
    std::uint64_t last_stream = 0;  // of this rank's last call, by id
  };
  // Calls of the ranks of one device that have come so far.
  struct Batch {
    std::vector<Issue> issues;
    bool launching = false;       // by the last of them, without the lock
    std::uint64_t number = 0;     // of the batch that is being gathered
    std::optional<Error> failed;  // of the last one
    Event over = nullptr;         // after the last one
    std::uint64_t stream_id = 0;  // that it was launched on
  };
  [[nodiscard]] static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }
  [[nodiscard]] Status allocate_all();
  [[nodiscard]] Status reserve_blocks();
  void free_all();
  [[nodiscard]] Status fill_tables();
  [[nodiscard]] std::set<int> devices() const;
  [[nodiscard]] std::size_t ranks_on(int device) const;
  // By device and graph.
  using Captured = std::map<std::pair<int, std::uint64_t>, std::vector<Issue>>;
  [[nodiscard]] Status enqueue_captured(const Captured& launches);
  [[nodiscard]] Status add(const Issue& issue, std::unique_lock<std::mutex>& lock);
  // For a change, a second at most.
  void wait_a_while(std::unique_lock<std::mutex>& lock, Deadline deadline);
  [[nodiscard]] Status await_launch(int device, std::uint64_t number,
                                    std::unique_lock<std::mutex>& lock, Deadline deadline);
  [[nodiscard]] Status launch_captured(std::span<const Issue> issues);
  [[nodiscard]] Status launch_batch(Batch& batch);
  [[nodiscard]] Status launch(std::span<const Issue> issues);
  [[nodiscard]] static Status check_alike(std::span<const Issue> issues);
  [[nodiscard]] std::string absent_from(const Batch& batch, int device) const;

  Platform& platform_;
  const std::uint64_t arena_bytes_;
  std::vector<Member> members_;
  std::vector<Calls> calls_;  // by rank
  Copies copies_{platform_};
  std::vector<Reservation> reservations_;
  std::map<int, Reservation> queues_;  // of devices whose ranks are in graphs of their own
  std::uint32_t blocks_each_ = 1;
  bool whole_lines_ = true, one_device_ = true;
  std::atomic<HostWords*> host_words_{nullptr};  // one a rank
  std::mutex mutex_;
  std::condition_variable changed_;
  bool allocated_ = false, prepared_ = false, aborted_ = false;
  std::map<int, Batch> batches_;  // by device
};

}  // namespace tutti::device
