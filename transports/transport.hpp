// The contract of a transport: how one rank's messages reach its peers.
//
// One Transport object serves one rank of one communicator. It knows no schedule and no
// communicator. A transport either *shares* a connection (both ends map the same memory: shm, cuda)
// or *pumps* it (the sender fills a local slot and the transport carries it: tcp, ucx, verbs).
// Its duty: when the receiver sees a message's word, it sees all the message's bytes.
// Every verb below says whether it may block, which thread may call it and who owns memory after.
#pragma once

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
  bool shares = false;         // connections are shared memory
  bool pumps = false;          // progress() must be called for messages to move
  bool remote_access = false;  // remote operands (direct plans)
  LinkCost flagged;            // prior cost per message of each protocol, until calibrated
  LinkCost slots;
  std::uint64_t arena_bytes = 0;  // inbox arena of every rank
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // Uniform over all ranks of the communicator. Any thread, never blocks.
  [[nodiscard]] virtual Capabilities capabilities() const = 0;
  // True if this transport can carry messages between this rank and `peer`. Any thread, never
  // blocks.
  [[nodiscard]] virtual bool reaches(const PeerInfo& peer) const = 0;

  // Makes this rank reachable: allocates its inbox and installs request handlers on the control
  // channel. Once, before any connect; bounded, no peer needed. Errors: kSystemError naming the
  // resource and what to do.
  [[nodiscard]] virtual Status listen() = 0;
  // Prepares sending to `peer`. Idempotent, lazy, user thread; blocks until `deadline` at most and
  // needs only the peer's service thread. Errors: kRemoteError, kTimeout with culprit.
  [[nodiscard]] virtual Status connect(Rank peer, Deadline deadline) = 0;

  // The ends of one connection under one plan. Pure pointer arithmetic, never blocks. open_send
  // needs connect(spec.destination) first. The Connection's memory stays the transport's and is
  // valid until close(). `next`/`seen` are taken from the persistent words, so both ends agree
  // whenever the connection is empty. Errors: kInvalidArgument if the spec lies outside the arena,
  // the pair's cells or kMaxConnectionsPerPair.
  [[nodiscard]] virtual Result<Connection> open_send(const ConnectionSpec& spec) = 0;
  [[nodiscard]] virtual Result<Connection> open_recv(const ConnectionSpec& spec) = 0;

  // This rank has consumed every message of all operations <= operation. Release. User thread.
  virtual void publish_done(std::uint64_t operation) = 0;
  // What `peer` published last. Acquire. Needs connect(peer) first. User thread, never blocks.
  [[nodiscard]] virtual std::uint64_t done_of(Rank peer) const = 0;

  // Makes [memory, memory + bytes) of this rank's own ready to be lent to connections that are
  // pumped, where that takes anything; the key is for unregister_memory, before the memory is
  // freed. Ranges may overlap. User thread, may block in the kernel. Error: kSystemError, nothing
  // has changed.
  [[nodiscard]] virtual Result<std::uint64_t> register_memory(std::span<std::byte> /*memory*/) {
    return 0;
  }
  // Nothing of it is lent any more. User thread.
  virtual void unregister_memory(std::uint64_t /*key*/) {}
  // May all of it be lent (commit_lent) to connections that are pumped? User thread, never blocks.
  [[nodiscard]] virtual bool may_lend(std::span<const std::byte> /*memory*/) const { return false; }
  // What was lent and not yet taken is lent no more: copied, where it can still be. For operations
  // that have failed; what was committed may reach the peer with other bytes. The same.
  virtual void take_back() {}

  // Moves pending bytes; a no-op where connections are shared. User or progress thread, never
  // blocks.
  [[nodiscard]] virtual Status progress() { return {}; }
  // A peer to which something that was committed, or had been consumed at the last publish_done(),
  // or was published there, still needs progress() of this rank; kNoRank: all is on its way. What
  // is consumed later may wait for the next message that way. After progress(). User thread, never
  // blocks.
  [[nodiscard]] virtual Rank unflushed() const { return kNoRank; }
  // Sleeps until bytes have come from `peer` or can go to it, at most `ns`; others' may end it,
  // too. False, and at once: nothing would wake who sleeps for `peer`, as in shared memory. User
  // thread.
  [[nodiscard]] virtual bool await(Rank /*peer*/, std::int64_t /*ns*/) { return false; }
  // A peer whose host has not taken all of it yet, so that close() could lose the rest; 0 bytes:
  // none. The same.
  struct Owed {
    Rank peer = kNoRank;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] virtual Owed owed() const { return {}; }
  // Is there a connection with `peer`, in either direction, that holds as far as is known? The
  // same.
  [[nodiscard]] virtual bool connected(Rank /*peer*/) const { return true; }
  // Has `peer` said that it leaves in order? The same.
  [[nodiscard]] virtual bool has_left(Rank /*peer*/) const { return false; }
  // Is the way to and from `peer` still there, if it was made? With culprit and cause:
  // kRemoteError, or kTimeout where nothing has come from its host for so long that it was given
  // up. User thread, never blocks.
  [[nodiscard]] virtual Status health(Rank /*peer*/) const { return {}; }
  // Bytes of memory this rank's side holds resident-capable: segment plus mappings. Any thread.
  [[nodiscard]] virtual std::uint64_t mapped_bytes() const = 0;
  // Payload bytes and messages this rank sent so far are counted by the executor per connection.

  // Tells the peers that this rank leaves in order: the last thing before close(). User thread,
  // never blocks.
  virtual void say_goodbye() {}
  // Releases everything; peers keep their mappings until they close. Idempotent. After
  // say_goodbye() it may sleep until the peers have that, for a bounded time that the transport
  // names; else it never blocks. In a forked child it releases nothing that is the parent's.
  virtual void close() = 0;
};

}  // namespace tutti
