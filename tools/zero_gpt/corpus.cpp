// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/corpus.hpp"

#include <array>
#include <cmath>
#include <string_view>

#include "zero_gpt/random.hpp"

namespace tutti::gpt {
namespace {

constexpr std::array<std::string_view, 12> kPlaces = {
    "the garden", "the old mill",    "a quiet inn", "the harbour", "the tower",  "a deep wood",
    "the market", "the long bridge", "a stone hut", "the library", "the valley", "a small boat"};
constexpr std::array<std::string_view, 12> kThings = {"lamp",  "silver key", "red apple", "map",
                                                      "clock", "wooden box", "letter",    "coin",
                                                      "flute", "warm coat",  "bell",      "knife"};
constexpr std::array<std::string_view, 4> kGiving = {"gave", "sold", "lent", "showed"};
constexpr std::string_view kConsonants = "bdfgklmnprstvz", kVowels = "aeiou";
constexpr std::array<std::string_view, 3> kBrackets = {"()", "[]", "{}"};

// Draws the choices of one line and adds up what they tell.
class Line {
 public:
  Line(std::uint64_t seed, std::uint32_t number) : seed_(seed), number_(number) {}

  std::size_t choose(std::size_t options) {
    nats_ += std::log(static_cast<double>(options));
    return draw(options);
  }
  // True in `of_64` of 64 cases.
  bool chance(std::uint64_t of_64) {
    const bool yes = draw(64) < of_64;
    const double share = static_cast<double>(of_64) / 64;
    nats_ -= std::log(yes ? share : 1 - share);
    return yes;
  }
  template <typename List>
  auto pick(const List& list) {
    return list[choose(list.size())];
  }
  void say(std::string_view words) { text_ += words; }
  void say(std::size_t number) { text_ += std::to_string(number); }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] double nats() const { return nats_; }

 private:
  std::size_t draw(std::size_t options) {
    return scale_to(random_bits(seed_, Purpose::kCorpus, number_, drawn_++), options);
  }

  std::uint64_t seed_;
  std::uint32_t number_;
  std::uint64_t drawn_ = 0;
  std::string text_;
  double nats_ = 0;
};

std::string word(Line& line, int syllables) {
  std::string made;
  for (int i = 0; i < syllables; ++i) {
    made += line.pick(kConsonants);
    made += line.pick(kVowels);
  }
  return made;
}

std::string name(Line& line) {
  std::string made = word(line, 2);
  made[0] = static_cast<char>(made[0] - 'a' + 'A');
  return made;
}

// "Mira met Toba. Mira gave Toba a map. Toba left, Mira stayed."
void story(Line& line) {
  const std::string a = name(line), b = name(line);
  line.say(a + " met " + b);
  if (line.chance(16)) {
    line.say(" near ");
    line.say(line.pick(kPlaces));
  }
  const bool turned = line.chance(16);
  const std::string &giver = turned ? b : a, &taker = turned ? a : b;
  line.say(". " + giver + " ");
  line.say(line.pick(kGiving));
  line.say(" " + taker + " a ");
  line.say(line.pick(kThings));
  line.say(". " + taker + " left, " + giver + " stayed.");
}

// "([]{()})": opens at random and closes what is open.
void brackets(Line& line) {
  constexpr std::size_t kMostDepth = 8;
  std::string open;
  for (int pairs = 4 + static_cast<int>(line.choose(12)); pairs > 0 || !open.empty();) {
    // The number of pairs is known to nobody who reads, which the count above pays for.
    const bool may_open = pairs > 0 && open.size() < kMostDepth;
    if (may_open && (open.empty() || line.chance(36))) {
      const std::string_view pair = line.pick(kBrackets);
      line.say(pair.substr(0, 1));
      open += pair[1];
      --pairs;
    } else {
      line.say(open.substr(open.size() - 1));
      open.pop_back();
    }
  }
}

// "7+15=22, 3+9=12."
void sums(Line& line) {
  for (int i = 0; i < 3; ++i) {
    const std::size_t a = line.choose(20), b = line.choose(20);
    line.say(i == 0 ? "" : ", ");
    line.say(a);
    line.say("+");
    line.say(b);
    line.say("=");
    line.say(a + b);
  }
  line.say(".");
}

// "count by 3: 14 17 20 23 26"
void counting(Line& line) {
  const std::size_t step = 1 + line.choose(5), first = line.choose(60);
  line.say("count by ");
  line.say(step);
  line.say(":");
  for (std::size_t i = 0; i < 6; ++i) {
    line.say(" ");
    line.say(first + i * step);
  }
}

// "say molu kebi: molu kebi!"
void echo(Line& line) {
  const std::string words = word(line, 2) + " " + word(line, 3);
  line.say("say " + words + ": " + words + "!");
}

Line make_line(std::uint64_t seed, std::uint32_t number) {
  Line line(seed, number);
  constexpr std::array kKinds = {story, story, story, brackets, brackets, sums, counting, echo};
  const std::size_t kind = line.choose(kKinds.size());
  kKinds[kind](line);
  line.say("\n");
  return line;
}

// Choosing among eight when some are alike tells less than log 8.
constexpr double kKindsAlike = (3 * 1.0986122886681098 + 2 * 0.6931471805599453) / 8;

}  // namespace

Corpus generate_corpus(std::uint64_t seed, std::size_t bytes) {
  Corpus corpus;
  double nats = 0;
  for (std::uint32_t number = 0; corpus.text.size() < bytes; ++number) {
    const Line line = make_line(seed, number);
    corpus.text += line.text();
    nats += line.nats() - kKindsAlike;
  }
  corpus.entropy_per_byte = nats / static_cast<double>(corpus.text.size());
  corpus.text.resize(bytes);
  return corpus;
}

}  // namespace tutti::gpt
