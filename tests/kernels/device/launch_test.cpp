// SPDX-License-Identifier: Apache-2.0
// Launching the kernels: what is refused, and, where there is a GPU, that it writes the bytes that
// the same source writes on the host, and no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/reduce_copy_kernel.hpp"
#include "tests/kernels/device/device_memory.hpp"
#include "tests/kernels/device/emulation.hpp"
#include "tests/kernels/device/random_elements.hpp"

namespace tutti::device {
namespace {

constexpr unsigned kSeed = 8086;

TEST(DeviceLaunch, SaysWhyThereIsNoDevice) {
  const Status usable = kernels_usable();
  if (usable) GTEST_SKIP() << "there is a device";
  EXPECT_EQ(usable.error().code, Code::kNotSupported) << usable.error().message;
  const bool says = usable.error().message.find("CUDA") != std::string::npos;
  EXPECT_TRUE(says) << usable.error().message;
}

TEST(DeviceLaunch, RefusesWhatItCannotRun) {
  std::vector<const void*> sources(65);
  std::vector<void*> destinations(65);
  const auto code = [&](DataType type, std::uint32_t k, std::uint32_t m) {
    const Status done =
        launch_reduce_copy(type, ReduceOp::kSum, {sources.data(), destinations.data(), k, m, 0, 0});
    return done ? Code::kSuccess : done.error().code;
  };
  if (code(DataType::kInt8, 1, 1) == Code::kNotSupported) GTEST_SKIP() << "built without CUDA";
  EXPECT_EQ(code(DataType::kInt8, 64, 64), Code::kSuccess);  // no elements: nothing to launch
  EXPECT_EQ(code(DataType::kInt8, 0, 1), Code::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, 1, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, 65, 1), Code::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, 2, 65), Code::kInvalidArgument);
  EXPECT_EQ(code(static_cast<DataType>(99), 2, 1), Code::kInvalidArgument);
}

// Operands in one stretch of memory, of which the host and the device have the same contents.
class DeviceLaunchGpu : public testing::Test {
 protected:
  void SetUp() override {
    const Status usable = kernels_usable();
    if (!usable) GTEST_SKIP() << usable.error().message;
  }

  struct Layout {
    std::uint32_t sources = 0, destinations = 0;
    std::size_t count = 0;
    std::vector<std::size_t> starts_bytes;  // of sources, then of destinations
    std::uint32_t average_over = 0;
    std::size_t total_bytes = 0;
  };

  Layout random_layout() {
    Layout layout;
    layout.sources = static_cast<std::uint32_t>(random_() % 3 == 0 ? 2 : 1 + random_() % 10);
    layout.destinations = static_cast<std::uint32_t>(1 + random_() % 3);
    constexpr std::array<std::size_t, 7> kCounts{1, 7, 16, 255, 1000, 16'384, 100'003};
    layout.count = kCounts[random_() % kCounts.size()];
    const std::size_t agree_bytes = std::max<std::size_t>(bytes_, std::size_t{1} << random_() % 5);
    const std::size_t common_bytes = random_() % (64 / bytes_) * bytes_;
    std::size_t at_bytes = 256;
    for (std::uint32_t i = 0; i < layout.sources + layout.destinations; ++i) {
      layout.starts_bytes.push_back(at_bytes + common_bytes + random_() % 4 * agree_bytes);
      at_bytes += (layout.count * bytes_ + 511) / 256 * 256;
    }
    layout.total_bytes = at_bytes + 256;
    if (random_() % 3 == 0)  // in place
      layout.starts_bytes[layout.sources] = layout.starts_bytes[random_() % layout.sources];
    const std::array<std::uint32_t, 5> divisors{layout.sources, 2, 3, 257, UINT32_MAX};
    if (op_ == ReduceOp::kAvg) layout.average_over = divisors[random_() % divisors.size()];
    return layout;
  }

  // The call on memory that begins at `base`, by `run`.
  template <class Run>
  static auto with_call(const Layout& layout, std::byte* base, Run run) {
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    for (std::uint32_t k = 0; k < layout.sources; ++k)
      sources.push_back(base + layout.starts_bytes[k]);
    for (std::uint32_t m = 0; m < layout.destinations; ++m)
      destinations.push_back(base + layout.starts_bytes[layout.sources + m]);
    return run(DeviceReduceCopy{sources.data(), destinations.data(), layout.sources,
                                layout.destinations, layout.count, layout.average_over});
  }

