// SPDX-License-Identifier: Apache-2.0
// The kernels against the reference: every type and operation, any number of sources and
// destinations, odd counts, odd alignments, in place, around the cache. Every instruction set of
// this machine must give the reference's bits, hence the same bits as all others.
#include "kernels/reduce_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/reference.hpp"

namespace tutti {
namespace {

constexpr unsigned kSeed = 4711;
constexpr std::array<const char*, 3> kIsas{"avx512", "avx2", "scalar"};
constexpr std::array<std::size_t, 15> kCounts{0,  1,  2,  3,  7,   8,    15,  31,
                                              33, 63, 64, 65, 255, 1000, 4097};
constexpr std::array<std::uint32_t, 6> kSourceCounts{1, 2, 3, 4, 7, 16};
constexpr DataType kTypes[] = {DataType::kInt8,     DataType::kUint8,      DataType::kInt32,
                               DataType::kUint32,   DataType::kInt64,      DataType::kUint64,
                               DataType::kFloat16,  DataType::kFloat32,    DataType::kFloat64,
                               DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2};

// Elements at a chosen offset from a cache line, with guards before and after.
class Operand {
 public:
  Operand(std::size_t count, std::size_t element_bytes, std::size_t offset_bytes)
      : bytes_(count * element_bytes), memory_(bytes_ + offset_bytes + 2 * kGuardBytes + 64) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    start_ = (0 - address) % 64 + kGuardBytes + offset_bytes;
    std::fill(memory_.begin(), memory_.end(), kGuard);
  }
  [[nodiscard]] std::byte* data() { return memory_.data() + start_; }
  [[nodiscard]] bool holds(const std::vector<std::byte>& want) const {
    return std::equal(want.begin(), want.end(), memory_.begin() + start());
  }
  [[nodiscard]] bool guards_intact() const {
    const auto guard = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + start(), guard) &&
           std::all_of(memory_.begin() + start() + static_cast<std::ptrdiff_t>(bytes_),
                       memory_.end(), guard);
  }
  void fill(const std::vector<std::byte>& with) { std::copy(with.begin(), with.end(), data()); }

 private:
  static constexpr std::size_t kGuardBytes = 128;
  static constexpr std::byte kGuard{0xa7};
  [[nodiscard]] std::ptrdiff_t start() const { return static_cast<std::ptrdiff_t>(start_); }

  std::size_t bytes_;
  std::vector<std::byte> memory_;
  std::size_t start_ = 0;
};

class ReduceCopy : public testing::TestWithParam<std::tuple<DataType, ReduceOp>> {
 protected:
  using Contents = std::vector<std::vector<std::byte>>;

  // Half of a float's elements are any bits (so also NaN, infinity, subnormals), the others of
  // moderate size or special, so that many results are ordinary numbers and ties. Half of the
  // integers of logical operations are 0.
  std::uint64_t random_element() {
    constexpr std::array<double, 8> kSpecial{0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, 0.5, 3.0};
    const std::uint64_t random = random_();
    if (takes_integers_only(op_)) return random % 2 == 0 ? 0 : random_();
    if (!reference::is_float(type_) || random % 4 == 0) return random_();
    if (random % 4 == 1) return reference::encode(type_, kSpecial[random / 4 % 8]);
    const auto mantissa = static_cast<std::int32_t>(random >> 32);
    const int exponent = static_cast<int>(random / 4 % 12) - 36;
    return reference::encode(type_, std::ldexp(static_cast<double>(mantissa), exponent));
  }

