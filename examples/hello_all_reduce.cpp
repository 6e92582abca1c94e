// SPDX-License-Identifier: Apache-2.0
// Four ranks in each process, as threads: each contributes its rank, all receive the sum. Alone or
// under any launcher. Build: c++ -std=c++20 hello_all_reduce.cpp $(pkg-config --cflags --libs
// tutti)
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

constexpr int kLocal = 4;

struct Rank {
  int number;
  float value = 0;
  std::string error{};
};

int main() try {
  const tutti::Launcher job = tutti::Launcher::find();
  const tutti::UniqueId id = tutti::Launcher::unique_id();
  std::vector<Rank> ranks;
  for (int i = 0; i < kLocal; ++i) ranks.push_back({.number = job.rank() * kLocal + i});

  const auto run = [&](Rank& rank) {
    try {
      tutti::Communicator comm(id, job.nranks() * kLocal, rank.number);
      std::vector<float> values(3, static_cast<float>(rank.number));
      comm.all_reduce(values, tuttiSum);
      rank.value = values[0];
    } catch (const tutti::Exception& error) {
      rank.error = error.what();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (Rank& rank : ranks) threads.emplace_back(run, std::ref(rank));
  }

  for (const Rank& rank : ranks) {
    if (!rank.error.empty()) return std::cerr << rank.error << '\n', 1;
    std::cout << "rank " << rank.number << ": sum " << rank.value << '\n';
  }
} catch (const tutti::Exception& error) {
  return std::cerr << error.what() << '\n', 1;
}
