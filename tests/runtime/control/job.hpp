// What the control plane's tests share: jobs of threads and of forked processes.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/control/control_plane.hpp"
#include "tests/runtime/fork_harness.hpp"

namespace tutti::testing {

inline constexpr std::int64_t kPatienceMs = 20'000;  // never reached where things work

inline Deadline patience() { return Deadline::in_ms(kPatienceMs); }

using JoinResult = Result<std::unique_ptr<ControlPlane>>;

inline UniqueId must_create_id() {
  Result<UniqueId> id = create_unique_id();
  EXPECT_TRUE(id) << (id ? "" : id.error().message);
  return id.value_or(UniqueId{});
}

inline std::string id_text(const UniqueId& id) {
  return {reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()};
}

inline UniqueId id_from(const std::string& text) {
  UniqueId id;
  EXPECT_EQ(text.size(), id.bytes.size());
  std::memcpy(id.bytes.data(), text.data(), std::min(text.size(), id.bytes.size()));
  return id;
}

// Runs body(rank) on a thread for each rank.
template <typename Body>
void run_threads(int ranks, Body&& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] { body(static_cast<Rank>(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

inline std::vector<std::unique_ptr<ControlPlane>> join_threads(int ranks) {
  const UniqueId id = must_create_id();
  std::vector<std::unique_ptr<ControlPlane>> planes(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Rank rank) {
    JoinResult plane = ControlPlane::join(id, rank, ranks, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
    planes[static_cast<std::size_t>(rank)] = *std::move(plane);
  });
  return planes;
}

// Runs body(plane) in forked processes that have joined.
template <typename Body>
std::vector<ForkedResult> run_forked_job(int ranks, Body&& body) {
  return run_forked(ranks,
                    [&](const ForkedRank& self) {
                      JoinResult plane =
                          ControlPlane::join(id_from(self.message), static_cast<Rank>(self.rank),
                                             self.ranks, {.deadline = patience()});
                      ASSERT_TRUE(plane) << plane.error().message;
                      body(**plane);
                    },
                    {.after_fork = [] { return id_text(must_create_id()); }});
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace tutti::testing
