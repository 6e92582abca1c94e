// SPDX-License-Identifier: Apache-2.0
#include "control/solo_plane.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/host.hpp"
#include "control/stop.hpp"

namespace tutti::control {
namespace {

class SoloPlane final : public ControlPlane {
 public:
  SoloPlane(const SessionId& session, PeerInfo self) : session_(session) {
    self.rank = 0;
    peers_.push_back(std::move(self));
  }

  [[nodiscard]] Rank rank() const override { return 0; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const override { return peers_; }
  void serve(RequestKind kind, Handler handler) override {
    const std::lock_guard lock(mutex_);
    handlers_[kind] = std::move(handler);
  }
  // The handler runs on the calling thread.
  [[nodiscard]] Result<Reply> call(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                                   Deadline) override {
    const std::lock_guard lock(mutex_);
    const auto found = handlers_.find(kind);
    if (peer != 0 || found == handlers_.end()) {
      return make_error(
          Code::kInvalidArgument,
          fmt::format("request {} to rank {} of 1 has no handler", static_cast<int>(kind), peer));
    }
    TUTTI_TRY_ASSIGN(HandlerReply answer, found->second(Request{.from = 0, .payload = payload}));
    Reply reply{.payload = std::move(answer.payload), .fd = {}};
    if (answer.lent_fd >= 0) reply.fd.reset(::fcntl(answer.lent_fd, F_DUPFD_CLOEXEC, 0));
    return reply;
  }
  [[nodiscard]] Status await_writable(int socket, Deadline deadline) override {
    return wait_for(socket, POLLOUT, -1, deadline);
  }
  [[nodiscard]] Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine, Deadline,
                                                         std::span<std::byte>) override {
    return std::vector<std::byte>(mine.begin(), mine.end());
  }
  [[nodiscard]] Result<std::unique_ptr<ChildJob>> prepare_child() override;
  void watch_peers(std::function<bool(Rank)>) override {}
  void forget_peers() override {}
  [[nodiscard]] bool has_pidfd() const override { return tutti::has_pidfd(); }
  [[nodiscard]] std::string note() const override {
    return "there is one rank only, so there is no peer to watch";
  }
  [[nodiscard]] SessionId session() const override { return session_; }
  void end_calls_when(std::function<bool()>) override {}
  void interrupt() override {}
  void close() override {
    const std::lock_guard lock(mutex_);
    handlers_.clear();
  }

 private:
  SessionId session_;
  std::vector<PeerInfo> peers_;
  std::mutex mutex_;
  std::map<RequestKind, Handler> handlers_;  // guarded by mutex_
};

class SoloChild final : public ChildJob {
 public:
  explicit SoloChild(PeerInfo self) : self_(std::move(self)) {}
  [[nodiscard]] const ServiceAddress& address() const override { return address_; }
  [[nodiscard]] Result<std::unique_ptr<ControlPlane>> enter(
      const SessionKey& key, std::span<const ChildMember> members) override {
    if (members.size() != 1 || members.front().parent != 0)
      return make_error(Code::kInternalError, "a job of one rank can have no other member");
    return make_solo_plane(key.session, self_);
  }

 private:
  const PeerInfo self_;
  const ServiceAddress address_;  // nobody asks for it
};

Result<std::unique_ptr<ChildJob>> SoloPlane::prepare_child() {
  return std::make_unique<SoloChild>(peers_.front());
}

}  // namespace

std::unique_ptr<ControlPlane> make_solo_plane(const SessionId& session, PeerInfo self) {
  return std::make_unique<SoloPlane>(session, std::move(self));
}

}  // namespace tutti::control
