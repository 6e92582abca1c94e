// SPDX-License-Identifier: Apache-2.0
#include "board/board_words.hpp"

#include <algorithm>

namespace tutti::control {
namespace {

Rank unpack_rank(std::uint64_t bits, Rank ranks) {
  const auto rank_plus_one = static_cast<Rank>(bits & 0xffffff);
  return rank_plus_one <= ranks ? rank_plus_one - 1 : kNoRank;
}

constexpr int kSliceBits = 32, kStepBits = 20, kLaneBits = 12, kBlockBits = 16;

std::uint64_t capped(std::uint64_t value, int bits) {
  return std::min(value, (std::uint64_t{1} << bits) - 1);
}

}  // namespace

std::uint64_t pack_kinds(const OperationSignature& signature) {
  return static_cast<std::uint64_t>(signature.collective) |
         static_cast<std::uint64_t>(signature.type) << 8 |
         static_cast<std::uint64_t>(signature.op) << 16 |
         static_cast<std::uint64_t>(signature.in_windows) << 24 |
         static_cast<std::uint64_t>(signature.on_device) << 25 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(signature.root) | signature.sizes)
             << 32;
}

bool unpack_kinds(std::uint64_t word, Rank ranks, OperationSignature& signature) {
  const auto collective = word & 0xff;
  const auto type = (word >> 8) & 0xff;
  const auto op = (word >> 16) & 0xff;
  const auto upper = static_cast<std::uint32_t>(word >> 32);
  if (collective >= kCollectiveCount || type >= kDataTypeCount || op >= kReduceOpNamesCount)
    return false;
  const bool sized = has_sizes(static_cast<Collective>(collective));
  const auto root = static_cast<Rank>(sized ? 0 : upper);
  if (root < 0 || root >= ranks) return false;
  signature.collective = static_cast<Collective>(collective);
  signature.sizes = sized ? upper : 0;
  signature.type = static_cast<DataType>(type);
  signature.op = static_cast<ReduceOp>(op);
  signature.root = root;
  signature.in_windows = ((word >> 24) & 1) != 0;
  signature.on_device = ((word >> 25) & 1) != 0;
  return true;
}

static_assert(kCodeCount <= 16, "a code takes four bits of the word");

std::uint64_t pack_poison(const Poison& poison) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(poison.kind) |
         static_cast<std::uint64_t>(poison.code) << 4 |
         static_cast<std::uint64_t>(poison.culprit + 1) << 8 |
         static_cast<std::uint64_t>(poison.reporter + 1) << 32;
}

Poison unpack_poison(std::uint64_t word, Rank ranks) {
  Poison poison;
  const auto kind = word & 0xf;
  const auto code = (word >> 4) & 0xf;
  const bool known_kind = kind >= static_cast<std::uint64_t>(Poison::Kind::kDeath) &&
                          kind <= static_cast<std::uint64_t>(Poison::Kind::kCut);
  poison.kind = known_kind ? static_cast<Poison::Kind>(kind) : Poison::Kind::kFailure;
  poison.code = failure_code(code);
  poison.culprit = unpack_rank(word >> 8, ranks);
  poison.reporter = unpack_rank(word >> 32, ranks);
  return poison;
}

std::uint64_t pack_fault(const KernelFault& fault) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(fault.peer + 1) |
         capped(fault.block, kBlockBits) << 24 |
         static_cast<std::uint64_t>(fault.receives) << (24 + kBlockBits);
}

std::optional<KernelFault> unpack_fault(std::uint64_t word, Rank ranks) {
  if (word >> 63 == 0) return std::nullopt;
  return KernelFault{.peer = unpack_rank(word, ranks),
                     .block = static_cast<std::uint32_t>(word >> 24 & ((1U << kBlockBits) - 1)),
                     .receives = (word >> (24 + kBlockBits) & 1) != 0};
}

std::uint64_t pack_place(const WaitPlace& place) {
  return capped(place.slice, kSliceBits) | capped(place.step, kStepBits) << kSliceBits |
         capped(place.lane, kLaneBits) << (kSliceBits + kStepBits);
}

WaitPlace unpack_place(std::uint64_t word, std::int64_t since_ns) {
  return {.lane = static_cast<std::uint32_t>(word >> (kSliceBits + kStepBits)),
          .step = static_cast<std::uint32_t>(capped(~std::uint64_t{0}, kStepBits) &
                                             (word >> kSliceBits)),
          .slice = static_cast<std::uint32_t>(word),
          .since_ns = since_ns};
}

}  // namespace tutti::control
