// SPDX-License-Identifier: Apache-2.0
// The index of a checkpoint: there and back, and every damage is an error.
#include "zero/checkpoint_index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <stdexcept>

#include "tests/seed.hpp"

namespace tutti::zero {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

CheckpointIndex sample() {
  CheckpointIndex index{{12, 0.5F, 3}, "note with \"quotes\"", {}};
  index.tensors.push_back({"w", {3, 40}, {{0, 100, 0, 0, "00ff"}, {100, 20, 1, 1200, "11aa"}}});
  index.tensors.push_back({"none", {0}, {}});
  return index;
}

TEST(ZeroCheckpointIndex, ThereAndBack) {
  const CheckpointIndex index = parse_index(text_of(sample()));
  EXPECT_EQ(index.progress.steps, 12U);
  EXPECT_EQ(index.progress.loss_scale, 0.5F);
  EXPECT_EQ(index.progress.good_steps, 3);
  EXPECT_EQ(index.note, sample().note);
  ASSERT_EQ(index.tensors.size(), 2U);
  EXPECT_EQ(index.tensors[0].shape, (std::vector<std::int64_t>{3, 40}));
  ASSERT_EQ(index.tensors[0].pieces.size(), 2U);
  EXPECT_EQ(index.tensors[0].pieces[1].first, 100U);
  EXPECT_EQ(index.tensors[0].pieces[1].file, 1);
  EXPECT_EQ(index.tensors[0].pieces[1].offset_bytes, 1200U);
  EXPECT_EQ(index.tensors[0].pieces[1].checksum, "11aa");
}

TEST(ZeroCheckpointIndex, PiecesMustCoverTheirTensor) {
  const auto expect_damaged = [](const std::function<void(CheckpointIndex&)>& change) {
    CheckpointIndex index = sample();
    change(index);
    EXPECT_THAT([&] { static_cast<void>(parse_index(text_of(index))); },
                ThrowsMessage<std::runtime_error>(HasSubstr("do not cover it")));
  };
  expect_damaged([](CheckpointIndex& index) { index.tensors[0].pieces.pop_back(); });
  expect_damaged([](CheckpointIndex& index) { index.tensors[0].pieces[1].first = 99; });
  expect_damaged([](CheckpointIndex& index) { index.tensors[0].pieces[1].elements = 21; });
  expect_damaged([](CheckpointIndex& index) { index.tensors[0].pieces[0].elements = 0; });
  expect_damaged([](CheckpointIndex& index) {
    index.tensors[0].shape = {kPieceElements + 1};
    index.tensors[0].pieces = {{0, kPieceElements + 1, 0, 0, ""}};
  });
}

TEST(ZeroCheckpointIndex, AnotherVersionIsTold) {
  std::string text = text_of(sample());
  EXPECT_THAT(
      [&] {
        const std::string content = R"({"version":2})";
        static_cast<void>(parse_index(R"({"blake2b":")" +
                                      checksum_of(content.data(), content.size()) +
                                      R"(","content":)" + content + "}"));
      },
      ThrowsMessage<std::runtime_error>(HasSubstr("has version 2; this library reads version 1")));
}

// Any byte changed or any end lost: an error, or the same index where only blanks changed.
TEST(ZeroCheckpointIndex, DamageIsFound) {
  std::mt19937 random(draw_seed());
  const std::string whole = text_of(sample());
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = whole;
    if (i % 4 == 0)
      text.resize(random() % text.size());
    else
      text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
    try {
      EXPECT_EQ(text_of(parse_index(text)), whole);
    } catch (const std::runtime_error&) {
      ++found;
    }
  }
  EXPECT_GT(found, 1000);
}

TEST(ZeroCheckpointIndex, PiecesOfRanksAreAddedByName) {
  std::vector<SavedTensor> tensors{{"w", {3, 40}, {}}, {"none", {0}, {}}};
  add_pieces(tensors, text_of(sample().tensors));
  EXPECT_EQ(tensors[0].pieces.size(), 2U);
  std::vector<SavedTensor> others{{"v", {3, 40}, {}}};
  EXPECT_THROW(add_pieces(others, text_of(sample().tensors)), std::runtime_error);
  EXPECT_THROW(add_pieces(tensors, "no json"), std::runtime_error);
}

TEST(ZeroCheckpointIndex, TheNoteIsUtf8) {
  CheckpointIndex index = sample();
  index.note = "\xff";
  EXPECT_THROW(static_cast<void>(text_of(index)), std::invalid_argument);
}

}  // namespace
}  // namespace tutti::zero
