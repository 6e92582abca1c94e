// SPDX-License-Identifier: Apache-2.0
// The shared words: names, sizes, errors, deadlines and descriptors.
#include "base/types.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <climits>
#include <memory>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

TEST(Types, NamesRoundTrip) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(parse_data_type(name_of(type)), type);
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(name_of(op)), op);
  }
  // The program's own have a name for messages, and none on command lines.
  EXPECT_EQ(name_of(ReduceOp::kUserInOrder), "user_in_order");
  EXPECT_FALSE(parse_reduce_op("user"));
  EXPECT_FALSE(parse_data_type("float32"));
  EXPECT_FALSE(parse_reduce_op(""));
}

// Spelled out here once more, because the table in types.cpp is in enum order by hand.
TEST(Types, NamesAndSizesAreThoseOfNcclTests) {
  EXPECT_EQ(name_of(DataType::kInt8), "int8");
  EXPECT_EQ(name_of(DataType::kFloat16), "half");
  EXPECT_EQ(name_of(DataType::kFloat32), "float");
  EXPECT_EQ(name_of(DataType::kBfloat16), "bfloat16");
  EXPECT_EQ(name_of(DataType::kFloat8e5m2), "f8e5m2");
  EXPECT_EQ(element_bytes(DataType::kUint8), 1u);
  EXPECT_EQ(element_bytes(DataType::kFloat16), 2u);
  EXPECT_EQ(element_bytes(DataType::kBfloat16), 2u);
  EXPECT_EQ(element_bytes(DataType::kInt32), 4u);
  EXPECT_EQ(element_bytes(DataType::kFloat64), 8u);
  EXPECT_EQ(name_of(ReduceOp::kAvg), "avg");
}

Result<std::unique_ptr<int>> half_of(int value) {
  if (value % 2 != 0) return make_error(Code::kInvalidArgument, "odd", 7);
  return std::make_unique<int>(value / 2);
}
Result<int> quarter_of(int value) {
  TUTTI_TRY_ASSIGN(const std::unique_ptr<int> half, half_of(value));
  TUTTI_TRY(half_of(*half));
  TUTTI_TRY_ASSIGN(const std::unique_ptr<int> quarter, half_of(*half));
  return *quarter;
}

TEST(Result, TryHandsTheErrorOn) {
  EXPECT_EQ(quarter_of(8), 2);
  const Result<int> failed = quarter_of(6);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kInvalidArgument);
  EXPECT_EQ(failed.error().message, "odd");
  EXPECT_EQ(failed.error().culprit, 7);
}

TEST(Result, ErrnoErrorSaysWhatAndWhy) {
  const Status failed = errno_error("cannot open x", ENOENT);
  EXPECT_EQ(failed.error().code, Code::kSystemError);
  EXPECT_THAT(failed.error().message, testing::StartsWith("cannot open x: No such file"));
}

TEST(Deadline, PassesAndRoundsUp) {
  EXPECT_TRUE(Deadline::in_ns(-1).passed());
  EXPECT_EQ(Deadline::in_ns(-1).left_poll_ms(), 0);
  const Deadline hour = Deadline::in_ms(3'600'000);
  EXPECT_FALSE(hour.passed());
  EXPECT_GT(hour.left_poll_ms(), 0);
  EXPECT_LE(hour.left_poll_ms(), 3'600'000);
  EXPECT_EQ(Deadline{INT64_MAX}.left_poll_ms(), INT_MAX);
}

TEST(UniqueFd, ClosesOnceAndMoves) {
  UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(first);
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_EQ(second.get(), number);
  second = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_NE(second.get(), number);
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  const int kept = second.release();
  EXPECT_FALSE(second);
  EXPECT_EQ(::close(kept), 0);
}

}  // namespace
}  // namespace tutti
