// SPDX-License-Identifier: Apache-2.0
// The generators' promise, checked by doing what a collective may do: reducing in the type itself,
// in several orders, must give the expected bits; and the expectation must agree with arithmetic
// that knows nothing of the construction.
#include "common/data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace tutti::perf {
namespace {

constexpr std::uint64_t kSeed = 20240607;
constexpr int kElements = 40;
// Small, odd, a power of two, more than bfloat16 has integers, more than f8 has.
const int kRankCounts[] = {1, 2, 3, 5, 8, 13, 64, 300, 1000};

// One operation of the type itself, on bits.
template <typename Format>
typename Format::Bits apply(Op op, typename Format::Bits a, typename Format::Bits b) {
  if constexpr (Format::kIsFloat) {
    const double x = decode<Format>(a), y = decode<Format>(b);
    if (op == Op::kMax) return x >= y ? a : b;
    if (op == Op::kMin) return x <= y ? a : b;
    // Products of doubles that are out of a narrow format's precision cannot occur: one factor is
    // a power of two. Sums of two values of a narrow format are exact in double but for huge
    // differences of exponent, which an element's common exponent excludes.
    return encode_nearest<Format>(op == Op::kProd ? x * y : x + y);
  } else {
    using Value = typename Format::Value;
    const auto x = static_cast<Value>(a), y = static_cast<Value>(b);
    if (op == Op::kMax) return static_cast<typename Format::Bits>(std::max(x, y));
    if (op == Op::kMin) return static_cast<typename Format::Bits>(std::min(x, y));
    const std::uint64_t wide = op == Op::kProd ? std::uint64_t{a} * b : std::uint64_t{a} + b;
    return static_cast<typename Format::Bits>(wide);
  }
}

template <typename Format>
typename Format::Bits divide(typename Format::Bits sum, int ranks) {
  if constexpr (Format::kIsFloat) {
    if constexpr (sizeof(sum) == 8)
      return encode_nearest<Format>(decode<Format>(sum) / ranks);
    else  // as a kernel does: a float division, then one rounding to the type
      return encode_nearest<Format>(static_cast<float>(decode<Format>(sum)) /
                                    static_cast<float>(ranks));
  } else {
    const auto value = static_cast<typename Format::Value>(sum);
    if constexpr (Format::kIsSigned)
      return static_cast<typename Format::Bits>(std::int64_t{value} / ranks);
    else
      return static_cast<typename Format::Bits>(std::uint64_t{value} /
                                                static_cast<std::uint64_t>(ranks));
  }
}

// Left to right in the given order, or as a balanced tree over it.
template <typename Format>
typename Format::Bits reduce(Op op, std::vector<typename Format::Bits> values, bool tree) {
  if (!tree) {
    auto result = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) result = apply<Format>(op, result, values[i]);
    return result;
  }
  for (std::size_t step = 1; step < values.size(); step *= 2)
    for (std::size_t i = 0; i + step < values.size(); i += 2 * step)
      values[i] = apply<Format>(op, values[i], values[i + step]);
  return values[0];
}

struct Case {
  tuttiDataType_t type;
  Op op;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << type_name(c.type) << '_' << op_name(c.op);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int type = 0; type < tuttiNumTypes; ++type)
    for (const Op op : {Op::kSum, Op::kProd, Op::kMax, Op::kMin, Op::kAvg})
      cases.push_back({static_cast<tuttiDataType_t>(type), op});
  return cases;
}

class DataTest : public testing::TestWithParam<Case> {};

