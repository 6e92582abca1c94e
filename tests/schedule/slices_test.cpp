// SPDX-License-Identifier: Apache-2.0
// Slices, replicas and placing, run and not only argued: every family in random interleavings at
// its minimal slots with exactly 1, 2, 3 and 16 slices, replicated and not, in place on subsets of
// its ranks; and, where slices can be written out as chunks, the verifier slice by slice.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "algorithms/algorithm.hpp"
#include "reference_executor.hpp"
#include "schedule/passes.hpp"
#include "schedule/unroll.hpp"
#include "schedule/verifier.hpp"
#include "tests/algorithms/direct_forms.hpp"

namespace tutti {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int32_t kMostRanks = 6;  // a sanitizer makes each run several times as long
constexpr std::int32_t kMostUnrolled = 6;
#else
constexpr std::int32_t kMostRanks = 16;
constexpr std::int32_t kMostUnrolled = 33;
#endif
constexpr std::uint64_t kSeed = 20240711;
constexpr int kInterleavings = 20;  // of each case, each in place on another subset
constexpr std::array<std::uint32_t, 4> kSlices{1, 2, 3, 16};
constexpr std::array<std::uint32_t, 3> kReplicas{1, 2, 4};
constexpr std::int32_t kAllSubsets = 8;  // up to so many ranks, every subset in place

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : all_algorithms()) names.emplace_back(algorithm->name);
  for (const Algorithm* algorithm : test::direct_forms(Collective::kAllReduce))
    names.emplace_back(algorithm->name);
  for (const char* variant :
       {"ring:exchange=neighbours", "circulant:radix=3", "hierarchical:form=leader",
        "hierarchical:inner=ring:outer=pat", "hierarchical:inner=rabenseifner:outer=butterfly",
        "hierarchical:form=leader:inner=butterfly:outer=ring",
        "hierarchical:form=leader:inner=tree:outer=tree"})
    names.emplace_back(variant);
  return names;
}

Schedule built(const std::string& name, std::int32_t ranks, std::uint32_t replicas) {
  return replicate(*build_schedule(**find_algorithm(name),
                                   {.collective = Collective::kAllReduce, .ranks = ranks}),
                   replicas);
}

std::vector<bool> subset(std::int32_t ranks, std::uint64_t bits) {
  std::vector<bool> in_place;
  for (std::int32_t rank = 0; rank < ranks; ++rank) in_place.push_back((bits >> rank & 1) == 1);
  return in_place;
}

class Slices : public testing::TestWithParam<std::string> {
 protected:
  static bool supports(std::int32_t ranks) {
    return (*find_algorithm(GetParam()))->supports({Collective::kAllReduce, ranks});
  }
  // An interleaving for each of `subsets`, which are bit masks of ranks.
  void run(std::int32_t ranks, std::uint32_t replicas, std::uint32_t slices,
           const std::vector<std::uint64_t>& subsets) {
    const Schedule schedule = built(GetParam(), ranks, replicas);
    const Result<Proof> proof = verify(schedule);
    ASSERT_TRUE(proof) << proof.error().message;
    reference::ReferenceExecutor executor(schedule);
    for (const std::uint64_t bits : subsets) {
      const std::uint64_t seed = seeds_.next();
      const auto failure = executor.run({.slots = proof->minimal_slots,
                                         .seed = seed,
                                         .slices = slices,
                                         .in_place = subset(ranks, bits)});
      ASSERT_FALSE(failure) << fmt::format(
          "{}, {} ranks, {} replicas, {} slices, in place {:#x}, seed {}: {}", GetParam(), ranks,
          replicas, slices, bits, seed, *failure);
    }
  }

  reference::Random seeds_{kSeed};
};

TEST_P(Slices, AnyInterleavingIsRight) {
  for (const std::int32_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    if (ranks > kMostRanks || !supports(ranks)) continue;
    for (const std::uint32_t replicas : kReplicas)
      for (const std::uint32_t slices : kSlices) {
        std::vector<std::uint64_t> subsets;
        for (int i = 0; i < kInterleavings; ++i) subsets.push_back(seeds_.next());
        run(ranks, replicas, slices, subsets);
      }
  }
}

TEST_P(Slices, InPlaceOnAnySubset) {
  for (std::int32_t ranks = 1; ranks <= kAllSubsets; ++ranks) {
    if (!supports(ranks)) continue;
    std::vector<std::uint64_t> subsets;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << ranks; ++bits) subsets.push_back(bits);
    for (const std::uint32_t replicas : kReplicas) run(ranks, replicas, 3, subsets);
  }
}

// unroll() refuses spans that have both a run and repetitions, as hierarchies of unequal groups may
// have them; these are proved by composition alone, for any number of slices at once.
TEST_P(Slices, WrittenOutTheyAreProvedOneByOne) {
  for (const std::int32_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 33}) {
    if (ranks > kMostUnrolled || !supports(ranks)) continue;
    for (const std::uint32_t replicas : kReplicas)
      for (const std::uint32_t slices : kSlices) {
        if (ranks > 16 && slices > 3) continue;
        const Result<Schedule> whole = unroll(built(GetParam(), ranks, replicas), slices);
        ASSERT_TRUE(whole) << whole.error().message;
        const Result<Proof> proof = verify(*whole);
        ASSERT_TRUE(proof) << fmt::format("{}, {} ranks, {} replicas, {} slices: {}", GetParam(),
                                          ranks, replicas, slices, proof.error().message);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Slices, testing::ValuesIn(all_names()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name)
    if (c == ':' || c == '=') c = '_';
  return name;
});

}  // namespace
}  // namespace tutti
