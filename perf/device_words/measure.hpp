// SPDX-License-Identifier: Apache-2.0
// Measures, on any machine (probe.hpp), the figures that need no CUDA graph.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device_words/bodies.hpp"
#include "device_words/words.hpp"
#include "kernels/device/folds.hpp"

namespace tutti::probe {

// Of samples, sorted here.
[[nodiscard]] inline Figure figure_of(std::string name, std::string unit,
                                      std::vector<double> samples) {
  std::ranges::sort(samples);
  const std::size_t count = samples.size();
  const double median = samples[count / 2];
  const double width = samples[count * 3 / 4] - samples[count / 4];
  return {std::move(name), std::move(unit), median, median != 0 ? width / 2 / median : 0};
}

[[nodiscard]] inline std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

template <class Machine>
class Measurement {
 public:
  Measurement(Machine& machine, Words& words) : machine_(machine), words_(words) {
    told_ = machine.template allocate<Told>(1);
    stored_ = machine.template allocate<std::byte>(Fences::kTurns * 16 * Machine::kThreads);
  }

  void latencies() {
    chase();
    const double barriers_ns = barrier();
    for (const bool one_device : {true, false})
      for (const bool stores : {false, true}) fence(barriers_ns, stores, one_device);
    packets<PacketFormat::kLl8>("ll8");
    packets<PacketFormat::kLl16>("ll16");
    packets<PacketFormat::kLl128>("ll128");
    for (const bool one_device : {true, false})
      for (const std::uint32_t bytes : {16U, kLargeBytes}) slots(bytes, one_device);
  }

  // Of `operand_bytes` each a destination and up to eight sources, more than a cache holds.
  void bandwidths(std::uint64_t operand_bytes) {
    constexpr std::uint32_t kMostSources = 8;
    std::byte* const operands =
        machine_.template allocate<std::byte>((kMostSources + 1) * operand_bytes);
    for (const std::uint32_t sources : {1U, 2U, 3U, kMostSources})
      for (const std::uint32_t blocks : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 0U})
        if (blocks < machine_.blocks()) move(operands, operand_bytes, sources, blocks);
  }

 private:
  static constexpr int kSamples = 9;
  static constexpr std::uint32_t kLargeBytes = 8 << 10;

  // What a body says that it took, some times; `prepare(i)` makes it ready for the i-th.
  template <class Body, class Prepare>
  std::vector<double> samples_of(const std::string& what, std::uint32_t blocks, const Body& body,
                                 Prepare prepare) {
    std::vector<double> samples;
    for (int i = 0; i < kSamples; ++i) {
      prepare(i);
      std::uint64_t told[sizeof(Told) / sizeof(Word)] = {};
      machine_.write(told_, told, sizeof told);
      machine_.launch(blocks, body);
      machine_.finish();
      machine_.read(told, told_, sizeof told);
      samples.push_back(static_cast<double>(told[0]));
      if (told[1] == 0 && told[2] == 0) continue;
      words_.faults.push_back(
          what + (told[1] != 0 ? ": other bytes came than were sent"
                               : ": a message did not come; were both blocks resident?"));
      break;
    }
    return samples;
  }
  template <class Body>
  std::vector<double> samples_of(const std::string& what, std::uint32_t blocks, const Body& body) {
    return samples_of(what, blocks, body, [](int) {});
  }
  double add(std::string name, std::vector<double> samples, double count) {
    for (double& sample : samples) sample /= count;
    return words_.figures.emplace_back(figure_of(std::move(name), "ns", std::move(samples))).value;
  }

  void chase() {
    constexpr std::uint32_t kLineWords = 16;  // of 128 bytes
    const std::uint32_t lines = Machine::rounds(2048);
    // A ring through all lines, in an order that no prefetcher follows; always the same.
    std::vector<std::uint64_t> order(lines), ring(std::uint64_t{lines} * kLineWords, 0);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin() + 1, order.end(), std::mt19937(1));
    for (std::uint32_t i = 0; i < lines; ++i)
      ring[order[i] * kLineWords] = order[(i + 1) % lines] * kLineWords;
    Word* const memory = machine_.template allocate<Word>(ring.size() + 1);
    machine_.write(memory, ring.data(), ring.size() * sizeof(Word));
    add("l2_load", samples_of("l2_load", 1, Chase{memory, lines, told_, memory + ring.size()}),
        lines);
  }

  // Returns the time of a round of two.
  double barrier() {
    const std::uint32_t rounds = Machine::rounds(10'000);
    const Fences body{.memory = nullptr,
                      .rounds = rounds,
                      .stores = false,
                      .fences = false,
                      .one_device = true,
                      .told = told_};
    return 2 * add("barrier", samples_of("barrier", 1, body), 2.0 * rounds);
  }

  // The rounds with fences over those without, which have the same barriers and stores.
  void fence(double barriers_ns, bool stores, bool one_device) {
    const std::string name =
        joined({"fence_", one_device ? "gpu" : "sys", stores ? "_stores" : "_idle"});
    const std::uint32_t rounds = Machine::rounds(1000);
    Fences body{.memory = stored_,
                .rounds = rounds,
                .stores = stores,
                .fences = false,
                .one_device = one_device,
                .told = told_};
    double without_ns = barriers_ns * rounds;
    if (stores) without_ns = figure_of({}, {}, samples_of(name, 1, body)).value;
    body.fences = true;
    std::vector<double> samples = samples_of(name, 1, body);
    for (double& sample : samples) sample = std::max(sample - without_ns, 0.0);
    add(name, std::move(samples), rounds);
  }

  // Epochs of a line never repeat, so each sample begins behind the one before.
  PingPong ping_pong(std::uint32_t rounds, int sample) {
    return {.before = static_cast<std::uint64_t>(sample) * rounds,
            .rounds = rounds,
            .limit_ns = Machine::kLimitNs,
            .told = told_};
  }

  template <PacketFormat format>
  void packets(const std::string& name) {
    const std::uint32_t rounds = Machine::rounds(500);
    for (const std::uint32_t bytes : {kUnitBytes, kLargeBytes}) {
      const auto lines = static_cast<std::uint32_t>(lines_for(format, bytes) - 1);
      PacketPingPong<format> body{.all = {}, .lines = {}, .line_count = lines};
      for (Word*& of_block : body.lines)
        of_block = machine_.template allocate<Word>(lines * line_shape(format).bytes / kUnitBytes);
      const std::string what = joined({"one_way_", name, suffix(bytes)});
      add(what, samples_of(what, 2, body, [&](int i) { body.all = ping_pong(rounds, i); }),
          2.0 * rounds);
    }
  }

  void slots(std::uint32_t bytes, bool one_device) {
    const std::uint32_t rounds = Machine::rounds(500);
    SlotPingPong body{
        .all = {}, .payload = {}, .counters = {}, .bytes = bytes, .one_device = one_device};
    for (std::byte*& of_block : body.payload)
      of_block = machine_.template allocate<std::byte>(bytes);
    for (Word*& of_block : body.counters) of_block = machine_.template allocate<Word>(1);
    const std::string what = joined({"one_way_slots_", one_device ? "gpu" : "sys", suffix(bytes)});
    add(what, samples_of(what, 2, body, [&](int i) { body.all = ping_pong(rounds, i); }),
        2.0 * rounds);
  }
  static const char* suffix(std::uint32_t bytes) { return bytes == kLargeBytes ? "_8K" : "_small"; }

  // Each launch moves bytes that the ones before have not left in a cache. `blocks` 0: all.
  void move(std::byte* operands, std::uint64_t operand_bytes, std::uint32_t sources,
            std::uint32_t blocks) {
    constexpr std::uint64_t kBlockBytes = 8 << 20;
    const std::string name =
        joined({sources == 1 ? "copy" : "reduce", sources == 1 ? "" : std::to_string(sources), "_",
                blocks == 0 ? "all" : std::to_string(blocks)});
    if (blocks == 0) blocks = machine_.blocks();
    constexpr std::uint64_t kAligned = 128;
    const std::uint64_t block_bytes =
        std::min(kBlockBytes, operand_bytes / blocks) / kAligned * kAligned;
    const std::uint64_t bytes = block_bytes * blocks;
    std::uint64_t offset = 0;
    // The launch of one hides behind the one before.
    constexpr int kLaunches = 4;
    const auto enqueue = [&] {
      for (int i = 0; i < kLaunches; ++i) {
        if (offset + bytes > operand_bytes) offset = 0;
        machine_.launch(blocks, Move<Fold>{operands + offset, operand_bytes, block_bytes, sources});
        offset += bytes;
      }
    };
    std::vector<double> rates = machine_.times_ns(kSamples, enqueue);
    for (double& rate : rates) rate = static_cast<double>(bytes) * kLaunches * (sources + 1) / rate;
    words_.figures.push_back(figure_of(name, "GB/s", std::move(rates)));
  }

  using Fold = device::Fold<device::Real<float>, device::Sum>;

  Machine& machine_;
  Words& words_;
  Told* told_;
  std::byte* stored_;  // by all threads, before a fence
};

}  // namespace tutti::probe
