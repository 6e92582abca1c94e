// SPDX-License-Identifier: Apache-2.0
// The device's reduce-copy, compiled for the host: blocks are emulated by threads that each run
// their own index. Every type and operation gives the bits of the host's scalar kernel (8-bit
// floats, which have none, those of exact tables), for any counts, alignments and thread counts.
#include "kernels/device/reduce_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/device/folds.hpp"
#include "kernels/reduce_copy.hpp"
#include "tests/kernels/device/eight_bit_floats.hpp"
#include "tests/kernels/device/emulation.hpp"
#include "tests/kernels/device/random_elements.hpp"

namespace tutti::device {
namespace {

constexpr unsigned kSeed = 20250611;
#if defined(__SANITIZE_THREAD__)
constexpr int kShapes = 25;  // of one thread there is nothing to see
#else
constexpr int kShapes = 250;
#endif
constexpr std::array<std::size_t, 14> kCounts{0,  1,  2,  3,   7,   15,  16,
                                              33, 63, 64, 129, 255, 777, 2050};

using Bytes = std::vector<std::byte>;

// Elements that begin offset_bytes after a 64-byte boundary, with guards around.
class Operand {
 public:
  Operand(std::size_t bytes, std::size_t offset_bytes) : memory_(bytes + 256, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = (0 - address) % 64 + 64 + offset_bytes;
    bytes_ = bytes;
  }
  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] Bytes contents() const {
    const auto from = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return {from, from + static_cast<std::ptrdiff_t>(bytes_)};
  }
  [[nodiscard]] bool guards_intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < begin_ || i >= begin_ + bytes_) && memory_[i] != kGuard) return false;
    return true;
  }

 private:
  static constexpr std::byte kGuard{0x5c};
  Bytes memory_;
  std::size_t begin_ = 0, bytes_ = 0;
};

class DeviceReduceCopyTest : public testing::TestWithParam<std::tuple<DataType, ReduceOp>> {
 protected:
  struct Shape {
    std::uint32_t sources = 1, destinations = 1;
    std::size_t count = 0;
    std::vector<std::size_t> offsets_bytes;  // of sources, then of destinations
    int in_place = -1;                       // the source that destination 0 is
    std::uint32_t average_over = 0;
    std::uint32_t threads = 1;
  };

