// SPDX-License-Identifier: Apache-2.0
// The text as tokens, its training and held-out parts, and the windows of it that slots read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero_gpt/gpt.hpp"
#include "zero_gpt/size.hpp"

namespace tutti::gpt {

// A byte is a token where the vocabulary has 256. A smaller one knows what is printable: newline is
// 0, ' ' to '~' are 1 to 95, and 96 stands for every other byte (shown as '?').
[[nodiscard]] std::uint8_t token_of(char byte, int vocabulary);
[[nodiscard]] char byte_of(std::uint8_t token, int vocabulary);

class Text {
 public:
  // The last tenth is held out. Throws std::invalid_argument if a part has no full window.
  Text(std::string_view bytes, const Size& size);

  [[nodiscard]] std::span<const std::uint8_t> training() const;
  [[nodiscard]] std::span<const std::uint8_t> held_out() const;

  // Reads the windows of slots [first_slot, first_slot + batch.slots) of a step into a batch, whose
  // slots and sequences_per_slot are set. Where a window begins is a function of the seed, the
  // step, the slot and the sequence within the slot.
  void read_slots(std::uint64_t seed, int step, int first_slot, Batch& batch) const;

  // The held-out part as windows without overlap, in order.
  [[nodiscard]] int held_out_windows() const;
  // As many as the batch has slots, of one sequence each; behind the last window: the last again.
  void read_held_out(int first_window, Batch& batch) const;

 private:
  void read_window(std::size_t begin, std::size_t sequence, Batch& batch) const;

  std::vector<std::uint8_t> tokens_;
  std::size_t training_tokens_, context_;
};

}  // namespace tutti::gpt
