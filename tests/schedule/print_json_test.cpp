// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "samples.hpp"
#include "schedule/passes.hpp"
#include "schedule/print.hpp"

namespace tutti {
namespace {

// Returned or refused, but never more: errors are one line, and what is read can be used.
void expect_safe(const std::string& text) {
  const Result<Schedule> schedule = from_json(text);
  if (!schedule) {
    EXPECT_EQ(schedule.error().code, Code::kInvalidArgument);
    EXPECT_EQ(schedule.error().message.find('\n'), std::string::npos) << schedule.error().message;
    EXPECT_FALSE(schedule.error().message.empty());
    return;
  }
  EXPECT_FALSE(to_text(*schedule).empty());
  EXPECT_FALSE(to_svg(*schedule).empty());
  const Result<Schedule> again = from_json(to_json(*schedule));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *schedule);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const std::string& part) {
  const Result<Schedule> schedule = from_json(text);
  ASSERT_FALSE(schedule) << "accepted where \"" << part << "\" was expected";
  EXPECT_EQ(schedule.error().code, Code::kInvalidArgument);
  EXPECT_NE(schedule.error().message.find(part), std::string::npos) << schedule.error().message;
  EXPECT_EQ(schedule.error().message.find('\n'), std::string::npos) << schedule.error().message;
}

TEST(PrintJson, EveryAlgorithmReturnsUnchanged) {
  for (const Algorithm* algorithm : all_algorithms())
    for (std::int32_t ranks = 1; ranks <= 12; ++ranks)
      for (const std::uint32_t replicas : {1U, 3U}) {
        const Schedule schedule = replicate(samples::built(algorithm->name, ranks), replicas);
        const Result<Schedule> again = from_json(to_json(schedule));
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(*again, schedule) << algorithm->name << " " << ranks;
      }
}

TEST(PrintJson, RandomSchedulesReturnUnchanged) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule schedule = samples::RandomSchedule(seed).make();
    if (seed % 2 == 0) schedule = replicate(schedule, 2);
    const Result<Schedule> again = from_json(to_json(schedule));
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(*again, schedule);
  }
}

TEST(PrintJson, SaysWhatIsWrongAndWhere) {
  const std::string good = to_json(samples::built("ring", 3));
  ASSERT_TRUE(from_json(good));
  const auto bad = [&](const std::string& from, const std::string& to, const std::string& part) {
    SCOPED_TRACE(to);
    expect_refused(replaced(good, from, to), part);
  };
  bad("\"tutti_schedule\":1", "\"tutti_schedule\":2", "version");
  bad("\"tutti_schedule\":1", "\"schedule\":1", "no \"tutti_schedule\"");
  bad("\"all_reduce\"", "\"all_roduce\"", "\"collective\"");
  bad("\"ranks\":3", "\"ranks\":0", "\"ranks\"");
  bad("\"ranks\":3", "\"ranks\":-3", "\"ranks\"");
  bad("\"ranks\":3", "\"ranks\":3.5", "\"ranks\"");
  bad("\"ranks\":3", "\"ranks\":\"3\"", "\"ranks\"");
  bad("\"ranks\":3", "\"ranks\":4294967299", "\"ranks\"");
  bad("\"ranks\":3", "\"ranks\":4", "3 programs for 4 ranks");
  bad("\"root\":0", "\"root\":3", "\"root\"");
  bad("\"chunks\":3", "\"chunks\":0", "\"chunks\"");
  bad("\"chunks\":3", "\"chunks\":4000000000", "\"chunks\"");
  bad("\"tags\":1", "\"tags\":70000", "\"tags\"");
  bad("\"replicas\":1,\"tags\":1", "\"replicas\":60000,\"tags\":60000", "\"tags\" times");
  bad("\"scratch_chunks\":0,\"scratch_versions\":1",
      "\"scratch_chunks\":1048576,\"scratch_versions\":1048576", "over all ranks");
}