  Shape random_shape() {
    Shape shape;
    shape.sources = static_cast<std::uint32_t>(random_() % 3 == 0 ? 2 : 1 + random_() % 10);
    shape.destinations = static_cast<std::uint32_t>(1 + random_() % 3);
    shape.count = kCounts[random_() % kCounts.size()];
    // How far the addresses agree, in bytes.
    const std::size_t agree_bytes = std::max<std::size_t>(bytes_, std::size_t{1} << random_() % 5);
    const std::size_t common_bytes = random_() % (64 / bytes_) * bytes_;
    for (std::uint32_t i = 0; i < shape.sources + shape.destinations; ++i)
      shape.offsets_bytes.push_back((common_bytes + random_() % 4 * agree_bytes) % 64);
    if (random_() % 3 == 0) shape.in_place = static_cast<int>(random_() % shape.sources);
    const std::array<std::uint32_t, 7> divisors{shape.sources, 2,         3, 1024, 257,
                                                1'000'000'007, UINT32_MAX};
    if (op_ == ReduceOp::kAvg) shape.average_over = divisors[random_() % divisors.size()];
    shape.threads = static_cast<std::uint32_t>(1 + random_() % 4);
    return shape;
  }

  Bytes expected(const std::vector<Bytes>& contents, const Shape& shape) {
    Bytes want(shape.count * bytes_);
    if (is_eight_bit_float(type_)) {
      expect_eight_bits(contents, shape, want);
      return want;
    }
    std::vector<const void*> sources;
    for (const Bytes& source : contents) sources.push_back(source.data());
    void* destination = want.data();
    ReduceCopyArgs args;
    args.sources = sources.data();
    args.source_count = shape.sources;
    args.destinations = &destination;
    args.destination_count = 1;
    args.elements = shape.count;
    args.average_over = shape.average_over;
    reduce_copy_kernel_for("scalar", type_, op_)(args);
    return want;
  }

  void expect_eight_bits(const std::vector<Bytes>& contents, const Shape& shape, Bytes& want) {
    for (std::size_t i = 0; i < shape.count; ++i) {
      auto result = static_cast<float>(decode(contents[0][i]));
      for (std::uint32_t k = 1; k < shape.sources; ++k)
        result = operate(result, static_cast<float>(decode(contents[k][i])));
      if (shape.average_over > 1) result /= static_cast<float>(shape.average_over);
      const bool copied = shape.sources == 1 && shape.average_over <= 1;
      want[i] = copied ? contents[0][i]
                       : static_cast<std::byte>(table_.encode(static_cast<double>(result)));
    }
  }
  [[nodiscard]] double decode(std::byte element) const {
    return table_.decode(static_cast<std::uint64_t>(element));
  }
  [[nodiscard]] float operate(float a, float b) const {
    if (op_ == ReduceOp::kSum || op_ == ReduceOp::kAvg) return a + b;
    if (op_ == ReduceOp::kProd) return a * b;
    if (std::isnan(a) || std::isnan(b)) return NAN;
    const bool max = op_ == ReduceOp::kMax;
    if (a == 0 && b == 0) return std::signbit(a) == max ? b : a;
    return (a > b) == max ? a : b;
  }

  // Runs `shape` on random contents by `run_block(call)` and compares every byte.
  template <class RunBlock>
  void check(const Shape& shape, RunBlock run_block) {
    std::vector<Bytes> contents;
    std::vector<Operand> operands;
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    for (std::uint32_t i = 0; i < shape.sources + shape.destinations; ++i)
      operands.emplace_back(shape.count * bytes_, shape.offsets_bytes[i]);
    for (std::uint32_t k = 0; k < shape.sources; ++k) {
      contents.push_back(random_elements(type_, shape.count, random_));
      std::copy(contents[k].begin(), contents[k].end(), operands[k].data());
      sources.push_back(operands[k].data());
    }
    for (std::uint32_t m = 0; m < shape.destinations; ++m)
      destinations.push_back(operands[shape.sources + m].data());
    if (shape.in_place >= 0) destinations[0] = operands[std::size_t(shape.in_place)].data();
    const Bytes want = expected(contents, shape);

    run_block(DeviceReduceCopy{sources.data(), destinations.data(), shape.sources,
                               shape.destinations, shape.count, shape.average_over});

    for (std::uint32_t m = 0; m < shape.destinations; ++m) {
      const bool in_place = m == 0 && shape.in_place >= 0;
      const std::size_t at = in_place ? std::size_t(shape.in_place) : shape.sources + m;
      ASSERT_EQ(operands[at].contents(), want) << describe(shape) << " destination " << m;
    }
    for (std::uint32_t k = 0; k < shape.sources; ++k)
      ASSERT_TRUE(static_cast<int>(k) == shape.in_place || operands[k].contents() == contents[k])
          << describe(shape) << ": source " << k << " changed";
    for (const Operand& operand : operands) ASSERT_TRUE(operand.guards_intact()) << describe(shape);
  }

  static std::string describe(const Shape& shape) {
    std::ostringstream text;
    text << "k " << shape.sources << " m " << shape.destinations << " count " << shape.count
         << " in place " << shape.in_place << " average over " << shape.average_over << " threads "
         << shape.threads << " offsets";
    for (const std::size_t offset : shape.offsets_bytes) text << ' ' << offset;
    return text.str();
  }

  DataType type_ = std::get<0>(GetParam());
  ReduceOp op_ = std::get<1>(GetParam());
  std::size_t bytes_ = element_bytes(type_);
  EightBitFloats table_{type_};
  std::mt19937_64 random_{kSeed};
};

// Threads share nothing, so that any order of theirs is as good as all at once.
TEST_P(DeviceReduceCopyTest, GivesTheHostsBits) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (int i = 0; i < kShapes; ++i) {
    const Shape shape = random_shape();
    ASSERT_NO_FATAL_FAILURE(check(shape, [&](const DeviceReduceCopy& call) {
      for (std::uint32_t t = shape.threads; t-- > 0;)
        EXPECT_TRUE(emulate(type_, op_, HostThreads{t, shape.threads}, call));
    }));
  }
}