template <typename Format>
void check_orders(const DataSpec& spec) {
  using Bits = typename Format::Bits;
  std::vector<std::vector<Bits>> inputs;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    inputs.emplace_back(kElements);
    fill_input(spec, rank, 0, kElements, inputs.back().data());
  }
  std::vector<Bits> expected(kElements);
  fill_expected(spec, 0, kElements, expected.data());
  std::mt19937_64 random(kSeed);
  std::vector<std::size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), 0);
  for (int attempt = 0; attempt < 6; ++attempt) {
    for (std::size_t e = 0; e < kElements; ++e) {
      std::vector<Bits> values;
      for (const std::size_t rank : order) values.push_back(inputs[rank][e]);
      Bits result = reduce<Format>(spec.op, std::move(values), attempt % 2 == 1);
      if (spec.op == Op::kAvg) result = divide<Format>(result, spec.ranks);
      ASSERT_EQ(+result, +expected[e])
          << "element " << e << ", " << spec.ranks << " ranks, attempt " << attempt << ", seed "
          << kSeed << ": got " << element_text(spec.type, &result) << ", want "
          << element_text(spec.type, &expected[e]);
    }
    std::shuffle(order.begin(), order.end(), random);
  }
}

TEST_P(DataTest, EveryOrderGivesTheExpectedBits) {
  for (const int ranks : kRankCounts) {
    const DataSpec spec{GetParam().type, GetParam().op, ranks, kSeed};
    with_format(spec.type, [&](auto format) { check_orders<decltype(format)>(spec); });
    if (HasFatalFailure()) return;
  }
}

// No partial result may even be inexact: the hardware's flag stays clear.
TEST(Data, FloatPartialsAreExactInHardware) {
  for (const Op op : {Op::kSum, Op::kProd}) {
    for (const int ranks : kRankCounts) {
      const DataSpec spec{tuttiFloat32, op, ranks, kSeed};
      for (std::uint64_t e = 0; e < 200; ++e) {
        std::feclearexcept(FE_ALL_EXCEPT);
        volatile float result = op == Op::kSum ? 0.0f : 1.0f;
        for (int rank = 0; rank < ranks; ++rank) {
          float value = 0;
          fill_input(spec, rank, e, 1, &value);
          if (op == Op::kSum)
            result = result + value;
          else
            result = result * value;
        }
        ASSERT_EQ(std::fetestexcept(FE_INEXACT | FE_OVERFLOW | FE_UNDERFLOW), 0)
            << op_name(op) << ", element " << e << ", " << ranks << " ranks, seed " << kSeed;
      }
    }
  }
}

// Any part of the data can be made alone, and equals the same part of the whole.
TEST_P(DataTest, PartsEqualTheWhole) {
  const DataSpec spec{GetParam().type, GetParam().op, 7, kSeed};
  const std::size_t element = element_bytes(spec.type);
  std::vector<std::byte> whole(100 * element), part(30 * element);
  fill_input(spec, 3, 0, 100, whole.data());
  fill_input(spec, 3, 50, 30, part.data());
  EXPECT_TRUE(
      std::equal(part.begin(), part.end(), whole.begin() + 50 * static_cast<long>(element)));
  fill_expected(spec, 0, 100, whole.data());
  fill_expected(spec, 50, 30, part.data());
  EXPECT_TRUE(
      std::equal(part.begin(), part.end(), whole.begin() + 50 * static_cast<long>(element)));
}

// Data that all look alike would hide errors: neighbours, ranks and seeds differ.
TEST_P(DataTest, ValuesVary) {
  const auto distinct = [](const DataSpec& spec, int rank) {
    const std::size_t element = element_bytes(spec.type);
    std::vector<char> bytes(256 * element);
    fill_input(spec, rank, 0, 256, bytes.data());
    std::set<std::string> values;
    for (std::size_t i = 0; i < 256; ++i) values.insert({&bytes[i * element], element});
    return values;
  };
  const DataSpec spec{GetParam().type, GetParam().op, 4, kSeed};
  // f8 has few values within the exact range.
  EXPECT_GE(distinct(spec, 0).size(), 12u);
  EXPECT_NE(distinct(spec, 0), distinct(spec, 1));
  EXPECT_NE(distinct(spec, 0), distinct({spec.type, spec.op, 4, kSeed + 1}, 0));
}

INSTANTIATE_TEST_SUITE_P(All, DataTest, testing::ValuesIn(all_cases()), [](const auto& instance) {
  return std::string(type_name(instance.param.type)) + "_" +
         std::string(op_name(instance.param.op));
});

}  // namespace
}  // namespace tutti::perf
