// SPDX-License-Identifier: Apache-2.0
// Joining a job and talking to its members: unique id, authenticated connections, exchanges
// along a tree, one service thread a rank, death notices.
//
// Every connection is proved by both ends with HMAC-SHA-256 over both nonces, role, ranks and
// session (the secret never leaves the process); Unix sockets also check the peer's uid. The
// service thread never waits on one peer. All waits carry a deadline.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "control/session_key.hpp"
#include "transports/control.hpp"

namespace tutti {

inline constexpr std::size_t kUniqueIdBytes = 128;

// {version, addresses of the root, 128-bit public session id, 256-bit secret}. Any process that
// holds it may join.
struct UniqueId {
  std::array<std::byte, kUniqueIdBytes> bytes{};
};

struct RootOptions {
  Log log = Log();
  // TUTTI_IFNAME's value: on which network interface the root listens besides its Unix socket, so
  // that ranks of other hosts can come. nullopt: as this process is configured.
  std::optional<std::string> interfaces{};
};

// Creates an id and a root service in this process that lets any number of ranks meet once. The
// root lives until each rank of the job has called watch_peers() or ended an exchange, the job has
// failed to meet, nobody has come for TUTTI_INIT_TIMEOUT_S, or the process ends; all of a process
// share one thread. A forked child does not have it, and may create ids of its own. Errors:
// kInvalidArgument (no such interface; names those present), kSystemError. Any thread.
[[nodiscard]] Result<UniqueId> create_unique_id(const RootOptions& options = {});

// The id of a job whose ranks have agreed beforehand where its root is and hold a secret of at
// least 16 bytes, for launchers that pass no data from rank to rank. Equal arguments make equal
// ids, in every process; nothing is asked of the system, and nothing listens yet: the process of
// rank 0 calls serve_root(), the others' join() waits for that. `host`: an IP address, or a name
// that every rank's resolver knows, at most 59 bytes. `job`: any text that differs from every other
// job of the same secret, earlier runs too: whoever holds the id of a job may join it. Error:
// kInvalidArgument. Any thread.
[[nodiscard]] Result<UniqueId> unique_id_at(std::string_view host, std::uint16_t port,
                                            std::span<const std::byte> secret,
                                            std::string_view job);

// Starts the root of an id of unique_id_at() in this process, where it lives as after
// create_unique_id(). It listens at that address and nowhere else; a name that means the loopback
// here, as hosts' own names often do, is taken for the address of the interface of `options`.
// Errors: kSystemError (the port is taken, the address is not of this host, or its resolver does
// not know the name), kInvalidUsage (an id with a root), kInvalidArgument. Once for each job. Any
// thread; waits for the system's resolver where the host is a name.
[[nodiscard]] Status serve_root(const UniqueId& id, const RootOptions& options = {});

struct JoinOptions {
  Deadline deadline{};
  std::string host_id_text{};  // TUTTI_HOST_ID: ranks with equal texts count as one host
  // TUTTI_IFNAME: where this rank listens for ranks of other hosts. Empty: where it reaches the
  // root.
  std::string interfaces{};
  Log log = Log();
  std::stop_token cancel{};  // ends join() early; not looked at afterwards
};

// Holds the addresses at which a rank's service listens, for ranks of its machine and for others;
// empty: it does not listen.
struct ServiceAddress {
  std::string local;
  std::string tcp;
  bool operator==(const ServiceAddress&) const = default;
};

struct ChildMember {
  Rank parent = kNoRank;  // its rank in the older job
  ServiceAddress address;
};

class ControlPlane;

// One rank's part of a job that is being made of members of an older one. Its service listens and
// lets nobody in yet: the members tell each other their addresses through the older job. The older
// control plane outlives it. User thread.
class ChildJob {
 public:
  virtual ~ChildJob() = default;
  [[nodiscard]] virtual const ServiceAddress& address() const = 0;
  // `members`: all, in the order of their new ranks, this one among them; `key`: the same on all.
  // Returns at once: others may come later. Once. Error: kRemoteError (a list that cannot be).
  [[nodiscard]] virtual Result<std::unique_ptr<ControlPlane>> enter(
      const control::SessionKey& key, std::span<const ChildMember> members) = 0;
};

class ControlPlane : public ControlChannel {
 public:
  // Collective over all ranks. Returns once every rank has joined and all know all; O(log ranks)
  // rounds after the root's introduction. The roots of several ids, the same list on all ranks,
  // divide the ranks among them (division.hpp). Errors: kTimeout naming the ranks that did not
  // come, kInvalidUsage for a doubled or out-of-range rank, for ranks that disagree on nranks or on
  // the ids, kInvalidArgument for a damaged id, one of another version, one that is there twice,
  // and more ids than ranks.
  [[nodiscard]] static Result<std::unique_ptr<ControlPlane>> join(std::span<const UniqueId> ids,
                                                                  Rank rank, std::int32_t ranks,
                                                                  const JoinOptions& options);
  [[nodiscard]] static Result<std::unique_ptr<ControlPlane>> join(const UniqueId& id, Rank rank,
                                                                  std::int32_t ranks,
                                                                  const JoinOptions& options) {
    return join(std::span(&id, 1), rank, ranks, options);
  }

