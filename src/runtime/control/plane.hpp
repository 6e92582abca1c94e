// The control plane of one rank of a job of several: its service, its links, its exchanges.
// Its public face is ControlPlane; only join.cpp makes one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/control/control_plane.hpp"
#include "runtime/control/link.hpp"
#include "runtime/control/service.hpp"

namespace tutti::control {

struct PlaneOptions {
  SessionKey key;
  Rank rank = kNoRank;
  std::int32_t ranks = 0;
  Log log = Log();
  WatchMode watch_mode = WatchMode::kPidfd;
  ListenKind listen_kind = ListenKind::kAny;
};

class Plane final : public ControlPlane {
 public:
  // Starts the service; nobody knows of it yet.
  [[nodiscard]] static Result<std::unique_ptr<Plane>> start(const PlaneOptions& options);
  ~Plane() override { close(); }

  // Meets the others at `root_address`. Once, before anything below.
  [[nodiscard]] Status meet(const std::string& root_address, const JoinOptions& options);

  [[nodiscard]] Rank rank() const override { return options_.rank; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const override { return peers_; }
  void serve(RequestKind kind, Handler handler) override;
  [[nodiscard]] Result<Reply> call(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                                   Deadline deadline) override;
  [[nodiscard]] Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine,
                                                         Deadline deadline) override;
  void watch_peers(std::function<void(Rank)> on_death) override;
  void forget_peers() override { service_->forget(); }
  [[nodiscard]] bool has_pidfd() const override { return options_.watch_mode == WatchMode::kPidfd; }
  [[nodiscard]] std::string note() const override;
  [[nodiscard]] SessionId session() const override { return options_.key.session; }
  void end_calls_when(std::function<bool()> over) override { links_->end_when(std::move(over)); }
  void interrupt() override;
  void close() override;

 private:
  explicit Plane(const PlaneOptions& options) : options_(options) {}
  [[nodiscard]] Result<ControlFd> introduce(const std::string& root_address, Deadline deadline);
  [[nodiscard]] Status await_contacts(int root, Deadline deadline);
  [[nodiscard]] Result<std::vector<std::byte>> exchange(std::span<const std::byte> mine,
                                                        Deadline deadline);
  [[nodiscard]] Status run_rounds(std::uint64_t number, std::size_t blob_bytes,
                                  std::vector<std::byte>& blocks, Deadline deadline);
  void spread_failure(std::uint64_t number, std::uint32_t first_round, const Error& error);
  [[nodiscard]] Error find_absent(Error error, std::uint64_t number);
  [[nodiscard]] Error explain(Error error);
  [[nodiscard]] Status adopt(std::span<const std::byte> records);

  const PlaneOptions options_;
  Member self_;
  std::vector<Member> members_;  // fixed after meet()
  std::vector<PeerInfo> peers_;  // the same, for others
  std::unique_ptr<StopSignal> stop_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Links> links_;
  bool met_ = false;
  bool watching_ = false;
  std::atomic<bool> closed_{false};  // relaxed: a flag for idempotence, guards nothing
};

}  // namespace tutti::control