  Contents random_contents(std::uint32_t sources, std::size_t count) {
    Contents contents(sources, std::vector<std::byte>(count * bytes_));
    for (auto& source : contents)
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t element = random_element();
        std::memcpy(&source[i * bytes_], &element, bytes_);  // little-endian
      }
    return contents;
  }

  std::vector<std::byte> expected(const Contents& contents, std::size_t count,
                                  std::uint32_t average_over) const {
    std::vector<std::byte> want(count * bytes_);
    std::vector<std::uint64_t> elements(contents.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < contents.size(); ++k)
        std::memcpy(&elements[k], &contents[k][i * bytes_], bytes_);
      const std::uint64_t element = reference::reduce(type_, op_, elements, average_over);
      std::memcpy(&want[i * bytes_], &element, bytes_);
    }
    return want;
  }

  std::size_t random_offset_bytes() { return random_() % (64 / bytes_) * bytes_; }

  std::uint32_t random_divisor(std::uint32_t sources) {
    if (op_ != ReduceOp::kAvg) return 0;
    const std::array<std::uint32_t, 5> divisors{sources, 3, 1000, 1'000'000'007, UINT32_MAX};
    return divisors[random_() % 8 < 4 ? 0 : random_() % 5];
  }

  struct Call {
    std::size_t count = 0;
    std::uint32_t destinations = 1;
    int in_place = -1;  // the source that is destination 0
    std::uint64_t nontemporal_mask = 0;
    std::uint32_t average_over = 0;
    bool alike = false;  // all destinations begin at the same place of a line
  };

  void check(const Contents& contents, const std::vector<std::byte>& want, const Call& call) {
    for (const char* isa : kIsas) {
      const ReduceCopyFn kernel = reduce_copy_kernel_for(isa, type_, op_);
      if (kernel == nullptr) continue;
      std::vector<Operand> operands;
      std::vector<const void*> sources;
      std::vector<void*> destinations;
      const std::size_t source_count = contents.size();
      operands.reserve(source_count + call.destinations);
      for (std::size_t k = 0; k < source_count; ++k) {
        operands.emplace_back(call.count, bytes_, random_offset_bytes());
        operands.back().fill(contents[k]);
        sources.push_back(operands.back().data());
      }
      const std::size_t offset_bytes = random_offset_bytes();
      for (std::uint32_t m = 0; m < call.destinations; ++m) {
        operands.emplace_back(call.count, bytes_,
                              call.alike ? offset_bytes : random_offset_bytes());
        destinations.push_back(operands.back().data());
      }
      if (call.in_place >= 0)
        destinations[0] = operands[static_cast<std::size_t>(call.in_place)].data();
      kernel({sources.data(), static_cast<std::uint32_t>(source_count), destinations.data(),
              call.destinations, call.count, call.nontemporal_mask, call.average_over});
      const std::string what = std::string(isa) + " k " + std::to_string(source_count) + " m " +
                               std::to_string(call.destinations) + " count " +
                               std::to_string(call.count) + " in place " +
                               std::to_string(call.in_place) + " streams " +
                               std::to_string(call.nontemporal_mask) + " average over " +
                               std::to_string(call.average_over);
      for (std::uint32_t m = 0; m < call.destinations; ++m)
        ASSERT_TRUE(std::equal(want.begin(), want.end(), static_cast<std::byte*>(destinations[m])))
            << what << ": destination " << m << ": " << difference(destinations[m], want);
      for (std::size_t k = 0; k < source_count; ++k)
        ASSERT_TRUE(static_cast<int>(k) == call.in_place || operands[k].holds(contents[k]))
            << what << ": source " << k << " changed";
      for (const Operand& operand : operands)
        ASSERT_TRUE(operand.guards_intact()) << what << ": wrote beside its operands";
    }
  }

  std::string difference(const void* got, const std::vector<std::byte>& want) const {
    for (std::size_t at = 0; at < want.size(); at += bytes_) {
      std::uint64_t is = 0, should = 0;
      std::memcpy(&is, static_cast<const std::byte*>(got) + at, bytes_);
      std::memcpy(&should, &want[at], bytes_);
      if (is == should) continue;
      std::array<char, 96> text{};
      std::snprintf(text.data(), text.size(), "element %zu: got %lx, want %lx", at / bytes_, is,
                    should);
      return text.data();
    }
    return "equal";
  }

  DataType type_ = std::get<0>(GetParam());
  ReduceOp op_ = std::get<1>(GetParam());
  std::size_t bytes_ = element_bytes(type_);
  std::mt19937_64 random_{kSeed};
};

TEST_P(ReduceCopy, EqualsTheReferenceBitForBit) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const std::uint32_t k : kSourceCounts)
    for (const std::size_t count : kCounts) {
      const std::uint32_t divisor = random_divisor(k);
      const Contents contents = random_contents(k, count);
      const std::vector<std::byte> want = expected(contents, count, divisor);
      for (const std::uint32_t m : {1u, 2u, 3u})
        ASSERT_NO_FATAL_FAILURE(check(contents, want, {count, m, -1, 0, divisor}));
    }
}

