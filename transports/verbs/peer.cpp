// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/peer.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace tutti::verbs {

// Of the mirror only what is sent is registered, which pins it.
Status Peer::make_mirror(const Port& port) {
  if (mirror_) return {};
  TUTTI_TRY_ASSIGN(PrivateInbox mirror, PrivateInbox::make(home_.layout));
  auto* const cells = reinterpret_cast<std::byte*>(mirror.pair(home_.rank).cells);
  TUTTI_TRY_ASSIGN(Memory cells_memory,
                   port.register_memory({cells, kCellsPerPair * kCellBytes}, 0));
  TUTTI_TRY_ASSIGN(
      Memory arena_memory,
      port.register_memory(
          {mirror.base() + home_.layout.arena_offset_bytes(), home_.layout.arena_bytes}, 0));
  cells_memory_ = std::move(cells_memory);
  arena_memory_ = std::move(arena_memory);
  mirror_ = std::move(mirror);
  return {};
}

void Peer::say_hello() {
  ready_ = true;
  if (!link_->has_room(0)) return;
  link_->add({.to = link_->peer().landing_address,
              .remote_key = link_->peer().landing_key,
              .immediate = encode({.kind = Kind::kHello})});
  link_->flush();
}

namespace {

// Of the plans that open connection `index`; `opened`: a bit for each that has been.
void note_slots(std::uint32_t& opened, std::uint32_t& fewest, const ConnectionSpec& spec) {
  const std::uint32_t bit = 1u << spec.index;
  fewest = (opened & bit) == 0 ? spec.slots : std::min(fewest, spec.slots);
  opened |= bit;
}

}  // namespace

Connection Peer::open_send(const ConnectionSpec& spec) {
  note_slots(sends_opened_, fewest_out_[spec.index], spec);
  return place(spec, mirror_->base(), home_.layout, &send_.of[spec.index]);
}

Connection Peer::open_recv(const ConnectionSpec& spec) {
  note_slots(recvs_opened_, fewest_in_[spec.index], spec);
  return place(spec, home_.inbox->base(), home_.layout, &recv_.of[spec.index]);
}

void Peer::pump() {
  if (link_ == nullptr || !ready_ || link_->down()) return;
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1)
    pump_messages(static_cast<std::uint8_t>(std::countr_zero(left)));
  const bool due = words_due();
  if (!due) credits_due_ = false;  // they went with a message
  words_wait_ = due && !(words_wait_ && pump_returns());
  link_->flush();
}

void Peer::pump_messages(std::uint8_t index) {
  const ConnectionState& state = send_.of[index];
  for (std::uint64_t& number = pumped_[index]; number < state.next;) {
    // More than the immediate's bits can tell.
    if (home_.done - done_said_ > kMostUntold && !pump_returns()) return;
    Post& post = posts_[index][number % kMaxSlots];
    if (!link_->has_room(post.bytes)) return;
    add_message(index, post, ++number);
  }
}

namespace {

// As if it had been committed without being lent.
void copy_to_slot(Post& post) {
  std::memcpy(post.first + kSlotHeaderBytes, post.lent, post.bytes - kSlotHeaderBytes);
  post.lent = nullptr;
}

}  // namespace

// `number`: messages visible with it.
void Peer::add_message(std::uint8_t index, Post& post, std::uint64_t number) {
  const std::byte* const arena = mirror_->base() + home_.layout.arena_offset_bytes();
  const auto* const cells = reinterpret_cast<const std::byte*>(mirror_->pair(home_.rank).cells);
  const Card& card = link_->peer();
  credited_[index] = recv_.of[index].next;
  done_said_ = home_.done;
  const bool slot = post.first >= arena;
  const auto offset = static_cast<std::uint64_t>(post.first - (slot ? arena : cells));
  Write write{
      .first = {post.first, post.bytes, (slot ? arena_memory_ : cells_memory_)->lkey},
      .to = slot ? card.arena_address + offset
                 : card.landing_address + offsetof(Landing, cells) + offset,
      .remote_key = slot ? card.arena_key : card.landing_key,
      .immediate = encode({.kind = slot ? Kind::kSlot : Kind::kCells,
                           .index = index,
                           .first_cell = static_cast<std::uint8_t>(slot ? 0 : offset / kCellBytes),
                           .done = static_cast<std::uint8_t>(done_said_),
                           .consumed = static_cast<std::uint8_t>(credited_[index]),
                           .number = static_cast<std::uint8_t>(number)})};
  const bool lent = post.lent != nullptr;
  if (lent) {
    const std::uint64_t bytes = post.bytes - kSlotHeaderBytes;
    write.first.bytes = kSlotHeaderBytes;
    write.second = {post.lent, bytes, *home_.registrations->local_key({post.lent, bytes})};
  }
  link_->add(write, lent);
  if (lent) lent_.push_back({link_->last_request(), index, number});
}

