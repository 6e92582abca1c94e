// SPDX-License-Identifier: Apache-2.0
// Throughput of the reduce-copy kernel on the current GPU, beside the copy bandwidth that the same
// run measured: "share" is the time that the bytes must take at that bandwidth over the time taken.
//
//   bench_device_kernels [--mib 256] [--types float,bfloat16] [--json FILE]
//
// Operands of --mib MiB each, larger than any cache; 10 launches between two events, the median of
// 9 such samples and how far the middle half of them lies apart. GB = 1e9 bytes, read and written.
#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/flags.hpp"
#include "device_words/cuda_calls.hpp"
#include "kernels/device/reduce_copy_kernel.hpp"

namespace tutti {
namespace {

constexpr int kLaunches = 10, kSamples = 9;
constexpr std::uint32_t kMostOperands = 9;  // 8 sources, one destination

struct Case {
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t sources = 1, destinations = 1;
  std::size_t misaligned_bytes = 0;  // of the destinations
};
constexpr std::array kCases{
    Case{.sources = 1, .destinations = 1},
    Case{.sources = 1, .destinations = 2},
    Case{.sources = 2, .destinations = 1},
    Case{.sources = 2, .destinations = 2},
    Case{.sources = 3, .destinations = 1},
    Case{.sources = 8, .destinations = 1},
    Case{.op = ReduceOp::kMax, .sources = 2},
    Case{.op = ReduceOp::kAvg, .sources = 2},  // over 3: a division
    Case{.sources = 2, .misaligned_bytes = 8},
};

struct Sample {
  double median_s = 0, spread = 0;  // spread: middle half over median
};

using perf::check;
void check(const Status& done) {
  if (done) return;
  fmt::print(stderr, "bench_device_kernels: {}\n", done.error().message);
  std::exit(1);
}

// The time of one `launch`.
template <class Launch>
Sample measure(Launch launch) {
  std::vector<double> seconds = perf::Stopwatch().seconds(kSamples, [&] {
    for (int i = 0; i < kLaunches; ++i) launch();
  });
  for (double& sample : seconds) sample /= kLaunches;
  const double median_s = seconds[kSamples / 2];
  return {median_s, (seconds[kSamples * 3 / 4] - seconds[kSamples / 4]) / median_s};
}

class Bench {
 public:
  explicit Bench(std::size_t operand_bytes) : operand_bytes_(operand_bytes) {
    const std::size_t apart_bytes = operand_bytes + 4096;
    void* memory = nullptr;
    check(cudaMalloc(&memory, kMostOperands * apart_bytes), "cannot allocate the operands");
    check(cudaMemset(memory, 0, kMostOperands * apart_bytes), "cannot clear the operands");
    for (std::uint32_t i = 0; i < kMostOperands; ++i)
      operands_[i] = static_cast<std::byte*>(memory) + i * apart_bytes;
  }
  ~Bench() { cudaFree(operands_[0]); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Bytes a second that a copy by the driver reads and writes.
  void measure_copy() {
    const Sample copy = measure([&] {
      check(cudaMemcpyAsync(operands_[1], operands_[0], operand_bytes_, cudaMemcpyDeviceToDevice),
            "cannot copy");
    });
    copy_bytes_per_s_ = 2.0 * static_cast<double>(operand_bytes_) / copy.median_s;
    print("cudaMemcpy", "-", {}, copy);
  }

  void run(DataType type, const Case& of) {
    std::vector<const void*> sources(operands_.begin(), operands_.begin() + of.sources);
    std::vector<void*> destinations;
    for (std::uint32_t m = 0; m < of.destinations; ++m)
      destinations.push_back(operands_[of.sources + m] + of.misaligned_bytes);
    const device::DeviceReduceCopy call{sources.data(),
                                        destinations.data(),
                                        of.sources,
                                        of.destinations,
                                        operand_bytes_ / element_bytes(type),
                                        of.op == ReduceOp::kAvg ? 3u : 0u};
    const Sample taken = measure([&] { check(device::launch_reduce_copy(type, of.op, call)); });
    print(of.sources == 1 ? "copy" : name_of(of.op), name_of(type), of, taken);
  }

  [[nodiscard]] const nlohmann::json& rows() const { return rows_; }

 private:
  void print(std::string_view what, std::string_view type, const Case& of, const Sample& taken) {
    const double bytes = static_cast<double>(operand_bytes_) * (of.sources + of.destinations);
    const double bytes_per_s = bytes / taken.median_s, share = bytes_per_s / copy_bytes_per_s_;
    fmt::print("{:>10} {:>10} {:2} {:2} {:5} {:11.1f} {:9.1f} {:7.1f} % {:7.1f} %\n", what, type,
               of.sources, of.destinations, of.misaligned_bytes, taken.median_s * 1e6,
               bytes_per_s / 1e9, share * 100, taken.spread * 100);
    rows_.push_back({{"operation", what},
                     {"type", type},
                     {"sources", of.sources},
                     {"destinations", of.destinations},
                     {"misaligned_bytes", of.misaligned_bytes},
                     {"operand_bytes", operand_bytes_},
                     {"median_s", taken.median_s},
                     {"bytes_per_s", bytes_per_s},
                     {"share_of_copy", share},
                     {"spread", taken.spread}});
  }

  std::size_t operand_bytes_;
  std::array<std::byte*, kMostOperands> operands_{};
  double copy_bytes_per_s_ = 0;
  nlohmann::json rows_ = nlohmann::json::array();
};

// The types of the command line, or none after a line that says which is not one.
std::vector<DataType> parse_types(const std::vector<std::string>& names) {
  std::vector<DataType> types;
  for (const std::string& name : names) {
    const std::optional<DataType> type = parse_data_type(name);
    if (!type) {
      fmt::print(stderr,
                 "bench_device_kernels: --types: '{}' is not a data type; example: float,f8e4m3\n",
                 name);
      return {};
    }
    types.push_back(*type);
  }
  return types;
}

int run(std::size_t mib, const std::vector<DataType>& types, const std::string& json_path) {
  if (const Status usable = device::kernels_usable(); !usable) {
    fmt::print("bench_device_kernels: skipped: {}\n", usable.error().message);
    return 0;
  }
  Bench bench(mib << 20);
  fmt::print("# {} MiB an operand; share: of the copy bandwidth of the first line\n", mib);
  fmt::print("{:>10} {:>10} {:>2} {:>2} {:>5} {:>11} {:>9} {:>9} {:>9}\n", "operation", "type", "k",
             "m", "off B", "time us", "GB/s", "share", "spread");
  bench.measure_copy();
  for (const DataType type : types)
    for (const Case& of : kCases) bench.run(type, of);
  if (json_path.empty()) return 0;
  std::ofstream file(json_path);
  file << bench.rows().dump(1) << '\n';
  if (file.flush()) return 0;
  fmt::print(stderr, "bench_device_kernels: --json: cannot write {}\n", json_path);
  return 1;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  std::size_t mib = 256;
  std::vector<std::string> types{"float", "bfloat16", "half", "double", "int8", "f8e4m3"};
  std::string json_path;
  CLI::App app("Measures the reduce-copy kernel's throughput beside the GPU's copy bandwidth.",
               "bench_device_kernels");
  app.add_option("--mib", mib, "MiB of each of 9 operands")->check(CLI::Range(1, 8192));
  app.add_option("--types", types, "types, separated by commas")->delimiter(',');
  app.add_option("--json", json_path, "write all numbers to this file");
  if (const auto ends = tutti::perf::parse_flags(app, argc, argv)) return *ends;
  const std::vector<tutti::DataType> parsed = tutti::parse_types(types);
  return parsed.empty() ? 2 : tutti::run(mib, parsed, json_path);
}
