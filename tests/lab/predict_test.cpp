// SPDX-License-Identifier: Apache-2.0
#include "lab/predict.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Cluster mn5(int nodes, const std::string& more = "") {
  return parse_cluster(fmt::format(R"({{"name":"m","nodes":{},"gpus_per_node":4,"gpu":"h100",
                             "nic":{{"kind":"ndr200"}}{}}})",
                                   nodes, more),
                       "test")
      .value();
}

// One protocol, nothing but bytes on links.
constexpr std::string_view kPlain = R"({"name":"p","protocols":[{"name":"only"}],
  "algorithms":[{"name":"ring"}]})";

double time_us(const Cluster& cluster, const Profile& profile, const std::string& algorithm,
               std::uint64_t bytes) {
  const Predictor predictor =
      Predictor::make(cluster, profile, *profile.find(algorithm), Collective::kAllReduce).value();
  return predictor.predict(profile, bytes).value().time_ns / 1e3;
}

TEST(Predict, RailsCarryTheirShareAtOnce) {
  Profile profile = parse_profile(kPlain, "p").value();
  constexpr std::uint64_t kBytes = 1 << 30;
  const double one = time_us(mn5(4), profile, "ring", kBytes);
  profile.rails = true;
  const double four = time_us(mn5(4), profile, "ring", kBytes);
  EXPECT_NEAR(one / four, 4, 0.05);
  // 2 (p-1)/p n over a quarter of 100 GB/s, and latency.
  EXPECT_NEAR(four, 2 * 15.0 / 16 * kBytes / 100e3, 0.01 * four);
  EXPECT_EQ(
      Predictor::make(mn5(1), profile, profile.algorithms[0], Collective::kAllReduce)->rails(), 1U);
}

TEST(Predict, TheCheapestProtocolThatServesTheSize) {
  Profile profile = parse_profile(R"({"name":"p","protocols":[
      {"name":"eager","start_ns":1000,"network":{"efficiency":0.25}},
      {"name":"bulk","start_ns":50000,"least_bytes":64}],
      "algorithms":[{"name":"ring"}]})",
                                  "p")
                        .value();
  const Predictor predictor =
      Predictor::make(mn5(2), profile, profile.algorithms[0], Collective::kAllReduce).value();
  EXPECT_EQ(predictor.predict(profile, 1024)->protocol, 0U);
  EXPECT_EQ(predictor.predict(profile, 1 << 26)->protocol, 1U);
  EXPECT_EQ(predictor.predict(profile, 1024, "bulk")->protocol, 1U);  // forced
  profile.protocols[0].most_bytes = 32;
  EXPECT_EQ(predictor.predict(profile, 1024)->protocol, 1U);
  EXPECT_THAT(predictor.predict(profile, 48).error().message,
              HasSubstr("no protocol that carries 48 bytes"));
  EXPECT_FALSE(predictor.predict(profile, 48, "other"));
}

TEST(Predict, OverlappingSlicesAreCutAsFinelyAsPays) {
  Profile profile = parse_profile(R"({"name":"p","protocols":[{"name":"only","step_ns":500}],
      "algorithms":[{"name":"tree"},{"name":"cut","schedule":"tree","pipelined":true}]})",
                                  "p")
                        .value();
  const Predictor whole =
      Predictor::make(mn5(4), profile, profile.algorithms[0], Collective::kAllReduce).value();
  const Predictor cut =
      Predictor::make(mn5(4), profile, profile.algorithms[1], Collective::kAllReduce).value();
  EXPECT_EQ(whole.predict(profile, 1 << 26)->slices, 1U);
  EXPECT_GT(cut.predict(profile, 1 << 26)->slices, 4U);
  EXPECT_LT(cut.predict(profile, 1 << 26)->time_ns, 0.5 * whole.predict(profile, 1 << 26)->time_ns);
  EXPECT_EQ(cut.predict(profile, 8)->slices, 1U);
  profile.protocols[0].chunk_bytes = 1 << 20;  // of 2^25 in each of two trees
  EXPECT_EQ(whole.predict(profile, 1 << 26)->slices, 32U);
}

TEST(Predict, LockstepWaitsForTheSlowestOfAllNodes) {
  Profile profile = parse_profile(kPlain, "p").value();
  profile.protocols[0].jitter_ns = 1e6;  // far beyond everything else
  profile.algorithms[0].lockstep = true;
  const double two = time_us(mn5(2), profile, "ring", 1024) / (2 * 7);
  const double four = time_us(mn5(4), profile, "ring", 1024) / (2 * 15);
  // H(2) = 1.5 and H(4) = 2.083 ms a step; the first steps find links free.
  EXPECT_NEAR(four / two, 2.0833 / 1.5, 0.12);
  profile.algorithms[0].lockstep = false;
  EXPECT_LT(time_us(mn5(4), profile, "ring", 1024), 500);
}

