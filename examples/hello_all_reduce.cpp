// Four ranks as threads: each contributes its rank, all receive the sum.
// Build: c++ -std=c++20 hello_all_reduce.cpp $(pkg-config --cflags --libs tutti)
#include <iostream>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

int main() {
  constexpr int kRanks = 4;
  const tutti::UniqueId id = tutti::UniqueId::create();
  std::vector<std::vector<float>> values(kRanks);
  std::vector<std::string> errors(kRanks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          tutti::Communicator comm(id, kRanks, rank);
          values[rank].assign(3, static_cast<float>(rank));
          comm.all_reduce(values[rank], tuttiSum);
        } catch (const tutti::Exception& error) {
          errors[rank] = error.what();
        }
      });
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!errors[rank].empty()) return std::cerr << errors[rank] << '\n', 1;
    std::cout << "rank " << rank << ": sum " << values[rank][0] << '\n';
  }
}
