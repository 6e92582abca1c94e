// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/links.hpp"

#include <cstring>
#include <utility>

namespace tutti::verbs {

void Links::open(const Port& port, const RetryPolicy& policy, const Card& memory) {
  const std::lock_guard lock(mutex_);
  port_ = &port;
  policy_ = policy;
  memory_ = memory;
}

void Links::close() {
  std::unique_lock lock(mutex_);
  port_ = nullptr;
  tried_.wait(lock, [&] { return joining_.empty(); });
  links_.clear();
  joined_.store(0, std::memory_order_release);
}

Result<Card> Links::card_for(Rank peer) {
  const std::lock_guard lock(mutex_);
  return card_locked(peer);
}

Result<Card> Links::card_locked(Rank peer) {
  if (port_ == nullptr)
    return make_error(Code::kInvalidUsage, "this rank has closed its connections");
  std::unique_ptr<Link>& link = links_[peer];
  if (!link) {
    TUTTI_TRY_ASSIGN(link, Link::make(*port_, policy_));
  }
  Card card = memory_;
  card.landing_address += static_cast<std::uint64_t>(peer) * sizeof(Landing);
  card.queue_pair = link->queue_pair();
  card.first_psn = link->first_psn();
  return card;
}

Status Links::join(Rank peer, std::span<const std::byte> card) {
  std::unique_lock lock(mutex_);
  return join_locked(lock, peer, card);
}

Status Links::join_locked(std::unique_lock<std::mutex>& lock, Rank peer,
                          std::span<const std::byte> card) {
  tried_.wait(lock, [&] { return !joining_.contains(peer); });
  TUTTI_TRY_ASSIGN(const Card mine, card_locked(peer));
  Link& link = *links_[peer];
  if (link.joined()) return {};
  TUTTI_TRY_ASSIGN(const Card theirs, read_card(card, mine));
  joining_.insert(peer);
  lock.unlock();
  const Status joined = link.join(mine, theirs);
  lock.lock();
  joining_.erase(peer);
  tried_.notify_all();
  TUTTI_TRY(joined);
  joined_.fetch_add(1, std::memory_order_release);
  return {};
}

Result<HandlerReply> Links::answer(const Request& request) {
  std::unique_lock lock(mutex_);
  TUTTI_TRY(join_locked(lock, request.from, request.payload));
  TUTTI_TRY_ASSIGN(const Card mine, card_locked(request.from));
  links_[request.from]->set_peer_sends();
  HandlerReply reply;
  reply.payload.resize(sizeof mine);
  std::memcpy(reply.payload.data(), &mine, sizeof mine);
  return reply;
}

void Links::visit(const std::function<void(Rank, Link&)>& look) {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, link] : links_)
    if (!joining_.contains(rank) && link->joined()) look(rank, *link);
}

}  // namespace tutti::verbs
