// SPDX-License-Identifier: Apache-2.0
// A send or a receive as a plain value: what of a call concerns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/call.hpp"
#include "base/part_of.hpp"
#include "base/signature.hpp"

namespace tutti {

struct Transfer {
  Collective direction = Collective::kSend;  // or kRecv
  DataType type = DataType::kFloat32;
  Rank peer = 0;
  std::uint64_t count = 0;
  std::byte* buffer = nullptr;  // of a send only read
  PartOf part = {};

  [[nodiscard]] static Transfer of(const Call& call, PartOf part) {
    const bool sends = call.collective == Collective::kSend;
    const void* const buffer = sends ? call.input : call.output;
    return {call.collective,
            call.type,
            call.root,
            call.count,
            static_cast<std::byte*>(const_cast<void*>(buffer)),
            part};
  }
  // Without its part.
  [[nodiscard]] Call call() const {
    return {.collective = direction,
            .input = sends() ? buffer : nullptr,
            .output = sends() ? nullptr : buffer,
            .count = count,
            .type = type,
            .root = peer};
  }
  [[nodiscard]] bool sends() const { return direction == Collective::kSend; }
  [[nodiscard]] std::uint64_t bytes() const { return count * element_bytes(type); }
  [[nodiscard]] OperationSignature signature() const {
    return {
        .collective = direction, .type = type, .root = peer, .count = count, .plan = part.word()};
  }
  // What every message of a send says of it, never 0: type, what it is a part of, with the low bits
  // of its number, and the count. No memory has more elements than are left room for.
  [[nodiscard]] std::uint64_t message_signature() const {
    return count << kCountAt | (part.number & ((1U << kNumberBits) - 1)) << kNumberAt |
           static_cast<std::uint64_t>(part.whole) << kTypeBits |
           (static_cast<std::uint64_t>(type) + 1);
  }

  static constexpr unsigned kTypeBits = 6, kWholeBits = 2, kNumberBits = 8;
  static constexpr unsigned kNumberAt = kTypeBits + kWholeBits, kCountAt = kNumberAt + kNumberBits;
  static_assert(kDataTypeCount < 1 << kTypeBits);
  static_assert(kWholeNames.size() <= 1 << kWholeBits);
};

// The sends and receives of which one call is made.
struct Parts {
  Whole whole = Whole::kItself;
  std::uint64_t made_by = 0;  // names that call, in this process
  bool on_device = false;
  void* stream = nullptr;
  std::vector<Transfer> transfers = {};

  [[nodiscard]] std::vector<Call> calls() const {
    std::vector<Call> all;
    all.reserve(transfers.size());
    for (const Transfer& transfer : transfers) {
      all.push_back(transfer.call());
      all.back().on_device = on_device;
      all.back().stream = stream;
      all.back().whole = whole;
      all.back().made_by = made_by;
    }
    return all;
  }
};

}  // namespace tutti