TEST_P(ReduceCopy, ADestinationMayBeAnySource) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const std::uint32_t k : kSourceCounts)
    for (const std::size_t count : {1u, 65u, 1000u}) {
      const std::uint32_t divisor = random_divisor(k);
      const Contents contents = random_contents(k, count);
      const std::vector<std::byte> want = expected(contents, count, divisor);
      for (std::uint32_t in_place = 0; in_place < k; ++in_place)
        for (const std::uint32_t m : {1u, 2u, 3u})
          ASSERT_NO_FATAL_FAILURE(
              check(contents, want,
                    {count, m, static_cast<int>(in_place), random_() % 4 == 0 ? 1u : 0u, divisor}));
    }
}

TEST_P(ReduceCopy, StreamsAnySubsetOfDestinations) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const std::uint32_t k : {1u, 2u, 3u, 7u})
    for (const std::size_t count : {1u, 33u, 255u, 1000u, 4097u}) {
      const std::uint32_t divisor = random_divisor(k);
      const Contents contents = random_contents(k, count);
      const std::vector<std::byte> want = expected(contents, count, divisor);
      for (std::uint64_t mask = 1; mask < 8; ++mask)
        ASSERT_NO_FATAL_FAILURE(check(contents, want, {count, 3, -1, mask, divisor}));
      for (std::uint64_t mask = 1; mask < 4; ++mask)
        for (const bool alike : {false, true})
          ASSERT_NO_FATAL_FAILURE(check(contents, want, {count, 2, -1, mask, divisor, alike}));
      ASSERT_NO_FATAL_FAILURE(check(contents, want, {count, 1, -1, 1, divisor}));
    }
}

std::string case_name(const testing::TestParamInfo<std::tuple<DataType, ReduceOp>>& tested) {
  return std::string(name_of(std::get<0>(tested.param))) + "_" +
         std::string(name_of(std::get<1>(tested.param)));
}
INSTANTIATE_TEST_SUITE_P(Types, ReduceCopy,
                         testing::Combine(testing::ValuesIn(kTypes),
                                          testing::Values(ReduceOp::kSum, ReduceOp::kProd,
                                                          ReduceOp::kMax, ReduceOp::kMin,
                                                          ReduceOp::kAvg)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(
    Bits, ReduceCopy,
    testing::Combine(testing::Values(DataType::kInt8, DataType::kUint8, DataType::kInt32,
                                     DataType::kUint32, DataType::kInt64, DataType::kUint64),
                     testing::Values(ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor,
                                     ReduceOp::kLogicalAnd, ReduceOp::kLogicalOr,
                                     ReduceOp::kLogicalXor)),
    case_name);

TEST(ReduceCopyTable, HasEveryOperationThatATypeHas) {
  for (int t = 0; t < kDataTypeCount; ++t)
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      const bool wanted = is_integer(type) || !takes_integers_only(op);
      EXPECT_EQ(reduce_copy_kernel(type, op) != nullptr, wanted) << name_of(type) << name_of(op);
      EXPECT_EQ(reduce_copy_kernel_for("scalar", type, op) != nullptr, wanted);
      EXPECT_EQ(reduce_copy_kernel_for(kernel_isa(), type, op), reduce_copy_kernel(type, op));
    }
}

TEST(ReduceCopyTable, AverageIsTheSumsKernel) {
  EXPECT_EQ(reduce_copy_kernel(DataType::kFloat32, ReduceOp::kAvg),
            reduce_copy_kernel(DataType::kFloat32, ReduceOp::kSum));
}

TEST(ReduceCopyTable, UnknownInstructionSetHasNoKernel) {
  EXPECT_EQ(reduce_copy_kernel_for("sse9", DataType::kFloat32, ReduceOp::kSum), nullptr);
  EXPECT_EQ(reduce_copy_kernel_for("auto", DataType::kFloat32, ReduceOp::kSum), nullptr);
}

TEST(ReduceCopyDeathTest, EnvironmentForcesALowerInstructionSet) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a fresh process: the choice is made once
  EXPECT_EXIT(
      {
        ::setenv("TUTTI_ISA", "scalar", 1);
        std::exit(kernel_isa() == "scalar" ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti
