// SPDX-License-Identifier: Apache-2.0
// The parts of device_litmus, and how they run on a machine (perf/device_words/probe.hpp).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "litmus.hpp"

namespace tutti::probe {

// The name of the part that makes a mistake: it must be seen.
inline constexpr std::string_view kBlindUnlessWrong = "control_late";

struct Part {
  std::string name;
  bool judged = true;   // else what is wrong is only told
  bool loaded = false;  // with other blocks that stream memory
  std::uint64_t reads = 0, wrong = 0, first_torn = 0;
  std::uint64_t epoch = 0, expected = 0, seen = 0;  // of one that was wrong
};

struct LitmusOptions {
  double seconds = 2;  // at most, of each part
  std::uint64_t epochs = 0;
};

// Of the current device; a device without a name: there is none, and it says why.
struct LitmusResult {
  std::string device, why_none;
  std::vector<Part> parts;
};
// Either CUDA's or that of threads, as is linked.
[[nodiscard]] LitmusResult run_litmus(const LitmusOptions& options);

template <class Machine>
class LitmusRun {
 public:
  // `stream_bytes`: of each block that streams.
  LitmusRun(Machine& machine, const LitmusOptions& options, std::uint64_t stream_bytes)
      : machine_(machine), pairs_(std::max(machine.blocks() / 8, 1U)) {
    const std::uint32_t streams = machine.blocks() - 2 * pairs_;
    tally_count_ = std::uint64_t{2} * pairs_ * Machine::kThreads;
    all_ = {.pairs = pairs_,
            .epochs = options.epochs,
            .limit_ns = static_cast<std::uint64_t>(options.seconds * 1e9),
            .tallies = nullptr,
            .example = nullptr,
            .ended = nullptr,
            .from = machine.template allocate<std::byte>(streams * stream_bytes),
            .to = machine.template allocate<std::byte>(streams * stream_bytes),
            .stream_bytes = stream_bytes};
  }

  template <PacketFormat format, class Lines = Packets<format>>
  Part torn(std::string name, bool loaded) {
    // As many as there may be groups.
    const std::uint64_t count = std::uint64_t{pairs_} * Machine::kThreads;
    return run({.name = std::move(name), .loaded = loaded}, [&](const Litmus& all) {
      return TornLines<format, Lines>{
          .all = all,
          .lines = machine_.template allocate<Word>(count * line_shape(format).bytes / kUnitBytes),
          .acks = machine_.template allocate<Shown>(count)};
    });
  }

  Part passing(std::string name, bool loaded, bool one_device, Publish publish) {
    constexpr std::uint32_t kBytesEach = 64;  // of a thread
    const std::uint32_t bytes = kBytesEach * Machine::kThreads;
    return run({.name = std::move(name), .judged = publish == Publish::kFenced, .loaded = loaded},
               [&](const Litmus& all) {
                 return MessagePassing{
                     .all = all,
                     .data = machine_.template allocate<std::byte>(std::uint64_t{pairs_} * bytes),
                     .bytes = bytes,
                     .counters = machine_.template allocate<Shown>(pairs_),
                     .acks = machine_.template allocate<Shown>(pairs_),
                     .one_device = one_device,
                     .publish = publish};
               });
  }

  std::vector<Part> all_parts() {
    std::vector<Part> parts;
    for (const bool loaded : {false, true}) {
      const std::string how = loaded ? "_loaded" : "";
      parts.push_back(torn<PacketFormat::kLl16>("torn_ll16" + how, loaded));
      parts.push_back(torn<PacketFormat::kLl128>("torn_ll128" + how, loaded));
      parts.push_back(passing("passing_gpu" + how, loaded, true, Publish::kFenced));
      parts.push_back(passing("passing_sys" + how, loaded, false, Publish::kFenced));
    }
    parts.push_back(passing("control_unfenced_loaded", true, true, Publish::kUnfenced));
    parts.push_back(passing(std::string(kBlindUnlessWrong), false, true, Publish::kLate));
    return parts;
  }

 private:
  template <class MakeBody>
  Part run(Part part, MakeBody&& make_body) {
    all_.tallies = machine_.template allocate<Tally>(tally_count_);
    all_.example = machine_.template allocate<Example>(1);
    all_.ended = machine_.template allocate<Word>(1);
    machine_.launch(part.loaded ? machine_.blocks() : 2 * pairs_, make_body(all_));
    machine_.finish();
    constexpr std::size_t kCounts = sizeof(Tally) / sizeof(Word);
    std::vector<std::uint64_t> counts(tally_count_ * kCounts);
    machine_.read(counts.data(), all_.tallies, counts.size() * sizeof(Word));
    for (std::size_t i = 0; i < counts.size(); i += kCounts) {
      part.reads += counts[i];
      part.wrong += counts[i + 1];
      part.first_torn += counts[i + 2];
    }
    std::uint64_t example[sizeof(Example) / sizeof(Word)];
    machine_.read(example, all_.example, sizeof example);
    part.epoch = example[1];
    part.expected = example[2];
    part.seen = example[3];
    return part;
  }

  Machine& machine_;
  const std::uint32_t pairs_;
  std::uint64_t tally_count_ = 0;
  Litmus all_{};
};

}  // namespace tutti::probe