TEST(PrintJson, SaysWhichStepIsWrong) {
  const std::string good = to_json(samples::built("ring", 3));
  const auto bad = [&](const std::string& from, const std::string& to, const std::string& part) {
    SCOPED_TRACE(to);
    expect_refused(replaced(good, from, to), part);
  };
  bad("{\"send\":1", "{\"send\":3", "rank 0, lane 0, step 0: the peer");
  bad("{\"send\":1", "{\"send\":0", "the peer is the rank itself");
  bad("{\"send\":1", "{\"post\":1", "not one of local, remote, send");
  bad("{\"recv\":2", "{\"send\":2", "not one of local, remote, recv");
  bad("\"tag\":0", "\"tag\":1", "\"tag\"");
  bad("\"span\":[0,1,0,1]", "\"span\":[3,1,0,1]", "a span's number");
  bad("\"span\":[0,1,0,1]", "\"span\":[0,2,0,2]", "more chunks than there are");
  bad("\"span\":[0,1,0,1]", "\"span\":[0,1,0]", "four numbers");
  bad("\"span\":[0,1,0,1]", "\"span\":\"all\"", "\"span\" is not an array");
  bad("\"local\":\"input\"", "\"local\":\"inptu\"", "not one of input, output, scratch");
  bad("\"local\":\"input\"", "\"local\":\"scratch\"", "a span's number");
  bad("\"replica\":0", "\"replica\":1", "\"replica\"");
  bad("\"tags\":", "\"apart\":1,\"tags\":", "\"apart\" is not a boolean");
  bad("\"finish\":true", "\"finish\":1", "\"finish\"");
  bad("\"finish\":true", "\"after\":[[1,0,0]]", "no step 0 in lane 1");
  bad("\"finish\":true", "\"after\":[[0,99,0]]", "no step 99 in lane 0");
  bad("\"finish\":true", "\"after\":[[0,0]]", "triples");
  bad("\"to\":[{", "\"to\":[],\"too\":[{", "needs a source and a destination");
  bad("\"lanes\":", "\"lames\":", "rank 0 has no \"lanes\"");
}

// Names stand in errors, tables and pictures.
TEST(PrintJson, NamesHaveNoControlCharacters) {
  Schedule schedule = samples::built("ring", 2);
  schedule.shape.algorithm = "ri\nng";
  expect_refused(to_json(schedule), "\"algorithm\" has control characters");
  schedule.shape.algorithm = "ring";
  schedule.ranks[1].lanes[0].name = "l\x1b[31m";
  expect_refused(to_json(schedule), "rank 1, lane 0: \"name\" has control characters");
}

TEST(PrintJson, RefusesWhatIsNoSchedule) {
  expect_refused("", "syntax error at byte");
  expect_refused("null", "not an object");
  expect_refused("[]", "not an object");
  expect_refused("{}", "no \"tutti_schedule\"");
  expect_refused("{\"tutti_schedule\": 1e400}", "not a Tutti schedule");
  expect_refused(std::string(1 << 17, '['), "syntax error at byte");
  expect_refused(std::string("\0\xff\xfe", 3), "syntax error at byte");
  // Deep but closed: parsed and destroyed without recursion.
  expect_refused(std::string(1 << 17, '[') + std::string(1 << 17, ']'), "not an object");
}

TEST(PrintJson, EveryTruncationIsRefused) {
  const std::string good = to_json(samples::built("tree", 3));
  const std::size_t end = good.find_last_of('}');
  for (std::size_t length = 0; length <= end; ++length)
    ASSERT_FALSE(from_json(good.substr(0, length))) << length;
  EXPECT_TRUE(from_json(good.substr(0, end + 1)));
}

TEST(PrintJson, RandomDamageIsRefusedOrHarmless) {
  constexpr std::uint64_t kSeed = 77;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::string good = to_json(samples::RandomSchedule(5).make());
  const std::string alphabet = "0123456789-[]{},:\"e.x\xc3";
  for (int i = 0; i < 1500; ++i) {
    std::string text = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n)
      text[random() % text.size()] = alphabet[random() % alphabet.size()];
    expect_safe(text);
  }
}

}  // namespace
}  // namespace tutti
