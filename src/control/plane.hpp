// SPDX-License-Identifier: Apache-2.0
// The control plane of one rank of a job of several: its service, its links, its exchanges.
// Its public face is ControlPlane; only join.cpp makes one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/control_plane.hpp"
#include "control/division.hpp"
#include "control/link.hpp"
#include "control/service.hpp"

namespace tutti::control {

struct PlaneOptions {
  SessionKey key;
  Rank rank = kNoRank;
  std::int32_t ranks = 0;
  std::int32_t roots = 1;  // where the ranks meet
  Log log = Log();
  WatchMode watch_mode = WatchMode::kPidfd;
  ListenKind listen_kind = ListenKind::kAny;
  // Identifies the reach of Unix sockets: one machine and network namespace. 0: this one.
  std::uint64_t locality = 0;
  std::optional<TcpAddress> tcp_at{};  // where to listen for ranks of others; port 0
};

// A root to which a rank comes.
struct RootWay {
  Way way;
  SessionKey key;
  std::int32_t number = 0;  // of the job's roots
};

// A rank of this process. `host_id_text`: TUTTI_HOST_ID.
[[nodiscard]] PeerInfo own_info(Rank rank, std::string_view host_id_text);

class Plane final : public ControlPlane {
 public:
  // The service of a plane to be; it lets nobody in and nobody knows of it.
  [[nodiscard]] static Result<std::unique_ptr<Service>> start_service(const PlaneOptions& options);
  [[nodiscard]] static Result<std::unique_ptr<Plane>> start(const PlaneOptions& options,
                                                            std::unique_ptr<Service> service);
  ~Plane() override { close(); }

  // Meets the others at its part's root, and for a leader the first one too (meeting.cpp); or knows
  // them already. One of both, once, before anything below.
  [[nodiscard]] Status meet(std::span<const RootWay> roots, const JoinOptions& options);
  void adopt(std::vector<Member> members);

  [[nodiscard]] Rank rank() const override { return options_.rank; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const override { return peers_; }
  [[nodiscard]] Status health() const override { return service_->health(); }
  void serve(RequestKind kind, Handler handler) override;
  [[nodiscard]] Result<Reply> call(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                                   Deadline deadline) override;
  [[nodiscard]] Status await_writable(int socket, Deadline deadline) override;
  using ControlPlane::allgather;
  [[nodiscard]] Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine,
                                                         Deadline deadline,
                                                         std::span<std::byte> announced) override;
  void call_off() override;
  [[nodiscard]] Result<std::unique_ptr<ChildJob>> prepare_child() override;
  void watch_peers(std::function<bool(Rank)> on_death) override;
  void watch_closely() override { service_->watch_closely(); }
  void watch(Rank peer) override { service_->watch(peer); }
  void connect_watches(Deadline deadline) override;
  void leave_watches() override { service_->leave_watches(); }
  void tell_revoke() override { service_->tell_revoke(); }
  void watch_revokes(std::function<void(Rank)> on_revoke) override {
    service_->watch_revokes(std::move(on_revoke));
  }
  [[nodiscard]] bool nobody_listens(Rank peer) override;
  void serve_waiting(RequestKind kind, WaitingHandler handler) override;
  void retry(RequestKind kind) override { service_->retry(kind); }
  void forget_peers() override { service_->forget(); }
  [[nodiscard]] bool has_pidfd() const override { return options_.watch_mode == WatchMode::kPidfd; }
  [[nodiscard]] std::string note() const override;
  [[nodiscard]] std::string ip() const override;
  [[nodiscard]] SessionId session() const override { return options_.key.session; }
  void end_calls_when(std::function<bool()> over) override {
    over_ = over;
    links_->end_when(std::move(over));
  }
  void look_when(std::function<std::int64_t()> look) override {
    service_->look_when(std::move(look));
  }
  void look_soon() override { service_->look_soon(); }
  void interrupt() override;
  void close() override;

 private:
  explicit Plane(const PlaneOptions& options) : options_(options) {}
  // A root at which this rank has checked in.
  struct Visit {
    const RootWay* root = nullptr;
    Channel channel;
    bool met = false;  // it has told the addresses
    int returns = 0;
  };
  // An exchange among some ranks, as a part of the mailbox's exchange of this number.
  struct Leg {
    Circle circle;
    std::uint64_t exchange = 0;
    std::uint32_t first_round = 0;
  };
  [[nodiscard]] Result<Channel> introduce(const RootWay& root, Deadline deadline);
  [[nodiscard]] Status check_in(std::span<const RootWay> roots, Deadline deadline);
  [[nodiscard]] Status come_again(Visit& visit, Deadline deadline);
  [[nodiscard]] Status await_contacts(std::size_t visit, Deadline deadline);
  [[nodiscard]] Status hear_root(Visit& visit, std::span<const std::byte> packet);
  [[nodiscard]] Error root_gone() const;
  [[nodiscard]] Result<std::vector<std::byte>> meet_others(Deadline deadline);
  [[nodiscard]] Result<std::vector<std::byte>> meet_parts(Deadline deadline);
  [[nodiscard]] Result<std::vector<std::byte>> exchange(std::span<const std::byte> mine,
                                                        Deadline deadline,
                                                        std::span<std::byte> announced = {});
  [[nodiscard]] Result<std::vector<std::byte>> run_leg(const Leg& leg,
                                                       std::span<const std::byte> mine,
                                                       Deadline deadline,
                                                       std::span<std::byte> announced = {});
  [[nodiscard]] Status connect_watch(Rank peer, Deadline by);
  [[nodiscard]] Status run_round(const Leg& leg, Exchange& exchange, Deadline deadline);
  [[nodiscard]] Result<std::vector<std::byte>> take(Rank from, std::uint32_t round,
                                                    std::size_t bytes, Deadline deadline);
  [[nodiscard]] std::optional<Error> find_gone(Rank peer);
  [[nodiscard]] bool is_told_to_stop() const;
  void spread_failure(const Leg& leg, std::uint32_t first_round, const Error& own);
  [[nodiscard]] Error find_absent(Error error, std::uint64_t number);
  [[nodiscard]] Error explain(Error error, Deadline by = Deadline{INT64_MAX});
  // Adds who `peer` is, if it is to blame.
  [[nodiscard]] Error introduce_culprit(Error error, Rank peer) const;
  [[nodiscard]] Status read_records(std::span<const std::byte> records);

  const PlaneOptions options_;
  Member self_;
  std::vector<Visit> visits_;    // only while it meets, and until the service attends them
  std::vector<Member> members_;  // fixed after meet()
  std::vector<PeerInfo> peers_;  // the same, for others
  std::unique_ptr<StopSignal> stop_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Links> links_;
  std::function<bool()> over_;  // null: never
  bool met_ = false;
  bool watching_ = false;
  std::atomic<bool> closed_{false};  // relaxed: a flag for idempotence, guards nothing
  // Relaxed: the mailbox's mutex, or the descriptor of stop_, orders it before the error.
  std::atomic<bool> interrupted_{false};
};

// Starts a plane and meets at the roots of these ids, each by the way that is open to it: over its
// Unix socket where that reaches, else over TCP. Fills in `roots` and the two last fields of `own`,
// those unless they are set.
[[nodiscard]] Result<std::unique_ptr<Plane>> start_and_meet(std::span<const IdContent> ids,
                                                            PlaneOptions own,
                                                            const JoinOptions& options);

}  // namespace tutti::control
