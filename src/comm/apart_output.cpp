// SPDX-License-Identifier: Apache-2.0
#include "comm/apart_output.hpp"

#include <cstring>
#include <utility>

namespace tutti {

bool is_in_place(const Call& call, Rank rank) {
  return call.has_input(rank) && call.has_output(rank) &&
         call.input_base(rank) == call.output_base(rank);
}

ApartOutput::ApartOutput(Call& call, Rank rank, std::int32_t ranks, CallMemory& kept)
    : kept_(kept),
      memory_(CallMemory::take(kept, call.output_bytes(rank, ranks))),
      wanted_at_(static_cast<std::byte*>(call.output)),
      bytes_(call.output_bytes(rank, ranks)) {
  if (call.info().outcome == Outcome::kTransposed) {
    own_bytes_ = bytes_ / static_cast<std::uint64_t>(ranks);
    own_begin_ = own_bytes_ * static_cast<std::uint64_t>(rank);
  }
  call.output = memory_.data.get();
}

void ApartOutput::finish() {
  const std::uint64_t own_end = own_begin_ + own_bytes_;
  const std::byte* const result = memory_.data.get();
  std::memcpy(wanted_at_, result, own_begin_);
  std::memcpy(wanted_at_ + own_end, result + own_end, bytes_ - own_end);
  kept_ = std::move(memory_);
}

}  // namespace tutti
