// SPDX-License-Identifier: Apache-2.0
// Two ranks fit 64 numbers with ZeRO-3: each rank keeps half of them and of the optimizer's state.
#include <cstdio>
#include <thread>
#include <tutti/zero.hpp>
#include <vector>

namespace zero = tutti::zero;

void train(tutti::Communicator& comm) {
  const std::vector<zero::Unit> units = {{"layer", {{"weight", {64}}}}};
  zero::Engine engine(comm, units, {.stage = zero::Stage::kZero3, .slots = 8});
  for (int step = 0; step < 100; ++step) {
    {
      const auto weights = engine.use(0, zero::Pass::kBackward);  // whole while this lives
      const zero::Range mine = engine.slots(0);                   // of the 8 microbatches
      for (std::uint64_t slot = mine.begin; slot < mine.end; ++slot) {
        const auto gradients = engine.gradients(0);  // summed over the slots of all ranks
        for (int i = 0; i < 64; ++i)                 // of (w - i)^2 / 2 / 8 slots
          gradients[0][i] = (weights.as<float>(0)[i] - static_cast<float>(i)) / 8;
      }
    }
    engine.step(zero::Sgd{.learning_rate = 0.2F});
  }
  std::vector<float> weights(64);
  engine.read(0, 0, weights);
  std::printf("rank %d: %.3f\n", comm.rank(), static_cast<double>(weights[63]));  // 63.000
}

int main() {
  std::vector<tutti::Communicator> ranks = tutti::Communicator::init_all(2);
  std::vector<std::jthread> threads;
  for (tutti::Communicator& comm : ranks) threads.emplace_back([&comm] { train(comm); });
}
