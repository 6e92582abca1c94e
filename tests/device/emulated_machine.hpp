// SPDX-License-Identifier: Apache-2.0
// Threads of the host as a machine that runs bodies (perf/device_words/probe.hpp).
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "emulation.hpp"

namespace tutti::test {

class EmulatedMachine {
 public:
  static constexpr std::uint32_t kThreads = 8;  // of an LL128 line
  // Its threads may wait for a processor.
  static constexpr std::uint64_t kLimitNs = 60'000'000'000;
  static constexpr std::uint32_t rounds(std::uint32_t on_gpu) { return std::max(on_gpu / 200, 1U); }

  [[nodiscard]] static std::string name() { return "threads of the host"; }
  [[nodiscard]] static std::uint32_t blocks() { return 4; }

  template <class T>
  T* allocate(std::uint64_t count) {
    void* const memory = ::operator new(count * sizeof(T), kAlignment);
    memory_.emplace_back(memory, [](void* freed) { ::operator delete(freed, kAlignment); });
    T* const first = static_cast<T*>(memory);
    std::uninitialized_value_construct_n(first, count);
    return first;
  }
  void write(void* to, const void* from, std::uint64_t bytes) { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, std::uint64_t bytes) { std::memcpy(to, from, bytes); }

  // Returns when all has ended.
  template <class Body>
  void launch(std::uint32_t blocks, const Body& body) {
    std::vector<std::unique_ptr<EmulatedBlock::Common>> commons;
    std::vector<std::jthread> running;
    for (std::uint32_t block = 0; block < blocks; ++block) {
      commons.push_back(std::make_unique<EmulatedBlock::Common>(kThreads, kThreads, 0));
      for (std::uint32_t thread = 0; thread < kThreads; ++thread)
        running.emplace_back([&body, &common = *commons.back(), block, blocks, thread] {
          EmulatedBlock self(block, blocks, thread, kThreads, common);
          body(self);
        });
    }
  }
  void finish() {}

  template <class Enqueue>
  std::vector<double> times_ns(int samples, Enqueue&& enqueue) {
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) {
      const std::int64_t begin_ns = now_ns();
      enqueue();
      times.push_back(static_cast<double>(now_ns() - begin_ns));
    }
    return times;
  }

 private:
  static constexpr std::align_val_t kAlignment{128};
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

}  // namespace tutti::test