// ThreadSanitizer watches here that no two threads touch one byte.
TEST_P(DeviceReduceCopyTest, ThreadsShareNothing) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (int i = 0; i < 12; ++i) {
    Shape shape = random_shape();
    shape.count = 777;
    shape.threads = 2 + static_cast<std::uint32_t>(i) % 3;
    ASSERT_NO_FATAL_FAILURE(check(shape, [&](const DeviceReduceCopy& call) {
      std::vector<std::jthread> threads;
      for (std::uint32_t t = 0; t < shape.threads; ++t)
        threads.emplace_back([&, t] {
          EXPECT_TRUE(emulate(type_, op_, HostThreads{t, shape.threads}, call));
        });
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceReduceCopyTest,
                         testing::Combine(testing::ValuesIn(kEveryType),
                                          testing::ValuesIn(kEveryOp)),
                         [](const auto& tested) {
                           return std::string(name_of(std::get<0>(tested.param))) + "_" +
                                  std::string(name_of(std::get<1>(tested.param)));
                         });

// As on a device, where the threads of a warp take neighbours: 3 warps of 32.
class DeviceWarps : public DeviceReduceCopyTest {};
TEST_P(DeviceWarps, TakeNeighbours) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (int i = 0; i < 40; ++i) {
    Shape shape = random_shape();
    shape.count = i % 2 == 0 ? 20'011 : 3 * 32 * 8 * 16 / bytes_ + random_() % 100;
    shape.threads = 96;
    ASSERT_NO_FATAL_FAILURE(check(shape, [&](const DeviceReduceCopy& call) {
      for (std::uint32_t t = 0; t < shape.threads; ++t) {
        const BlockThreads threads{t, shape.threads};
        if (call.source_count == 1 && call.average_over <= 1)
          copy_apart(threads, call, static_cast<std::uint32_t>(bytes_));
        else if (type_ == DataType::kFloat32)
          reduce_copy_apart<Fold<Real<float>, Sum>>(threads, call);
        else
          reduce_copy<Fold<BrainFloat16, Sum>>(threads, call);
      }
    }));
  }
}
INSTANTIATE_TEST_SUITE_P(Types, DeviceWarps,
                         testing::Values(std::tuple{DataType::kFloat32, ReduceOp::kSum},
                                         std::tuple{DataType::kBfloat16, ReduceOp::kAvg}));

template <class Fold>
const void* identity() {
  static const char one = 0;
  return &one;
}

TEST(DeviceFolds, EveryTypeAndOperationIsOneOfTheCounted) {
  std::set<const void*> folds;
  for (const DataType type : kEveryType)
    for (const ReduceOp op : kEveryOp) {
      bool right_size = false;
      EXPECT_TRUE(visit_fold(type, op, [&]<class Fold>() {
        folds.insert(identity<Fold>());
        right_size = Fold::kElementBytes == element_bytes(type);
      }));
      EXPECT_TRUE(right_size) << name_of(type) << name_of(op);
    }
  EXPECT_EQ(folds.size(), std::size_t{kFoldCount});
  EXPECT_FALSE(visit_fold(static_cast<DataType>(99), ReduceOp::kSum, []<class Fold>() {}));
  EXPECT_FALSE(visit_fold(DataType::kInt8, static_cast<ReduceOp>(99), []<class Fold>() {}));
}

}  // namespace
}  // namespace tutti::device
