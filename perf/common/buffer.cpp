// SPDX-License-Identifier: Apache-2.0
#include "common/buffer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace tutti::perf {
namespace {

// Depends on the position within the poisoned memory; never twice the same in a row.
std::byte pattern(std::size_t offset) {
  return static_cast<std::byte>(0xa5 ^ (offset * 0x9d) ^ (offset >> 8));
}

std::uint64_t hash_block(const std::byte* block, std::size_t bytes) {
  // Four independent lanes, so that the multiplies overlap; each step is a bijection of the lane.
  std::uint64_t lanes[4] = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0,
                            0x082efa98ec4e6c89};  // digits of pi
  std::size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    std::uint64_t words[4];
    std::memcpy(words, block + at, sizeof(words));
    for (int lane = 0; lane < 4; ++lane) {
      lanes[lane] = (lanes[lane] ^ words[lane]) * 0x9e3779b97f4a7c15ULL;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  }
  std::uint64_t tail[4] = {};
  std::memcpy(tail, block + at, bytes - at);
  std::uint64_t hash = bytes;
  for (int lane = 0; lane < 4; ++lane) {
    hash = (hash ^ lanes[lane]) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
    hash = (hash ^ tail[lane]) * 0xc4ceb9fe1a85ec53ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

// Appends the hash of each block of the memory, whose first byte begins one.
void hash_blocks(const MemoryView& memory, std::vector<std::uint64_t>& hashes) {
  memory.read([&](std::span<const std::byte> piece, std::size_t) {
    for (std::size_t at = 0; at < piece.size(); at += Fingerprint::kBlockBytes)
      hashes.push_back(
          hash_block(piece.data() + at, std::min(Fingerprint::kBlockBytes, piece.size() - at)));
  });
}

}  // namespace

void poison(const MemoryView& memory) {
  memory.write([](std::span<std::byte> piece, std::size_t at) {
    for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = pattern(at + i);
  });
}

std::optional<Damage> find_unpoisoned(const MemoryView& memory) {
  std::optional<Damage> found;
  memory.read([&](std::span<const std::byte> piece, std::size_t at) {
    for (std::size_t i = 0; i < piece.size() && !found; ++i)
      if (piece[i] != pattern(at + i))
        found = Damage{static_cast<std::int64_t>(at + i), std::to_integer<unsigned>(piece[i]),
                       std::to_integer<unsigned>(pattern(at + i))};
  });
  return found;
}

GuardedBuffer::GuardedBuffer(std::size_t bytes, std::size_t misalign_bytes,
                             const PageSource& source)
    : source_(&source), bytes_(bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t front = std::max(page, kGuardBytes);
  mapped_bytes_ = (front + misalign_bytes + bytes + kGuardBytes + page - 1) / page * page;
  void* const mapping = source.allocate(mapped_bytes_);
  if (mapping == nullptr) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(mapping);
  data_ = mapping_ + front + misalign_bytes;
  poison({data_ - kGuardBytes, kGuardBytes, source});
  poison({data_ + bytes_, kGuardBytes, source});
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : source_(other.source_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

GuardedBuffer::~GuardedBuffer() {
  if (mapping_ != nullptr) source_->release(mapping_, mapped_bytes_);
}

std::optional<Damage> GuardedBuffer::check_guards() {
  const MemoryView before(data_ - kGuardBytes, kGuardBytes, *source_);
  const MemoryView after(data_ + bytes_, kGuardBytes, *source_);
  auto damage = find_unpoisoned(before);
  if (damage) {
    damage->offset_bytes -= static_cast<std::int64_t>(kGuardBytes);
  } else if ((damage = find_unpoisoned(after))) {
    damage->offset_bytes += static_cast<std::int64_t>(bytes_);
  }
  if (damage) {
    poison(before);
    poison(after);
  }
  return damage;
}

Fingerprint::Fingerprint(const MemoryView& memory) : memory_(memory) {
  static_assert(MemoryView::kPieceBytes % kBlockBytes == 0, "a piece holds whole blocks");
  hash_blocks(memory, hashes_);
}

std::optional<Fingerprint::Block> Fingerprint::changed(std::size_t begin_bytes,
                                                       std::size_t end_bytes) const {
  const std::size_t first = begin_bytes / kBlockBytes;
  const std::size_t begin = first * kBlockBytes;
  const std::size_t end =
      std::min((end_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes, memory_.bytes());
  if (begin >= end) return std::nullopt;
  std::vector<std::uint64_t> now;
  hash_blocks(memory_.part(begin, end), now);
  const auto [changed, was] =
      std::mismatch(now.begin(), now.end(), hashes_.begin() + static_cast<std::ptrdiff_t>(first));
  if (changed == now.end()) return std::nullopt;
  const std::size_t at = begin + static_cast<std::size_t>(changed - now.begin()) * kBlockBytes;
  return Block{at, std::min(at + kBlockBytes, memory_.bytes())};
}

}  // namespace tutti::perf
