// SPDX-License-Identifier: Apache-2.0
// The contract of a transport: how one rank's messages reach its peers.
//
// One Transport object serves one rank of one communicator. It knows neither schedules nor
// communicators. A transport either *shares* a connection, when both ends map the same memory
// (shm), or *pumps* it, when the sender fills a local slot and progress() carries it to the peer
// (tcp, verbs). Its duty: when the receiver sees the word that announces a message, it sees all
// bytes of the message.
//
// Each function below says whether it may block, which thread may call it, and who owns memory
// afterwards. "User thread" is the thread that uses the communicator.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "transports/connection.hpp"
#include "transports/control.hpp"

namespace tutti {

struct Capabilities {
  bool shares = false;         // both ends of a connection map the same memory
  bool pumps = false;          // messages move only while progress() is called
  bool remote_access = false;  // schedules may name a peer's memory (direct plans)
  LinkCost flagged;            // cost of a message of each protocol, before it is measured
  LinkCost slots;
  std::uint64_t arena_bytes = 0;  // size of each rank's slot pool
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // Equal on all ranks of the communicator. Any thread; never blocks.
  [[nodiscard]] virtual Capabilities capabilities() const = 0;
  // True if this transport can carry messages between this rank and `peer`. Any thread; never
  // blocks.
  [[nodiscard]] virtual bool reaches(const PeerInfo& peer) const = 0;

  // Makes this rank reachable: allocates its receive buffer and installs request handlers on the
  // control channel. Call it once, before any connect(). User thread; bounded; needs no peer.
  // Errors: kSystemError, which names the resource and what to do.
  [[nodiscard]] virtual Status listen() = 0;
  // Prepares sending to `peer`; called before the first message to it, and with the own rank before
  // anything is received. Idempotent. User thread; blocks at most until `deadline`; needs the
  // service threads of peers, not their user threads.
  // Errors: kRemoteError or kTimeout, with the failed rank.
  [[nodiscard]] virtual Status connect(Rank peer, Deadline deadline) = 0;

  // Open the sender's or the receiver's end of one connection of a plan. They only compute pointers
  // and never block. open_send() needs connect(spec.destination) first, open_recv() that of the own
  // rank. The memory of the
  // Connection stays the transport's and is valid until close(). `next` and `seen` come from
  // counters that persist across plans, so both ends agree whenever the connection is empty. User
  // thread.
  // Errors: kInvalidArgument if the spec exceeds the slot pool, the cells of the pair or
  // kMaxConnectionsPerPair.
  [[nodiscard]] virtual Result<Connection> open_send(const ConnectionSpec& spec) = 0;
  [[nodiscard]] virtual Result<Connection> open_recv(const ConnectionSpec& spec) = 0;

  // Publishes that this rank has consumed every message of all operations up to `operation`. Stores
  // with release order; where it is pumped, the number may wait for a message to go with, until
  // tell_done(). User thread; never blocks.
  virtual void publish_done(std::uint64_t operation) = 0;
  // Where a store with release order is all that publish_done() does, for whoever stores by itself;
  // null: it does more. Good until close().
  [[nodiscard]] virtual std::atomic<std::uint64_t>* done_word() { return nullptr; }
  // The operation that `peer` published last. Loads with acquire order, and pairs with
  // publish_done(). Needs connect(peer) first. User thread; never blocks.
  [[nodiscard]] virtual std::uint64_t done_of(Rank peer) const = 0;

  // Prepares `memory` of this rank for zero-copy sends, if the transport needs that. The key is for
  // unregister_memory(), which must be called before the memory is freed. Ranges may overlap. User
  // thread; may block in the kernel. Error: kSystemError; nothing has changed then.
  [[nodiscard]] virtual Result<std::uint64_t> register_memory(std::span<std::byte> /*memory*/) {
    return 0;
  }
  // Ends a registration: later operations send nothing from its memory without a copy. User thread.
  virtual void unregister_memory(std::uint64_t /*key*/) {}
  // True if all of `memory` may be sent without a copy (commit_lent) over pumped connections. User
  // thread; never blocks.
  [[nodiscard]] virtual bool may_lend(std::span<const std::byte> /*memory*/) const { return false; }
  // Cancels all outstanding zero-copy sends, so that the program may reuse its memory. The
  // transport copies the payloads if it still can; otherwise a committed message may reach the peer
  // with other bytes. Also withdraws all offers of memory for payloads (offer_memory() in
  // connection_ops.hpp): bytes that have arrived there move to their slots, and the rest follows
  // them. For operations that have failed. User thread; never blocks.
  virtual void take_back() {}

