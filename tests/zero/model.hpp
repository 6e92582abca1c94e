// SPDX-License-Identifier: Apache-2.0
// A small model that is trained with ranks as threads: dense layers with a gain, whose shapes
// divide by nothing, one parameter of one element and one of none. Its data and its first
// parameters depend on numbers and names alone, so all runs can be compared bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tutti/zero.hpp"

namespace tutti::zero::test {

// Runs `body(rank, communicator)` on a thread for each rank. What it throws fails the test.
inline void run_ranks(int ranks, const std::function<void(int, Communicator&)>& body) {
  std::vector<Communicator> comms = Communicator::init_all(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank, comms[static_cast<std::size_t>(rank)]);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        comms[static_cast<std::size_t>(rank)].abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

inline std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}
// From -1 to 1, in steps of 2^-20.
inline float drawn(std::uint64_t key) {
  return static_cast<float>(static_cast<std::int64_t>(mixed(key) >> 43) - (1 << 20)) / (1 << 20);
}

inline constexpr std::array<int, 6> kWidths{5, 33, 41, 7, 1, 3};
inline constexpr int kLayers = static_cast<int>(kWidths.size()) - 1;

inline float first_value(const std::string& name, std::uint64_t element) {
  return 0.3F * drawn(std::hash<std::string>{}(name) + element);
}

// `layers_of_unit`: how many layers each unit has, in order.
inline std::vector<Unit> units_of(const std::vector<int>& layers_of_unit) {
  std::vector<Unit> units;
  int layer = 0;
  for (const int count : layers_of_unit) {
    Unit unit{"unit" + std::to_string(units.size()), {}};
    for (int i = 0; i < count; ++i, ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      const auto in = static_cast<std::size_t>(layer);
      unit.parameters.push_back({name + ".weight", {kWidths[in + 1], kWidths[in]}, true});
      unit.parameters.push_back({name + ".bias", {kWidths[in + 1]}, false});
      unit.parameters.push_back({name + ".gain", {}, false});
      unit.parameters.push_back({name + ".nothing", {0, 3}, true});
    }
    units.push_back(std::move(unit));
  }
  return units;
}
inline constexpr int kPerLayer = 4;  // parameters

inline float value_of(const void* values, std::size_t index, Number number) {
  if (number == Number::kFloat32) return static_cast<const float*>(values)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(values)[index];
  if (number == Number::kBfloat16)
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

struct Training {
  int ranks = 1;
  Config config;
  std::vector<int> layers_of_unit{1, 1, 1, 1, 1};
  int steps = 3;
  // Gradients are rounded to small integers, so that their sums are exact in any order.
  bool integers = false;
  // Called before the first step, and after each.
  std::function<void(Engine&, int rank, int steps_done)> watch = [](Engine&, int, int) {};
  std::function<float(Engine&)> update = [](Engine& engine) {
    return engine.step(AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F});
  };
  int first_step = 0;  // data of the first step, where a run goes on
};

struct Outcome {
  std::vector<std::uint64_t> fingerprints;  // after each step
  std::vector<std::uint32_t> norms;         // their bits
  std::vector<std::uint32_t> losses;        // of all slots of all steps
  bool operator==(const Outcome&) const = default;
};

// One rank's part of the training.
class Trainer {
 public:
  Trainer(Engine& engine, const Training& setup) : engine_(engine), setup_(setup) {}

  // One step's passes. `losses` has one for each slot of the step.
  void pass(int step, std::span<std::uint32_t> losses) {
    for (int micro = 0; micro < engine_.microsteps(); ++micro) {
      const Range slots = engine_.slots(micro);
      activations_.clear();
      for (std::uint64_t slot = slots.begin; slot < slots.end; ++slot)
        activations_.push_back({input(step, slot)});
      forward();
      errors_.clear();
      for (std::uint64_t slot = slots.begin; slot < slots.end; ++slot)
        losses[slot] = start_backward(step, slot, activations_[slot - slots.begin].back());
      backward();
    }
  }

 private:
  using Vector = std::vector<float>;

  static Vector input(int step, std::uint64_t slot) {
    Vector values(kWidths[0]);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = drawn(static_cast<std::uint64_t>(step) * 1000 + slot * 17 + i);
    return values;
  }

  void forward() {
    int layer = 0;
    for (std::size_t unit = 0; unit < setup_.layers_of_unit.size(); ++unit) {
      const auto scope = engine_.use(static_cast<int>(unit), Pass::kForward);
      for (int i = 0; i < setup_.layers_of_unit[unit]; ++i, ++layer)
        for (auto& of_slot : activations_)
          of_slot.push_back(layer_forward(scope, i, layer, of_slot.back()));
    }
  }

