// SPDX-License-Identifier: Apache-2.0
// The host executor's steps with remote operands, and how buffers are taken back from the peers
// that use them (peer_memory.hpp).
#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "exec/host_executor.hpp"
#include "exec/waiter.hpp"

namespace tutti {

// Nothing waits here: the step's messages have come, so the peers' buffers are there.
bool HostExecutor::fire_remote(const PlanStep& step, const LaneState& state) {
  const bool tells = step.stores && !all_mapped_;
  if (tells) direct_.own->begin_stores();
  for (const PlanOperand& operand : operands_of(step)) {
    if (operand.kind != OperandKind::kRemote || entered_[operand.connection]) continue;
    entered_[operand.connection] = true;
    if (!direct_.peers[operand.connection].enter(args_.operation))
      raise(Fault::kUnreadable, operand.peer);
  }
  run_chunks_remote(step, state);
  for (const PlanOperand& operand : operands_of(step)) {
    if (operand.kind != OperandKind::kRemote || !entered_[operand.connection]) continue;
    entered_[operand.connection] = false;
    if (!direct_.peers[operand.connection].leave() && fault_ == Fault::kNone)
      raise(Fault::kUnreadable, operand.peer);
  }
  if (tells) direct_.own->end_stores();
  return fault_ == Fault::kNone;
}

// What is stored into peers' memory too is stored as slots are, through the cache or around it.
void HostExecutor::run_chunks_remote(const PlanStep& step, const LaneState& state) {
  const std::uint32_t chunks = operands_of(step).front().span.count();
  const auto run = [&] {
    for (std::uint32_t k = 0; k < chunks && fault_ == Fault::kNone; ++k)
      run_chunk_remote(step, state.slice, k);
  };
  around_ = args_.nontemporal_output;
  if (around_ || !step.stores || state.bytes < StoreGauge::kLeastBytes) return run();
  store_gauged(gauge_of(step, state.bytes), state.bytes, [&](StoreGauge::Way way) {
    around_ = way == StoreGauge::Way::kAround;
    run();
  });
}

// One piece after the other, each small enough to stay in this core's cache between the copy and
// the reduction, and to hold up no owner that gives up. Data that is only copied goes straight to
// its place.
void HostExecutor::run_chunk_remote(const PlanStep& step, std::uint32_t slice, std::uint32_t k) {
  const std::uint64_t bytes = chunk_bytes(step, k, slice);
  ReduceCopyArgs call = kernel_call(step);
  const bool plain =
      step.sources == 1 && step.destinations == 1 && !step.stores && call.average_over == 0;
  // Peers soon read the data that is reduced here, if it is not stored where it ends.
  if (around_) call.nontemporal_mask = step.stores ? ~std::uint64_t{0} : plain;
  const std::uint64_t most = plain ? bytes : piece_bytes_;
  for (std::uint64_t offset = 0; offset < bytes; offset += most) {
    const std::uint64_t piece = std::min(bytes - offset, most);
    if (step.stores && offset > 0 && !still_lent(step)) return;
    if (!address_piece(step, slice, k, offset, piece, plain)) return;
    if (plain && source_pointers_[0] == destination_pointers_[0]) continue;
    call.elements = piece / element_bytes_;
    args_.kernel(call);
  }
}

// Finds the addresses of a piece of the step's k-th chunk. False: not of all; a fault says why.
bool HostExecutor::address_piece(const PlanStep& step, std::uint32_t slice, std::uint32_t k,
                                 std::uint64_t offset, std::uint64_t bytes, bool plain) {
  const PlanOperand* operand = &plan_.operands[step.first_operand];
  for (std::uint32_t d = 0; d < step.destinations; ++d, ++operand) {
    destination_pointers_[d] =
        operand->kind == OperandKind::kRemote
            ? store_remote(*operand, offset_of(*operand, k, slice) + offset, bytes)
            : local_address(*operand, k, slice) + offset;
    if (destination_pointers_[d] == nullptr) return false;
  }
  for (std::uint32_t s = 0; s < step.sources; ++s, ++operand) {
    if (operand->kind != OperandKind::kRemote) {
      source_pointers_[s] = local_address(*operand, k, slice) + offset;
      continue;
    }
    void* const bounce = plain ? destination_pointers_[0] : bounce_of(s);
    source_pointers_[s] =
        load_remote(*operand, offset_of(*operand, k, slice) + offset, bytes, bounce);
    if (source_pointers_[s] == nullptr) return false;
  }
  return true;
}

// Returns the address at which a piece of a peer's memory can be read; null after a fault.
const void* HostExecutor::load_remote(const PlanOperand& operand, std::uint64_t offset,
                                      std::uint64_t bytes, void* bounce) {
  const PeerMemory& peer = direct_.peers[operand.connection];
  const std::uint64_t address =
      (operand.buffer == BufferKind::kInput ? peer.input() : peer.output()) + offset;
  traffic_.read_bytes += bytes;
  if (peer.mapped() || args_.in_windows) {
    if (const void* const memory = peer.in_window(address, bytes, Use::kRead)) return memory;
    fault_errno_ = EFAULT;
  } else {
    fault_errno_ = peer.read(address, bounce, bytes);
    if (fault_errno_ == 0) return bounce;
  }
  raise(Fault::kUnreadable, operand.peer);
  return nullptr;
}

// Returns the address at which a piece of a peer's output can be written; null after a fault.
void* HostExecutor::store_remote(const PlanOperand& operand, std::uint64_t offset,
                                 std::uint64_t bytes) {
  const PeerMemory& peer = direct_.peers[operand.connection];
  traffic_.stored_bytes += bytes;
  if (around_) traffic_.around_bytes += bytes;
  if (void* const memory = peer.in_window(peer.output() + offset, bytes, Use::kWrite))
    return memory;
  fault_errno_ = EFAULT;
  raise(Fault::kUnreadable, operand.peer);
  return nullptr;
}

// Have all whose memory the step uses left it to their peers?
bool HostExecutor::still_lent(const PlanStep& step) {
  for (const PlanOperand& operand : operands_of(step)) {
    if (operand.kind != OperandKind::kRemote || direct_.peers[operand.connection].stands())
      continue;
    raise(Fault::kUnreadable, operand.peer);
    return false;
  }
  return true;
}

// Outside of windows no other process stores.
Rank HostExecutor::withdraw(const std::function<bool(Rank)>& gone, std::int64_t wait_ns) {
  if (plan_.remotes.empty()) return kNoRank;
  direct_.own->withdraw();
  if (!args_.in_windows || all_mapped_) return kNoRank;
  const Deadline deadline = Deadline::in_ns(wait_ns);
  Waiter waiter({.spins = 100});
  for (std::size_t i = 0; i < direct_.peers.size(); ++i) {
    const PeerMemory& peer = direct_.peers[i];
    while (!peer.mapped() && peer.is_storing() && !gone(plan_.remotes[i]))
      if (waiter.wait() && deadline.passed()) return plan_.remotes[i];
  }
  return kNoRank;
}

}  // namespace tutti