  // Moves pending bytes in both directions; does nothing for shared connections. An error means
  // that the transport cannot go on. User thread; never blocks.
  [[nodiscard]] virtual Status progress() { return {}; }
  // Sends like progress(), and may leave what has come for later: for a call whose messages are all
  // committed and received. User thread; never blocks.
  [[nodiscard]] virtual Status flush() { return progress(); }
  // Returns a peer for which messages, a `done` number that is to be told, or credits from before
  // the last publish_done() that it may soon lack are still queued on this rank: keep calling
  // progress(). kNoRank if there is none. Other credits may wait for the next message to that peer.
  // User thread; never blocks.
  [[nodiscard]] virtual Rank unflushed() const { return kNoRank; }
  // The call at hand has no message to send, or none yet: what a peer may soon lack, and what
  // unflushed() counts, leaves with the next progress() and waits for no message to go with. User
  // thread; never blocks.
  virtual void hasten() {}
  // Peers may wait for this rank's `done` number: from now on unflushed() counts it, and all
  // credits, until they have left. User thread; never blocks.
  virtual void tell_done() {}
  // Sleeps until bytes from `peer` have arrived or bytes can be sent to it, at most for `ns`
  // nanoseconds; events of other peers may end the sleep too. Returns false at once if nothing
  // would wake this thread, as in shared memory. User thread.
  [[nodiscard]] virtual bool await(Rank /*peer*/, std::int64_t /*ns*/) { return false; }
  // Returns a peer whose host has not acknowledged all bytes yet, with their number; close() could
  // lose them. 0 bytes: there is none. User thread; never blocks.
  struct Owed {
    Rank peer = kNoRank;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] virtual Owed owed() const { return {}; }
  // True if there is a connection with `peer`, in either direction, that is not known to be broken.
  // User thread; never blocks.
  [[nodiscard]] virtual bool connected(Rank /*peer*/) const { return true; }
  // True if `peer` announced that it is closing its connections (say_goodbye). User thread; never
  // blocks.
  [[nodiscard]] virtual bool has_left(Rank /*peer*/) const { return false; }
  // Success unless a connection with `peer` was made and has broken. The error names the failed
  // rank and the cause: kRemoteError, or kTimeout if its host was silent for so long that the
  // transport gave it up. User thread; never blocks.
  [[nodiscard]] virtual Status health(Rank /*peer*/) const { return {}; }
  // The peer's service does not answer: gives its connections up, for health() to say so, where its
  // host has acknowledged nothing for as long as a silent one is given. User thread; never blocks.
  virtual void give_up_if_silent(Rank /*peer*/) {}
  // Bytes that this rank has mapped: its own segment and those of peers. The executor counts
  // messages and payload bytes, per connection. Any thread; never blocks.
  [[nodiscard]] virtual std::uint64_t mapped_bytes() const = 0;

  // True if connections with `peer` are shared, false if they are pumped. Any thread; never blocks.
  [[nodiscard]] virtual bool shares_with(Rank /*peer*/) const { return capabilities().shares; }

  // Announces to the peers that this rank is closing its connections. Call it directly before
  // close(). User thread; never blocks.
  virtual void say_goodbye() {}
  // Releases everything; peers keep their mappings until they close. Idempotent. After
  // say_goodbye() it may sleep until the peers have received the announcement, for a bounded time
  // that the transport documents; otherwise it never blocks. In a forked child it releases nothing
  // that belongs to the parent. User thread.
  virtual void close() = 0;
};

}  // namespace tutti
