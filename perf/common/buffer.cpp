#include "common/buffer.hpp"

#include <sys/mman.h>
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

void* allocate_private(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void release_private(void* memory, std::size_t bytes) { ::munmap(memory, bytes); }

}  // namespace

const PageSource kPrivatePages{allocate_private, release_private};

void poison(std::span<std::byte> memory) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = pattern(i);
}

std::optional<Damage> find_unpoisoned(std::span<const std::byte> memory) {
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (memory[i] != pattern(i))
      return Damage{static_cast<std::int64_t>(i), std::to_integer<unsigned>(memory[i]),
                    std::to_integer<unsigned>(pattern(i))};
  return std::nullopt;
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
  poison({data_ - kGuardBytes, kGuardBytes});
  poison({data_ + bytes_, kGuardBytes});
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
  const std::span<std::byte> before(data_ - kGuardBytes, kGuardBytes);
  const std::span<std::byte> after(data_ + bytes_, kGuardBytes);
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

Fingerprint::Fingerprint(std::span<const std::byte> memory) : memory_(memory) {
  for (std::size_t at = 0; at < memory.size(); at += kBlockBytes)
    hashes_.push_back(hash_block(memory.data() + at, std::min(kBlockBytes, memory.size() - at)));
}

std::optional<Fingerprint::Block> Fingerprint::changed(std::size_t begin_bytes,
                                                       std::size_t end_bytes) const {
  for (std::size_t block = begin_bytes / kBlockBytes;
       block < hashes_.size() && block * kBlockBytes < end_bytes; ++block) {
    const std::size_t begin = block * kBlockBytes;
    const std::size_t end = std::min(begin + kBlockBytes, memory_.size());
    if (hash_block(memory_.data() + begin, end - begin) != hashes_[block]) return Block{begin, end};
  }
  return std::nullopt;
}

}  // namespace tutti::perf
