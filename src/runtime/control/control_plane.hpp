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
#include <stop_token>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "transports/control.hpp"

namespace tutti {

inline constexpr std::size_t kUniqueIdBytes = 128;
inline constexpr std::size_t kSessionIdBytes = 16;

// {version, address, 128-bit public session id, 256-bit secret}. Whoever holds it may join.
struct UniqueId {
  std::array<std::byte, kUniqueIdBytes> bytes{};
};

// Creates an id and a root service in this process that lets any number of ranks meet once. The
// root lives on a thread of its own until the job has met or failed to, an hour has passed without
// anybody coming, or the process ends; nobody has to join it. A forked child does not have it, and
// may create ids of its own. Any thread.
[[nodiscard]] Result<UniqueId> create_unique_id(const Log& log = Log());

struct JoinOptions {
  Deadline deadline{};
  std::string host_id_text{};  // TUTTI_HOST_ID: ranks with equal texts count as one host
  Log log = Log();
  std::stop_token cancel{};  // ends join() early; not looked at afterwards
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

  // Log-step (Bruck) exchange: `all` is ranks blobs of mine.size() bytes, in rank order.
  // Collective, all ranks pass the same size; all together at most 64 MiB. User thread. One at a
  // time. Errors: kTimeout with the rank that did not come, kRemoteError with the rank that died,
  // kInvalidUsage if the sizes differ, kInvalidArgument if they are too large.
  [[nodiscard]] virtual Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine,
                                                                 Deadline deadline) = 0;
  // Returns once every rank has entered it. An exchange of nothing.
  [[nodiscard]] Status barrier(Deadline deadline) {
    return allgather({}, deadline).map([](const std::vector<std::byte>&) {});
  }
  // Calls `on_death(rank)` on the service thread for every other rank whose process ends before
  // forget_peers(). Uses pidfds, or where the kernel refuses them a poll of /proc; `note` says so.
  // Ranks that are threads of this process, live on other hosts or in another pid namespace are not
  // watched. A death also ends the exchanges that need the dead rank, within about a second.
  // `on_death` must not block.
  virtual void watch_peers(std::function<void(Rank)> on_death) = 0;
  // No on_death begins after this has returned.
  virtual void forget_peers() = 0;
  [[nodiscard]] virtual bool has_pidfd() const = 0;
  // How deaths are noticed, and of whom they are not, in one line for people.
  [[nodiscard]] virtual std::string note() const = 0;
  // Public name of the job; equal on all ranks.
  [[nodiscard]] virtual std::array<std::byte, kSessionIdBytes> session() const = 0;
  // Ends calls once `over` says so; asked by the thread that waits in one. Before calls of others.
  virtual void end_calls_when(std::function<bool()> over) = 0;
  // Ends calls and exchanges, those under way too, with kInvalidUsage. Any thread, never blocks.
  virtual void interrupt() = 0;
  // Ends the service thread and closes every socket; ends calls of other threads. Idempotent; joins
  // the thread. Not to be called by handlers or on_death.
  virtual void close() = 0;
};

}  // namespace tutti
