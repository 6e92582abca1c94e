// SPDX-License-Identifier: Apache-2.0
// Plants every kind of error the checks promise to see, and looks whether they say where.
#include "common/check.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tutti::perf {
namespace {

constexpr std::uint64_t kCount = 5000;  // more than one piece of any type
constexpr std::uint64_t kFirst = 123;

class CheckTest : public testing::TestWithParam<int> {
 protected:
  CheckTest() : spec_{static_cast<tuttiDataType_t>(GetParam()), Op::kSum, 3, 42} {
    result_.resize(kCount * element_bytes(spec_.type));
    fill_expected(spec_, kFirst, kCount, result_.data());
  }
  Findings findings() {
    Findings findings;
    check_result(spec_, kFirst, kCount, result_.data(), findings);
    return findings;
  }
  DataSpec spec_;
  std::vector<std::byte> result_;
};

TEST_P(CheckTest, RightResultPasses) {
  EXPECT_EQ(findings().wrong, 0u);
  EXPECT_EQ(findings().first, "");
}

TEST_P(CheckTest, OneWrongBitAnywhereIsFound) {
  const std::size_t element = element_bytes(spec_.type);
  for (const std::size_t index :
       {std::size_t{0}, std::size_t{2047}, std::size_t{2048}, kCount - 1}) {
    for (std::size_t bit = 0; bit < 8 * element; ++bit) {
      std::byte& byte = result_[index * element + bit / 8];
      byte ^= std::byte{1} << (bit % 8);
      const Findings found = findings();
      ASSERT_EQ(found.wrong, 1u) << index << ", bit " << bit;
      ASSERT_TRUE(found.first.starts_with("index " + std::to_string(index) + ": got "))
          << found.first;
      byte ^= std::byte{1} << (bit % 8);
    }
  }
}

TEST_P(CheckTest, AResultThatWasNeverWrittenIsWrong) {
  poison(result_);
  // int8 poison may hit the right value by chance, once in 256.
  EXPECT_GT(findings().wrong, kCount * 9 / 10);
  EXPECT_TRUE(findings().first.starts_with("index 0: ") ||
              findings().first.starts_with("index 1: "))
      << findings().first;
}

TEST_P(CheckTest, AResultShiftedByOneElementIsWrong) {
  const std::size_t element = element_bytes(spec_.type);
  std::memmove(result_.data() + element, result_.data(), result_.size() - element);
  EXPECT_GT(findings().wrong, kCount / 2);
}

INSTANTIATE_TEST_SUITE_P(Types, CheckTest, testing::Range(0, int{tuttiNumTypes}),
                         [](const auto& instance) {
                           return std::string(
                               type_name(static_cast<tuttiDataType_t>(instance.param)));
                         });

TEST(Check, NanAndInfinityAreWrong) {
  const DataSpec spec{tuttiFloat32, Op::kMax, 2, 1};
  std::vector<float> result(10);
  fill_expected(spec, 0, 10, result.data());
  result[3] = std::numeric_limits<float>::quiet_NaN();
  result[5] = std::numeric_limits<float>::infinity();
  Findings findings;
  check_result(spec, 0, 10, result.data(), findings);
  EXPECT_EQ(findings.wrong, 2u);
  EXPECT_TRUE(findings.first.starts_with("index 3: got nan")) << findings.first;
}

TEST(Check, GuardsNameTheBuffer) {
  GuardedBuffer buffer(64);
  Findings findings;
  check_guards("receive", buffer, findings);
  EXPECT_EQ(findings.wrong, 0u);
  buffer.data()[64] = ~buffer.data()[64];
  check_guards("receive", buffer, findings);
  EXPECT_EQ(findings.wrong, 1u);
  EXPECT_NE(findings.first.find("receive buffer overwritten at byte 64 of 64"), std::string::npos)
      << findings.first;
}

TEST(Check, ChangedSendBufferNamesTheElement) {
  const DataSpec spec{tuttiBfloat16, Op::kSum, 3, 7};
  constexpr std::uint64_t kElements = 50'000;  // 100 kB: two blocks
  std::vector<std::byte> send(kElements * 2);
  fill_input(spec, 2, 0, kElements, send.data());
  const Fingerprint fingerprint(send);
  Findings findings;
  check_send_unchanged(spec, 2, fingerprint, 0, send.size(), findings);
  EXPECT_EQ(findings.wrong, 0u);
  send[2 * 40'000] ^= std::byte{4};
  check_send_unchanged(spec, 2, fingerprint, 0, send.size(), findings);
  EXPECT_EQ(findings.wrong, 1u);
  // The second block starts at element 32768.
  EXPECT_NE(findings.first.find("from element 32768: index 7232: got"), std::string::npos)
      << findings.first;
}

TEST(Check, WritesAroundARegionAreFound) {
  std::vector<std::byte> buffer(10'000);
  struct Place {
    std::size_t begin, end;
  };
  for (const Place p : {Place{1000, 1100}, Place{0, 50}, Place{9950, 10'000}, Place{10, 9990}}) {
    const RegionGuard guard(buffer, p.begin, p.end);
    std::memset(buffer.data() + p.begin, 0, p.end - p.begin);
    Findings none;
    guard.check(none);
    EXPECT_EQ(none.wrong, 0u);
    std::uint64_t planted = 0;
    if (p.begin > 0) buffer[p.begin - 1] ^= std::byte{0x80}, ++planted;
    if (p.end < buffer.size()) buffer[p.end] ^= std::byte{0x80}, ++planted;
    Findings findings;
    guard.check(findings);
    EXPECT_EQ(findings.wrong, planted);
    const std::string where =
        p.begin > 0 ? "at byte -1 of " : "at byte " + std::to_string(p.end - p.begin) + " of ";
    EXPECT_NE(findings.first.find(where), std::string::npos) << findings.first;
  }
}

}  // namespace
}  // namespace tutti::perf
