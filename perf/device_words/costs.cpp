// SPDX-License-Identifier: Apache-2.0
// From words to what plans cost.
#include "device_words/costs.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace tutti::probe {
namespace {

class Lookup {
 public:
  explicit Lookup(const Words& words) : words_(words) {}
  double operator()(std::string_view name) {
    if (const Figure* const figure = words_.find(name)) return figure->value;
    if (std::ranges::find(missing_, name) == missing_.end()) missing_.emplace_back(name);
    return 0;
  }
  [[nodiscard]] std::vector<std::string> missing() && { return std::move(missing_); }

 private:
  const Words& words_;
  std::vector<std::string> missing_;
};

// The largest number of blocks whose copy was measured, of at most `most`.
std::uint32_t copy_blocks(const Words& words, std::uint32_t most) {
  constexpr std::string_view kCopy = "copy_";
  std::uint32_t best = 1;
  for (const Figure& figure : words.figures) {
    if (!figure.name.starts_with(kCopy)) continue;
    const std::string_view number = std::string_view(figure.name).substr(kCopy.size());
    std::uint32_t blocks = 0;  // stays so of "all"
    std::from_chars(number.data(), number.data() + number.size(), blocks);
    if (blocks <= most) best = std::max(best, blocks);
  }
  return best;
}

}  // namespace

const Figure* Words::find(std::string_view name) const {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? nullptr : &*found;
}

// A price is alpha for a message, step for a step, beta for a byte of an operand that is read or
// written (model/price.hpp). All is of the device's scope, which ranks of one device use.
DerivedCosts derive_costs(const Words& words) {
  constexpr double kLargeBytes = 8 << 10;
  Lookup of(words);
  DerivedCosts derived{.costs = {}, .missing = {}};
  HostCosts& packets = derived.costs.packets;
  HostCosts& slots = derived.costs.slots;
  // A step has two barriers and, since it sends, gives credits or is awaited, one fence, before
  // which its threads have stored (lane.hpp). How it finds its operands, in shared memory, is not
  // among the words.
  const double step_ns = 2 * of("barrier") + of("fence_gpu_stores");
  // Packets: LL16 and LL128 have one price, so it is the mean of theirs.
  const double small_ns = (of("one_way_ll16_small") + of("one_way_ll128_small")) / 2;
  const double large_ns = (of("one_way_ll16_8K") + of("one_way_ll128_8K")) / 2;
  packets.alpha_ns = small_ns;
  packets.step_ns = step_ns;
  // The sender writes each byte as an operand, and the receiver reads it as one.
  packets.beta_ns_per_byte = std::max(large_ns - small_ns, 0.0) / kLargeBytes / 2;
  // Slots: on its way such a message passes a step's barriers and fence, which have their own
  // price; what is left is not less than the load that sees the counter.
  slots.alpha_ns = std::max(of("one_way_slots_gpu_small") - step_ns, of("l2_load"));
  slots.step_ns = step_ns;
  // A block's part of the bandwidth of half of all blocks, which is what a communicator takes of an
  // idle device (device/budget.hpp). GB/s are bytes a nanosecond.
  const std::uint32_t blocks = copy_blocks(words, std::max(words.blocks / 2, 1U));
  const double rate = of("copy_" + std::to_string(blocks));
  slots.beta_ns_per_byte = rate > 0 ? blocks / rate : 0;
  derived.missing = std::move(of).missing();
  return derived;
}

}  // namespace tutti::probe
