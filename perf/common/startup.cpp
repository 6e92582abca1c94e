// SPDX-License-Identifier: Apache-2.0
#include "common/startup.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "common/buffer.hpp"

namespace tutti::perf {
namespace {

double ms_since(std::int64_t start_ns) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - start_ns;
  return static_cast<double>(ns) / 1e6;
}

// In place, a vector of ones: afterwards every element is the number of ranks.
void all_reduce_ones(ThreadRanks& ranks, std::vector<GuardedBuffer>& buffers) {
  constexpr std::size_t kCount = kStartupBytes / sizeof(float);
  const auto values = [&](int i) {
    return reinterpret_cast<float*>(buffers[static_cast<std::size_t>(i)].data());
  };
  for (int i = 0; i < ranks.count(); ++i) std::fill_n(values(i), kCount, 1.0f);
  ranks.for_each(false, [&](int i) {
    return tuttiAllReduce(values(i), values(i), kCount, tuttiFloat32, tuttiSum, ranks.comm(i).get(),
                          nullptr);
  });
  const auto want = static_cast<float>(ranks.all_ranks());
  for (int i = 0; i < ranks.count(); ++i)
    if (std::any_of(values(i), values(i) + kCount, [&](float v) { return v != want; }))
      throw Exception(tuttiInternalError, "wrong result in the startup measurement");
}

double mib(double bytes) { return bytes / 0x1p20; }

}  // namespace

std::uint64_t startup_buffer_bytes() { return GuardedBuffer(kStartupBytes).mapped_bytes(); }

std::string measure_startup(ThreadRanks& ranks, const StartupPlace& place) {
  std::vector<float> ones(static_cast<std::size_t>(ranks.count()), 1.0f);
  ranks.for_each(false, [&](int i) {
    float* mine = &ones[static_cast<std::size_t>(i)];
    return tuttiAllReduce(mine, mine, 1, tuttiFloat32, tuttiSum, ranks.comm(i).get(), nullptr);
  });
  const double first_result_ms = ms_since(place.start_ns);
  if (ones[0] != static_cast<float>(ranks.all_ranks()))
    throw Exception(tuttiInternalError, "wrong first result");
  const double slowest_ms = ranks.reduce_one(first_result_ms, tuttiMax);

  std::vector<GuardedBuffer> buffers;
  for (int i = 0; i < ranks.count(); ++i) buffers.emplace_back(kStartupBytes);
  all_reduce_ones(ranks, buffers);
  ranks.barrier();
  // {segments, anonymous growth, processes that could tell, bytes mapped by the library}
  constexpr std::size_t kWidth = 4;
  std::vector<double> mine(kWidth * static_cast<std::size_t>(ranks.count()), 0.0);
  const auto after = place.first_thread ? memory_use() : std::nullopt;
  if (after && place.before_init) {
    mine[0] = static_cast<double>(after->shared_part_bytes) -
              static_cast<double>(place.before_init->shared_part_bytes);
    mine[1] = static_cast<double>(after->anonymous_bytes) -
              static_cast<double>(place.before_init->anonymous_bytes) -
              static_cast<double>(place.process_buffer_bytes);
    mine[2] = 1;
  }
  for (int i = 0; i < ranks.count(); ++i)
    mine[static_cast<std::size_t>(i) * kWidth + 3] =
        static_cast<double>(ranks.comm(i).info().mappedBytes);
  const auto sum = ranks.reduce(std::move(mine), kWidth, tuttiSum);

  std::string text = fmt::format(
      "# {:<20} : {:.1f} ms from {} to the first result "
      "(slowest of {} ranks, {} processes)\n",
      "Startup", slowest_ms, place.start, ranks.all_ranks(), place.processes);
  if (static_cast<int>(sum[2]) != place.processes)
    return text + fmt::format("# {:<20} : not available (no /proc/self/smaps_rollup)\n", "Memory");
  return text + fmt::format(
                    "# {:<20} : segments {:.2f} MiB + anonymous growth {:.2f} MiB = "
                    "{:.2f} MiB for all ranks after a 64 MiB all-reduce; mapped {:.2f} "
                    "MiB\n",
                    "Memory", mib(sum[0]), mib(sum[1]), mib(sum[0] + sum[1]), mib(sum[3]));
}

}  // namespace tutti::perf
