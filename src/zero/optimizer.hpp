// SPDX-License-Identifier: Apache-2.0
// What the optimizers' steps need, once a step: checked, and computed in double. Pure.
#pragma once

#include <cstdint>

#include "zero/element.hpp"

namespace tutti::zero {

// `step` counts from 1; `factor` multiplies the gradients. Throw std::invalid_argument for
// coefficients out of range.
[[nodiscard]] AdamWTerms terms_of(const AdamW& optimizer, std::uint64_t step, double factor);
[[nodiscard]] SgdTerms terms_of(const Sgd& optimizer, std::uint64_t step, double factor);

}  // namespace tutti::zero
