// SPDX-License-Identifier: Apache-2.0
#include "comm/apart_output.hpp"

#include <cstring>
#include <functional>
#include <utility>

namespace tutti {

bool is_in_place(const Call& call, Rank rank, std::int32_t ranks) {
  if (!call.has_input(rank) || !call.has_output(rank)) return false;
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const output = static_cast<const std::byte*>(call.output);
  const std::less<> before;
  return before(input, output + call.output_bytes(rank, ranks)) &&
         before(output, input + call.input_bytes(rank, ranks));
}

ApartOutput::ApartOutput(Call& call, Rank rank, std::int32_t ranks, ApartMemory& kept)
    : kept_(kept),
      memory_(std::exchange(kept, {})),
      wanted_at_(static_cast<std::byte*>(call.output)),
      bytes_(call.output_bytes(rank, ranks)) {
  if (call.info().outcome == Outcome::kTransposed) {
    own_bytes_ = bytes_ / static_cast<std::uint64_t>(ranks);
    own_begin_ = own_bytes_ * static_cast<std::uint64_t>(rank);
  }
  if (memory_.bytes < bytes_) {
    memory_ = {};  // before the larger one is there
    memory_ = {std::unique_ptr<std::byte[]>(new std::byte[bytes_]), bytes_};
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
