// Four ranks in each process, as threads: each contributes its rank, all receive the sum. Alone or
// under any launcher. Build: c++ -std=c++20 hello_all_reduce.cpp $(pkg-config --cflags --libs
// tutti)
#include <iostream>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

constexpr int kLocal = 4;

int main() try {
  const tutti::Launcher job = tutti::Launcher::find();
  const tutti::UniqueId id = tutti::Launcher::unique_id();
  std::vector<std::vector<float>> values(kLocal);
  std::vector<std::string> errors(kLocal);
  const auto run = [&](int i) {
    try {
      const int rank = job.rank() * kLocal + i;
      tutti::Communicator comm(id, job.nranks() * kLocal, rank);
      values[i].assign(3, static_cast<float>(rank));
      comm.all_reduce(values[i], tuttiSum);
    } catch (const tutti::Exception& error) {
      errors[i] = error.what();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kLocal; ++i) threads.emplace_back(run, i);
  }
  for (int i = 0; i < kLocal; ++i) {
    if (!errors[i].empty()) return std::cerr << errors[i] << '\n', 1;
    std::cout << "rank " << job.rank() * kLocal + i << ": sum " << values[i][0] << '\n';
  }
} catch (const tutti::Exception& error) {
  return std::cerr << error.what() << '\n', 1;
}
