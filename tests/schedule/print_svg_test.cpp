// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "samples.hpp"
#include "schedule/passes.hpp"
#include "schedule/print.hpp"
#include "schedule/unroll.hpp"

namespace tutti {
namespace {

// What is wrong with the XML, or empty. Elements nest and close, attributes are quoted and given
// once, text and values hold no bare '<' or '&', and there is one root.
class XmlCheck {
 public:
  explicit XmlCheck(const std::string& text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size() && error_.empty()) text_[at_] == '<' ? tag() : character();
    if (error_.empty() && !open_.empty()) error_ = "not closed: " + open_.back();
    if (error_.empty() && roots_ != 1) error_ = "no single root";
    return error_;
  }

 private:
  void character() {
    const char c = text_[at_];
    if (open_.empty() && std::isspace(static_cast<unsigned char>(c)) == 0) error_ = "text outside";
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') error_ = "control character";
    if (c == '&') return entity();
    ++at_;
  }

  void entity() {
    for (const char* known : {"&lt;", "&gt;", "&amp;", "&quot;"})
      if (text_.compare(at_, std::strlen(known), known) == 0) {
        at_ += std::strlen(known);
        return;
      }
    error_ = "bare &";
  }

  std::string name() {
    std::string name;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '-' || text_[at_] == ':'))
      name += text_[at_++];
    if (name.empty()) error_ = "a name is missing at byte " + std::to_string(at_);
    return name;
  }

  void tag() {
    ++at_;
    if (at_ < text_.size() && text_[at_] == '/') {
      ++at_;
      const std::string closed = name();
      if (open_.empty() || open_.back() != closed) error_ = "closes what is not open: " + closed;
      if (at_ >= text_.size() || text_[at_++] != '>') error_ = "> is missing";
      if (error_.empty()) open_.pop_back();
      return;
    }
    if (open_.empty()) ++roots_;
    open_.push_back(name());
    std::vector<std::string> attributes;
    while (error_.empty() && at_ < text_.size()) {
      while (at_ < text_.size() && text_[at_] == ' ') ++at_;
      if (text_.compare(at_, 2, "/>") == 0) {
        at_ += 2;
        open_.pop_back();
        return;
      }
      if (text_[at_] == '>') {
        ++at_;
        return;
      }
      attribute(attributes);
    }
    if (error_.empty()) error_ = "a tag does not end";
  }

  void attribute(std::vector<std::string>& attributes) {
    const std::string key = name();
    if (std::count(attributes.begin(), attributes.end(), key) > 0) error_ = "twice: " + key;
    attributes.push_back(key);
    if (text_.compare(at_, 2, "=\"") != 0) error_ = "no value: " + key;
    at_ += 2;
    while (error_.empty() && at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '<') error_ = "bare < in " + key;
      text_[at_] == '&' ? entity() : void(++at_);
    }
    ++at_;
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  std::string error_;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(PrintSvg, TheCheckOfXmlFindsFaults) {
  EXPECT_EQ(XmlCheck("<a b=\"1\"><c/>x &lt; y</a>\n").run(), "");
  for (const char* bad : {"<a><b></a></b>", "<a>", "<a b=1/>", "<a>x & y</a>", "<a b=\"<\"/>",
                          "<a b=\"1\" b=\"2\"/>", "<a/><b/>", "x<a/>", "<a", "</a>", "<a>\x01</a>"})
    EXPECT_NE(XmlCheck(bad).run(), "") << bad;
}

TEST(PrintSvg, IsWellFormedWithABoxAStepAndAnArrowAMessage) {
  for (const Algorithm* algorithm : all_algorithms())
    for (std::int32_t ranks = 1; ranks <= 12; ++ranks) {
      SCOPED_TRACE(testing::Message() << algorithm->name << " " << ranks);
      const Schedule schedule = samples::built(algorithm->name, ranks);
      std::size_t steps = 0, sends = 0;
      for (const RankProgram& program : schedule.ranks)
        for (const Lane& lane : program.lanes)
          for (const Step& step : lane.steps) {
            ++steps;
            for (const Operand& operand : step.destinations)
              sends += operand.kind == OperandKind::kSend ? 1 : 0;
          }
      const std::string svg = to_svg(schedule);
      EXPECT_EQ(XmlCheck(svg).run(), "");
      EXPECT_EQ(count(svg, "<title>"), steps);
      EXPECT_EQ(count(svg, "marker-end"), sends);
      EXPECT_EQ(count(svg, "never run"), 0U);
    }
}

TEST(PrintSvg, UnrolledReplicasAreAllDrawn) {
  const Schedule schedule = replicate(samples::built("ring", 4), 2);
  const Result<Schedule> unrolled = unroll(schedule, 4);
  ASSERT_TRUE(unrolled);
  const std::string svg = to_svg(*unrolled);
  EXPECT_EQ(XmlCheck(svg).run(), "");
  EXPECT_EQ(count(svg, "marker-end"), 4U * 4 * 6);  // slices, ranks, 2(p-1) messages
}

TEST(PrintSvg, SenselessSchedulesAreDrawnAndTheFaultIsSaid) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EXPECT_EQ(XmlCheck(to_svg(samples::RandomSchedule(seed).make())).run(), "");
  }
  Schedule stuck = samples::built("ring", 3);
  stuck.ranks[0].lanes[0].steps.erase(stuck.ranks[0].lanes[0].steps.begin());
  EXPECT_NE(to_svg(stuck).find("steps never run"), std::string::npos);
}

}  // namespace
}  // namespace tutti
