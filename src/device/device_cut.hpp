// SPDX-License-Identifier: Apache-2.0
// A UniformCut for blocks: the same ranges, to the element, without a division.
#pragma once

#include <cstdint>

#include "device/divisor.hpp"
#include "schedule/cut.hpp"

namespace tutti::device {

class DeviceCut {
 public:
  DeviceCut() = default;
  explicit DeviceCut(const UniformCut& cut)
      : count_(cut.count),
        grain_(static_cast<std::uint32_t>(cut.effective_grain())),
        each_(cut.chunks_each()),
        slices_(cut.slices),
        one_block_(cut.blocks == 1) {
    const std::uint64_t grains = (cut.count + grain_ - 1) / grain_;
    of_chunk_ = grains / each_.number();
    chunk_rest_ = static_cast<std::uint32_t>(grains % each_.number());
    of_slice_ = of_chunk_ / slices_.number();
    slice_rest_ = static_cast<std::uint32_t>(of_chunk_ % slices_.number());
  }

  [[nodiscard]] TUTTI_HD std::uint32_t slices() const { return slices_.number(); }
  [[nodiscard]] TUTTI_HD ElementRange slice(std::uint32_t chunk, std::uint32_t s) const {
    const auto block = one_block_ ? 0 : static_cast<std::uint32_t>(each_.quotient(chunk));
    const std::uint32_t part = chunk - block * each_.number();
    const std::uint64_t begin = boundary(part, of_chunk_, chunk_rest_, each_);
    const std::uint64_t end = boundary(part + 1, of_chunk_, chunk_rest_, each_);
    // A chunk has of_chunk_ grains, or one more.
    std::uint64_t of_slice = of_slice_;
    std::uint32_t rest = slice_rest_ + static_cast<std::uint32_t>(end - begin - of_chunk_);
    if (rest == slices_.number()) {
      ++of_slice;
      rest = 0;
    }
    const std::uint64_t before = count_ * block;
    return {before + element(begin + boundary(s, of_slice, rest, slices_)),
            before + element(begin + boundary(s + 1, of_slice, rest, slices_))};
  }

 private:
  // floor(i * n / parts) of n = quotient * parts + rest.
  [[nodiscard]] static TUTTI_HD std::uint64_t boundary(std::uint32_t i, std::uint64_t quotient,
                                                       std::uint32_t rest, const Divisor& parts) {
    return quotient * i + parts.quotient(std::uint64_t{rest} * i);
  }
  [[nodiscard]] TUTTI_HD std::uint64_t element(std::uint64_t grains) const {
    return least(count_, grains * grain_);
  }

  std::uint64_t count_ = 0;
  std::uint64_t of_chunk_ = 0, of_slice_ = 0;  // grains, rounded down
  std::uint32_t chunk_rest_ = 0, slice_rest_ = 0;
  std::uint32_t grain_ = 1;
  Divisor each_, slices_;  // chunks of a block; slices of a chunk
  bool one_block_ = true;
};

}  // namespace tutti::device