// A link that is down takes nothing any more.
void Peer::note_taken() {
  if (link_->down()) {
    for (ConnectionState& state : send_.of) state.taken = state.next;
    lent_.clear();
    return;
  }
  const auto reading =
      std::ranges::find_if(lent_, [&](const Lent& it) { return it.request > link_->completed(); });
  for (auto it = lent_.begin(); it != reading; ++it) send_.of[it->index].taken = it->messages;
  lent_.erase(lent_.begin(), reading);
}

void Peer::take_back() {
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    for (std::uint64_t number = pumped_[index]; number < send_.of[index].next; ++number)
      if (Post& post = posts_[index][number % kMaxSlots]; post.lent != nullptr) copy_to_slot(post);
  }
}

// Who never sends here never waits for it.
bool Peer::done_due() const {
  return home_.done > done_said_ && ready_ && link_->peer_sends() && !has_left();
}

// A credit is not worth a write while the sender has as many again, in whichever plan.
bool Peer::words_due() const {
  if (!link_->peer_sends() || has_left()) return false;
  if (done_due()) return true;
  for (std::uint32_t left = recvs_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    const std::uint64_t owed = recv_.of[index].next - credited_[index];
    if (owed >= std::max(1U, fewest_in_[index] / 2)) return true;
  }
  return false;
}

// All words in one write. The adapter may read them later than now: then it reads later values,
// which are true by then.
bool Peer::pump_returns() {
  if (!link_->has_room(sizeof(Returns))) return false;
  Returns& returning = landing().returning;
  // Relaxed: the adapter is told by ibv_post_send, which orders.
  done_said_ = home_.done;
  returning.done.store(encode_done(done_said_, link_->immediates()), std::memory_order_relaxed);
  for (std::size_t i = 0; i < kMaxConnectionsPerPair; ++i)
    returning.consumed[i].store(credited_[i] = recv_.of[i].next, std::memory_order_relaxed);
  const Card& card = link_->peer();
  link_->add({.first = {reinterpret_cast<const std::byte*>(&returning), sizeof returning,
                        home_.landings_key},
              .to = card.landing_address + offsetof(Landing, returns),
              .remote_key = card.landing_key});
  credits_due_ = false;
  return true;
}

bool Peer::poll() {
  if (link_ == nullptr) return false;
  if (link_->down()) {
    note_taken();
    return false;
  }
  const bool came = link_->poll([&](std::uint32_t immediate, std::uint64_t bytes) {
    return arrivals_.take(immediate, bytes, landing(), home_.inbox->pair(rank_));
  });
  if (!lent_.empty()) note_taken();
  if (came) ready_ = true;
  if (mirror_) take_returns();
  return came;
}

bool Peer::awaits_credit() const {
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    // Relaxed: this thread stores it.
    const std::uint64_t consumed =
        mirror_->pair(home_.rank).words[index].consumed.load(std::memory_order_relaxed);
    if (send_.of[index].next - consumed >= fewest_out_[index]) return true;
  }
  return false;
}

void Peer::take_returns() {
  const Returns& returns = landing().returns;
  // Acquire: the peer has consumed before it told so.
  done_ = arrivals_.done(returns.done.load(std::memory_order_acquire));
  auto& words = mirror_->pair(home_.rank).words;
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    const std::uint64_t returned = returns.consumed[index].load(std::memory_order_acquire);
    words[index].consumed.store(arrivals_.consumed(index, returned), std::memory_order_release);
  }
}

void Peer::say_goodbye() {
  pump();
  if (link_ == nullptr || link_->down()) return;
  if (done_due()) static_cast<void>(pump_returns());
  if (!link_->has_room(0)) return;
  link_->add({.to = link_->peer().landing_address,
              .remote_key = link_->peer().landing_key,
              .immediate = encode({.kind = Kind::kBye})},
             true);
  link_->flush();
}

bool Peer::flushed() const {
  if (link_ == nullptr || link_->down()) return true;
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    if (pumped_[index] < send_.of[index].next) return false;
  }
  return !done_due() && !(credits_due_ && words_due());
}

}  // namespace tutti::verbs
