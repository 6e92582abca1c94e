// SPDX-License-Identifier: Apache-2.0
// Throughput of the reduce-copy kernels, in bytes read and written a second (1 GB = 1e9 bytes),
// beside memcpy and beside the loop one would write by hand. Names say everything that matters:
//
//   sum/avx512/float/k:2/m:1/65536    two sources of 65536 bytes each, one destination
//   copy/avx512/k:1/m:1/65536         the same kernel with one source; compare memcpy/65536
//   stream/...                        destinations stored around the cache
//   hand_loop/avx512/float/65536      d[i] = a[i] + b[i], vectorized by the compiler
//
//   bench_kernels --benchmark_filter='/float/.*|hand_loop'
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "kernels/reduce_copy.hpp"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 3> kIsas{"avx512", "avx2", "scalar"};
constexpr std::array<DataType, 10> kTypes{
    DataType::kInt8,    DataType::kUint8,   DataType::kInt32,   DataType::kUint32,
    DataType::kInt64,   DataType::kUint64,  DataType::kFloat16, DataType::kFloat32,
    DataType::kFloat64, DataType::kBfloat16};
constexpr std::size_t kLeastBytes = 1024, kMostBytes = std::size_t{64} << 20;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

// Page-aligned and touched. Offset by a few lines each, so that operands do not share cache sets.
Buffer make_buffer(std::size_t count, std::size_t offset_bytes) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t rounded = (count + offset_bytes + kPageBytes) / kPageBytes * kPageBytes;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, rounded));
  std::memset(memory, 0, rounded);
  return Buffer(memory);
}

struct Case {
  ReduceCopyFn kernel = nullptr;
  std::size_t element_bytes = 1;
  std::uint32_t source_count = 1;
  std::uint32_t destination_count = 1;
  bool stream = false;
};

void run_kernel(benchmark::State& state, const Case& of) {
  const auto operand_bytes = static_cast<std::size_t>(state.range(0));
  std::array<Buffer, 16> buffers;
  std::array<void*, 16> pointers{};
  const std::uint32_t operands = of.source_count + of.destination_count;
  for (std::uint32_t i = 0; i < operands; ++i) {
    const std::size_t offset_bytes = i * 3 * kCacheLineBytes;
    buffers[i] = make_buffer(operand_bytes, offset_bytes);
    pointers[i] = buffers[i].get() + offset_bytes;
  }
  const std::array<const void*, 16> sources = [&] {
    std::array<const void*, 16> constant{};
    for (std::size_t i = 0; i < 16; ++i) constant[i] = pointers[i];
    return constant;
  }();
  ReduceCopyArgs args;
  args.sources = sources.data();
  args.source_count = of.source_count;
  args.destinations = pointers.data() + of.source_count;
  args.destination_count = of.destination_count;
  args.elements = operand_bytes / of.element_bytes;
  args.nontemporal_mask = of.stream ? ~std::uint64_t{0} : 0;
  for (auto _ : state) {
    of.kernel(args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(operands * operand_bytes));
}

void run_memcpy(benchmark::State& state) {
  const auto operand_bytes = static_cast<std::size_t>(state.range(0));
  const Buffer from = make_buffer(operand_bytes, 0);
  const Buffer to = make_buffer(operand_bytes, 3 * kCacheLineBytes);
  for (auto _ : state) {
    std::memcpy(to.get() + 3 * kCacheLineBytes, from.get(), operand_bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(2 * operand_bytes));
}

#if defined(__x86_64__)
#if defined(__clang__)  // it vectorizes without being told, and chooses the width itself
#define TUTTI_VECTORIZED(target_text, gcc_text) target(target_text)
#else
#define TUTTI_VECTORIZED(target_text, gcc_text) target(target_text gcc_text), optimize("O3")
#endif
#define TUTTI_HAND_LOOP(name, target_text, gcc_text)                            \
  __attribute__((TUTTI_VECTORIZED(target_text, gcc_text), noinline)) void name( \
      float* d, const float* a, const float* b, std::size_t n) {                \
    for (std::size_t i = 0; i < n; ++i) d[i] = a[i] + b[i];                     \
  }
TUTTI_HAND_LOOP(hand_loop_avx512, "avx512f", ",prefer-vector-width=512")
TUTTI_HAND_LOOP(hand_loop_avx2, "avx2", "")
TUTTI_HAND_LOOP(hand_loop_scalar, "sse2", "")
constexpr std::array<void (*)(float*, const float*, const float*, std::size_t), 3> kHandLoops{
    hand_loop_avx512, hand_loop_avx2, hand_loop_scalar};

void run_hand_loop(benchmark::State& state, std::size_t isa) {
  const auto operand_bytes = static_cast<std::size_t>(state.range(0));
  const std::size_t n = operand_bytes / sizeof(float);
  std::array<Buffer, 3> buffers;
  std::array<float*, 3> pointers{};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t offset_bytes = i * 3 * kCacheLineBytes;
    buffers[i] = make_buffer(operand_bytes, offset_bytes);
    pointers[i] = reinterpret_cast<float*>(buffers[i].get() + offset_bytes);
  }
  for (auto _ : state) {
    kHandLoops[isa](pointers[2], pointers[0], pointers[1], n);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(3 * operand_bytes));
}
#endif

template <typename Function>
void add(const std::string& name, Function function) {
  benchmark::RegisterBenchmark(name.c_str(), function)
      ->RangeMultiplier(4)
      ->Range(kLeastBytes, kMostBytes);
}

void add_isa(std::size_t isa_index) {
  const std::string isa(kIsas[isa_index]);
  const ReduceCopyFn float_sum = reduce_copy_kernel_for(isa, DataType::kFloat32, ReduceOp::kSum);
  if (float_sum == nullptr) return;  // not on this machine
#if defined(__x86_64__)
  add("hand_loop/" + isa + "/float",
      [isa_index](benchmark::State& state) { run_hand_loop(state, isa_index); });
#endif
  for (const std::uint32_t m : {1u, 2u}) {
    const std::string counts = "/k:1/m:" + std::to_string(m);
    add("copy/" + isa + counts, [=](benchmark::State& state) {
      run_kernel(state, {float_sum, 4, 1, m, false});
    });
    add("stream/" + isa + counts, [=](benchmark::State& state) {
      run_kernel(state, {float_sum, 4, 1, m, true});
    });
  }
  for (const DataType type : kTypes)
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax})
      for (const std::uint32_t k : {2u, 3u, 8u})
        for (const std::uint32_t m : {1u, 2u}) {
          const ReduceCopyFn kernel = reduce_copy_kernel_for(isa, type, op);
          const std::string name = isa + "/" + std::string(name_of(type)) +
                                   "/k:" + std::to_string(k) + "/m:" + std::to_string(m);
          const std::size_t bytes = element_bytes(type);
          add(std::string(name_of(op)) + "/" + name, [=](benchmark::State& state) {
            run_kernel(state, {kernel, bytes, k, m, false});
          });
          if (op == ReduceOp::kSum && k == 2)
            add("stream/" + name, [=](benchmark::State& state) {
              run_kernel(state, {kernel, bytes, k, m, true});
            });
        }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  benchmark::AddCustomContext("tutti_kernel_isa", std::string(tutti::kernel_isa()));
  tutti::add("memcpy", tutti::run_memcpy);
  for (std::size_t isa = 0; isa < tutti::kIsas.size(); ++isa) tutti::add_isa(isa);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