  // An exchange along a tree: `all` is ranks blobs of mine.size() bytes, in rank order.
  // Collective, all ranks pass the same size; all together at most 64 MiB. User thread. One at a
  // time. Errors: kTimeout with the rank that did not come, kRemoteError with the rank that died,
  // kInvalidUsage if the sizes differ, kInvalidArgument if they are too large. Copies rank 0's
  // `announced`, which has one length on all ranks, into every rank's.
  [[nodiscard]] virtual Result<std::vector<std::byte>> allgather(
      std::span<const std::byte> mine, Deadline deadline, std::span<std::byte> announced) = 0;
  [[nodiscard]] Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine,
                                                         Deadline deadline) {
    return allgather(mine, deadline, {});
  }
  // The same of plain values, as they are: between equal builds.
  template <typename T>
  [[nodiscard]] Result<std::vector<T>> allgather_values(const T& mine, Deadline deadline,
                                                        std::span<std::byte> announced = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    return allgather(std::as_bytes(std::span(&mine, 1)), deadline, announced)
        .map([](const std::vector<std::byte>& bytes) {
          std::vector<T> values(bytes.size() / sizeof(T));
          std::memcpy(values.data(), bytes.data(), bytes.size());
          return values;
        });
  }
  // Returns once every rank has entered it. An exchange of nothing.
  [[nodiscard]] Status barrier(Deadline deadline) {
    return allgather({}, deadline).map([](const std::vector<std::byte>&) {});
  }
  // kSystemError while ranks that connect to this one's service have had to wait for a second
  // because this process has no descriptor for them. Any thread.
  [[nodiscard]] virtual Status health() const { return {}; }
  // This rank cannot go on: whoever waits for it in the next exchange gets kRemoteError, by name.
  // User thread.
  virtual void call_off() {}
  // This rank's part of a job of some of these ranks; listens where this one's does. Error:
  // kSystemError.
  [[nodiscard]] virtual Result<std::unique_ptr<ChildJob>> prepare_child() = 0;
  // Calls `on_death(rank)` on the service thread, once, for every other rank whose process ends
  // before forget_peers(), or replaces itself by exec. It returns true where that is a death and no
  // orderly end: the other ranks are told then (see connect_watches()). Uses pidfds, or where the
  // kernel refuses them a poll of /proc (`note` says so), watched connections, and other ranks'
  // word. Of the processes of its host a rank watches the 1st, 2nd, 4th ... before its own, for
  // whose parts it waits in exchanges, whom watch() names, and all once it has heard of a death or
  // a revoke. A death also ends the exchanges that need the dead rank, within about a second.
  // `on_death` must not block.
  virtual void watch_peers(std::function<bool(Rank)> on_death) = 0;
  // Watches all of them from now on: this rank needs to know who lives. Any thread.
  virtual void watch_closely() {}
  // Watches the process of `peer` from now on: this rank waits for it, and those that would tell of
  // its death may have left. Any thread.
  virtual void watch(Rank peer) { static_cast<void>(peer); }
  // Opens this rank's watched connections, once every rank lets others in: to the ranks 1, 2, 4 ...
  // after it where there are several hosts, else to the next one. Both ends notice when the other
  // process ends. News go over them, from each rank that hears them first to its neighbours, so
  // that all ranks hear that the dead leave connected. Peers that cannot be connected are left out.
  virtual void connect_watches(Deadline deadline) { static_cast<void>(deadline); }
  // This rank leaves in order: the end of its watched connections is no death. Any thread.
  virtual void leave_watches() {}
  // Tells all ranks that this one has revoked the communicator; `on_revoke(rank)` runs on the
  // others' service threads, for the first that they hear of. Any thread.
  virtual void tell_revoke() {}
  virtual void watch_revokes(std::function<void(Rank)> on_revoke) { static_cast<void>(on_revoke); }
  // True: connections to the service of `peer` are refused, so that its process has ended or has
  // closed this job. False where that cannot be told. Blocks for 200 ms at most.
  [[nodiscard]] virtual bool nobody_listens(Rank peer) { return static_cast<void>(peer), false; }
  // As serve(), for requests that may have to wait: one without an answer is handled again after
  // retry(). Any thread.
  using WaitingHandler = std::function<std::optional<Result<HandlerReply>>(const Request&)>;
  virtual void serve_waiting(RequestKind kind, WaitingHandler handler) {
    serve(kind, [handler = std::move(handler)](const Request& request) {
      return handler(request).value_or(make_error(Code::kTimeout, "there is no answer yet"));
    });
  }
  virtual void retry(RequestKind kind) { static_cast<void>(kind); }
  // No on_death begins after this has returned.
  virtual void forget_peers() = 0;
  [[nodiscard]] virtual bool has_pidfd() const = 0;
  // How deaths are noticed, and of whom they are not, in one line for people.
  [[nodiscard]] virtual std::string note() const = 0;
  // The IP address of this rank's interface, where its service listens for other hosts; "": none.
  [[nodiscard]] virtual std::string ip() const { return {}; }
  // Public name of the job; equal on all ranks.
  [[nodiscard]] virtual SessionId session() const = 0;
  // Ends calls and exchanges once `over` says so; asked by the thread that waits in one. Before
  // those of other threads.
  virtual void end_calls_when(std::function<bool()> over) = 0;
  // Calls `look` on the service thread: soon after look_soon(), then again at the time (now_ns())
  // that it returned; INT64_MAX: when asked again. It must not block. None begins after this has
  // returned with null. A job of one rank has no such thread.
  virtual void look_when(std::function<std::int64_t()> look) { static_cast<void>(look); }
  virtual void look_soon() {}  // any thread
  // Ends calls and exchanges, those under way too, with kInvalidUsage. Any thread, never blocks.
  virtual void interrupt() = 0;
  // Ends the service thread and closes every socket; ends calls of other threads. Idempotent; joins
  // the thread. Not to be called by handlers or on_death.
  virtual void close() = 0;
};

}  // namespace tutti
