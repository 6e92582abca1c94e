// SPDX-License-Identifier: Apache-2.0
// The default text: lines from a probabilistic grammar, the same bytes on every machine.
//
// Its structure reaches further than the two bytes that a trigram model sees: names that come
// again, brackets that must close, sums, counting with a step, words that are said twice. The
// grammar also knows how much chance it put in, so a model's loss has a known floor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::gpt {

inline constexpr std::size_t kCorpusBytes = 512 * 1024;
inline constexpr std::uint64_t kCorpusSeed = 1;

struct Corpus {
  std::string text;
  // Of the choices that made the text, in nats: no model that does not know the seed can predict a
  // long text with a smaller mean loss.
  double entropy_per_byte = 0;
};

// Pure. The text ends within a line if its length asks for that.
[[nodiscard]] Corpus generate_corpus(std::uint64_t seed = kCorpusSeed,
                                     std::size_t bytes = kCorpusBytes);

}  // namespace tutti::gpt
