// SPDX-License-Identifier: Apache-2.0
// What the control plane's tests share: jobs of threads and of forked processes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/host.hpp"
#include "control/plane.hpp"
#include "control/tcp_socket.hpp"
#include "control/unique_id.hpp"
#include "tests/comm/fork_harness.hpp"

namespace tutti::testing {

inline constexpr std::int64_t kPatienceMs = 20'000;  // never reached where things work

inline Deadline patience() { return Deadline::in_ms(kPatienceMs); }

using JoinResult = Result<std::unique_ptr<ControlPlane>>;

inline UniqueId must_create_id() {
  Result<UniqueId> id = create_unique_id({.interfaces = "lo"});
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

inline const std::vector<std::byte>& agreed_secret() {
  static const std::vector<std::byte> secret(32, std::byte{'s'});
  return secret;
}

// A port that nobody has at the moment, below those that the kernel gives away by itself.
inline std::uint16_t free_port(const std::string& ip) {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  std::random_device random;
  for (int tries = 0; tries < 1000; ++tries) {
    const auto port = static_cast<std::uint16_t>(
        std::uniform_int_distribution<int>(1024, std::max(first, 1025) - 1)(random));
    if (control::listen_tcp(*parse_ip(ip, port))) return port;
  }
  ADD_FAILURE() << "no port is free at " << ip;
  return 1;
}

// An id of an agreed place with its root, at a port that was free.
inline UniqueId must_serve(const std::string& host, const std::string& job,
                           const std::string& ip = "") {
  for (const Deadline deadline = patience(); !deadline.passed();) {
    const auto id = unique_id_at(host, free_port(ip.empty() ? host : ip), agreed_secret(), job);
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
    if (!id || serve_root(*id, {.interfaces = "lo"})) return id.value_or(UniqueId{});
  }
  ADD_FAILURE() << "no port is free on " << host;
  return {};
}

// Joins as a rank of another host does that has the same loopback: Unix sockets reach only ranks of
// equal `host`.
inline JoinResult join_from(std::uint64_t host, const UniqueId& id, Rank rank, std::int32_t ranks,
                            Deadline deadline = patience()) {
  const auto content = control::decode_id(id);
  if (!content) return tl::unexpected(content.error());
  auto plane = control::start_and_meet(
      std::span(&*content, 1),
      {.key = content->key,
       .rank = rank,
       .ranks = ranks,
       .watch_mode = has_pidfd() ? control::WatchMode::kPidfd : control::WatchMode::kPoll,
       .locality = 1 + host},
      {.deadline = deadline});
  if (!plane) return tl::unexpected(plane.error());
  return *std::move(plane);
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