  // The device and the host do `layout` on `contents`: afterwards all bytes are alike.
  void compare(const Layout& layout, std::vector<std::byte> contents, int blocks);

  DataType type_ = DataType::kInt8;
  ReduceOp op_ = ReduceOp::kSum;
  std::size_t bytes_ = 1;
  std::mt19937_64 random_{kSeed};
};

void DeviceLaunchGpu::compare(const Layout& layout, std::vector<std::byte> contents, int blocks) {
  DeviceMemory memory(contents);
  with_call(layout, contents.data(),
            [&](const DeviceReduceCopy& call) { return emulate(type_, op_, HostThreads{}, call); });
  const Status launched = with_call(layout, memory.data(), [&](const DeviceReduceCopy& call) {
    return launch_reduce_copy(type_, op_, call, nullptr, blocks);
  });
  ASSERT_TRUE(launched) << launched.error().message;
  const std::vector<std::byte> got = memory.contents();
  const auto differ = std::mismatch(got.begin(), got.end(), contents.begin());
  ASSERT_TRUE(differ.first == got.end())
      << name_of(type_) << " " << name_of(op_) << ": byte " << differ.first - got.begin() << " is "
      << static_cast<int>(*differ.first) << ", not " << static_cast<int>(*differ.second) << ": k "
      << layout.sources << " m " << layout.destinations << " count " << layout.count
      << " average over " << layout.average_over << " blocks " << blocks;
}

TEST_F(DeviceLaunchGpu, WritesTheHostsBytes) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const DataType type : kEveryType)
    for (const ReduceOp op : kEveryOp)
      for (int i = 0; i < 12; ++i) {
        type_ = type, op_ = op, bytes_ = element_bytes(type);
        const Layout layout = random_layout();
        ASSERT_NO_FATAL_FAILURE(
            compare(layout, random_elements(type_, layout.total_bytes / bytes_, random_),
                    static_cast<int>(random_() % 8)));
      }
}

// Two sources of all patterns of 16 bits: one element each beside `addend`, or two of 8 bits.
std::vector<std::byte> every_pattern(std::size_t width_bytes, std::uint16_t addend) {
  constexpr std::size_t kPatterns = 65'536;
  std::vector<std::byte> bytes(3 * kPatterns * width_bytes);
  for (std::size_t i = 0; i < kPatterns; ++i) {
    const auto pattern = static_cast<std::uint16_t>(i);
    const auto other = static_cast<std::uint16_t>(width_bytes == 1 ? pattern >> 8 : addend);
    std::memcpy(&bytes[i * width_bytes], &pattern, width_bytes);  // little-endian
    std::memcpy(&bytes[(kPatterns + i) * width_bytes], &other, width_bytes);
  }
  return bytes;
}

// The device's own conversions and selections see every 16-bit float, and every pair of 8-bit ones.
TEST_F(DeviceLaunchGpu, EverySmallFloat) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const DataType type :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2})
    for (const ReduceOp op : kEveryOp)
      for (std::uint32_t round = 0; round < 4; ++round) {
        type_ = type, op_ = op, bytes_ = element_bytes(type);
        constexpr std::uint16_t kMinusZero = 0x8000;
        const auto addend = round == 0 ? kMinusZero : static_cast<std::uint16_t>(random_());
        std::vector<std::byte> contents = every_pattern(bytes_, addend);
        const std::size_t operand_bytes = contents.size() / 3;
        const Layout layout{.sources = 2,
                            .destinations = 1,
                            .count = operand_bytes / bytes_,
                            .starts_bytes = {0, operand_bytes, 2 * operand_bytes},
                            .average_over = op == ReduceOp::kAvg ? 3 + round : 0,
                            .total_bytes = contents.size()};
        ASSERT_NO_FATAL_FAILURE(compare(layout, std::move(contents), 0));
      }
}

}  // namespace
}  // namespace tutti::device
