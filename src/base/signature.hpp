// SPDX-License-Identifier: Apache-2.0
// The signature of an operation: what all ranks must have called alike. Its hash travels with every
// message; its words stand in error texts.
#pragma once

#include <cstdint>
#include <string>

#include "base/collective.hpp"
#include "base/types.hpp"

namespace tutti {

// What an operation is; must be equal on all ranks.
struct OperationSignature {
  std::uint64_t operation = 0;  // number in the communicator, from 1; point to point has none
  Collective collective = Collective::kNone;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
  std::uint64_t count = 0;  // elements; of all blocks together where their sizes differ
  std::uint32_t sizes = 0;  // the hash of those sizes (BlockSizes); 0: they are equal
  std::uint64_t plan = 0;   // plan id; of a send or receive what it is a part of (PartOf::word)
  bool in_windows = false;  // input and output lie in symmetric windows
  bool on_device = false;   // the same in devices' memory
  bool operator==(const OperationSignature&) const = default;
  // 64-bit hash, never 0. Travels with every message.
  [[nodiscard]] std::uint64_t hash() const { return hash_of(operation, hash_of_kind()); }
  // Its two halves: of everything but the number, and both. Calls of one number differ as the
  // lower 63 bits of their kinds' hashes do, and a call from its neighbors of the same kind by the
  // number; never 0.
  [[nodiscard]] std::uint64_t hash_of_kind() const;
  [[nodiscard]] static std::uint64_t hash_of(std::uint64_t operation, std::uint64_t kind) {
    return (kind + operation) | std::uint64_t{1} << 63;
  }
  // "all_reduce #12 count 1024 float sum plan 9af3..."; "send of 1024 float to rank 3", and behind
  // it "in gather_v 7" where it is a part of the communicator's seventh call of counts
  [[nodiscard]] std::string to_string() const;

 private:
  // One word folded in: the finalizer of MurmurHash3 (fmix64), a bijection of the running value.
  [[nodiscard]] static constexpr std::uint64_t fold(std::uint64_t hash, std::uint64_t word) {
    hash ^= word;
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
    hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
    return hash ^ (hash >> 33);
  }
};

// The call that matches one point to point, at its peer: the recv of a send of rank `self`.
[[nodiscard]] OperationSignature counterpart(const OperationSignature& signature, Rank self);

}  // namespace tutti
