// SPDX-License-Identifier: Apache-2.0
// The connections of one rank, as the user's thread and the service thread make them: an end is
// made by whichever needs it first, and joined to the peer's by whichever sees its card first.
// Any thread; every method takes the mutex, none holds it while it joins, which can take a second.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "base/result.hpp"
#include "transports/control.hpp"
#include "transports/verbs/link.hpp"
#include "transports/verbs/port.hpp"
#include "transports/verbs/wire.hpp"

namespace tutti::verbs {

class Links {
 public:
  // What every card of this rank says of its memory. From now on links can be made.
  void open(const Port& port, const RetryPolicy& policy, const Card& memory);
  // The links go, once none is being joined; peers that ask are refused.
  void close();

  // The card of this rank's end of the connection with `peer`, which is made if there is none.
  [[nodiscard]] Result<Card> card_for(Rank peer);
  // Joins that end to the peer's, if it is not joined yet; waits for who is at it.
  [[nodiscard]] Status join(Rank peer, std::span<const std::byte> card);
  // Both, for the service thread: `card` is the asker's, the answer this rank's.
  [[nodiscard]] Result<HandlerReply> answer(const Request& request);

  // How many have been joined; visit() shows the links of these. Cheap.
  [[nodiscard]] std::uint64_t joined() const {
    // Acquire pairs with the release in join().
    return joined_.load(std::memory_order_acquire);
  }
  void visit(const std::function<void(Rank, Link&)>& look);

 private:
  [[nodiscard]] Result<Card> card_locked(Rank peer);
  // Not locked meanwhile.
  [[nodiscard]] Status join_locked(std::unique_lock<std::mutex>& lock, Rank peer,
                                   std::span<const std::byte> card);

  std::mutex mutex_;
  const Port* port_ = nullptr;                   // guarded by mutex_; null: closed
  RetryPolicy policy_;                           // guarded by mutex_
  Card memory_;                                  // guarded by mutex_
  std::map<Rank, std::unique_ptr<Link>> links_;  // guarded by mutex_; theirs: not while joining
  std::set<Rank> joining_;                       // guarded by mutex_
  std::condition_variable tried_;                // joining_ has lost one
  std::atomic<std::uint64_t> joined_{0};
};

}  // namespace tutti::verbs
