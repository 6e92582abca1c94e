// SPDX-License-Identifier: Apache-2.0
// The memory of tuttiMemAlloc: shared files, each mapped once into this process, that a window can
// show to peers in other processes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace tutti {

// A mapped piece of a shared file; unmaps on destruction.
class Mapping {
 public:
  Mapping() = default;
  // Maps [offset, offset + bytes) of `fd`, wherever pages begin. Error: kSystemError.
  [[nodiscard]] static Result<Mapping> of(int fd, std::uint64_t offset, std::uint64_t bytes,
                                          int protection);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  [[nodiscard]] std::byte* data() const { return pages_ + lead_; }
  [[nodiscard]] std::uint64_t bytes() const { return mapped_bytes_ - lead_; }
  // From the begin of the piece's first page to the piece.
  [[nodiscard]] std::uint64_t lead_bytes() const { return lead_; }

 private:
  std::byte* pages_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  std::uint64_t lead_ = 0;  // from the first page's begin to the piece's
};

struct Allocation {
  UniqueFd file;
  Mapping memory;
};

// `bytes` > 0 zeros, page-aligned. Peers of a forked child see what it writes. Error: kSystemError.
[[nodiscard]] Result<void*> allocate(std::uint64_t bytes);
// kInvalidArgument if `memory` is not from allocate(); kInvalidUsage while something holds it: the
// memory stays then.
[[nodiscard]] Status free_allocation(void* memory);
// What holds all of [memory, memory + bytes), or null. Who keeps it keeps it from being freed.
[[nodiscard]] std::shared_ptr<const Allocation> find_allocation(const void* memory,
                                                                std::uint64_t bytes);

}  // namespace tutti
