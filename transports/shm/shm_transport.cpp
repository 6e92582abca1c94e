// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/shm_transport.hpp"

#include <fmt/core.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "transports/spec_check.hpp"

namespace tutti {
namespace {

using shm::Segment;
using shm::SegmentFile;

// Prior costs until calibration, from bench_connection's ping-pong between two cores that share an
// L3 (AMD EPYC, Zen 5, virtual machine): one way 8 B 43 ns and 1 KiB 102 ns flagged; 8 B 103 to 144
// ns and 64 KiB 3040 ns by slots, the copies in and out included.
constexpr LinkCost kFlaggedCost{.alpha_ns = 43, .beta_ns_per_byte = 0.06};
constexpr LinkCost kSlotsCost{.alpha_ns = 110, .beta_ns_per_byte = 0.045};

// What the request handler lends. It outlives close(), because the service thread may be just
// sending the fd; it dies with the handler, when the channel closes.
struct Served {
  std::mutex mutex;
  std::shared_ptr<const UniqueFd> fd;  // guarded by mutex
  bool open = false;                   // guarded by mutex

  // Service thread.
  [[nodiscard]] Result<HandlerReply> answer() {
    const std::lock_guard lock(mutex);
    if (!open) return make_error(Code::kInvalidUsage, "this rank has closed its shared memory");
    return HandlerReply{.payload = {}, .lent_fd = fd->get()};
  }
};

// What this rank remembers of one peer.
struct Peer {
  std::int32_t place = -1;                 // of its segment in the file; -1: on another host
  std::optional<Segment> segment;          // once connected
  std::unique_ptr<ConnectionStates> send;  // on first open
  std::unique_ptr<ConnectionStates> recv;
};

[[nodiscard]] ConnectionState* state_of(std::unique_ptr<ConnectionStates>& states,
                                        std::uint32_t index) {
  if (!states) states = std::make_unique<ConnectionStates>();
  return &states->of[index];
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(ControlChannel& control, const ShmOptions& options)
      : control_(control),
        rank_(control.rank()),
        backing_(options.backing),
        log_(options.log),
        layout_{static_cast<std::int32_t>(control.peers().size()), options.arena_bytes},
        peers_(control.peers().size()) {
    for (const PeerInfo& peer : control.peers()) {
      if (!reaches(peer)) continue;
      if (places_ == 0) first_ = peer.rank;
      peer_of(peer.rank).place = places_++;
    }
  }
  ~ShmTransport() override { close(); }

  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] Capabilities capabilities() const override {
    return {.shares = true,
            .flagged = kFlaggedCost,
            .slots = kSlotsCost,
            .arena_bytes = layout_.arena_bytes};
  }
  [[nodiscard]] bool reaches(const PeerInfo& peer) const override {
    return peer.host_id == me().host_id;
  }
  [[nodiscard]] Status listen() override;
  [[nodiscard]] Status connect(Rank peer, Deadline deadline) override;
  [[nodiscard]] Result<Connection> open_send(const ConnectionSpec& spec) override;
  [[nodiscard]] Result<Connection> open_recv(const ConnectionSpec& spec) override;
  void publish_done(std::uint64_t operation) override;
  [[nodiscard]] std::atomic<std::uint64_t>* done_word() override;
  [[nodiscard]] std::uint64_t done_of(Rank peer) const override;
  [[nodiscard]] std::uint64_t mapped_bytes() const override {
    // Relaxed: a figure for people, it orders nothing.
    return mapped_bytes_.load(std::memory_order_relaxed);
  }
  void close() override;

 private:
  [[nodiscard]] const PeerInfo& me() const {
    return control_.peers()[static_cast<std::size_t>(rank_)];
  }
  [[nodiscard]] bool in_range(Rank rank) const { return rank >= 0 && rank < layout_.ranks; }
  [[nodiscard]] Peer& peer_of(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] SpecLimits limits() const {
    return {.ranks = static_cast<Rank>(peers_.size()), .arena_bytes = layout_.arena_bytes};
  }
  [[nodiscard]] Status fetch(Deadline deadline);
  void open_own();
  void count_mapping(const Segment& segment) {
    mapped_bytes_.fetch_add(segment.bytes(), std::memory_order_relaxed);
  }

