// SPDX-License-Identifier: Apache-2.0
// Links as queues: each serves the messages that cross it one after another, as they come.
//
// A message comes to its first link when its step ends, to the next one when it starts on the one
// before (cut through, with room to wait at every link). It holds a link for its bytes there and
// gap_ns, and is through when it is through its slowest link, counted from its start on that one.
// Then alpha and latency pass. Messages of a connection go one after another, no faster than alone.
//
// What happens at one time is done hop by hop, within a hop by the order of the sending steps and
// of a step's messages: so a walk of representatives, where a link may be first hop of a message
// and second hop of its own image, decides as a walk of all ranks.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "lab/event_walk.hpp"

namespace tutti {

class LinkQueues final : public Traffic {
 public:
  explicit LinkQueues(Walk& walk);

  void send(std::uint32_t place, std::uint32_t round) override;
  void fetch(std::uint32_t connection) const override {
    __builtin_prefetch(&connection_free_ns_[connection], 1);
  }
  [[nodiscard]] double next_ns() const override;
  void run_until(double now_ns) override;

 private:
  struct Visit {
    double time_ns;              // when it comes to the link
    double through_ns;           // when it is through the links so far
    double bytes_ns;             // of its bytes at 1 ns each, on the wire
    std::uint32_t order, which;  // of the sending steps, and of a step's messages
    std::uint32_t message, connection, round;
    std::uint32_t hop;
    [[nodiscard]] auto rank_now() const { return std::tuple(hop, order, which, message, round); }
    [[nodiscard]] bool operator>(const Visit& other) const {
      return std::tuple(time_ns, rank_now()) > std::tuple(other.time_ns, other.rank_now());
    }
  };

  void cross(Visit visit);
  [[nodiscard]] double alone_ns(const Visit& visit) const;
  void fetch_after(std::size_t number) const;
  void arrive(const Visit& visit);
  void run_level();

  Walk& walk_;
  const EventGraph& graph_;
  std::vector<double> free_ns_;             // by link
  std::vector<double> connection_free_ns_;  // when its last message would be through, alone
  std::vector<double> arrived_ns_;          // by connection: its last message
  std::array<double, kHopCount> alpha_ns_{}, wire_bytes_{};  // per byte of payload
  double gap_ns_;
  double now_ns_ = 0;
  std::vector<Visit> now_, level_;  // at the present time: still to do, being done
  EventQueue<Visit> later_;
};

}  // namespace tutti
