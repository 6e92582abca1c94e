// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/peer.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "transports/connection_ops.hpp"

namespace tutti::tcp {
namespace {

constexpr std::uint32_t kTurnsPerLook = 4;  // at the stream that was silent last
// Turns that words wait for a message to go with. Among more ranks than cores, and where a rank
// first exchanges something with its host's others, it takes some until the next one.
constexpr std::uint32_t kMostTurnsOfWords = 200;

}  // namespace

Peer::Peer(Rank rank, Home& home) : rank_(rank), home_(home) {
  for (std::size_t i = 0; i < kMaxConnectionsPerPair; ++i) {
    send_.of[i].posts = posts_[i].data();
    recv_.of[i].offer = &offers_[i];
  }
}

Status Peer::make_mirror() {
  if (mirror_) return {};
  TUTTI_TRY_ASSIGN(mirror_, PrivateInbox::make(home_.layout));
  return {};
}

Stream* Peer::own() {
  for (auto& stream : streams_)
    if (stream) return &*stream;
  return nullptr;
}

Stream* Peer::shared() {
  auto& stream = streams_[home_.rank < rank_ ? kMade : kAccepted];
  return stream ? &*stream : own();
}

// A peer that leaves may end one connection while what it sent on the other is still on its way.
const Stream* Peer::broken() const {
  for (const auto& stream : streams_)
    if (stream && stream->down() && (has_left_ || !stream->said_bye())) return &*stream;
  return nullptr;
}

void Peer::give_up_if_silent() {
  for (auto& stream : streams_)
    if (stream) stream->give_up_if_silent();
}

bool Peer::waits() const {
  for (const auto& stream : streams_)
    if (stream && stream->waits()) return true;
  return false;
}

void Peer::receive_waiting() {
  for (auto& stream : streams_)
    if (stream && stream->waits()) stream->receive(*this);
}

void Peer::receive() {
  const bool both = ++turns_ % kTurnsPerLook == 0;
  for (const Side side : {last_heard_, last_heard_ == kMade ? kAccepted : kMade}) {
    auto& stream = streams_[side];
    if (!stream || stream->down() || stream->waits()) continue;
    const bool came = stream->receive(*this);
    if (came) last_heard_ = side;
    if (!both && !stream->down()) return;  // after an end, what the other one has is looked at
  }
}

Connection Peer::open_send(const ConnectionSpec& spec) {
  sends_opened_ |= 1u << spec.index;
  return place(spec, mirror_->base(), home_.layout, &send_.of[spec.index]);
}

Connection Peer::open_recv(const ConnectionSpec& spec) {
  recvs_opened_ |= 1u << spec.index;
  return place(spec, home_.inbox->base(), home_.layout, &recv_.of[spec.index]);
}

void Peer::pump() {
  Stream *const own = this->own(), *const shared = this->shared();
  if (own == nullptr) return;
  if (broken() != nullptr) {
    note_taken();
    return;
  }
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1)
    pump_messages(static_cast<std::uint8_t>(std::countr_zero(left)));
  if (own->pending() && !shared->pending())
    pump_words(*own);
  else if (shared->pending() || words_wait_no_longer())
    pump_words(*shared);
  own->flush();
  if (shared != own) shared->flush();
  note_taken();
}

// A peer of which a connection is down needs nothing any more.
void Peer::note_taken() {
  bool over = false;
  for (const auto& stream : streams_) over = over || (stream && stream->sends_no_more());
  for (auto& stream : streams_)
    if (over && stream) stream->stop_sending();
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    std::uint64_t taken = over ? send_.of[index].next : 0;
    for (const auto& stream : streams_)
      if (stream && !over) taken = std::max(taken, stream->left(index));
    send_.of[index].taken = taken;
  }
}

// Offers first: what pump() does may lack memory.
void Peer::take_back() {
  withdraw_offers();
  pump();
  for (auto& stream : streams_)
    if (stream) stream->take_back();
}

