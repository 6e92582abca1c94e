// Joining: from the 128 bytes of an id to a control plane. A job of one rank needs no socket, no
// thread and no root.

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "base/host.hpp"
#include "runtime/control/plane.hpp"
#include "runtime/control/root.hpp"

namespace tutti {
namespace control {
namespace {

class SoloPlane final : public ControlPlane {
 public:
  SoloPlane(const SessionId& session, const JoinOptions& options) : session_(session) {
    peers_.push_back({.rank = 0,
                      .pid = ::getpid(),
                      .uid = ::geteuid(),
                      .process_token = process_token(),
                      .token_address = process_token_address(),
                      .host_id = host_identity(options.host_id_text),
                      .host = host_name().substr(0, kMaxHostBytes)});
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
      return make_error(Code::kInvalidArgument,
                        fmt::format("request {} to rank {} of 1: nobody serves it",
                                    static_cast<int>(kind), peer));
    }
    TUTTI_TRY_ASSIGN(HandlerReply answer, found->second(Request{.from = 0, .payload = payload}));
    Reply reply{.payload = std::move(answer.payload), .fd = {}};
    if (answer.lent_fd >= 0) reply.fd.reset(::fcntl(answer.lent_fd, F_DUPFD_CLOEXEC, 0));
    return reply;
  }
  [[nodiscard]] Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine,
                                                         Deadline) override {
    return std::vector<std::byte>(mine.begin(), mine.end());
  }
  void watch_peers(std::function<void(Rank)>) override {}
  void forget_peers() override {}
  [[nodiscard]] bool has_pidfd() const override { return tutti::has_pidfd(); }
  [[nodiscard]] std::string note() const override { return "one rank: nobody to watch"; }
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

Result<std::unique_ptr<Plane>> start_and_meet(const IdContent& content, const PlaneOptions& own,
                                              const JoinOptions& options) {
  Result<std::unique_ptr<Plane>> plane = Plane::start(own);
  if (!plane) {
    Error error = std::move(plane).error();
    error.message = fmt::format("rank {} cannot join: {}", own.rank, error.message);
    return tl::unexpected(std::move(error));
  }
  const std::stop_callback cancelled(options.cancel, [&] { (*plane)->interrupt(); });
  TUTTI_TRY((*plane)->meet(content.address, options));
  return plane;
}

}  // namespace
}  // namespace control

Result<UniqueId> create_unique_id(const Log& log) { return control::start_root(log); }

Result<std::unique_ptr<ControlPlane>> ControlPlane::join(const UniqueId& id, Rank rank,
                                                         std::int32_t ranks,
                                                         const JoinOptions& options) {
  if (::sodium_init() < 0) return make_error(Code::kSystemError, "no source of random bytes");
  TUTTI_TRY_ASSIGN(const control::IdContent content, control::decode_id(id));
  if (ranks < 1 || ranks > control::kMaxRanks || rank < 0 || rank >= ranks) {
    return make_error(Code::kInvalidUsage,
                      fmt::format("rank {} of {} ranks: ranks are 1 to {}, and 0 <= rank < ranks",
                                  rank, ranks, control::kMaxRanks));
  }
  if (ranks == 1) {
    control::retire_root(content.key.session);
    return std::make_unique<control::SoloPlane>(content.key.session, options);
  }
  auto plane = control::start_and_meet(
      content,
      {.key = content.key,
       .rank = rank,
       .ranks = ranks,
       .log = options.log,
       .watch_mode = tutti::has_pidfd() ? control::WatchMode::kPidfd : control::WatchMode::kPoll},
      options);
  if (plane) return *std::move(plane);
  // Nobody needs to wait for a rank that this machine does not let come.
  if (plane.error().code == Code::kSystemError) {
    control::call_off(content.key.session, rank, ranks, plane.error());
  }
  return tl::unexpected(std::move(plane).error());
}

}  // namespace tutti
