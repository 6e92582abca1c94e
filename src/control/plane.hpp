// SPDX-License-Identifier: Apache-2.0
// The control plane of one rank of a job of several: its service, its links, its exchanges.
// Its public face is ControlPlane; only join.cpp makes one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/control_plane.hpp"
#include "control/exchange.hpp"
#include "control/link.hpp"
#include "control/service.hpp"

namespace tutti::control {

struct PlaneOptions {
  SessionKey key;
  Rank rank = kNoRank;
  std::int32_t ranks = 0;
  Log log = Log();
  WatchMode watch_mode = WatchMode::kPidfd;
  ListenKind listen_kind = ListenKind::kAny;
  // Identifies the reach of Unix sockets: one machine and network namespace. 0: this one.
  std::uint64_t locality = 0;
  std::optional<TcpAddress> tcp_at{};  // where to listen for ranks of others; port 0
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

  // Meets the others at the root, or knows them already. One of both, once, before anything below.
  [[nodiscard]] Status meet(const Way& root, const JoinOptions& options);
  void adopt(std::vector<Member> members);

  [[nodiscard]] Rank rank() const override { return options_.rank; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const override { return peers_; }
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
  [[nodiscard]] Result<Channel> introduce(const Way& root_way, Deadline deadline);
  [[nodiscard]] Status await_contacts(Channel& root, Deadline deadline);
  [[nodiscard]] Result<std::vector<std::byte>> exchange(std::span<const std::byte> mine,
                                                        Deadline deadline,
                                                        std::span<std::byte> announced = {});
  [[nodiscard]] Status run_round(std::uint64_t number, Exchange& exchange, Deadline deadline);
  [[nodiscard]] Result<std::vector<std::byte>> take(Rank from, std::uint32_t round,
                                                    std::size_t bytes, Deadline deadline);
  [[nodiscard]] std::optional<Error> find_gone(Rank peer);
  [[nodiscard]] bool is_told_to_stop() const;
  void spread_failure(std::uint64_t number, std::uint32_t first_round, const Error& own);
  [[nodiscard]] Error find_absent(Error error, std::uint64_t number);
  [[nodiscard]] Error explain(Error error);
  // Adds who `peer` is, if it is to blame.
  [[nodiscard]] Error introduce_culprit(Error error, Rank peer) const;
  [[nodiscard]] Status read_records(std::span<const std::byte> records);

  const PlaneOptions options_;
  Member self_;
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

// Starts a plane and meets, by the way of the id that is open to it: over its Unix socket where
// that reaches, else over TCP. Fills in the two last fields of `own`, unless they are set.
[[nodiscard]] Result<std::unique_ptr<Plane>> start_and_meet(const IdContent& content,
                                                            PlaneOptions own,
                                                            const JoinOptions& options);

}  // namespace tutti::control
