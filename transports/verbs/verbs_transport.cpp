// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/verbs_transport.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include "base/process_fd.hpp"
#include "transports/pumped.hpp"
#include "transports/verbs/links.hpp"
#include "transports/verbs/peer.hpp"
#include "transports/verbs/port.hpp"

namespace tutti {
namespace {

using namespace verbs;

// Prior costs until calibration: a message between two ports of 100 Gbit/s, which move its bytes.
// Either kind is one write; cells are copied once more where they land (docs/performance.md).
constexpr LinkCost kFlaggedCost{
    .alpha_ns = 2'200,
    .beta_ns_per_byte = 0.085,
    .overhead_ns = 300,
};
constexpr LinkCost kSlotsCost{
    .alpha_ns = 2'000,
    .beta_ns_per_byte = 0.085,
    .overhead_ns = 300,
};

constexpr std::uint32_t kTurnsPerLook = 4096;   // at the device's events, which is a system call
constexpr std::int64_t kProbeNs = 100'000'000;  // between two questions whether a peer is there
constexpr std::int64_t kMostAwaitNs = 900'000'000;
// For goodbyes to arrive; by default 1.1 s.
constexpr std::int64_t kMostNapNs = 50'000'000;  // of what nobody tells there is a look then
constexpr std::int64_t kLeastLingerNs = 200'000'000, kMostLingerNs = 2'000'000'000;

// One Landing per rank, zeroed, on pages of its own.
class Landings {
 public:
  [[nodiscard]] static Result<Landings> make(std::size_t ranks) {
    const std::size_t bytes = ranks * sizeof(Landing);
    void* const base =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
      return errno_error("verbs: there is no memory for the credit messages", errno);
    return Landings(static_cast<Landing*>(base), bytes);
  }
  [[nodiscard]] Landing* first() const { return memory_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {reinterpret_cast<std::byte*>(first()), memory_.get_deleter().bytes};
  }

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(Landing* base) const { ::munmap(base, bytes); }
  };
  Landings(Landing* base, std::size_t bytes) : memory_(base, Unmap{bytes}) {}
  std::unique_ptr<Landing[], Unmap> memory_;
};

class VerbsTransport final : public PumpedTransport<Peer, Home> {
 public:
  VerbsTransport(ControlChannel& control, const VerbsOptions& options, std::unique_ptr<Port> port)
      : PumpedTransport(control, options.arena_bytes, options.log),
        policy_{.timeout = options.timeout, .retries = options.retries},
        port_(std::move(port)),
        registrations_(*port_) {
    home_.registrations = &registrations_;
  }
  ~VerbsTransport() override {
    close();
    peers_.clear();  // before the port, also in a forked child, where close() leaves them
  }

  [[nodiscard]] std::string_view name() const override { return "verbs"; }
  [[nodiscard]] Capabilities capabilities() const override {
    return {.pumps = true,
            .flagged = kFlaggedCost,
            .slots = kSlotsCost,
            .arena_bytes = home_.layout.arena_bytes};
  }
  [[nodiscard]] Status listen() override;
  [[nodiscard]] Result<std::uint64_t> register_memory(std::span<std::byte> memory) override {
    return registrations_.add(memory);
  }
  void unregister_memory(std::uint64_t key) override { registrations_.remove(key); }
  [[nodiscard]] bool may_lend(std::span<const std::byte> memory) const override {
    return registrations_.local_key(memory).has_value();
  }
  [[nodiscard]] Status progress() override;
  [[nodiscard]] Status flush() override {
    if (!home_.inbox) return {};
    for (Peer* const peer : active_) peer->pump();
    return {};
  }
  [[nodiscard]] bool await(Rank rank, std::int64_t ns) override;
  [[nodiscard]] Owed owed() const override {
    const auto found =
        std::ranges::find_if(active_, [](Peer* peer) { return !peer->acknowledged(); });
    // Counts messages, not bytes: the adapter reports per request.
    return found == active_.end() ? Owed{} : Owed{(*found)->rank(), 1};
  }
  [[nodiscard]] Status health(Rank rank) const override;
  void say_goodbye() override {
    PumpedTransport::say_goodbye();
    lingers_ = true;
  }
  void close() override;

