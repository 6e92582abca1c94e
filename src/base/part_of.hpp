// SPDX-License-Identifier: Apache-2.0
// What a send or receive is a part of: itself, or a collective whose counts no rank knows in full.
// Such a collective is called by all ranks in one order, so it has a number, which every message
// carries: a block that nobody took, since ranks named different roots, is not taken for one of a
// later call. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti {

enum class Whole : std::uint8_t { kItself, kAllToAllV, kGatherV, kScatterV };
inline constexpr std::array<std::string_view, 4> kWholeNames{"", "alltoall_v", "gather_v",
                                                             "scatter_v"};

struct PartOf {
  Whole whole = Whole::kItself;
  std::uint64_t number = 0;  // of such calls in the communicator, from 1; kItself: 0

  // One word, never 0: the plan's in the signature of a send or receive, which has no plan.
  [[nodiscard]] constexpr std::uint64_t word() const {
    return number << 8 | (static_cast<std::uint64_t>(whole) + 1);
  }
  // Of a word that another process may have written; what cannot be is kItself.
  [[nodiscard]] static constexpr PartOf of(std::uint64_t word) {
    const std::uint64_t whole = (word & 0xff) - 1;
    if (whole >= kWholeNames.size()) return {};
    return {static_cast<Whole>(whole), word >> 8};
  }
};

}  // namespace tutti
