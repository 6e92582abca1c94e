// SPDX-License-Identifier: Apache-2.0
// Runs a target without libFuzzer: the corpus, the target's own seeds, then so many mutations of
// them. For compilers that have no libFuzzer, and as a test that takes seconds.
//
//   fuzz_messages CORPUS ROUNDS [SEED]     the seed of a run is printed
//   fuzz_messages --write CORPUS           writes the target's seeds there
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/fuzz/target.hpp"

namespace {

using tutti::fuzz::Bytes;

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const Bytes& seed : tutti::fuzz::seeds()) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
  }
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}
  Bytes mutate(const std::vector<Bytes>& corpus) {
    Bytes bytes = corpus[below(corpus.size())];
    for (std::size_t left = 1 + below(4); left > 0; --left) change(bytes, corpus);
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  std::byte any() { return static_cast<std::byte>(random_() & 0xff); }
  void change(Bytes& bytes, const std::vector<Bytes>& corpus) {
    static constexpr std::byte kEdges[] = {std::byte{0}, std::byte{1}, std::byte{0x7f},
                                           std::byte{0x80}, std::byte{0xff}};
    const std::size_t at = below(bytes.size() + 1);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] ^= static_cast<std::byte>(1u << below(8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = any();
        break;
      case 2:
        for (std::size_t i = at; i < std::min(at + 1 + below(8), bytes.size()); ++i)
          bytes[i] = kEdges[below(std::size(kEdges))];
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(place, 1 + below(8), any());
        break;
      default: {
        const Bytes& other = corpus[below(corpus.size())];
        bytes.resize(at);
        bytes.insert(bytes.end(),
                     other.end() - static_cast<std::ptrdiff_t>(below(other.size() + 1)),
                     other.end());
      }
    }
  }

  std::mt19937 random_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "--write") {
    write_seeds(words[1]);
    return 0;
  }
  if (words.size() != 2 && words.size() != 3) {
    std::fprintf(stderr, "usage: CORPUS ROUNDS [SEED], or --write CORPUS\n");
    return 2;
  }
  std::vector<Bytes> corpus = tutti::fuzz::seeds();
  for (const auto& entry : std::filesystem::directory_iterator(words[0])) {
    corpus.push_back(read_file(entry.path()));
  }
  for (const Bytes& input : corpus) tutti::fuzz::run_one(input);
  const auto seed =
      words.size() == 3 ? static_cast<std::uint32_t>(std::stoul(words[2])) : std::random_device{}();
  std::printf("%zu inputs, seed %u\n", corpus.size(), seed);
  std::fflush(stdout);
  Mutator mutator(seed);
  for (long left = std::stol(words[1]); left > 0; --left) {
    tutti::fuzz::run_one(mutator.mutate(corpus));
  }
  return 0;
}
