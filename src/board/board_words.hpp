// SPDX-License-Identifier: Apache-2.0
// The words of the board: what a rank packs into one atomic so that it is there whole or not at
// all, and what a reader makes of a word that may be anything. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "board/board.hpp"

namespace tutti::control {

// A signature without its number: collective, type, op (8 bits each), whether in windows, whether
// on a device, root or sizes of blocks (the upper 32 bits; no collective has both).
[[nodiscard]] std::uint64_t pack_kinds(const OperationSignature& signature);
// False if any field is out of range; `signature` is untouched then.
[[nodiscard]] bool unpack_kinds(std::uint64_t word, Rank ranks, OperationSignature& signature);

// Kind (4 bits), code (4), culprit + 1 (24), reporter + 1 (24), and a set top bit.
[[nodiscard]] std::uint64_t pack_poison(const Poison& poison);
// Words that no honest rank writes still become a poison: the communicator is dead either way.
[[nodiscard]] Poison unpack_poison(std::uint64_t word, Rank ranks);

// Peer + 1 (24 bits), block (16), whether it receives, and a set top bit.
[[nodiscard]] std::uint64_t pack_fault(const KernelFault& fault);
// Without its place, expected and seen. None for 0 and for what cannot be.
[[nodiscard]] std::optional<KernelFault> unpack_fault(std::uint64_t word, Rank ranks);

// Lane (12 bits), step (20), slice (32); larger numbers become the largest.
[[nodiscard]] std::uint64_t pack_place(const WaitPlace& place);
[[nodiscard]] WaitPlace unpack_place(std::uint64_t word, std::int64_t since_ns);

}  // namespace tutti::control
