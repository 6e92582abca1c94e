// SPDX-License-Identifier: Apache-2.0
// What transports that pump have in common: a Peer for each rank of another host, in which lie the
// mirror of that rank's inbox and the links to it, and turns over those that have a link.
//
// `Home` has `rank`, `layout` (InboxLayout), `inbox` (there between listen() and close()) and
// `done`; `Peer` is made from a rank and the Home. The transport's own part adds a Peer to
// `active_` when it has a link.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transports/spec_check.hpp"
#include "transports/transport.hpp"

namespace tutti {

template <typename Peer, typename Home>
class PumpedTransport : public Transport {
 public:
  [[nodiscard]] bool reaches(const PeerInfo& /*peer*/) const override { return true; }
  [[nodiscard]] Status connect(Rank rank, Deadline deadline) override {
    if (!in_range(rank))
      return make_error(Code::kInvalidArgument,
                        fmt::format("cannot connect to rank {} of {}: there is no such peer", rank,
                                    home_.layout.ranks));
    if (rank == home_.rank) return {};
    if (!home_.inbox)
      return make_error(Code::kInvalidUsage,
                        fmt::format("{}: connect was called before listen or after close", name()));
    Peer& peer = peer_of(rank);
    if (peer.mirrored()) return {};
    TUTTI_TRY(make_link(peer, rank, deadline));
    mapped_bytes_.fetch_add(home_.layout.total_bytes(), std::memory_order_relaxed);
    return {};
  }
  [[nodiscard]] Result<Connection> open_send(const ConnectionSpec& spec) override {
    TUTTI_TRY(check_send(spec, limits(), home_.rank));
    Peer& peer = peer_of(spec.destination);
    if (!peer.mirrored())
      return make_error(Code::kInvalidUsage,
                        fmt::format("rank {} sends to rank {} before it has connected to it",
                                    home_.rank, spec.destination));
    return peer.open_send(spec);
  }
  [[nodiscard]] Result<Connection> open_recv(const ConnectionSpec& spec) override {
    TUTTI_TRY(check_recv(spec, limits(), home_.rank));
    if (!home_.inbox)
      return make_error(
          Code::kInvalidUsage,
          fmt::format("{}: open_recv was called before listen or after close", name()));
    return peer_of(spec.source).open_recv(spec);
  }
  void publish_done(std::uint64_t operation) override {
    home_.done = operation;
    for (Peer* const peer : active_) peer->end_call();
  }
  [[nodiscard]] std::uint64_t done_of(Rank rank) const override {
    if (rank == home_.rank) return home_.done;
    const Peer* const peer = known(rank);
    return peer == nullptr ? 0 : peer->done();
  }
  void take_back() override {
    for (Peer* const peer : active_) peer->take_back();
  }
  [[nodiscard]] Rank unflushed() const override {
    const auto found = std::ranges::find_if(active_, [](Peer* peer) { return !peer->flushed(); });
    return found == active_.end() ? kNoRank : (*found)->rank();
  }
  [[nodiscard]] bool connected(Rank rank) const override {
    const Peer* const peer = known(rank);
    return peer != nullptr && peer->connected();
  }
  [[nodiscard]] bool has_left(Rank rank) const override {
    const Peer* const peer = known(rank);
    return peer != nullptr && peer->has_left();
  }
  [[nodiscard]] std::uint64_t mapped_bytes() const override {
    // Relaxed: a figure for people, it orders nothing.
    return mapped_bytes_.load(std::memory_order_relaxed);
  }
  void say_goodbye() override {
    for (Peer* const peer : active_) peer->say_goodbye();
  }

 protected:
  PumpedTransport(ControlChannel& control, std::uint64_t arena_bytes, const Log& log)
      : control_(control), log_(log), peers_(control.peers().size()) {
    home_.rank = control.rank();
    home_.layout = {static_cast<std::int32_t>(control.peers().size()), arena_bytes};
  }

  // Links this rank to `peer` and makes the mirror; blocks until `deadline` at most.
  [[nodiscard]] virtual Status make_link(Peer& peer, Rank rank, Deadline deadline) = 0;

  [[nodiscard]] bool in_range(Rank rank) const { return rank >= 0 && rank < home_.layout.ranks; }
  [[nodiscard]] SpecLimits limits() const {
    return {.ranks = home_.layout.ranks, .arena_bytes = home_.layout.arena_bytes};
  }
  [[nodiscard]] Peer& peer_of(Rank rank) {
    auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer) peer = std::make_unique<Peer>(rank, home_);
    return *peer;
  }
  // Null: nothing has been asked of it yet.
  [[nodiscard]] Peer* known(Rank rank) const {
    return in_range(rank) ? peers_[static_cast<std::size_t>(rank)].get() : nullptr;
  }
  [[nodiscard]] const std::string& host_of(Rank rank) const {
    return control_.peers()[static_cast<std::size_t>(rank)].host;
  }
  [[nodiscard]] Error of_peer(Error error, Rank rank) const {
    error.message += fmt::format(" (rank {} on {})", rank, host_of(rank));
    error.culprit = rank;
    return error;
  }

  ControlChannel& control_;
  const Log log_;
  Home home_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> active_;  // those with a link
  std::atomic<std::uint64_t> mapped_bytes_{0};
};

}  // namespace tutti