  ControlChannel& control_;
  const Rank rank_;
  const shm::Backing backing_;
  const Log log_;
  const InboxLayout layout_;
  std::vector<Peer> peers_;                  // user thread
  Rank first_ = kNoRank;                     // of this host: it makes the file
  std::int32_t places_ = 0;                  // ranks of this host
  bool listens_ = false;                     // user thread
  std::shared_ptr<const SegmentFile> file_;  // user thread; null before connect, after close
  std::optional<Segment> own_;               // user thread; the same
  std::shared_ptr<Served> served_;           // of the first rank: shared with the request handler
  std::atomic<std::uint64_t> mapped_bytes_{0};
};

Status ShmTransport::listen() {
  if (layout_.ranks == 1 || listens_) return {};
  listens_ = true;
  if (rank_ != first_) return {};
  TUTTI_TRY_ASSIGN(SegmentFile file, SegmentFile::create(layout_, places_, rank_, backing_));
  file_ = std::make_shared<const SegmentFile>(std::move(file));
  if (!file_->sealed()) {
    TUTTI_LOG(log_, LogLevel::kWarn,
              "rank {}: the system refuses memfd, so shared memory is an unnamed file in /dev/shm, "
              "of {} bytes for each of {} ranks",
              rank_, layout_.total_bytes(), places_);
  }
  open_own();
  served_ = std::make_shared<Served>();
  served_->fd = file_->shared_fd();
  served_->open = true;
  control_.serve(RequestKind::kShmSegment,
                 [served = served_](const Request&) { return served->answer(); });
  return {};
}

void ShmTransport::open_own() {
  own_ = file_->at(peer_of(rank_).place);
  count_mapping(*own_);
}

Status ShmTransport::fetch(Deadline deadline) {
  if (own_) return {};
  TUTTI_TRY_ASSIGN(Reply reply, control_.call(first_, RequestKind::kShmSegment, {}, deadline));
  if (!reply.fd)
    return make_error(Code::kRemoteError, fmt::format("rank {} sent no segments", first_), first_);
  TUTTI_TRY_ASSIGN(SegmentFile file,
                   SegmentFile::map(std::move(reply.fd), layout_, places_, first_));
  file_ = std::make_shared<const SegmentFile>(std::move(file));
  open_own();
  return {};
}

Status ShmTransport::connect(Rank peer, Deadline deadline) {
  if (!in_range(peer)) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("cannot connect to rank {} of {}: there is no such peer", peer, layout_.ranks));
  }
  if (layout_.ranks == 1 || peer_of(peer).segment) return {};
  if (!listens_)
    return make_error(Code::kInvalidUsage, "shm: connect was called before listen or after close");
  const PeerInfo& info = control_.peers()[static_cast<std::size_t>(peer)];
  if (!reaches(info)) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("rank {} is on host {}, which shared memory on {} cannot reach",
                                  peer, info.host, me().host));
  }
  TUTTI_TRY(fetch(deadline));
  if (peer == rank_) return {};
  peer_of(peer).segment = file_->at(peer_of(peer).place);
  if (info.process_token != me().process_token) count_mapping(*peer_of(peer).segment);
  return {};
}

Result<Connection> ShmTransport::open_send(const ConnectionSpec& spec) {
  TUTTI_TRY(check_send(spec, limits(), rank_));
  Peer& peer = peer_of(spec.destination);
  if (!peer.segment) {
    return make_error(Code::kInvalidUsage,
                      fmt::format("rank {} sends to rank {} before it has connected to it", rank_,
                                  spec.destination));
  }
  return place_shared(spec, peer.segment->base(), layout_, state_of(peer.send, spec.index));
}

Result<Connection> ShmTransport::open_recv(const ConnectionSpec& spec) {
  TUTTI_TRY(check_recv(spec, limits(), rank_));
  if (!own_)
    return make_error(Code::kInvalidUsage,
                      "shm: open_recv was called before connect(own rank) or after close");
  return place_shared(spec, own_->base(), layout_, state_of(peer_of(spec.source).recv, spec.index));
}

void ShmTransport::publish_done(std::uint64_t operation) {
  // Release pairs with done_of: our reads of all those operations' messages come before it.
  if (own_) own_->header().done.store(operation, std::memory_order_release);
}

std::atomic<std::uint64_t>* ShmTransport::done_word() {
  return own_ ? &own_->header().done : nullptr;
}

std::uint64_t ShmTransport::done_of(Rank peer) const {
  if (!in_range(peer)) return 0;
  const auto& segment = peer == rank_ ? own_ : peers_[static_cast<std::size_t>(peer)].segment;
  // Acquire pairs with publish_done: what we write next comes after the peer's reads.
  return segment ? segment->header().done.load(std::memory_order_acquire) : 0;
}

void ShmTransport::close() {
  if (served_) {
    const std::lock_guard lock(served_->mutex);
    served_->open = false;
  }
  for (Peer& peer : peers_) {
    peer.segment.reset();
    peer.send.reset();
    peer.recv.reset();
  }
  own_.reset();
  file_.reset();
  listens_ = false;
  mapped_bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<Transport>> make_shm_transport(ControlChannel& control,
                                                      const ShmOptions& options) {
  ShmOptions rounded = options;
  TUTTI_TRY_ASSIGN(rounded.arena_bytes, round_arena(options.arena_bytes));
  return std::make_unique<ShmTransport>(control, rounded);
}

}  // namespace tutti
