// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/text.hpp"

#include <algorithm>
#include <stdexcept>

#include "zero_gpt/random.hpp"

namespace tutti::gpt {
namespace {
constexpr int kBytes = 256;
constexpr std::uint8_t kOther = 96;
}  // namespace

std::uint8_t token_of(char byte, int vocabulary) {
  if (vocabulary == kBytes) return static_cast<std::uint8_t>(byte);
  if (byte == '\n') return 0;
  return byte >= ' ' && byte <= '~' ? static_cast<std::uint8_t>(byte - ' ' + 1) : kOther;
}

char byte_of(std::uint8_t token, int vocabulary) {
  if (vocabulary == kBytes) return static_cast<char>(token);
  if (token == 0) return '\n';
  return token >= kOther ? '?' : static_cast<char>(token - 1 + ' ');
}

Text::Text(std::string_view bytes, const Size& size)
    : training_tokens_(bytes.size() - bytes.size() / 10),
      context_(static_cast<std::size_t>(size.context)) {
  const std::size_t least = 10 * (context_ + 1);
  if (bytes.size() < least)
    throw std::invalid_argument("--text: the text has " + std::to_string(bytes.size()) +
                                " bytes; --model " + std::string(size.name) + " needs at least " +
                                std::to_string(least));
  tokens_.reserve(bytes.size());
  for (const char byte : bytes) tokens_.push_back(token_of(byte, size.vocabulary));
}

std::span<const std::uint8_t> Text::training() const {
  return std::span(tokens_).first(training_tokens_);
}
std::span<const std::uint8_t> Text::held_out() const {
  return std::span(tokens_).subspan(training_tokens_);
}

void Text::read_window(std::size_t begin, std::size_t sequence, Batch& batch) const {
  const auto from = tokens_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto to = static_cast<std::ptrdiff_t>(sequence * context_);
  std::copy_n(from, context_, batch.inputs.begin() + to);
  std::copy_n(from + 1, context_, batch.targets.begin() + to);
}

void Text::read_slots(std::uint64_t seed, int step, int first_slot, Batch& batch) const {
  const auto sequences = static_cast<std::size_t>(batch.slots * batch.sequences_per_slot);
  batch.inputs.resize(sequences * context_);
  batch.targets.resize(sequences * context_);
  const std::uint64_t first =
      static_cast<std::uint64_t>(first_slot) * static_cast<std::uint64_t>(batch.sequences_per_slot);
  for (std::size_t i = 0; i < sequences; ++i) {
    const std::uint64_t bits =
        random_bits(seed, Purpose::kWindow, static_cast<std::uint32_t>(step), first + i);
    read_window(scale_to(bits, training_tokens_ - context_), i, batch);
  }
}

int Text::held_out_windows() const {
  return static_cast<int>((tokens_.size() - training_tokens_ - 1) / context_);
}

void Text::read_held_out(int first_window, Batch& batch) const {
  const auto sequences = static_cast<std::size_t>(batch.slots);
  batch.inputs.resize(sequences * context_);
  batch.targets.resize(sequences * context_);
  for (std::size_t i = 0; i < sequences; ++i) {
    const int window = std::min(first_window + static_cast<int>(i), held_out_windows() - 1);
    read_window(training_tokens_ + static_cast<std::size_t>(window) * context_, i, batch);
  }
}

}  // namespace tutti::gpt
