// SPDX-License-Identifier: Apache-2.0
// One reliable connection: a queue pair with a completion queue of its own.
//
// Made by the user's thread or the service thread, joined to the peer's by either (Links, the
// transport's, guards that); everything else is the user thread's once it has been told of it.
// Nothing blocks but join(). A connection that fails is down for good and says why.
#pragma once

#include <arpa/inet.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "transports/verbs/ibverbs.hpp"
#include "transports/verbs/port.hpp"
#include "transports/verbs/requests.hpp"
#include "transports/verbs/wire.hpp"

namespace tutti::verbs {

class Link {
 public:
  // With all receives posted. Errors: kSystemError, naming the limit.
  [[nodiscard]] static Result<std::unique_ptr<Link>> make(const Port& port,
                                                          const RetryPolicy& policy);

  [[nodiscard]] std::uint32_t queue_pair() const { return queue_pair_->qp_num; }
  [[nodiscard]] std::uint32_t first_psn() const { return first_psn_; }
  // Once. `mine` and `theirs`: the cards of the two ends. Blocks while the kernel resolves the
  // peer's address. Error: kSystemError.
  [[nodiscard]] Status join(const Card& mine, const Card& theirs);
  [[nodiscard]] bool joined() const { return joined_; }
  [[nodiscard]] const Card& peer() const { return peer_; }

  // The peer has asked for this end, so it sends, or is about to.
  void set_peer_sends() { peer_sends_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool peer_sends() const {
    // Relaxed: it orders nothing; seen later, `done` is told later.
    return peer_sends_.load(std::memory_order_relaxed);
  }

  // May a write of so many bytes be added?
  [[nodiscard]] bool has_room(std::uint64_t bytes) const {
    return chain_.last() - completed_ + requests_for(bytes, message_bytes_) <= send_depth_;
  }
  // Call it only if has_room() is true. The bytes stay as they are until the peer has them.
  // `signalled`: its completion is asked for, whether its turn has come or not.
  void add(const Write& write, bool signalled = false);
  // Requests are numbered; the last that was added, and up to which they have completed.
  [[nodiscard]] std::uint64_t last_request() const { return chain_.last(); }
  // How many of them have an immediate.
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }
  [[nodiscard]] std::uint64_t completed() const { return completed_; }
  // Posts what was added.
  void flush();
  // Has everything that was added arrived? If that cannot be known, asks for it.
  [[nodiscard]] bool acknowledged();
  // Asks for an answer, unless one is awaited: a peer that is gone is found by that.
  void probe();
  // Fails the link where an answer has been awaited beyond what the adapter may take for it (four
  // times its timeouts, 9.7.6.1.3, and ten seconds at least) and nothing came meanwhile: software
  // adapters repeat for ever what their interface drops.
  void give_up_if_silent(std::int64_t now_ns);

  // Hands the immediate and the length of every message that has come to `take`, which returns
  // false for what no correct rank sends. True: something came.
  template <typename Take>
  bool poll(Take&& take);

  // The port's channel tells of the next completion. What came before is found by poll().
  void arm();

  [[nodiscard]] bool down() const { return !cause_.empty(); }
  [[nodiscard]] const std::string& cause() const { return cause_; }
  void fail(std::string cause) {
    if (cause_.empty()) cause_ = std::move(cause);
  }

 private:
  static constexpr int kPolled = 16;  // completions in one call
  // Receives are posted again in batches: one request each, for every message that may be without
  // credit, for hello and goodbye, and those of a batch.
  static constexpr std::uint32_t kRepost = 32;
  static constexpr std::uint32_t kReceives = kMaxConnectionsPerPair * kMaxSlots + 2 + kRepost;
  static constexpr std::uint32_t kSends = 256;

  Link(const Port& port, const RetryPolicy& policy);
  [[nodiscard]] Status make_queues(const Port& port);
  [[nodiscard]] Status post_receives(std::uint32_t number);
  [[nodiscard]] Status modify(ibv_qp_attr& attributes, int mask, const char* to);
  void complete(const ibv_wc& completion);

  const Ibverbs* calls_;
  const RetryPolicy policy_;
  const std::uint64_t message_bytes_;
  const std::uint32_t port_number_;
  const std::uint8_t gid_index_;
  std::uint32_t send_depth_ = kSends;
  std::uint32_t first_psn_ = 0;
  Handle<ibv_cq> completions_;
  Handle<ibv_qp> queue_pair_;  // after the queue that it names: goes first
  Chain chain_;
  std::uint64_t completed_ = 0;
  std::uint64_t immediates_ = 0;
  std::uint64_t silent_at_ = 0;       // completed_ when silence began
  std::int64_t silent_since_ns_ = 0;  // 0: not silent
  std::uint32_t taken_receives_ = 0;
  bool joined_ = false;
  std::atomic<bool> peer_sends_{false};
  Card peer_;
  std::string cause_;
};

template <typename Take>
bool Link::poll(Take&& take) {
  ibv_wc completions[kPolled];
  int number = kPolled;
  bool came = false;
  while (number == kPolled && !down()) {
    number = ibv_poll_cq(completions_.get(), kPolled, completions);
    if (number < 0) fail("its completion queue cannot be read");
    for (int i = 0; i < number; ++i) {
      const ibv_wc& it = completions[i];
      const Told told = told_by(it);
      if (told == Told::kRequest) {
        complete(it);
        continue;
      }
      came = true;
      silent_since_ns_ = 0;
      ++taken_receives_;
      if (told == Told::kStranger || !take(ntohl(it.imm_data), it.byte_len))
        fail(
            "it sent data that no rank of this version sends; start all ranks with the same "
            "version of Tutti");
    }
  }
  if (taken_receives_ >= kRepost && !down()) {
    if (const Status posted = post_receives(taken_receives_); !posted) fail(posted.error().message);
    taken_receives_ = 0;
  }
  return came;
}

}  // namespace tutti::verbs
