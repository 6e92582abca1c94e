// SPDX-License-Identifier: Apache-2.0
#include "exec/peer_memory.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "base/process_fd.hpp"
#include "exec/waiter.hpp"

namespace tutti {
namespace {

// Guarded by process_registry_mutex(); never destroyed.
using RecordKey = std::pair<SessionId, Rank>;
std::map<RecordKey, std::weak_ptr<CallRecord>>& records() {
  static auto* const instance = new std::map<RecordKey, std::weak_ptr<CallRecord>>;
  return *instance;
}

}  // namespace

LentMemory::LentMemory(const SessionId& job, Rank rank, CallRecord* shared)
    : shared_(shared), local_(std::make_shared<CallRecord>()) {
  const std::lock_guard lock(process_registry_mutex());
  std::erase_if(records(), [](const auto& entry) { return entry.second.expired(); });
  records()[{job, rank}] = local_;
}

void LentMemory::publish(std::uint64_t operation, std::uint64_t input, std::uint64_t output) {
  for (CallRecord* record : {shared_, local_.get()}) {
    if (record == nullptr) continue;
    record->input.store(input, std::memory_order_relaxed);
    record->output.store(output, std::memory_order_relaxed);
    // Release pairs with the load in enter(): who sees the number sees the addresses.
    record->operation.store(operation, std::memory_order_release);
  }
}

void LentMemory::withdraw() {
  // Sequentially consistent with enter(): either the reader sees 0, or we see the reader. An
  // exchange, so that nothing the program does to its buffers afterwards is seen before it.
  for (CallRecord* record : {shared_, local_.get()})
    if (record != nullptr) record->operation.exchange(0, std::memory_order_seq_cst);
  if (local_)
    while (local_->readers.load(std::memory_order_seq_cst) != 0) Waiter::relax();
}

// An exchange: either the owner of the memory sees it, or enter() sees that the owner has
// withdrawn.
void LentMemory::begin_stores() {
  if (shared_ != nullptr) shared_->storing.exchange(1, std::memory_order_seq_cst);
}

// Release pairs with the load in is_storing(): the stores come before what the owner does next.
void LentMemory::end_stores() {
  if (shared_ != nullptr) shared_->storing.store(0, std::memory_order_release);
}

PeerMemory::PeerMemory(const PeerInfo& peer, CallRecord* shared, const PeerWindows* windows)
    : record_(shared),
      pid_(peer.pid),
      token_(peer.process_token),
      token_address_(peer.token_address),
      windows_(windows) {}

void* PeerMemory::in_window(std::uint64_t address, std::uint64_t bytes, Use use) const {
  if (mapped()) return reinterpret_cast<void*>(address);
  return windows_ == nullptr ? nullptr : find_in(*windows_, address, bytes, use);
}

bool PeerMemory::enter(std::uint64_t operation) {
  operation_ = operation;
  if (mapped()) record_->readers.fetch_add(1, std::memory_order_seq_cst);
  if (record_->operation.load(std::memory_order_seq_cst) != operation) return false;
  input_ = record_->input.load(std::memory_order_relaxed);
  output_ = record_->output.load(std::memory_order_relaxed);
  return true;
}

bool PeerMemory::leave() {
  if (mapped()) {
    // Release pairs with the load in withdraw(): what was read and stored comes before what the
    // program does.
    record_->readers.fetch_sub(1, std::memory_order_release);
    return true;
  }
  // An addition of nothing, because its release keeps our loads from a window before it.
  return record_->operation.fetch_add(0, std::memory_order_acq_rel) == operation_;
}

// Every call reads the peer's token too: pids are used again, and the kernel serves one call from
// one process.
int PeerMemory::read(std::uint64_t address, void* into, std::uint64_t bytes) const {
  auto* at = static_cast<std::byte*>(into);
  for (;;) {
    std::uint64_t token = 0;
    const std::array local{iovec{at, bytes}, iovec{&token, sizeof token}};
    const std::array remote{iovec{reinterpret_cast<void*>(address), bytes},
                            iovec{reinterpret_cast<void*>(token_address_), sizeof token}};
    const ssize_t got = ::process_vm_readv(pid_, local.data(), 2, remote.data(), 2, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EFAULT;
    const auto copied = static_cast<std::uint64_t>(got);
    if (copied == bytes + sizeof token) return token == token_ ? 0 : ESRCH;
    if (copied >= bytes) return EFAULT;
    at += copied;
    address += copied;
    bytes -= copied;
  }
}

std::shared_ptr<CallRecord> find_call_record(const SessionId& job, Rank rank) {
  const std::lock_guard lock(process_registry_mutex());
  const auto found = records().find({job, rank});
  return found == records().end() ? nullptr : found->second.lock();
}

}  // namespace tutti
