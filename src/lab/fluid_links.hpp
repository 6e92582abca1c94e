// SPDX-License-Identifier: Apache-2.0
// Links as pipes: messages are flows that share their links max-min fairly while they last.
//
// Flows of one way, the same links at the same limit, go equally fast: they are one flow of several
// members in FairShare, and only the first to end has an end ahead. What a member has had is
// counted in whole numbers, so that who should end together does.
//
// The messages of a connection go one after another, as the one owner of its slots sends them. A
// flow's bytes are those on the wire (payload / efficiency); it goes no faster than its route
// allows. Where the costs have a gap, a link begins messages no closer than that: they ask their
// links one after another, in the order of link_queues.hpp. After the last byte alpha and latency
// pass.
#pragma once

#include <deque>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "lab/event_walk.hpp"
#include "lab/fair_share.hpp"

namespace tutti {

class FluidLinks final : public Traffic {
 public:
  // A message as it went: when its step ended, when it is there.
  using Observer = std::function<void(std::uint32_t message, std::uint32_t round, double sent_ns,
                                      double there_ns)>;

  explicit FluidLinks(Walk& walk, Observer observer = {});

  void send(std::uint32_t place, std::uint32_t round) override;
  [[nodiscard]] double next_ns() const override;
  void run_until(double now_ns) override;

 private:
  struct Sent {
    std::uint32_t place, round;
    double sent_ns;
  };
  // kUnit * kGridNs of bytes: what a member has had, exactly.
  __extension__ using Served = __int128;
  struct Member {
    Served target;  // of its way's `served`, when it has had all
    std::uint32_t order, which;
    Sent sent;
    [[nodiscard]] auto key() const { return std::tuple(target, order, which, sent.place); }
    [[nodiscard]] bool operator>(const Member& other) const { return key() > other.key(); }
  };
  template <typename T>
  using Queue = std::priority_queue<T, std::vector<T>, std::greater<>>;
  // Messages under way over the same links.
  struct Way {
    std::uint32_t connection = 0;  // one of those that take it
    FairShare::FlowId flow = 0;    // while it has members
    Served served = 0;             // to each member from the start
    double since_ns = 0;
    FairShare::Units rate = 0;
    std::uint32_t version = 0;  // of its next end: older ones do not hold
    bool touched = false;
    Queue<Member> members;
  };
  struct End {
    double time_ns;
    std::uint32_t way, version;
    [[nodiscard]] bool operator>(const End& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : way > other.way;
    }
  };
  // A message on its way to its start: it asks one link after another.
  struct Asking {
    double time_ns;
    std::uint32_t hop;           // the link that it asks next
    std::uint32_t order, which;  // of the sending steps, and of a step's messages
    Sent sent;
    [[nodiscard]] auto rank_now() const { return std::tuple(hop, order, which, sent.place); }
    [[nodiscard]] bool operator>(const Asking& other) const {
      return std::tuple(time_ns, rank_now()) > std::tuple(other.time_ns, other.rank_now());
    }
  };

  [[nodiscard]] const EventGraph::Connection& connection_of(std::uint32_t place) const;
  void ask(const Sent& sent, double now_ns);
  bool admit_all(double now_ns);
  bool admit(Asking asking, double now_ns);
  void find_ways();
  bool begin(const Asking& asking, double now_ns);
  static void serve(Way& way, double now_ns);
  void touch(std::uint32_t way);
  void finish(const Sent& sent, double now_ns);
  bool end_flows(double now_ns);
  void settle(double now_ns);
  void drop_old_ends();

  Walk& walk_;
  const EventGraph& graph_;
  Observer observer_;
  FairShare shares_;
  std::array<double, kHopCount> alpha_ns_{}, wire_bytes_{};  // wire: per byte of payload
  double gap_ns_;
  std::vector<bool> busy_;                                       // by connection
  std::unordered_map<std::uint32_t, std::deque<Sent>> waiting_;  // by connection
  std::vector<double> open_ns_;        // by link: when it begins another message
  std::vector<std::uint32_t> way_of_;  // by connection
  std::vector<Way> ways_;
  std::vector<std::uint32_t> way_of_flow_;  // by FlowId
  std::vector<std::uint32_t> touched_;      // ways whose members have changed
  std::vector<Asking> asking_, level_;      // at the present time: still to do, being done
  Queue<Asking> later_;
  std::vector<End> ends_;  // a heap, the first on top, with ends that no longer hold below it
};

}  // namespace tutti