// What without_torus() says of rings, held against every link of the torus.
TEST(Predict, ARingOnATorusIsARingOfNeighbours) {
  const Cluster torus = parse_cluster(R"({"name":"t","nodes":64,"ranks_per_node":1,
      "nic":{"kind":"tofud"},"torus":{"shape":[4,4,4]}})",
                                      "test")
                            .value();
  Profile profile = parse_profile(kPlain, "p").value();
  for (const std::uint64_t bytes : {1ULL << 10, 1ULL << 24}) {
    const double exact = time_us(torus, profile, "ring", bytes);
    profile.algorithms[0].lockstep = true;
    // A quarter of the messages takes a second hop, at a row's end: 0.1 of 2 us.
    EXPECT_NEAR(time_us(torus, profile, "ring", bytes) / exact, 1, 0.06) << bytes;
    profile.algorithms[0].lockstep = false;
  }
}

// Where messages have their links for themselves, flows and queues say the same.
TEST(Predict, SimulatedAsPricedWhereNothingMeets) {
  Profile profile = load_profile("nccl").value();
  for (ProtocolProfile& protocol : profile.protocols) {
    protocol.costs.gap_ns = protocol.jitter_ns = 0;  // of which flows make something else
  }
  for (const char* const name : {"ring", "tree"}) {
    const Predictor predictor =
        Predictor::make(mn5(2), profile, *profile.find(name), Collective::kAllReduce).value();
    for (const std::uint64_t bytes : {1ULL << 10, 1ULL << 22}) {
      const Prediction priced = predictor.predict(profile, bytes).value();
      const Prediction simulated = predictor.simulate(profile, bytes).value();
      EXPECT_EQ(simulated.slices, priced.slices);
      EXPECT_NEAR(simulated.time_ns / priced.time_ns, 1, 0.1) << name << " " << bytes;
    }
  }
}

TEST(Profile, CompiledInOnesAreReadAndWritten) {
  for (const std::string_view name : known_profiles()) {
    const Profile profile = load_profile(std::string(name)).value();
    EXPECT_EQ(profile.name, name);
    const std::string text = to_json(profile);
    EXPECT_EQ(to_json(parse_profile(text, "again").value()), text) << name;
    Profile scaled = profile;
    for (const FitGroup& group : profile.fit)
      for (const std::string& constant : group.constants)
        EXPECT_NE(find_constant(scaled, constant), nullptr) << constant;
  }
  EXPECT_EQ(default_profile(mn5(2)), "nccl");
  EXPECT_EQ(default_profile(mn5(2, R"(,"profile":"tutti")")), "tutti");
}

TEST(Profile, SaysWhereItIsWrong) {
  struct Refusal {
    std::string_view text, says;
  };
  const auto kRefusals = std::to_array<Refusal>({
      {"{}", "p.json: /: has no \"name\""},
      {R"({"name":"p","protocols":[],"algorithms":[]})", "has no \"protocols\""},
      {R"({"name":"p","protocols":[{}]})", "/protocols/0: has no \"name\""},
      {R"({"name":"p","protocols":[{"name":"a","gap":1}]})", "/protocols/0/gap: unknown key"},
      {R"({"name":"p","protocols":[{"name":"a","gap_ns":-1}]})",
       "/protocols/0/gap_ns: -1 is not a number"},
      {R"({"name":"p","protocols":[{"name":"a","network":{"efficiency":2}}]})",
       "/protocols/0/network/efficiency: 2 is not a number"},
      {R"({"name":"p","protocols":[{"name":"a"}],"algorithms":[{"name":"rng"}]})",
       "/algorithms/0/schedule: unknown algorithm 'rng'"},
      {R"({"name":"p","protocols":[{"name":"a"}],"algorithms":[{"name":"ring"}],
           "fit":[{"name":"f","constants":["a.gap_ns"]}]})",
       "/fit/0/constants: \"a.gap_ns\" is not a constant of the profile that is above 0"},
      {R"({"name":"p","slots":0})", "/slots: 0 is not a whole number"},
  });
  for (const auto& [text, says] : kRefusals) {
    const auto profile = parse_profile(text, "p.json");
    ASSERT_FALSE(profile) << text;
    EXPECT_THAT(profile.error().message, HasSubstr(says));
    EXPECT_THAT(profile.error().message, Not(HasSubstr("\n")));
  }
  EXPECT_THAT(load_profile("./none.json").error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace tutti