  // y = x' / (1 + |x'|) with x' = gain * (W x + b).
  Vector layer_forward(const Engine::Parameters& scope, int place, int layer, const Vector& in) {
    const Number number = setup_.config.compute;
    const auto width = static_cast<std::size_t>(kWidths[static_cast<std::size_t>(layer) + 1]);
    const float gain = 1 + value_of(scope[place * kPerLayer + 2], 0, number);
    Vector out(width);
    for (std::size_t row = 0; row < width; ++row) {
      float sum = value_of(scope[place * kPerLayer + 1], row, number);
      for (std::size_t column = 0; column < in.size(); ++column)
        sum += value_of(scope[place * kPerLayer], row * in.size() + column, number) * in[column];
      out[row] = gain * sum / (1 + std::abs(gain * sum));
    }
    return out;
  }

  std::uint32_t start_backward(int step, std::uint64_t slot, const Vector& out) {
    float loss = 0;
    Vector error(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float difference =
          out[i] - drawn(static_cast<std::uint64_t>(step) * 7000 + slot * 31 + i);
      loss += difference * difference;
      error[i] = 2 * difference / static_cast<float>(setup_.config.slots) * engine_.loss_scale();
    }
    errors_.push_back(std::move(error));
    return std::bit_cast<std::uint32_t>(loss);
  }

  void backward() {
    int layer = kLayers;
    for (std::size_t unit = setup_.layers_of_unit.size(); unit-- > 0;) {
      const int layers = setup_.layers_of_unit[unit];
      const auto scope = engine_.use(static_cast<int>(unit), Pass::kBackward);
      for (std::size_t slot = 0; slot < errors_.size(); ++slot) {
        const auto gradients = engine_.gradients(static_cast<int>(unit));
        for (int i = layers; i-- > 0;)
          layer_backward(scope, gradients, i, layer - layers + i, slot);
      }
      layer -= layers;
    }
  }

  void layer_backward(const Engine::Parameters& scope, const Engine::Gradients& gradients,
                      int place, int layer, std::size_t slot) {
    const Number number = setup_.config.compute;
    const Vector& in = activations_[slot][static_cast<std::size_t>(layer)];
    const Vector& out = activations_[slot][static_cast<std::size_t>(layer) + 1];
    const float gain = 1 + value_of(scope[place * kPerLayer + 2], 0, number);
    Vector error(in.size());
    for (std::size_t row = 0; row < out.size(); ++row) {
      // With s = gain * (W x + b) and y = s / (1 + |s|): dy/ds = (1 - |y|)^2, s = y / (1 - |y|).
      const float rest = 1 - std::abs(out[row]);
      const float slope = errors_[slot][row] * rest * rest;
      add(gradients[place * kPerLayer + 2][0], slope * (out[row] / rest) / gain);
      add(gradients[place * kPerLayer + 1][row], slope * gain);
      for (std::size_t column = 0; column < in.size(); ++column) {
        const std::size_t index = row * in.size() + column;
        add(gradients[place * kPerLayer][index], slope * gain * in[column]);
        error[column] += slope * gain * value_of(scope[place * kPerLayer], index, number);
      }
    }
    errors_[slot] = std::move(error);
  }

  void add(float& to, float value) const {
    to += setup_.integers ? std::nearbyint(value * 1e6F) : value;
  }

  Engine& engine_;
  const Training& setup_;
  std::vector<std::vector<Vector>> activations_;  // of each slot, of each layer
  std::vector<Vector> errors_;                    // of each slot
};

inline void fill_first(Engine& engine) {
  engine.initialize([](const Parameter& parameter, std::uint64_t first, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = first_value(parameter.name, first + i);
  });
}

// Trains from the first parameters, or from what `start` makes of the engine.
inline Outcome train(const Training& setup,
                     const std::function<void(Engine&)>& start = fill_first) {
  const auto slots = static_cast<std::size_t>(setup.config.slots);
  Outcome outcome;
  outcome.losses.resize(slots * static_cast<std::size_t>(setup.steps));
  const std::vector<Unit> units = units_of(setup.layers_of_unit);
  std::mutex mutex;
  run_ranks(setup.ranks, [&](int rank, Communicator& comm) {
    Engine engine(comm, units, setup.config);
    start(engine);
    setup.watch(engine, rank, 0);
    Trainer trainer(engine, setup);
    Outcome own;
    for (int step = 0; step < setup.steps; ++step) {
      trainer.pass(
          setup.first_step + step,
          std::span(outcome.losses).subspan(static_cast<std::size_t>(step) * slots, slots));
      own.norms.push_back(std::bit_cast<std::uint32_t>(setup.update(engine)));
      own.fingerprints.push_back(engine.fingerprint());
      setup.watch(engine, rank, step + 1);
    }
    const std::lock_guard lock(mutex);
    if (outcome.norms.empty()) {
      outcome.norms = own.norms;
      outcome.fingerprints = own.fingerprints;
    }
    EXPECT_EQ(own.norms, outcome.norms) << "rank " << rank;
    EXPECT_EQ(own.fingerprints, outcome.fingerprints) << "rank " << rank;
  });
  // After a failure too, callers find what they look at.
  outcome.norms.resize(static_cast<std::size_t>(setup.steps));
  outcome.fingerprints.resize(static_cast<std::size_t>(setup.steps));
  return outcome;
}

}  // namespace tutti::zero::test
