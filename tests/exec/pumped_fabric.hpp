// SPDX-License-Identifier: Apache-2.0
// Connections that are pumped, in plain memory of one process: who sends fills a mirror, or lends
// its memory, and pump() carries one message, read as late as the test likes. One that goes to
// memory that the receiver has offered spoils that memory first, as early as it may.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "exec/host_executor.hpp"
#include "transports/connection_ops.hpp"

namespace tutti::test {

class PumpedFabric {
 public:
  explicit PumpedFabric(std::uint64_t arena_bytes) : arena_bytes_(arena_bytes) {}

  std::unique_ptr<HostExecutor> bind(const Plan& plan) {
    std::vector<Connection> sends, recvs;
    for (const ConnectionSpec& spec : plan.sends) sends.push_back(way(spec).end(spec, true));
    for (const ConnectionSpec& spec : plan.recvs) recvs.push_back(way(spec).end(spec, false));
    return std::make_unique<HostExecutor>(plan, std::move(sends), std::move(recvs));
  }

  // One message of some connection begins to arrive or is all there, if any is on its way; another
  // one's lent memory is let go.
  template <typename Random>
  void pump(Random& random) {
    carry(way_at(random()));
    way_at(random()).let_go();
  }
  // Every message that is on its way arrives; no lent memory is let go.
  void carry_all() {
    for (const auto& [key, way] : ways_)
      while (way->carried != way->sender.next) carry(*way);
  }
  void let_go_all() {
    for (const auto& [key, way] : ways_) way->let_go();
  }
  // Has a message gone to memory that was lent and not yet let go?
  [[nodiscard]] bool wrote_lent() const { return wrote_lent_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  // Pages that nobody touches cost nothing.
  static Memory zeros(std::uint64_t bytes) {
    return Memory(static_cast<std::byte*>(std::calloc(bytes, 1)));
  }
  struct Way {
    explicit Way(std::uint64_t arena_bytes)
        : mirror(zeros(arena_bytes)), inbox(zeros(arena_bytes)) {
      sender.posts = posts;
      receiver.offer = &offer;
    }
    Connection end(const ConnectionSpec& spec, bool sends) {
      Connection connection;
      connection.protocol = spec.protocol;
      connection.slots = spec.slots;
      connection.slot_bytes = spec.slot_bytes;
      connection.arena = (sends ? mirror : inbox).get() + spec.arena_offset_bytes;
      connection.words = sends ? &out : &in;
      connection.state = sends ? &sender : &receiver;
      return connection;
    }
    void carry() {
      out.consumed.store(in.consumed.load(std::memory_order_relaxed), std::memory_order_relaxed);
      if (carried == sender.next) return;
      const Post& post = posts[carried % kMaxSlots];
      const std::uint64_t bytes = post.bytes - kSlotHeaderBytes;
      if (payload == nullptr) {
        begin(post, bytes);
        return;
      }
      std::memcpy(payload, post.lent != nullptr ? post.lent : post.first + kSlotHeaderBytes, bytes);
      payload = nullptr;
      in.produced.store(++carried, std::memory_order_relaxed);
    }
    void begin(const Post& post, std::uint64_t bytes) {
      std::byte* const slot = inbox.get() + (post.first - mirror.get());
      std::memcpy(slot, post.first, kSlotHeaderBytes);
      payload = slot + kSlotHeaderBytes;
      SlotHeader header{};
      std::memcpy(&header, slot, sizeof header);
      if (offer.memory == nullptr || offer.message != carried || offer.bytes != bytes ||
          offer.signature != header.signature)
        return;
      offer.taken_by = carried + 1;
      payload = offer.memory;
      std::memset(payload, 0xee, bytes);
    }
    void let_go() { sender.taken = carried; }

    Memory mirror, inbox;
    ConnectionWords out{}, in{};
    Post posts[kMaxSlots] = {};
    Offer offer;
    ConnectionState sender, receiver;
    std::uint64_t carried = 0;
    std::byte* payload = nullptr;  // where that of message `carried` goes, once it has begun
  };

  void carry(Way& way) {
    way.carry();
    if (way.payload != nullptr && way.payload == way.offer.memory)
      wrote_lent_ = wrote_lent_ || is_lent(way.offer);
  }
  [[nodiscard]] bool is_lent(const Offer& offer) const {
    for (const auto& [key, way] : ways_)
      for (std::uint64_t k = way->sender.taken; k < way->sender.next; ++k) {
        const Post& post = way->posts[k % kMaxSlots];
        if (post.lent == nullptr) continue;
        const std::byte* const end = post.lent + post.bytes - kSlotHeaderBytes;
        if (post.lent < offer.memory + offer.bytes && offer.memory < end) return true;
      }
    return false;
  }
  Way& way(const ConnectionSpec& spec) {
    auto& found = ways_[{spec.source, spec.destination, spec.index}];
    if (!found) found = std::make_unique<Way>(arena_bytes_);
    return *found;
  }
  Way& way_at(std::uint64_t number) {
    return *std::next(ways_.begin(), static_cast<std::ptrdiff_t>(number % ways_.size()))->second;
  }

  const std::uint64_t arena_bytes_;
  std::map<std::tuple<Rank, Rank, std::uint32_t>, std::unique_ptr<Way>> ways_;
  bool wrote_lent_ = false;
};

}  // namespace tutti::test