 private:
  [[nodiscard]] Status make_link(Peer& peer, Rank rank, Deadline deadline) override;
  [[nodiscard]] Status meet(Rank rank, Deadline deadline);
  void take_links();
  void look_at_events();
  void linger();

  const RetryPolicy policy_;
  const std::unique_ptr<Port> port_;
  Registrations registrations_;
  std::optional<Landings> landings_;
  Memory landings_memory_ = no_memory(), arena_memory_ = no_memory();
  std::shared_ptr<Links> links_;  // shared with the request handler
  std::uint64_t taken_links_ = 0;
  std::uint32_t turns_ = 0;
  mutable std::int64_t next_probe_ns_ = 0;
  bool lingers_ = false;
  const std::uint64_t generation_ = fork_generation();
};

Status VerbsTransport::listen() {
  if (home_.layout.ranks == 1 || home_.inbox) return {};
  TUTTI_TRY_ASSIGN(Landings landings, Landings::make(peers_.size()));
  TUTTI_TRY_ASSIGN(PrivateInbox inbox, PrivateInbox::make(home_.layout));
  std::byte* const arena = inbox.base() + home_.layout.arena_offset_bytes();
  constexpr int kWritten = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  TUTTI_TRY_ASSIGN(Memory landings_memory, port_->register_memory(landings.bytes(), kWritten));
  TUTTI_TRY_ASSIGN(Memory arena_memory,
                   port_->register_memory({arena, home_.layout.arena_bytes}, kWritten));
  Card card = port_->card();
  card.arena_address = reinterpret_cast<std::uintptr_t>(arena);
  card.arena_bytes = home_.layout.arena_bytes;
  card.arena_key = arena_memory->rkey;
  card.landing_address = reinterpret_cast<std::uintptr_t>(landings.first());
  card.landing_key = landings_memory->rkey;
  landings_ = std::move(landings);
  landings_memory_ = std::move(landings_memory);
  arena_memory_ = std::move(arena_memory);
  home_.inbox = std::move(inbox);
  home_.landings = landings_->first();
  home_.landings_key = landings_memory_->lkey;
  mapped_bytes_.fetch_add(home_.layout.total_bytes() + landings_->bytes().size(),
                          std::memory_order_relaxed);
  TUTTI_LOG(log_, LogLevel::kInfo, "verbs: rank {} uses {}", home_.rank,
            tutti::text_of(port_->about()));
  const bool first = links_ == nullptr;  // not again, after close()
  if (first) links_ = std::make_shared<Links>();
  links_->open(*port_, policy_, card);
  if (first)
    control_.serve(RequestKind::kVerbs,
                   [links = links_](const Request& request) { return links->answer(request); });
  return {};
}

Status VerbsTransport::make_link(Peer& peer, Rank rank, Deadline deadline) {
  TUTTI_TRY(meet(rank, deadline));
  take_links();
  TUTTI_TRY(peer.make_mirror(*port_));
  peer.say_hello();
  return {};
}

// Asked even where the peer has joined this end already: its answer says that its own is joined.
Status VerbsTransport::meet(Rank rank, Deadline deadline) {
  TUTTI_TRY_ASSIGN(const Card mine, links_->card_for(rank));
  TUTTI_TRY_ASSIGN(const Reply reply, control_.call(rank, RequestKind::kVerbs,
                                                    std::as_bytes(std::span(&mine, 1)), deadline));
  Status joined = links_->join(rank, reply.payload);
  if (joined) return {};
  return tl::unexpected(of_peer(std::move(joined).error(), rank));
}

void VerbsTransport::take_links() {
  taken_links_ = links_->joined();
  links_->visit([&](Rank rank, Link& link) {
    if (!in_range(rank)) return;
    Peer& peer = peer_of(rank);
    if (peer.has_link()) return;
    peer.take_link(link);
    active_.push_back(&peer);
  });
}

// Who asks waits for that rank, perhaps for nothing but its word: a write finds out whether its
// adapter still knows the connection.
Status VerbsTransport::health(Rank rank) const {
  Peer* const peer = known(rank);
  if (peer == nullptr || !peer->has_link()) return {};
  if (peer->broken() == nullptr) {
    if (const std::int64_t now = now_ns(); now >= next_probe_ns_ && !peer->has_left()) {
      next_probe_ns_ = now + kProbeNs;
      peer->link()->probe();
      peer->link()->give_up_if_silent(now);
    }
    return {};
  }
  return make_error(
      Code::kRemoteError,
      fmt::format("the RDMA connection to rank {} on {} is lost: {}{}", rank, host_of(rank),
                  peer->broken()->cause(),
                  port_->down() ? fmt::format("; this rank's port {}:{} is down",
                                              port_->about().device, port_->about().port)
                                : std::string{}),
      rank);
}

void VerbsTransport::look_at_events() {
  const Port::Events events = port_->events();
  if (events.changed)
    TUTTI_LOG(log_, LogLevel::kWarn, "verbs: the port {}:{} of rank {} is {}",
              port_->about().device, port_->about().port, home_.rank,
              port_->down() ? "down" : "up again");
  for (Peer* const peer : active_) {
    if (!events.device_failure.empty())
      peer->link()->fail("this rank's adapter reports: " + events.device_failure);
    if (std::ranges::find(events.failed_queue_pairs, peer->link()->queue_pair()) !=
        events.failed_queue_pairs.end())
      peer->link()->fail("this rank's adapter reports an error of the connection");
  }
}

Status VerbsTransport::progress() {
  if (!home_.inbox) return {};
  for (Peer* const peer : active_) peer->pump();
  for (Peer* const peer : active_) peer->poll();
  if (links_->joined() != taken_links_) take_links();
  if (turns_++ % kTurnsPerLook == 0) look_at_events();
  return {};
}

// What came before the queues were armed tells nobody.
bool VerbsTransport::await(Rank rank, std::int64_t ns) {
  const Peer* const peer = known(rank);
  if (!home_.inbox || peer == nullptr || !peer->connected() || peer->awaits_credit()) return false;
  for (Peer* const it : active_) it->arm();
  bool came = false;
  for (Peer* const it : active_) came = it->poll() || came;
  if (came) return true;
  port_->sleep(std::min(ns, kMostAwaitNs));
  turns_ = 0;  // it may have been the device
  return true;
}

// A goodbye that is lost is said again at the next of the adapter's turns. Its acknowledgement ends
// the sleep.
void VerbsTransport::linger() {
  const std::int64_t turns_ns = 4 * (std::int64_t{4096} << std::min(policy_.timeout, 20U));
  const Deadline deadline = Deadline::in_ns(std::clamp(turns_ns, kLeastLingerNs, kMostLingerNs));
  while (owed().bytes > 0 && !deadline.passed()) {
    for (Peer* const peer : active_) peer->arm();
    static_cast<void>(progress());
    if (owed().bytes > 0) port_->sleep(std::clamp<std::int64_t>(deadline.left_ns(), 0, kMostNapNs));
  }
}

void VerbsTransport::close() {
  // A forked child's copy: the queues and registrations are its parent's, and the service thread,
  // which is not there, may hold the mutex of the links.
  if (generation_ != fork_generation()) return;
  if (links_) {
    if (lingers_) linger();
    active_.clear();
    taken_links_ = 0;
    links_->close();
  }
  lingers_ = false;
  for (auto& peer : peers_) peer.reset();
  registrations_.clear();
  landings_memory_.reset();
  arena_memory_.reset();
  home_.inbox.reset();
  home_.landings = nullptr;
  landings_.reset();
  mapped_bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace

bool has_verbs_transport() { return true; }

Result<VerbsWay> make_verbs_transport(ControlChannel& control, const VerbsOptions& options) {
  VerbsOptions rounded = options;
  TUTTI_TRY_ASSIGN(rounded.arena_bytes, round_arena(options.arena_bytes));
  TUTTI_TRY_ASSIGN(std::unique_ptr<Port> port, Port::open(rounded));
  VerbsPort about = port->about();
  return VerbsWay{std::make_unique<VerbsTransport>(control, rounded, std::move(port)),
                  std::move(about)};
}

}  // namespace tutti
