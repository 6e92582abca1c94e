// SPDX-License-Identifier: Apache-2.0
// The generated text: its bytes, its structure, and what two bytes of context make of it.
#include "zero_gpt/corpus.hpp"

#include <gtest/gtest.h>
#include <sodium.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "zero_gpt/random.hpp"
#include "zero_gpt/trigram.hpp"

namespace tutti::gpt {
namespace {

std::string sha256(const std::string& text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest;
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size());
  std::string hex;
  for (const unsigned char byte : digest) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    hex += two;
  }
  return hex;
}

// The known answers of the authors' own tests (Random123, kat_vectors).
TEST(Random, PhiloxHasItsKnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (PhiloxWords{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox(~std::uint64_t{0}, {kOnes, kOnes, kOnes, kOnes}),
            (PhiloxWords{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox(0x299F31D0A4093822, {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}),
            (PhiloxWords{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Corpus, HasTheSameBytesEverywhere) {
  const Corpus corpus = generate_corpus();
  EXPECT_EQ(corpus.text.size(), kCorpusBytes);
  EXPECT_EQ(sha256(corpus.text),
            "b0bcea0c6c075d0d4290617da83d97f445567a55546896b8f57312ceb7083854");
  EXPECT_EQ(generate_corpus(kCorpusSeed, 1000).text, corpus.text.substr(0, 1000));
  EXPECT_NE(generate_corpus(2, 1000).text, corpus.text.substr(0, 1000));
}

std::vector<std::string> lines() {
  std::istringstream text(generate_corpus().text);
  std::vector<std::string> all;
  for (std::string line; std::getline(text, line);) all.push_back(line);
  all.pop_back();  // may be cut
  return all;
}

bool closes(const std::string& line) {
  std::string open;
  for (const char each : line) {
    if (each == '(') open += ')';
    if (each == '[') open += ']';
    if (each == '{') open += '}';
    if (each == ')' || each == ']' || each == '}') {
      if (open.empty() || open.back() != each) return false;
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Corpus, KeepsItsRules) {
  int sums = 0, brackets = 0, echoes = 0;
  for (const std::string& line : lines()) {
    EXPECT_TRUE(closes(line)) << line;
    brackets += line.find_first_not_of("()[]{}") == std::string::npos;
    unsigned a = 0, b = 0, sum = 0;
    if (std::sscanf(line.c_str(), "%u+%u=%u", &a, &b, &sum) == 3) {
      EXPECT_EQ(a + b, sum) << line;
      ++sums;
    }
    if (line.starts_with("say ")) {
      const std::size_t colon = line.find(':');
      EXPECT_EQ(line.substr(4, colon - 4) + "!", line.substr(colon + 2)) << line;
      ++echoes;
    }
  }
  EXPECT_GT(sums, 1000);
  EXPECT_GT(brackets, 2000);
  EXPECT_GT(echoes, 1000);
}

// What a trained model has to gain: the distance from two bytes of context to the grammar.
TEST(Corpus, ATrigramModelIsFarFromTheGrammar) {
  const Corpus corpus = generate_corpus();
  const std::vector<std::uint8_t> bytes(corpus.text.begin(), corpus.text.end());
  const std::span<const std::uint8_t> all(bytes);
  const std::size_t training = bytes.size() - bytes.size() / 10;
  const Trigram trigram = best_trigram(all.first(training), all.subspan(training), 256);
  std::printf("trigram %.6f (discount %.2f), grammar %.6f nats per byte\n", trigram.nats_per_token,
              trigram.discount, corpus.entropy_per_byte);
  EXPECT_GT(trigram.nats_per_token, corpus.entropy_per_byte + 0.3);
}

TEST(Trigram, KnowsATextThatRepeats) {
  std::vector<std::uint8_t> text;
  for (int i = 0; i < 3000; ++i) text.push_back(static_cast<std::uint8_t>("abcad"[i % 5]));
  const std::span<const std::uint8_t> all(text);
  EXPECT_LT(best_trigram(all.first(2500), all.subspan(2500), 256).nats_per_token, 0.001);
}

TEST(Trigram, KnowsNoMoreOfNoiseThanItsAlphabet) {
  std::vector<std::uint8_t> text;
  for (std::uint64_t i = 0; i < 60'000; ++i)
    text.push_back(static_cast<std::uint8_t>(scale_to(random_bits(1, Purpose::kSample, 9, i), 4)));
  const std::span<const std::uint8_t> all(text);
  EXPECT_NEAR(best_trigram(all.first(50'000), all.subspan(50'000), 256).nats_per_token,
              1.3862943611198906, 0.003);
}

}  // namespace
}  // namespace tutti::gpt