// A payload that is at an offered place, whole or in part, moves to its slot.
void Peer::withdraw_offers() {
  for (auto& stream : streams_) {
    const Frame* const frame = stream ? stream->landing() : nullptr;
    if (frame == nullptr || offers_[frame->index].taken_by != frame->number) continue;
    stream->land_at(offers_[frame->index].in_slot);
    offers_[frame->index] = {};
  }
  for (std::size_t i = 0; i < kMaxConnectionsPerPair; ++i) {
    const Offer withdrawn = std::exchange(offers_[i], {});
    if (withdrawn.taken_by > recv_.of[i].next)
      std::memcpy(withdrawn.in_slot, withdrawn.memory, withdrawn.bytes);
  }
}

bool Peer::has_words() const {
  for (std::uint32_t left = recvs_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    if (recv_.of[index].next != credited_[index]) return true;
  }
  return home_.done > done_said_;
}

bool Peer::owes_credits(bool ended_may_wait) const {
  for (std::uint32_t left = recvs_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    const std::uint64_t next = recv_.of[index].next, owed = next - credited_[index];
    const bool may_wait = ended_may_wait && next == ended_[index];
    if (owed > 0 && (may_wait ? 1 : 2) * owed >= recv_.of[index].slots) return true;
  }
  return false;
}

void Peer::end_call() {
  words_due_ = owes_credits(false);
  for (std::uint32_t left = recvs_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    ended_[index] = recv_.of[index].next;
  }
}

bool Peer::words_wait_no_longer() {
  if (!has_words()) return false;
  return hastened_ || words_waited_++ >= (owes_credits(true) ? 1 : kMostTurnsOfWords);
}

void Peer::pump_words(Stream& way) {
  for (std::uint32_t left = recvs_opened_; left != 0; left &= left - 1)
    pump_credit(way, static_cast<std::uint8_t>(std::countr_zero(left)));
  if (home_.done > done_said_)
    way.queue({.kind = FrameKind::kDone, .number = done_said_ = home_.done});
  words_waited_ = 0;
  words_due_ = hastened_ = false;
}

// Messages in slots come one after another: the way changes where all before have been received. A
// cell says by its epoch what it holds, whatever has come before.
Stream& Peer::way_of(const Frame& frame) {
  Stream* const wanted = frame.bytes <= kMostSharedBytes ? shared() : own();
  if (frame.kind != FrameKind::kSlot) return *wanted;
  Stream*& last = slots_way_[frame.index];
  const std::uint64_t received =
      mirror_->pair(home_.rank).words[frame.index].consumed.load(std::memory_order_acquire);
  if (last == nullptr || received + 1 == frame.number) last = wanted;
  return *last;
}

void Peer::pump_messages(std::uint8_t index) {
  const ConnectionState& state = send_.of[index];
  const std::byte* const arena = mirror_->base() + home_.layout.arena_offset_bytes();
  const auto* const cells = reinterpret_cast<const std::byte*>(mirror_->pair(home_.rank).cells);
  for (std::uint64_t& number = pumped_[index]; number < state.next;) {
    const Post& post = posts_[index][number++ % kMaxSlots];
    const bool slot = post.first >= arena;
    const std::size_t in_place = post.lent == nullptr ? post.bytes : kSlotHeaderBytes;
    const Frame frame{.kind = slot ? FrameKind::kSlot : FrameKind::kCells,
                      .index = index,
                      .bytes = static_cast<std::uint32_t>(post.bytes),
                      .offset = static_cast<std::uint64_t>(post.first - (slot ? arena : cells)),
                      .number = number};
    way_of(frame).queue(frame, {post.first, in_place}, post.lent);
  }
}

void Peer::pump_credit(Stream& way, std::uint8_t index) {
  const std::uint64_t consumed = recv_.of[index].next;
  if (consumed == credited_[index]) return;
  credited_[index] = consumed;
  way.queue({.kind = FrameKind::kCredit, .index = index, .number = consumed});
}

void Peer::say_goodbye() {
  pump();
  if (own() == nullptr) return;
  pump_words(*shared());
  const bool both = streams_[kMade] && streams_[kAccepted];
  for (auto& stream : streams_) {
    if (!stream) continue;
    stream->queue({.kind = FrameKind::kBye, .number = both ? 2U : 1U});
    stream->flush();
  }
}

