// SPDX-License-Identifier: Apache-2.0
// Tokens, the windows that slots read, 16-bit numbers, and the digits of the curve.
#include "zero_gpt/text.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>

#include "zero_gpt/corpus.hpp"
#include "zero_gpt/curve.hpp"
#include "zero_gpt/threads.hpp"
#include "zero_gpt/widen.hpp"

namespace tutti::gpt {
namespace {

TEST(Text, ASmallVocabularyKnowsWhatIsPrintable) {
  std::set<std::uint8_t> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    EXPECT_EQ(byte_of(token_of(character, 256), 256), character);
    const std::uint8_t token = token_of(character, 97);
    EXPECT_LT(token, 97);
    tokens.insert(token);
    if (token != 96) {
      EXPECT_EQ(byte_of(token, 97), character);
    }
  }
  EXPECT_EQ(tokens.size(), 97U);
}

TEST(Text, TooShortIsRefused) {
  const Size& size = *find_size("nano");
  EXPECT_THROW(Text(std::string(300, 'a'), size), std::invalid_argument);
  const Text text(std::string(330, 'a'), size);
  EXPECT_EQ(text.held_out_windows(), 1);
}

class Windows : public ::testing::Test {
 protected:
  const Size& size = *find_size("odd");
  const std::string bytes = generate_corpus(1, 20'000).text;
  const Text text{bytes, size};
  Batch read(int step, int first, int slots) const {
    Batch batch{slots, 3, {}, {}};
    text.read_slots(4, step, first, batch);
    return batch;
  }
};

TEST_F(Windows, OfASlotDependOnSeedStepAndSlotAlone) {
  const Batch all = read(7, 0, 8);
  const auto per_slot = static_cast<std::ptrdiff_t>(3 * size.context);
  for (int first = 0; first < 8; first += 2) {
    const Batch two = read(7, first, 2);
    EXPECT_TRUE(
        std::equal(two.inputs.begin(), two.inputs.end(), all.inputs.begin() + first * per_slot));
    EXPECT_TRUE(
        std::equal(two.targets.begin(), two.targets.end(), all.targets.begin() + first * per_slot));
  }
  EXPECT_NE(read(8, 0, 8).inputs, all.inputs);
  EXPECT_FALSE(
      std::equal(all.inputs.begin(), all.inputs.begin() + per_slot, all.inputs.begin() + per_slot));
}

TEST_F(Windows, HaveTheNextTokenAsTarget) {
  const Batch batch = read(1, 0, 4);
  for (std::size_t i = 0; i + 1 < batch.inputs.size(); ++i)
    if ((i + 1) % static_cast<std::size_t>(size.context) != 0) {
      EXPECT_EQ(batch.targets[i], batch.inputs[i + 1]);
    }
}

TEST_F(Windows, OfTheHeldOutPartCoverItOnce) {
  const int windows = text.held_out_windows();
  std::vector<std::uint8_t> seen;
  for (int first = 0; first < windows; first += 4) {
    Batch batch{4, 1, {}, {}};
    text.read_held_out(first, batch);
    const int here = std::min(4, windows - first);
    for (int i = 0; i < here * size.context; ++i)
      seen.push_back(static_cast<std::uint8_t>(batch.inputs[static_cast<std::size_t>(i)]));
  }
  ASSERT_LE(seen.size(), text.held_out().size());
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), text.held_out().begin()));
  EXPECT_GT(seen.size() + 2 * static_cast<std::size_t>(size.context), text.held_out().size());
}

TEST(Widen, EveryHalfIsExact) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = (half >> 10) & 31, fraction = half & 1023;
    const float value = half_to_float(half);
    EXPECT_EQ(std::signbit(value), half >= 0x8000);
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(value) : std::isnan(value)) << bits;
      continue;
    }
    const double expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(std::abs(static_cast<double>(value)), expected) << bits;
  }
}

TEST(Widen, BfloatIsTheUpperHalf) {
  EXPECT_EQ(bfloat16_to_float(0x3FC0), 1.5F);
  EXPECT_EQ(bfloat16_to_float(0xC000), -2.0F);
}

TEST(Curve, CsvReadsBackAsTheSameBits) {
  const Point point{41, 1.0 / 3 + 1e-16, 0.1F + 1e-8F, 3.3333333F};
  const std::string line = csv_line(point);
  char* at = nullptr;
  EXPECT_EQ(std::strtol(line.c_str(), &at, 10), 41);
  EXPECT_EQ(std::strtod(at + 1, &at), point.loss);
  EXPECT_EQ(std::strtof(at + 1, &at), point.learning_rate);
  EXPECT_EQ(std::strtof(at + 1, &at), point.gradient_norm);
  EXPECT_STREQ(at, "\n");
  EXPECT_EQ(csv_head(), "step,loss,learning_rate,gradient_norm\n");
}

TEST(Curve, SvgHasAPointForEachStep) {
  const std::string svg =
      curve_svg("title", {{0, 5.5, 0, 0}, {1, NAN, 0, 0}, {2, 2.5, 0, 0}}, {{"trigram", 2}});
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  const std::size_t points = svg.find("points=\"");
  EXPECT_EQ(std::count(svg.begin() + static_cast<std::ptrdiff_t>(points), svg.end(), ','), 2);
  EXPECT_NE(svg.find("trigram 2.000"), std::string::npos);
}

TEST(Threads, DoEachItemOnce) {
  for (const int count : {1, 2, 4}) {
    Threads threads(count);
    for (int items = 0; items < 50; ++items) {
      std::vector<int> done(static_cast<std::size_t>(items));
      threads.for_each(items, [&](int item, int thread) {
        EXPECT_LT(thread, count);
        ++done[static_cast<std::size_t>(item)];
      });
      EXPECT_EQ(std::count(done.begin(), done.end(), 1), items);
    }
  }
}

}  // namespace
}  // namespace tutti::gpt
