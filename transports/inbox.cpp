// SPDX-License-Identifier: Apache-2.0
#include "transports/inbox.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>

namespace tutti {

Result<std::uint64_t> round_arena(std::uint64_t arena_bytes) {
  if (arena_bytes > kMaxArenaBytes)
    return make_error(
        Code::kInvalidArgument,
        fmt::format(
            "a receive buffer of {} bytes is too large: at most {}; lower TUTTI_ARENA_BYTES",
            arena_bytes, kMaxArenaBytes));
  return (arena_bytes + kInboxPageBytes - 1) / kInboxPageBytes * kInboxPageBytes;
}

Connection place(const ConnectionSpec& spec, std::byte* base, const InboxLayout& layout,
                 ConnectionState* state) {
  auto& pair = *reinterpret_cast<PairArea*>(base + InboxLayout::pair_offset_bytes(spec.source));
  Connection connection;
  connection.protocol = spec.protocol;
  connection.slots = spec.slots;
  connection.words = &pair.words[spec.index];
  connection.state = state;
  if (spec.protocol == Protocol::kFlagged) {
    connection.cells_per_slot = spec.cells_per_slot;
    connection.cells = pair.cells + spec.first_cell;
  } else {
    connection.slot_bytes = spec.slot_bytes;
    connection.arena = base + layout.arena_offset_bytes() + spec.arena_offset_bytes;
  }
  return connection;
}

Connection place_shared(const ConnectionSpec& spec, std::byte* base, const InboxLayout& layout,
                        ConnectionState* state) {
  Connection connection = place(spec, base, layout, state);
  if (spec.protocol != Protocol::kFlagged || spec.short_slots == 0) return connection;
  auto& pair = *reinterpret_cast<PairArea*>(base + InboxLayout::pair_offset_bytes(spec.source));
  connection.short_cells = pair.short_cells + std::size_t{spec.index} * spec.short_slots;
  connection.other_slots = spec.short_slots;
  return connection;
}

Result<PrivateInbox> PrivateInbox::make(const InboxLayout& layout) {
  void* const base = ::mmap(nullptr, layout.total_bytes(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return errno_error(
        fmt::format("there is no memory for a receive buffer of {} bytes; lower TUTTI_ARENA_BYTES",
                    layout.total_bytes()),
        errno);
  return PrivateInbox(static_cast<std::byte*>(base), layout);
}

void PrivateInbox::Unmap::operator()(std::byte* base) const { ::munmap(base, bytes); }

}  // namespace tutti
