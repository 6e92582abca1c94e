// SPDX-License-Identifier: Apache-2.0
// A program that trains with the installed sharded optimizer: one parameter, drawn to 3 by two
// ranks of one process.
#include <cmath>
#include <thread>
#include <tutti/parameter_server.hpp>
#include <vector>

namespace zero = tutti::zero;

int main() {
  std::vector<tutti::Communicator> comms = tutti::Communicator::init_all(2);
  std::vector<float> values(2);
  const auto train = [&](std::size_t rank) {
    const std::vector<zero::Unit> units{{"all", {{"weight", {1}}}}};
    zero::Engine engine(comms[rank], units, {.slots = 2});
    engine.initialize([](const zero::Parameter&, std::uint64_t, std::span<float> part) {
      for (float& value : part) value = 0;
    });
    for (int step = 0; step < 100; ++step) {
      {
        const auto weight = engine.use(0, zero::Pass::kBackward);
        engine.gradients(0)[0][0] = *weight.as<float>(0) - 3;  // one slot of two
      }
      engine.step(zero::Sgd{.learning_rate = 0.2F});
    }
    engine.read(0, 0, std::span(&values[rank], 1));
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  return std::abs(values[0] - 3) < 1e-3F && values[0] == values[1] ? 0 : 1;
}
