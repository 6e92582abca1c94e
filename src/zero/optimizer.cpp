// SPDX-License-Identifier: Apache-2.0
#include "zero/optimizer.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

namespace tutti::zero {
namespace {

void check(bool good, const char* name, float value, const char* range) {
  if (good) return;
  throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + "; it may be " +
                              range);
}

void check_common(float learning_rate, float weight_decay) {
  check(std::isfinite(learning_rate), "learning_rate", learning_rate, "any finite number");
  check(std::isfinite(weight_decay), "weight_decay", weight_decay, "any finite number");
}

void check_fraction(const char* name, float value) {
  check(value >= 0 && value < 1, name, value, "0 to less than 1");
}

}  // namespace

AdamWTerms terms_of(const AdamW& optimizer, std::uint64_t step, double factor) {
  check_common(optimizer.learning_rate, optimizer.weight_decay);
  check_fraction("beta1", optimizer.beta1);
  check_fraction("beta2", optimizer.beta2);
  check(optimizer.epsilon >= 0 && std::isfinite(optimizer.epsilon), "epsilon", optimizer.epsilon,
        "0 or a positive number");
  const double beta1 = optimizer.beta1, beta2 = optimizer.beta2;
  const auto count = static_cast<double>(step);
  AdamWTerms terms{};
  terms.factor = static_cast<float>(factor);
  terms.beta1 = optimizer.beta1;
  terms.rest1 = static_cast<float>(1 - beta1);
  terms.beta2 = optimizer.beta2;
  terms.rest2 = static_cast<float>(1 - beta2);
  terms.inverse_bias1 = static_cast<float>(1 / (1 - std::pow(beta1, count)));
  terms.inverse_root_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, count)));
  terms.epsilon = optimizer.epsilon;
  terms.negative_rate = -optimizer.learning_rate;
  terms.weight_decay = optimizer.weight_decay;
  return terms;
}

SgdTerms terms_of(const Sgd& optimizer, std::uint64_t /*step*/, double factor) {
  check_common(optimizer.learning_rate, optimizer.weight_decay);
  check_fraction("momentum", optimizer.momentum);
  return {static_cast<float>(factor), optimizer.momentum, -optimizer.learning_rate,
          optimizer.weight_decay};
}

}  // namespace tutti::zero
