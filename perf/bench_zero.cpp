// SPDX-License-Identifier: Apache-2.0
// Throughput of the sharded optimizer's loops, in bytes read and written a second (1 GB = 1e9
// bytes), each as a share of the rate of a copy that is measured in the same run, both by the
// thread's processor time, so that other load on the machine disturbs the share little:
//
//   adamw/avx512/fp32/16777216    one step on so many elements: reads gradients, moments and
//                                 parameters, writes moments and parameters, 28 bytes an element
//   adamw/avx512/bf16/16777216    the same, and writes the 16-bit copy
//   copy/16777216                 memcpy, 8 bytes an element; shares are of this rate
//
//   bench_zero --benchmark_filter='copy|adamw/avx512'
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "zero/kernels.hpp"
#include "zero/optimizer.hpp"

namespace tutti::zero {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr std::int64_t kInCache = 1 << 14, kInMemory = 1 << 24;

std::map<std::int64_t, double>& copy_rates() {
  static std::map<std::int64_t, double> rates;
  return rates;
}

// The rate of a copy, by the same clock as what follows it.
double copy_rate(std::int64_t elements) {
  double& rate = copy_rates()[elements];
  if (rate != 0) return rate;
  const auto count = static_cast<std::size_t>(elements);
  std::vector<float> from(count, 1.0F), into(count);
  const std::int64_t repetitions = std::max<std::int64_t>(5, (std::int64_t{1} << 28) / elements);
  for (int trial = 0; trial < 5; ++trial) {
    const double begin = thread_seconds();
    for (std::int64_t i = 0; i < repetitions; ++i) {
      std::memcpy(into.data(), from.data(), count * sizeof(float));
      benchmark::ClobberMemory();
    }
    rate = std::max(rate,
                    8.0 * static_cast<double>(elements * repetitions) / (thread_seconds() - begin));
  }
  return rate;
}

struct Arrays {
  explicit Arrays(std::int64_t elements)
      : parameters(static_cast<std::size_t>(elements), 1.0F),
        first(parameters),
        second(parameters),
        gradients(parameters),
        copy(parameters.size()) {}
  StepOperands operands(Number number) {
    return {parameters.data(),
            first.data(),
            second.data(),
            gradients.data(),
            number == Number::kFloat32 ? nullptr : copy.data(),
            number};
  }
  std::vector<float> parameters, first, second, gradients;
  std::vector<std::uint16_t> copy;
};

template <typename Step>
void run(benchmark::State& state, double bytes_each, Step&& step) {
  const double share_of = copy_rate(state.range(0));
  double spent = 0;
  for (auto _ : state) {
    const double begin = thread_seconds();
    step();
    benchmark::ClobberMemory();
    spent += thread_seconds() - begin;
  }
  const double bytes =
      static_cast<double>(state.range(0)) * bytes_each * static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
  state.counters["of_copy"] = bytes / spent / share_of;
}

void adamw(benchmark::State& state, const Kernels& use, Number number) {
  Arrays arrays(state.range(0));
  const AdamWTerms terms = terms_of(AdamW{}, 10, 1);
  run(state, number == Number::kFloat32 ? 28 : 30,
      [&] { use.adamw(terms, arrays.operands(number), arrays.parameters.size()); });
}

void sgd(benchmark::State& state, const Kernels& use) {
  Arrays arrays(state.range(0));
  const SgdTerms terms = terms_of(Sgd{.momentum = 0.9F}, 10, 1);
  run(state, 20,
      [&] { use.sgd(terms, arrays.operands(Number::kFloat32), arrays.parameters.size()); });
}

void copy(benchmark::State& state) {
  Arrays arrays(state.range(0));
  run(state, 8, [&] {
    std::memcpy(arrays.first.data(), arrays.second.data(), arrays.first.size() * sizeof(float));
  });
}

void squares(benchmark::State& state, const Kernels& use) {
  Arrays arrays(state.range(0));
  std::int64_t sum = 0;
  run(state, 4, [&] {
    for (std::size_t at = 0; at < arrays.gradients.size(); at += kSquaresAtOnce)
      sum += use.sum_squares(arrays.gradients.data() + at, kSquaresAtOnce, 1);
    benchmark::DoNotOptimize(sum);
  });
}

void add(benchmark::State& state, const Kernels& use) {
  Arrays arrays(state.range(0));
  run(state, 12, [&] { use.add(arrays.first.data(), arrays.second.data(), arrays.first.size()); });
}

void register_all() {
  const auto with = [](const std::string& name, auto function) {
    benchmark::RegisterBenchmark(name.c_str(), function)->Arg(kInCache)->Arg(kInMemory);
  };
  with("copy", copy);
  for (const Kernels* const use : all_kernels()) {
    const std::string isa = use->name;
    with("adamw/" + isa + "/fp32",
         [use](benchmark::State& state) { adamw(state, *use, Number::kFloat32); });
    with("adamw/" + isa + "/bf16",
         [use](benchmark::State& state) { adamw(state, *use, Number::kBfloat16); });
    with("adamw/" + isa + "/fp16",
         [use](benchmark::State& state) { adamw(state, *use, Number::kFloat16); });
    with("sgd/" + isa, [use](benchmark::State& state) { sgd(state, *use); });
    with("squares/" + isa, [use](benchmark::State& state) { squares(state, *use); });
    with("add/" + isa, [use](benchmark::State& state) { add(state, *use); });
  }
}

}  // namespace
}  // namespace tutti::zero

int main(int argc, char** argv) {
  tutti::zero::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
