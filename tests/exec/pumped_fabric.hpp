// SPDX-License-Identifier: Apache-2.0
// Connections that are pumped, in plain memory of one process: who sends fills a mirror, or lends
// its memory, and pump() carries one message, read as late as the test likes.
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

  // One message of some connection arrives, if any is on its way there; another one's lent memory
  // is let go.
  template <typename Random>
  void pump(Random& random) {
    way_at(random()).carry();
    way_at(random()).let_go();
  }

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
      std::byte* const to = inbox.get() + (post.first - mirror.get());
      const std::uint64_t in_place = post.lent == nullptr ? post.bytes : kSlotHeaderBytes;
      std::memcpy(to, post.first, in_place);
      if (post.lent != nullptr) std::memcpy(to + in_place, post.lent, post.bytes - in_place);
      in.produced.store(++carried, std::memory_order_relaxed);
    }
    void let_go() { sender.taken = carried; }

    Memory mirror, inbox;
    ConnectionWords out{}, in{};
    Post posts[kMaxSlots] = {};
    ConnectionState sender, receiver;
    std::uint64_t carried = 0;
  };

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
};

}  // namespace tutti::test
