// SPDX-License-Identifier: Apache-2.0
// Peer memory: how an executor reads its peers' buffers and stores into them (remote operands), and
// lends its own.
//
// Ranks of one process use each other's memory by plain loads and stores; other processes of the
// host by the same in registered windows (window.hpp), else they read by cross-memory attach
// (process_vm_readv), where the kernel checks every address. Reads are safe against a peer that
// gives up in the middle and hands its buffers back to the program: it withdraws its call record
// first, loads within a process hold it up until they are over, and what another process has read
// counts only if the record still stands afterwards. What was stored cannot be taken back, so
// stores hold the owner up whoever makes them: a rank says before it looks at the record that it
// stores, and the owner, once it has withdrawn the record, waits until none does.
// One thread at a time per object. Knows no plan, transport or board.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/call_record.hpp"
#include "base/session_id.hpp"
#include "exec/peer_windows.hpp"
#include "transports/control.hpp"

namespace tutti {

// This rank's side.
class LentMemory {
 public:
  LentMemory() = default;
  // `shared` (may be null) is read by other processes, the other copy by ranks of this one, who
  // find it by (job, rank).
  LentMemory(const SessionId& job, Rank rank, CallRecord* shared);

  // Publishes the addresses at which the data of `operation` begins (Call::input_base). Before its
  // first message; all of the one before must be over.
  void publish(std::uint64_t operation, std::uint64_t input, std::uint64_t output);
  // From its return on nobody reads the buffers, or believes what it read. Waits for ranks of this
  // process that are just reading: bounded by one step of theirs.
  void withdraw();

  // Around steps that store into memory of other processes: before the first enter(), and after the
  // last leave().
  void begin_stores();
  void end_stores();

  [[nodiscard]] const std::shared_ptr<CallRecord>& local() const { return local_; }

 private:
  CallRecord* shared_ = nullptr;
  std::shared_ptr<CallRecord> local_;
};

// Another rank's side. Any number of copies.
class PeerMemory {
 public:
  // A rank of this process.
  explicit PeerMemory(std::shared_ptr<CallRecord> local)
      : record_(local.get()), keep_(std::move(local)) {}
  // A rank of another process of this host; `shared` and `windows` must outlive the object.
  PeerMemory(const PeerInfo& peer, CallRecord* shared, const PeerWindows* windows = nullptr);

  // Begins to use the buffers of the peer's call `operation`; false: it has been withdrawn. leave()
  // in either case; false: withdrawn in between, so what was read is worth nothing.
  [[nodiscard]] bool enter(std::uint64_t operation);
  [[nodiscard]] bool leave();
  // Between them: have the buffers not been withdrawn yet? For a look between two pieces.
  [[nodiscard]] bool stands() const {
    return record_->operation.load(std::memory_order_relaxed) == operation_;
  }
  // Of a rank of another process: is it between begin_stores() and end_stores()?
  [[nodiscard]] bool is_storing() const {
    // Sequentially consistent with begin_stores(). Acquire: its stores come before what follows.
    return record_->storing.load(std::memory_order_seq_cst) != 0;
  }

  // Between enter() and leave().
  [[nodiscard]] std::uint64_t input() const { return input_; }
  [[nodiscard]] std::uint64_t output() const { return output_; }
  [[nodiscard]] bool mapped() const { return keep_ != nullptr; }
  // Returns the address at which the peer's memory is mapped here for this use, or null if it is in
  // no window of the peer. Mapped or not.
  [[nodiscard]] void* in_window(std::uint64_t address, std::uint64_t bytes, Use use) const;
  // Copies memory that is not mapped here. Returns 0 or errno; ESRCH if that process is no more.
  [[nodiscard]] int read(std::uint64_t address, void* into, std::uint64_t bytes) const;
  // Tests whether this process may read the other one if its memory is not mapped. Returns 0 or
  // errno.
  [[nodiscard]] int probe() const {
    std::uint64_t word = 0;
    return read(token_address_, &word, sizeof word);
  }

 private:
  CallRecord* record_;
  std::shared_ptr<CallRecord> keep_;  // null: another process
  std::int32_t pid_ = 0;
  std::uint64_t token_ = 0, token_address_ = 0;
  const PeerWindows* windows_ = nullptr;
  std::uint64_t operation_ = 0, input_ = 0, output_ = 0;
};

// The private record of a rank of this process, or null.
[[nodiscard]] std::shared_ptr<CallRecord> find_call_record(const SessionId& job, Rank rank);

}  // namespace tutti
