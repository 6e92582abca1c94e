// SPDX-License-Identifier: Apache-2.0
// A small job for tests of transports: ranks on this host, as threads of this process or as forked
// processes, each with a real control plane and a transport.
//
//   run_job({.ranks = 2, .spawn = Spawn::kProcesses}, factory, [](Member& me) { ... });
//
// The body runs once on every rank; its GoogleTest failures count as the test's. Every wait below
// has a deadline, and fails the test when it passes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>

#include "control/control_plane.hpp"
#include "transports/transport.hpp"

namespace tutti::test {

enum class Spawn { kThreads, kProcesses };
[[nodiscard]] const char* name_of(Spawn spawn);
std::ostream& operator<<(std::ostream& out, Spawn spawn);

// How to make the transport under test. `arena_bytes`: what the suite needs of every inbox.
struct Factory {
  const char* name;
  Result<std::unique_ptr<Transport>> (*make)(ControlChannel& control, std::uint64_t arena_bytes);
  // What this machine lacks for it; empty: nothing.
  std::string (*missing)() = [] { return std::string(); };
};
std::ostream& operator<<(std::ostream& out, const Factory& factory);

struct JobOptions {
  Rank ranks = 2;
  Spawn spawn = Spawn::kThreads;
  std::uint64_t arena_bytes = std::uint64_t{1} << 20;
  bool listen = true;   // listen on every rank, and meet, before the body
  bool receive = true;  // and connect each rank with itself
};

// What the body of one rank holds.
struct Member {
  Rank rank = kNoRank;
  Rank ranks = 0;
  ControlPlane* control = nullptr;
  Transport* transport = nullptr;

  // Returns when all ranks have called it. What this one sent before has left.
  void meet() const;
  // Connects to `peer`, or fails the test.
  void connect(Rank peer) const;
  [[nodiscard]] Connection open_send(const ConnectionSpec& spec) const;
  [[nodiscard]] Connection open_recv(const ConnectionSpec& spec) const;
  // Polls until `ready()`, driving the transport and giving way to the other ranks. False, and a
  // failure of the test, when the deadline passes.
  template <typename Ready>
  [[nodiscard]] bool poll(const char* what, Ready&& ready) const {
    for (const Deadline deadline = patience(); !deadline.passed(); give_way()) {
      if (ready()) return true;
    }
    fail_waiting(what);
    return false;
  }

  // Ends this rank's process without the last meeting of all ranks; Spawn::kProcesses only.
  [[noreturn]] static void leave_at_once();

  [[nodiscard]] static Deadline patience();

 private:
  void give_way() const;
  void fail_waiting(const char* what) const;
};

void run_job(const JobOptions& options, const Factory& factory,
             const std::function<void(Member&)>& body);

// The state letter of /proc/PID/stat ('T': stopped), 0 if there is no such process.
[[nodiscard]] char process_state(pid_t pid);

// Seed of this run, printed once; TUTTI_TEST_SEED repeats an earlier one.
[[nodiscard]] std::uint64_t test_seed();

// Byte `at` of message `number` of stream `stream`: what was sent can be told from anything else.
[[nodiscard]] inline std::byte pattern_byte(std::uint64_t stream, std::uint64_t number,
                                            std::uint64_t at) {
  const std::uint64_t word =
      (stream * 0x9e3779b97f4a7c15U + number) * 0xbf58476d1ce4e5b9U + at * 0x94d049bb133111ebU;
  return static_cast<std::byte>(word >> 56);
}
void fill_pattern(const SlotView& view, std::uint64_t stream, std::uint64_t number,
                  std::uint64_t bytes);
// The first byte that differs from the pattern, or `bytes`.
[[nodiscard]] std::uint64_t first_difference(const SlotView& view, std::uint64_t stream,
                                             std::uint64_t number, std::uint64_t bytes);

}  // namespace tutti::test
