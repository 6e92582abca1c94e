// SPDX-License-Identifier: Apache-2.0
// Buffers that notice what should not happen to them: guard zones around them, fingerprints of
// memory that must not change, poison where results must appear.
//
// One thread at a time per object. Knows nothing of ranks or collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/memory.hpp"

namespace tutti::perf {

// One byte that is not as it was left.
struct Damage {
  std::int64_t offset_bytes = 0;  // relative to the buffer's or region's first byte
  unsigned got = 0;
  unsigned want = 0;
};

// Memory of `bytes` between two guard zones of a known pattern. `misalign_bytes` shifts the first
// byte away from page alignment. Throws std::bad_alloc.
class GuardedBuffer {
 public:
  static constexpr std::size_t kGuardBytes = 4096;

  explicit GuardedBuffer(std::size_t bytes, std::size_t misalign_bytes = 0,
                         const PageSource& source = private_pages());
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  ~GuardedBuffer();

  // The host may follow the pointer only where the source's memory is reached in place.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] MemoryView memory() const { return {data_, bytes_, *source_}; }
  // All of it, guards too; page-aligned.
  [[nodiscard]] std::byte* mapping() const { return mapping_; }
  // Returns the bytes that were requested from the operating system.
  [[nodiscard]] std::size_t mapped_bytes() const { return mapped_bytes_; }
  // The first damaged guard byte, if any; the guards are whole again afterwards.
  [[nodiscard]] std::optional<Damage> check_guards();

 private:
  const PageSource* source_;
  std::byte* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Hashes of a buffer's blocks, taken once, by which a later change anywhere is found. A change of
// any single word of a block always changes its hash; others escape with probability 2^-64.
class Fingerprint {
 public:
  static constexpr std::size_t kBlockBytes = 65536;

  // The memory must outlive the fingerprint.
  explicit Fingerprint(const MemoryView& memory);
  [[nodiscard]] const MemoryView& memory() const { return memory_; }
  // The first block, as [begin, end) in bytes, among those that [begin, end) touches, that is no
  // longer what it was.
  struct Block {
    std::size_t begin_bytes = 0;
    std::size_t end_bytes = 0;
  };
  [[nodiscard]] std::optional<Block> changed(std::size_t begin_bytes, std::size_t end_bytes) const;

 private:
  MemoryView memory_;
  std::vector<std::uint64_t> hashes_;
};

// Fills memory with a pattern of its own position, so that stray writes and words that were never
// written are both visible.
void poison(const MemoryView& memory);
// The first byte that is not as poison() left it.
[[nodiscard]] std::optional<Damage> find_unpoisoned(const MemoryView& memory);

}  // namespace tutti::perf
