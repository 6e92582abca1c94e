// SPDX-License-Identifier: Apache-2.0
// Communicators of one process on emulated devices, for tests below the C API.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/run_on_devices.hpp"
#include "tests/device/emulated_platform.hpp"
#include "tests/folder.hpp"

namespace tutti::test {

// Until it is so; a minute where something is broken.
inline bool eventually(const std::function<bool()>& so) {
  const Deadline deadline = Deadline::in_ns(60'000'000'000);
  while (!so()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

using testing::Folder;

// The usual configuration, with one field set.
template <typename Field, typename Value>
Config with(Field Config::*field, const Value& value, Config config = {}) {
  config.*field = value;
  return config;
}

struct Options {
  std::int32_t ranks = 2;
  int devices = 2;
  Config config = {};
  device::BlockRange blocks = {};
};

// Communicators of one process, each with a stream.
class Job {
 public:
  explicit Job(const Options& options) : platform_({.devices = options.devices}) {
    const UniqueId id = *create_unique_id({.interfaces = "lo"});
    const auto count = static_cast<std::size_t>(options.ranks);
    communicators_.resize(count);
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      streams_.push_back(std::make_unique<EmulatedStream>());
      threads.emplace_back([&, i] {
        const auto rank = static_cast<Rank>(i);
        auto made = Communicator::create(id, rank, options.ranks,
                                         {.config = options.config,
                                          .cancel = {},
                                          .device = rank % options.devices,
                                          .blocks = options.blocks,
                                          .platform = &platform_});
        ASSERT_TRUE(made) << made.error().message;
        communicators_[i] = *std::move(made);
      });
    }
  }
  ~Job() {  // each waits for what it has enqueued
    std::vector<std::jthread> threads;
    for (auto& communicator : communicators_)
      threads.emplace_back([&communicator] { communicator.reset(); });
  }

  [[nodiscard]] Communicator& of(Rank rank) {
    return *communicators_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] EmulatedStream& stream(Rank rank) {
    return *streams_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] EmulatedPlatform& platform() { return platform_; }
  void leave(Rank rank) { communicators_[static_cast<std::size_t>(rank)].reset(); }
  void synchronize() {
    for (const auto& stream : streams_) stream->synchronize();
  }
  void capture(std::uint64_t number) {
    for (auto& stream : streams_) stream = std::make_unique<EmulatedStream>(number);
  }
  // One rank's call; host memory is reduced by the calling thread.
  Status call(Rank rank, Call call) {
    HeldCall held = hold(rank, call);
    return call.on_device ? run_on_devices({&held, 1}) : run_operations({&held, 1});
  }
  // A call as part of a group, on the rank's stream.
  HeldCall hold(Rank rank, Call call) {
    if (call.on_device) call.stream = &stream(rank);
    return {&of(rank), call, nullptr};
  }
  // A thread for each rank.
  std::vector<Status> call_all(const std::vector<Call>& calls) {
    std::vector<Status> statuses(calls.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < calls.size(); ++i)
      threads.emplace_back([&, i] { statuses[i] = call(static_cast<Rank>(i), calls[i]); });
    threads.clear();
    return statuses;
  }

 private:
  EmulatedPlatform platform_;
  std::vector<std::unique_ptr<EmulatedStream>> streams_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace tutti::test
