// SPDX-License-Identifier: Apache-2.0
// The best model that sees two bytes back: what a trained one has to beat.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::gpt {

struct Trigram {
  double nats_per_token = 0;  // cross-entropy on the held-out part
  double discount = 0;        // that of the least cross-entropy
};

// Interpolated absolute discounting over trigrams, pairs, single tokens and the uniform
// distribution (Ney, Essen, Kneser 1994), counted on `training`. The discount is chosen on
// `held_out` itself, in the trigram model's favour.
[[nodiscard]] Trigram best_trigram(std::span<const std::uint8_t> training,
                                   std::span<const std::uint8_t> held_out, int vocabulary);

}  // namespace tutti::gpt