bool Peer::flushed() const {
  if (!connected()) return true;
  for (const auto& stream : streams_)
    if (stream && stream->pending()) return false;
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    if (pumped_[index] < send_.of[index].next) return false;
  }
  return !is_due();
}

std::uint64_t Peer::unacknowledged_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& stream : streams_)
    if (stream) bytes += stream->unacknowledged_bytes();
  return bytes;
}

std::string Peer::opening(std::span<const std::byte> bytes) {
  HelloReply reply;
  std::memcpy(&reply, bytes.data(), sizeof reply);
  if (reply.magic == kMagic && reply.version != kVersion)
    return "it " + describe_version(reply.version);
  if (reply.magic != kMagic || reply.zero != 0 || !equal(reply.token, reply_))
    return "another rank answered at this address";
  return {};
}

std::optional<std::byte*> Peer::landing(const Frame& frame, const std::byte* slot_header,
                                        bool may_wait) {
  if (!is_legal(frame, home_.layout) || frame.number <= produced_[frame.index]) return nullptr;
  const std::uint64_t payload_bytes = frame.bytes - kSlotHeaderBytes;
  Offer& offer = offers_[frame.index];
  // A frame on the other stream, which would announce a message that is not whole yet.
  if (offer.taken_by > produced_[frame.index]) return nullptr;
  // An offer is of the message that the call receives next; what is left of an earlier one is none.
  const bool offered = offer.memory != nullptr && offer.message == recv_.of[frame.index].next;
  // The message before this one has come to the place that was offered to it. Once the call has
  // received it, it may offer the next place.
  const bool next_in_turn = offered && frame.number == offer.message + 2;
  if (may_wait && next_in_turn && payload_bytes >= kLeastOfferedBytes) return std::nullopt;
  std::byte* const slot = home_.inbox->base() + home_.layout.arena_offset_bytes() + frame.offset;
  std::memcpy(slot, slot_header, kSlotHeaderBytes);
  SlotHeader header{};
  std::memcpy(&header, slot_header, sizeof header);
  const bool takes_offer = offered && frame.number == offer.message + 1 &&
                           payload_bytes == offer.bytes && header.signature == offer.signature;
  if (!takes_offer) return slot + kSlotHeaderBytes;
  offer.taken_by = frame.number;
  offer.in_slot = slot + kSlotHeaderBytes;
  return offer.memory;
}

bool Peer::landed(const Frame& frame) {
  // The peer's other stream has brought this message, or a later one, meanwhile.
  if (frame.number <= produced_[frame.index]) return false;
  produced_[frame.index] = frame.number;
  home_.inbox->pair(rank_).words[frame.index].produced.store(frame.number,
                                                             std::memory_order_release);
  return true;
}

bool Peer::take(const Frame& frame, const std::byte* bytes) {
  if (!is_legal(frame, home_.layout)) return false;
  switch (frame.kind) {
    case FrameKind::kCells:
      land_cells(frame, bytes);
      return true;
    case FrameKind::kCredit:
      if (!mirror_) return false;
      take_credit(frame);
      return true;
    case FrameKind::kDone:
      done_ = std::max(done_, frame.number);
      return true;
    case FrameKind::kBye:
      has_left_ = ++byes_ >= frame.number;
      return true;
    case FrameKind::kSlot:
      break;
  }
  return false;
}

// A word on one connection may come before an older one on the other. What cannot be is noticed
// where it is read.
void Peer::take_credit(const Frame& frame) {
  Word& consumed = mirror_->pair(home_.rank).words[frame.index].consumed;
  if (frame.number > consumed.load(std::memory_order_relaxed))
    consumed.store(frame.number, std::memory_order_release);
}

// The first cell's epoch, its first word, comes last.
void Peer::land_cells(const Frame& frame, const std::byte* bytes) {
  auto* const to = reinterpret_cast<std::byte*>(home_.inbox->pair(rank_).cells) + frame.offset;
  std::memcpy(to + sizeof(Word), bytes + sizeof(Word), frame.bytes - sizeof(Word));
  std::uint64_t epoch = 0;
  std::memcpy(&epoch, bytes, sizeof epoch);
  reinterpret_cast<Cell*>(to)->epoch.store(epoch, std::memory_order_release);
}

}  // namespace tutti::tcp
