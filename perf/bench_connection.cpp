// SPDX-License-Identifier: Apache-2.0
// What one message costs on a connection in shared memory, between two threads on two cores.
//
//   bench_connection [--benchmark_filter=...]
//
// PingPong: half of a round trip of messages that are written and read in place, "one_way_ns".
// Stream: one direction as fast as credits allow, payload copied in and out (the two copies of a
// transfer through the inbox), in bytes per second of payload. The connection's memory comes from a
// real segment. With fewer than two cores the figures mean little; nothing is pinned then.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "perf/common/pin.hpp"
#include "transports/connection_ops.hpp"
#include "transports/shm/segment.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kStop = UINT64_MAX;  // signature that ends the other thread
constexpr std::uint64_t kMessage = 1;
constexpr std::uint64_t kArenaBytes = std::uint64_t{1} << 20;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Alone on a processor or not at all: on one that is shared a thread waits for the other's slice.
void pin(int nth) {
  if (perf::allowed_processors().size() >= 2) perf::bind_to_processor(nth);
}

// Two ends of a connection in each direction between rank 0 (this thread) and rank 1.
struct Rig {
  std::optional<shm::Segment> segments[2];
  ConnectionState states[2][2];  // [receiving rank][0: sender, 1: receiver]

  explicit Rig(benchmark::State& run) {
    const auto file = shm::SegmentFile::create({2, kArenaBytes}, 2, 0, shm::Backing::kAuto);
    if (!file)
      run.SkipWithError(file.error().message.c_str());
    else
      for (Rank rank : {0, 1}) segments[rank] = file->at(rank);
  }
  [[nodiscard]] bool ready() const { return segments[1].has_value(); }

  // The end of the connection into `destination` that its sender (0) or receiver (1) holds.
  [[nodiscard]] Connection open(Rank destination, std::size_t end, Protocol protocol,
                                std::uint64_t bytes, std::uint32_t slots) {
    const shm::Segment& segment = *segments[destination];
    PairArea& pair = segment.pair(1 - destination);
    Connection c;
    c.protocol = protocol;
    c.slots = slots;
    c.words = &pair.words[0];
    c.state = &states[destination][end];
    c.cells = pair.cells;
    c.cells_per_slot = cells_for(bytes);
    c.arena = segment.arena();
    c.slot_bytes = kSlotHeaderBytes + (bytes + 63) / 64 * 64;
    begin_operation(c, 1);
    return c;
  }
};

// Messages alternate over a cell's pieces as the executor's kernels do.
void write_message(Connection& c, const std::byte* from, std::uint64_t bytes,
                   std::uint64_t signature) {
  while (!can_send(c)) relax();
  const SlotView view = send_slot(c);
  for (std::uint64_t at = 0, piece = 0; at < bytes; at += view.segment_bytes, ++piece) {
    std::memcpy(view.base + piece * view.segment_stride, from + at,
                std::min<std::uint64_t>(view.segment_bytes, bytes - at));
  }
  commit(c, signature, bytes);
}

std::uint64_t read_message(Connection& c, std::byte* to, std::uint64_t bytes) {
  while (!can_recv(c)) relax();
  const std::uint64_t signature = recv_signature(c);
  const SlotView view = recv_slot(c);
  for (std::uint64_t at = 0, piece = 0; at < bytes; at += view.segment_bytes, ++piece) {
    std::memcpy(to + at, view.base + piece * view.segment_stride,
                std::min<std::uint64_t>(view.segment_bytes, bytes - at));
  }
  benchmark::DoNotOptimize(to);
  benchmark::ClobberMemory();  // the copy is the work: nobody reads it afterwards
  return signature;
}

void ping_pong(benchmark::State& run, Protocol protocol) {
  const auto bytes = static_cast<std::uint64_t>(run.range(0));
  const auto slots = static_cast<std::uint32_t>(run.range(1));
  Rig rig(run);
  if (!rig.ready()) return;
  pin(0);
  std::thread peer([&] {
    pin(1);
    std::vector<std::byte> data(bytes);
    Connection in = rig.open(1, 1, protocol, bytes, slots);
    Connection out = rig.open(0, 0, protocol, bytes, slots);
    std::uint64_t signature = 0;
    do {
      signature = read_message(in, data.data(), bytes);
      write_message(out, data.data(), bytes, signature);
      release(in);
    } while (signature != kStop);
  });
  std::vector<std::byte> data(bytes, std::byte{1});
  Connection out = rig.open(1, 0, protocol, bytes, slots);
  Connection in = rig.open(0, 1, protocol, bytes, slots);
  const auto turn = [&](std::uint64_t signature) {
    write_message(out, data.data(), bytes, signature);
    read_message(in, data.data(), bytes);
    release(in);
  };
  for (auto _ : run) turn(kMessage);
  turn(kStop);
  peer.join();
  // Seconds for half a turn, printed with an SI prefix: 85n is 85 ns.
  run.counters["one_way_s"] =
      benchmark::Counter(2 * static_cast<double>(run.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void PingPongFlagged(benchmark::State& run) { ping_pong(run, Protocol::kFlagged); }
void PingPongSlots(benchmark::State& run) { ping_pong(run, Protocol::kSlots); }
BENCHMARK(PingPongFlagged)
    ->ArgNames({"bytes", "slots"})
    ->Args({8, 2})
    ->Args({8, 4})
    ->Args({8, 16})
    ->Args({48, 2})
    ->Args({48, 16})
    ->Args({1024, 2})
    ->Args({1024, 5})
    ->Args({3968, 2})
    ->UseRealTime();
BENCHMARK(PingPongSlots)
    ->ArgNames({"bytes", "slots"})
    ->Args({8, 2})
    ->Args({1024, 2})
    ->Args({4096, 2})
    ->Args({65536, 2})
    ->UseRealTime();

void stream(benchmark::State& run, Protocol protocol) {
  const auto bytes = static_cast<std::uint64_t>(run.range(0));
  const auto slots = static_cast<std::uint32_t>(run.range(1));
  Rig rig(run);
  if (!rig.ready()) return;
  pin(0);
  std::thread peer([&] {
    pin(1);
    std::vector<std::byte> data(bytes);
    Connection in = rig.open(1, 1, protocol, bytes, slots);
    std::uint64_t signature = 0;
    do {
      signature = read_message(in, data.data(), bytes);
      release(in);
    } while (signature != kStop);
  });
  const std::vector<std::byte> data(bytes, std::byte{1});
  Connection out = rig.open(1, 0, protocol, bytes, slots);
  for (auto _ : run) write_message(out, data.data(), bytes, kMessage);
  write_message(out, data.data(), bytes, kStop);
  peer.join();
  run.SetBytesProcessed(static_cast<std::int64_t>(bytes) * run.iterations());
}

void StreamFlagged(benchmark::State& run) { stream(run, Protocol::kFlagged); }
void StreamSlots(benchmark::State& run) { stream(run, Protocol::kSlots); }
BENCHMARK(StreamFlagged)->ArgNames({"bytes", "slots"})->Args({3968, 2})->UseRealTime();
BENCHMARK(StreamSlots)
    ->ArgNames({"bytes", "slots"})
    ->Args({4096, 4})
    ->Args({16384, 4})
    ->Args({65536, 2})
    ->Args({65536, 4})
    ->Args({65536, 8})
    ->UseRealTime();

}  // namespace
}  // namespace tutti

BENCHMARK_MAIN();
