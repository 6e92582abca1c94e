// SPDX-License-Identifier: Apache-2.0
#include "zero/tier.hpp"

#include <numeric>

namespace tutti::zero {
namespace {

class MemoryTier final : public Tier {
 public:
  explicit MemoryTier(std::span<const std::uint64_t> unit_floats)
      : floats_(std::accumulate(unit_floats.begin(), unit_floats.end(), std::uint64_t{0}) *
                sizeof(float)),
        offsets_(unit_floats.size()) {
    std::exclusive_scan(unit_floats.begin(), unit_floats.end(), offsets_.begin(), std::uint64_t{0});
  }

  void prefetch(int) override {}
  float* acquire(int unit) override {
    return floats_.floats() + offsets_[static_cast<std::size_t>(unit)];
  }
  void release(int) noexcept override {}
  [[nodiscard]] std::uint64_t memory_bytes() const override { return floats_.bytes(); }

 private:
  Block floats_;
  std::vector<std::uint64_t> offsets_;  // of units
};

}  // namespace

std::unique_ptr<Tier> make_memory_tier(std::span<const std::uint64_t> unit_floats) {
  return std::make_unique<MemoryTier>(unit_floats);
}

}  // namespace tutti::zero
