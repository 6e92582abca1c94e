// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/peer.hpp"

#include <bit>
#include <cstring>

namespace tutti::tcp {

Peer::Peer(Rank rank, Home& home) : rank_(rank), home_(home) {
  for (std::size_t i = 0; i < kMaxConnectionsPerPair; ++i) send_.of[i].posts = posts_[i].data();
}

Status Peer::make_mirror() {
  if (mirror_) return {};
  TUTTI_TRY_ASSIGN(mirror_, PrivateInbox::make(home_.layout));
  return {};
}

Stream* Peer::way() {
  if (way_ == nullptr)
    for (auto& stream : streams_)
      if (stream && way_ == nullptr) way_ = &*stream;
  return way_;
}

const Stream* Peer::broken() const {
  for (const auto& stream : streams_)
    if (stream && stream->down()) return &*stream;
  return nullptr;
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
  Stream* const way = this->way();
  if (way == nullptr) return;
  if (way->down()) {
    note_taken(*way);
    return;
  }
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1)
    pump_messages(*way, static_cast<std::uint8_t>(std::countr_zero(left)));
  if (way->pending() || words_wait_)
    pump_words(*way);
  else
    words_wait_ = has_words();
  way->flush();
  note_taken(*way);
}

// A connection that is down needs nothing any more.
void Peer::note_taken(const Stream& way) {
  for (std::uint32_t left = sends_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    send_.of[index].taken = way.sends_no_more() ? send_.of[index].next : way.left(index);
  }
}

void Peer::take_back() {
  pump();
  if (Stream* const way = this->way()) way->take_back();
}

bool Peer::has_words() const {
  for (std::uint32_t left = recvs_opened_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(left));
    if (recv_.of[index].next != credited_[index]) return true;
  }
  return home_.done > done_said_;
}

void Peer::pump_words(Stream& way) {
  for (std::uint32_t left = recvs_opened_; left != 0; left &= left - 1)
    pump_credit(way, static_cast<std::uint8_t>(std::countr_zero(left)));
  if (home_.done > done_said_)
    way.queue({.kind = FrameKind::kDone, .number = done_said_ = home_.done});
  words_wait_ = words_due_ = false;
}

void Peer::pump_messages(Stream& way, std::uint8_t index) {
  const ConnectionState& state = send_.of[index];
  const std::byte* const arena = mirror_->base() + home_.layout.arena_offset_bytes();
  const auto* const cells = reinterpret_cast<const std::byte*>(mirror_->pair(home_.rank).cells);
  for (std::uint64_t& number = pumped_[index]; number < state.next;) {
    const Post& post = posts_[index][number++ % kMaxSlots];
    const bool slot = post.first >= arena;
    const std::size_t in_place = post.lent == nullptr ? post.bytes : kSlotHeaderBytes;
    way.queue({.kind = slot ? FrameKind::kSlot : FrameKind::kCells,
               .index = index,
               .bytes = static_cast<std::uint32_t>(post.bytes),
               .offset = static_cast<std::uint64_t>(post.first - (slot ? arena : cells)),
               .number = number},
              {post.first, in_place}, post.lent);
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
  if (Stream* const way = this->way()) {
    pump_words(*way);
    way->queue({.kind = FrameKind::kBye});
    way->flush();
  }
}

bool Peer::flushed() {
  const Stream* const way = this->way();
  return way == nullptr || way->down() || (!way->pending() && !words_due_);
}

std::uint64_t Peer::unacknowledged_bytes() {
  const Stream* const way = this->way();
  return way == nullptr ? 0 : way->unacknowledged_bytes();
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

std::byte* Peer::landing(const Frame& frame) {
  if (!is_legal(frame, home_.layout) || frame.number <= produced_[frame.index]) return nullptr;
  return home_.inbox->base() + home_.layout.arena_offset_bytes() + frame.offset;
}

bool Peer::landed(const Frame& frame) {
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
      // What cannot be is noticed where it is read.
      mirror_->pair(home_.rank)
          .words[frame.index]
          .consumed.store(frame.number, std::memory_order_release);
      return true;
    case FrameKind::kDone:
      if (frame.number < done_) return false;
      done_ = frame.number;
      return true;
    case FrameKind::kBye:
      has_left_ = true;
      return true;
    case FrameKind::kSlot:
      break;
  }
  return false;
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
