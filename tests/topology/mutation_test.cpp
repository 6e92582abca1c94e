// SPDX-License-Identifier: Apache-2.0
// Files cut off and changed at random: a graph or one line, never a crash.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "fixtures.hpp"
#include "tests/seed.hpp"

namespace tutti::topology {
namespace {

using Reader = std::function<Result<Graph>(std::string, const std::string&)>;

void check(const Result<Graph>& graph, const std::string& name) {
  if (!graph) {
    EXPECT_EQ(graph.error().message.find('\n'), std::string::npos) << graph.error().message;
    EXPECT_EQ(graph.error().message.rfind(name + ":", 0), 0) << graph.error().message;
    return;
  }
  // What was taken can be walked and sent.
  EXPECT_TRUE(decode(encode(*graph)));
  if (!graph->devices().empty()) static_cast<void>(paths_from(*graph, 0));
}

// Bytes changed, words of the file itself put elsewhere, pieces left out.
std::string mutate(std::string text, std::mt19937_64& random) {
  const auto at = [&] { return random() % text.size(); };
  switch (random() % 4) {
    case 0:
      return text.substr(0, at());
    case 1:
      for (std::uint64_t i = 0; i <= random() % 8; ++i) text[at()] = static_cast<char>(random());
      return text;
    case 2:
      return text.erase(at(), random() % 64);
    default: {
      const std::string piece = text.substr(at(), random() % 64);
      return text.insert(at(), piece);
    }
  }
}

// Digits alone change: XML stays whole, so that more than the parser is reached.
std::string change_numbers(std::string text, std::mt19937_64& random) {
  constexpr std::string_view kDigits = "0123456789-.x";
  const std::uint64_t most = std::uint64_t{1} << (random() % 8);
  for (std::uint64_t tries = 0; tries < most; ++tries) {
    char& here = text[random() % text.size()];
    if (here >= '0' && here <= '9') here = kDigits[random() % kDigits.size()];
  }
  return text;
}

void throw_at(const Reader& read, const std::string& kind, int rounds) {
  const std::uint64_t seed = draw_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const std::string& path : fixtures_of(kind)) {
    SCOPED_TRACE(path);
    const std::string text = text_of(path);
    for (int round = 0; round < rounds; ++round) {
      check(read(mutate(text, random), "m.xml"), "m.xml");
      check(read(change_numbers(text, random), "m.xml"), "m.xml");
    }
  }
}

TEST(Mutation, NcclFilesAreReadOrRefused) { throw_at(read_nccl_text, "nccl", 100); }

TEST(Mutation, HwlocFilesAreReadOrRefused) {
  if (!has_hwloc()) GTEST_SKIP() << "built without hwloc";
  throw_at(read_hwloc_text, "hwloc", 30);
}

}  // namespace
}  // namespace tutti::topology
