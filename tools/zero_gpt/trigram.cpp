// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/trigram.hpp"

#include <cmath>
#include <limits>
#include <unordered_map>

namespace tutti::gpt {
namespace {

// How often a context was seen, with how many different tokens after it, and each of these.
struct Context {
  std::uint32_t total = 0, kinds = 0;
};

class Counts {
 public:
  void add(std::uint32_t context, std::uint8_t token) {
    Context& seen = contexts_[context];
    ++seen.total;
    if (++pairs_[context << 8 | token] == 1) ++seen.kinds;
  }
  // Spreads a discount of each seen pair over all tokens, in proportion to `lower`.
  [[nodiscard]] double probability(std::uint32_t context, std::uint8_t token, double discount,
                                   double lower) const {
    const auto seen = contexts_.find(context);
    if (seen == contexts_.end()) return lower;
    const auto pair = pairs_.find(context << 8 | token);
    const double count = pair == pairs_.end() ? 0 : pair->second - discount;
    const double spread = discount * seen->second.kinds;
    return (count + spread * lower) / seen->second.total;
  }

 private:
  std::unordered_map<std::uint32_t, Context> contexts_;
  std::unordered_map<std::uint32_t, std::uint32_t> pairs_;
};

}  // namespace

Trigram best_trigram(std::span<const std::uint8_t> training, std::span<const std::uint8_t> held_out,
                     int vocabulary) {
  Counts singles, pairs, triples;
  for (std::size_t i = 2; i < training.size(); ++i) {
    const std::uint32_t last = training[i - 1], before = training[i - 2];
    singles.add(0, training[i]);
    pairs.add(last, training[i]);
    triples.add(before << 8 | last, training[i]);
  }
  Trigram best{std::numeric_limits<double>::infinity(), 0};
  for (int percent = 5; percent < 100; percent += 5) {
    const double discount = percent / 100.0;
    double nats = 0;
    for (std::size_t i = 2; i < held_out.size(); ++i) {
      const std::uint32_t last = held_out[i - 1], before = held_out[i - 2];
      const std::uint8_t token = held_out[i];
      double p = singles.probability(0, token, discount, 1.0 / vocabulary);
      p = pairs.probability(last, token, discount, p);
      p = triples.probability(before << 8 | last, token, discount, p);
      nats -= std::log(p);
    }
    nats /= static_cast<double>(held_out.size() - 2);
    if (nats < best.nats_per_token) best = {nats, discount};
  }
  return best;
}

}  // namespace tutti::gpt
