// Joining a job and talking to its members: unique id, authenticated connections, log-step
// exchange, one service thread a rank, death notices.
//
// Every connection is proved by both ends with HMAC-SHA-256 over both nonces, role, ranks and
// session (the secret never leaves the process); Unix sockets also check the peer's uid. The
// service thread never waits on one peer. All waits carry a deadline.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "transports/control.hpp"

namespace tutti {

inline constexpr std::size_t kUniqueIdBytes = 128;

// {version, address, 128-bit public session id, 256-bit secret}. Whoever holds it may join.
struct UniqueId {
  std::array<std::byte, kUniqueIdBytes> bytes{};
};

// Creates an id and a root service in this process that lets `any` number of ranks meet once. The
// root lives on a thread of its own until the job has met, or until the process ends.
[[nodiscard]] Result<UniqueId> create_unique_id();

struct JoinOptions {
  Deadline deadline;
};

class ControlPlane : public ControlChannel {
 public:
  // Collective over all ranks. Returns once every rank has joined and all know all; O(log ranks)
  // rounds after the root's introduction. Errors: kTimeout naming the ranks that did not come,
  // kInvalidUsage for a doubled or out-of-range rank or for ranks that disagree on nranks,
  // kInvalidArgument for a damaged id or one of another version.
  [[nodiscard]] static Result<std::unique_ptr<ControlPlane>> join(const UniqueId& id, Rank rank,
                                                                  std::int32_t ranks,
                                                                  const JoinOptions& options);

  // Log-step (Bruck) exchange: `all` is ranks blobs of mine.size() bytes, in rank order. Collective,
  // all ranks pass the same size. User thread. One at a time.
  [[nodiscard]] virtual Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine,
                                                                 Deadline deadline) = 0;
  // Calls `on_death(rank)` on the service thread for every other rank whose process ends before
  // forget_peers(). Uses pidfds, or where the kernel refuses them a poll of /proc; `note` says so.
  virtual void watch_peers(std::function<void(Rank)> on_death) = 0;
  virtual void forget_peers() = 0;
  [[nodiscard]] virtual bool has_pidfd() const = 0;
  // Ends the service thread and closes every socket. Idempotent; joins the thread.
  virtual void close() = 0;
};

}  // namespace tutti
