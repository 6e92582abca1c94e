// SPDX-License-Identifier: Apache-2.0
// The conformance suite: what every transport promises, over a real control plane, with ranks as
// threads and as processes. A new transport's test includes this header once and says
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, conformance_values(Factory{"tcp", &make_tcp}),
//                            conformance_name);
//   INSTANTIATE_TEST_SUITE_P(Tcp, ConformanceOfProcesses, process_values(Factory{...}),
//                            conformance_name);
//
// and, where ranks write into each other's memory, ConformanceOfShared as the first. Nothing here
// knows how a transport works. Operations are numbered by hand; both ends know the plan.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "transports/connection_ops.hpp"
#include "transports/job.hpp"

namespace tutti::test {

using ConformanceParam = std::tuple<Factory, Spawn>;

[[nodiscard]] inline auto conformance_values(const Factory& factory) {
  return testing::Combine(testing::Values(factory),
                          testing::Values(Spawn::kThreads, Spawn::kProcesses));
}
[[nodiscard]] inline auto process_values(const Factory& factory) {
  return testing::Combine(testing::Values(factory), testing::Values(Spawn::kProcesses));
}
[[nodiscard]] inline std::string conformance_name(
    const testing::TestParamInfo<ConformanceParam>& chosen) {
  return std::string(std::get<0>(chosen.param).name) + "_" + name_of(std::get<1>(chosen.param));
}

class Conformance : public testing::TestWithParam<ConformanceParam> {
 protected:
  void SetUp() override {
    if (const std::string missing = std::get<0>(GetParam()).missing(); !missing.empty())
      GTEST_SKIP() << missing;
  }
  [[nodiscard]] static Spawn spawn() { return std::get<1>(GetParam()); }
  static void run(JobOptions options, const std::function<void(Member&)>& body) {
    options.spawn = spawn();
    run_job(options, std::get<0>(GetParam()), body);
  }
};

// What threads cannot do alone, as to be stopped. A transport between threads has no such tests.
class ConformanceOfProcesses : public Conformance {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformanceOfProcesses);

// Where peers write this rank's words themselves. What a pump's may say is the pump's own test.
class ConformanceOfShared : public Conformance {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformanceOfShared);

// A connection of the flagged kind with all the pair's cells from `first_cell` on shared out.
[[nodiscard]] inline ConnectionSpec flagged(Rank source, Rank destination, std::uint32_t slots,
                                            std::uint32_t cells_per_slot,
                                            std::uint32_t first_cell = 0) {
  return {.source = source,
          .destination = destination,
          .protocol = Protocol::kFlagged,
          .slots = slots,
          .first_cell = first_cell,
          .cells_per_slot = cells_per_slot};
}
[[nodiscard]] inline ConnectionSpec slotted(Rank source, Rank destination, std::uint32_t slots,
                                            std::uint64_t payload_bytes,
                                            std::uint64_t arena_offset_bytes = 0) {
  return {.source = source,
          .destination = destination,
          .protocol = Protocol::kSlots,
          .slots = slots,
          .arena_offset_bytes = arena_offset_bytes,
          .slot_bytes = kSlotHeaderBytes + payload_bytes};
}
[[nodiscard]] inline ConnectionSpec at_index(ConnectionSpec spec, std::uint32_t index) {
  spec.index = index;
  return spec;
}

[[nodiscard]] inline std::uint64_t stream_of(const ConnectionSpec& spec) {
  return (static_cast<std::uint64_t>(spec.source) << 16) |
         (static_cast<std::uint64_t>(spec.destination) << 8) | spec.index;
}
// Random, but the same at both ends; edges more often than chance would have them.
[[nodiscard]] inline std::uint64_t bytes_of_message(std::uint64_t stream, std::uint64_t number,
                                                    std::uint64_t capacity) {
  constexpr std::uint64_t kEdges[] = {0, 1, 8, 47, 48, 49, 63, 64, 495, 496, 497, 991, 992, 993};
  std::mt19937_64 random(test_seed() ^ (stream * 0x9e3779b97f4a7c15U + number));
  const std::uint64_t kind = random() % 3;
  if (kind == 0) return std::min(capacity, kEdges[random() % std::size(kEdges)]);
  if (kind == 1) return capacity - std::min(capacity, random() % 3);
  return random() % (capacity + 1);
}
[[nodiscard]] inline std::uint64_t signature_of(std::uint64_t stream, std::uint64_t number) {
  return (stream * 0x94d049bb133111ebU) ^ (number * 0xbf58476d1ce4e5b9U);
}

// One end of a connection and the plan of its messages, absolute numbers.
struct End {
  ConnectionSpec spec;
  Connection connection;
  std::uint64_t number = 0;

  [[nodiscard]] std::uint64_t stream() const { return stream_of(spec); }
  [[nodiscard]] std::uint64_t bytes() const {
    return bytes_of_message(stream(), number, capacity_bytes(connection));
  }
  void send_one() {
    fill_pattern(send_slot(connection), stream(), number, bytes());
    commit(connection, signature_of(stream(), number), bytes());
    ++number;
  }
  void recv_one() {
    EXPECT_EQ(recv_signature(connection), signature_of(stream(), number)) << describe();
    EXPECT_EQ(first_difference(recv_slot(connection), stream(), number, bytes()), bytes())
        << describe();
    release(connection);
    ++number;
  }
  [[nodiscard]] std::string describe() const {
    return std::to_string(spec.source) + " -> " + std::to_string(spec.destination) + " #" +
           std::to_string(spec.index) + " " + tutti::name_of(spec.protocol) + ", message " +
           std::to_string(number) + " of " + std::to_string(bytes()) + " bytes";
  }
};

[[nodiscard]] inline End sender(const Member& me, const ConnectionSpec& spec,
                                std::uint64_t operation) {
  End end{spec, me.open_send(spec)};
  begin_operation(end.connection, operation);
  end.number = end.connection.state->next;
  return end;
}
[[nodiscard]] inline End receiver(const Member& me, const ConnectionSpec& spec,
                                  std::uint64_t operation) {
  End end{spec, me.open_recv(spec)};
  begin_operation(end.connection, operation);
  end.number = end.connection.state->next;
  return end;
}

// Sends on and receives from all ends until each has passed `messages` more, in random order.
inline void exchange(const Member& me, std::vector<End> sends, std::vector<End> recvs,
                     std::uint64_t messages) {
  std::mt19937_64 random(test_seed() + static_cast<std::uint64_t>(me.rank));
  std::vector<std::uint64_t> left(sends.size() + recvs.size(), messages);
  std::uint64_t open = left.size() * messages;
  const auto step = [&](std::size_t i) {
    const bool sending = i < sends.size();
    End& end = sending ? sends[i] : recvs[i - sends.size()];
    if (left[i] == 0 || !(sending ? can_send(end.connection) : can_recv(end.connection))) return;
    sending ? end.send_one() : end.recv_one();
    --left[i];
    --open;
  };
  while (open > 0 && !testing::Test::HasFailure()) {
    const std::uint64_t before = open;
    const bool moved = me.poll("a message or a credit", [&] {
      const std::size_t start = random() % left.size();
      for (std::size_t i = 0; i < left.size(); ++i) step((start + i) % left.size());
      return open < before;
    });
    if (!moved) return;
  }
}

[[nodiscard]] inline bool wait_done(const Member& me, Rank peer, std::uint64_t operation) {
  return me.poll("done", [&] { return me.transport->done_of(peer) >= operation; });
}

// ---- messages -----------------------------------------------------------------------------------

constexpr std::uint64_t kManyMessages = 120;

TEST_P(Conformance, MessagesArriveInOrderAndWholeForEverySlotCount) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    std::uint64_t operation = 0;
    for (const std::uint32_t slots : {2U, 3U, 4U, 8U, 16U}) {
      const auto cells = static_cast<std::uint32_t>(kCellsPerPair) / slots;
      ++operation;
      exchange(me, {sender(me, flagged(me.rank, peer, slots, cells), operation)},
               {receiver(me, flagged(peer, me.rank, slots, cells), operation)}, kManyMessages);
      me.transport->publish_done(operation);
      if (!wait_done(me, peer, operation)) return;
      ++operation;
      exchange(me, {sender(me, slotted(me.rank, peer, slots, 4096), operation)},
               {receiver(me, slotted(peer, me.rank, slots, 4096), operation)}, kManyMessages);
      me.transport->publish_done(operation);
      if (!wait_done(me, peer, operation)) return;
    }
  });
}

// Where memory is shared; over a wire the same operations take the cells that all have.
TEST_P(Conformance, ShortMessagesAndOthersAlternate) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    for (std::uint64_t operation = 1; operation <= 6; ++operation) {
      const auto end = [&](ConnectionSpec spec) {
        spec.short_slots = kShortCellsPerPair;
        End opened{spec, spec.source == me.rank ? me.open_send(spec) : me.open_recv(spec)};
        EXPECT_TRUE(opened.connection.short_cells == nullptr ||
                    me.transport->capabilities().shares);
        use_short_cells(opened.connection, operation % 2 == 1);
        begin_operation(opened.connection, operation);
        opened.number = opened.connection.state->next;
        return opened;
      };
      exchange(me, {end(flagged(me.rank, peer, 8, 2))}, {end(flagged(peer, me.rank, 8, 2))},
               kManyMessages);
    }
  });
}

TEST_P(Conformance, ConnectionsOfManyPairsAndIndicesDoNotDisturbEachOther) {
  run({.ranks = 3}, [](Member& me) {
    const auto specs = [](Rank source, Rank destination) {
      const auto room = static_cast<std::uint64_t>(source) * 65536;
      return std::vector<ConnectionSpec>{
          at_index(flagged(source, destination, 2, 4), 0),
          at_index(flagged(source, destination, 4, 1, 8), 1),
          at_index(flagged(source, destination, 2, 2, 12), 6),
          at_index(slotted(source, destination, 3, 2048, room), 3),
          at_index(slotted(source, destination, 2, 8192, room + 16384), 7)};
    };
    std::vector<End> sends, recvs;
    for (Rank peer = 0; peer < me.ranks; ++peer) {
      if (peer == me.rank) continue;
      me.connect(peer);
      for (const auto& spec : specs(me.rank, peer)) sends.push_back(sender(me, spec, 1));
      for (const auto& spec : specs(peer, me.rank)) recvs.push_back(receiver(me, spec, 1));
    }
    exchange(me, std::move(sends), std::move(recvs), kManyMessages);
  });
}

// ---- lent payloads ------------------------------------------------------------------------------

// The sender's memory is its own again as soon as `taken` says so.
TEST_P(Conformance, LentPayloadsArriveAsTheyWere) {
  run({.ranks = 2}, [](Member& me) {
    const ConnectionSpec spec = slotted(0, 1, 3, 64 << 10);
    if (me.rank == 1) return exchange(me, {}, {receiver(me, spec, 1)}, kManyMessages);
    me.connect(1);
    End end = sender(me, spec, 1);
    EXPECT_EQ(takes_lent(end.connection), me.transport->capabilities().pumps);
    if (!takes_lent(end.connection)) return exchange(me, {end}, {}, kManyMessages);
    std::vector<std::byte> memory(64 << 10);
    const auto key = me.transport->register_memory(memory);
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_TRUE(me.transport->may_lend(memory));
    for (std::uint64_t i = 0; i < kManyMessages; ++i) {
      ASSERT_TRUE(me.poll("a credit", [&] { return can_send(end.connection); }));
      fill_pattern({memory.data(), memory.size(), memory.size()}, end.stream(), end.number,
                   end.bytes());
      commit_lent(end.connection, signature_of(end.stream(), end.number), end.bytes(),
                  memory.data());
      const std::uint64_t message = end.number++;
      ASSERT_TRUE(me.poll("it to be taken", [&] { return end.connection.state->taken > message; }));
      std::ranges::fill(memory, std::byte{0xee});
    }
    me.transport->unregister_memory(*key);
  });
}

// ---- offered memory -----------------------------------------------------------------------------

// Of all messages some are offered memory, as large as they are or not. One that took it lies
// there.
TEST_P(Conformance, PayloadsGoToMemoryThatTheirReceiverOffersOrToTheirSlot) {
  run({.ranks = 2}, [](Member& me) {
    const ConnectionSpec spec = slotted(0, 1, 3, 64 << 10);
    if (me.rank == 0) {
      me.connect(1);
      return exchange(me, {sender(me, spec, 1)}, {}, kManyMessages);
    }
    End end = receiver(me, spec, 1);
    std::vector<std::byte> memory(64 << 10);
    for (std::uint64_t i = 0; i < kManyMessages; ++i) {
      std::ranges::fill(memory, std::byte{0xee});
      const std::uint64_t bytes = end.bytes() - (i % 4 == 3 && end.bytes() > 0 ? 1 : 0);
      const bool offers = i % 4 != 0 && takes_offers(end.connection) && !can_recv(end.connection);
      if (offers)
        offer_memory(end.connection, signature_of(end.stream(), end.number), bytes, memory.data());
      ASSERT_TRUE(me.poll("a message", [&] { return can_recv(end.connection); }));
      const std::byte* const at = received_at(end.connection);
      const std::uint64_t placed = at == nullptr ? 0 : end.bytes();
      EXPECT_TRUE(at == nullptr || (offers && at == memory.data() && bytes == end.bytes()));
      EXPECT_EQ(first_difference({memory.data(), memory.size(), memory.size()}, end.stream(),
                                 end.number, placed),
                placed);
      EXPECT_EQ(std::ranges::count(memory.begin() + static_cast<std::ptrdiff_t>(placed),
                                   memory.end(), std::byte{0xee}),
                static_cast<std::ptrdiff_t>(memory.size() - placed));
      if (at == nullptr) {
        end.recv_one();
        continue;
      }
      EXPECT_EQ(recv_signature(end.connection), signature_of(end.stream(), end.number));
      release(end.connection);
      ++end.number;
    }
  });
}

// ---- credits ------------------------------------------------------------------------------------

// Rank 0 sends as long as it may and says how often that was.
inline std::uint64_t send_while_possible(const Member& me, End& end, std::uint64_t expected) {
  std::uint64_t sent = 0;
  const bool all = me.poll("credits", [&] {
    for (; can_send(end.connection) && sent <= expected; ++sent) end.send_one();
    return sent >= expected;
  });
  EXPECT_TRUE(all) << "of " << expected << " messages " << sent << " could be sent";
  return sent;
}

inline void check_flow_control(Member& me, const ConnectionSpec& spec) {
  if (me.rank == 0) {
    me.connect(1);
    End end = sender(me, spec, 1);
    EXPECT_EQ(send_while_possible(me, end, spec.slots), spec.slots);
    EXPECT_FALSE(can_send(end.connection));
    me.meet();  // rank 1 releases one message
    me.meet();
    EXPECT_EQ(send_while_possible(me, end, 1), 1U);
    EXPECT_FALSE(can_send(end.connection));
    // The next operation has no credits of its own.
    begin_operation(end.connection, 2);
    EXPECT_FALSE(can_send(end.connection));
    me.meet();  // rank 1 releases all
    me.meet();
    EXPECT_EQ(send_while_possible(me, end, spec.slots), spec.slots);
    EXPECT_FALSE(can_send(end.connection));
    me.meet();  // rank 1 reads the rest
    return;
  }
  End end = receiver(me, spec, 1);
  const auto recv = [&](std::uint64_t messages) {
    for (std::uint64_t i = 0; i < messages; ++i) {
      if (!me.poll("a message", [&] { return can_recv(end.connection); })) return;
      end.recv_one();
    }
  };
  me.meet();
  recv(1);
  me.meet();
  me.meet();
  recv(spec.slots);
  me.meet();
  me.meet();
  begin_operation(end.connection, 2);
  recv(spec.slots);
}

TEST_P(Conformance, SenderNeverOverrunsUnreadFlaggedSlots) {
  run({.ranks = 2}, [](Member& me) { check_flow_control(me, flagged(0, 1, 3, 5)); });
}

TEST_P(Conformance, SenderNeverOverrunsUnreadArenaSlots) {
  run({.ranks = 2}, [](Member& me) { check_flow_control(me, slotted(0, 1, 2, 4096)); });
}

// ---- composition of operations ------------------------------------------------------------------

// The same memory, and the same counters, under one layout after another.
inline std::vector<ConnectionSpec> carves(Rank source, Rank destination) {
  return {flagged(source, destination, 2, 8),
          slotted(source, destination, 2, 8192),
          flagged(source, destination, 16, 1),
          at_index(flagged(source, destination, 4, 4), 1),
          at_index(slotted(source, destination, 7, 1024), 1),
          at_index(flagged(source, destination, 2, 3, 5), 2),
          slotted(source, destination, 3, 4096)};
}

TEST_P(Conformance, CarveMayChangeOnceReadersAreDone) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    const auto out = carves(me.rank, peer), in = carves(peer, me.rank);
    for (std::uint64_t operation = 1; operation <= 60; ++operation) {
      const std::size_t carve = (operation * operation / 3) % out.size();
      // The rule: before writing where another layout was, wait until its readers are done.
      if (!wait_done(me, peer, operation - 1)) return;
      const End send = sender(me, out[carve], operation);
      const End recv = receiver(me, in[carve], operation);
      exchange(me, {send}, {recv}, 1 + operation % 11);
      EXPECT_FALSE(is_corrupt(send.connection));
      EXPECT_FALSE(is_corrupt(recv.connection));
      me.transport->publish_done(operation);
    }
  });
}

TEST_P(Conformance, WhatOtherCarvesLeftInTheCellsIsNoMessage) {
  run({.ranks = 2}, [](Member& me) {
    if (me.rank == 0) me.connect(1);
    const std::uint32_t layouts[][2] = {{2, 8}, {16, 1}, {8, 2}, {3, 5}, {16, 1}, {2, 8}};
    std::uint64_t operation = 0;
    for (const auto& [slots, cells] : layouts) {
      const ConnectionSpec spec = flagged(0, 1, slots, cells);
      ++operation;
      if (me.rank == 0) {
        End end = sender(me, spec, operation);
        me.meet();  // rank 1 has looked
        exchange(me, {end}, {}, 2 * slots + 1);
      } else {
        End end = receiver(me, spec, operation);
        for (int look = 0; look < 100; ++look) EXPECT_FALSE(can_recv(end.connection));
        me.meet();
        exchange(me, {}, {end}, 2 * slots + 1);
      }
      me.meet();
    }
  });
}

TEST_P(Conformance, DoneIsSeenByThePeers) {
  run({.ranks = 3}, [](Member& me) {
    for (Rank peer = 0; peer < me.ranks; ++peer) me.connect(peer);
    for (Rank peer = 0; peer < me.ranks; ++peer) EXPECT_EQ(me.transport->done_of(peer), 0U);
    me.meet();
    me.transport->publish_done(10 + static_cast<std::uint64_t>(me.rank));
    me.meet();
    // By now it has left, and one rank alone looks for it at a time.
    for (Rank turn = 0; turn < me.ranks; ++turn) {
      for (Rank peer = 0; turn == me.rank && peer < me.ranks; ++peer) {
        const auto expected = 10 + static_cast<std::uint64_t>(peer);
        EXPECT_TRUE(wait_done(me, peer, expected));
        EXPECT_EQ(me.transport->done_of(peer), expected);
      }
      EXPECT_TRUE(me.control->allgather(std::array<std::byte, 1>{}, Deadline::in_ms(60'000)));
    }
  });
}

// Also where a message takes `done` along.
TEST_P(Conformance, CreditsOfTheLastCallLeaveWithoutAnother) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    me.meet();
    if (me.rank == 0) {
      End out = sender(me, at_index(slotted(0, 1, 2, 4096), 1), 1);
      out.send_one();
      out.send_one();
      EXPECT_TRUE(me.poll("a credit", [&] { return can_send(out.connection); }));
    } else {
      End in = receiver(me, at_index(slotted(0, 1, 2, 4096), 1), 1);
      End out = sender(me, slotted(1, 0, 2, 4096), 2);
      ASSERT_TRUE(me.poll("a message", [&] { return can_recv(in.connection); }));
      in.recv_one();
      me.transport->publish_done(1);
      out.send_one();
    }
    me.meet();  // progress() as long as unflushed() asks for it, then no more
  });
}

// Within one patience, which holds fewer sleeps that nobody ends.
TEST_P(Conformance, WhoSleepsForAMessageIsWoken) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    End out = sender(me, flagged(me.rank, peer, 2, 1), 1);
    End in = receiver(me, flagged(peer, me.rank, 2, 1), 1);
    me.meet();
    const Deadline deadline = Member::patience();
    for (std::uint64_t i = 0; i < kManyMessages && !deadline.passed(); ++i) {
      if (i % 2 == static_cast<std::uint64_t>(me.rank)) {
        ASSERT_TRUE(me.poll("room", [&] { return can_send(out.connection); }));
        out.send_one();
      }
      EXPECT_TRUE(me.transport->progress());
      while (i % 2 != static_cast<std::uint64_t>(me.rank) && !can_recv(in.connection)) {
        ASSERT_FALSE(deadline.passed());
        if (!me.transport->await(peer, 900'000'000)) std::this_thread::yield();
        EXPECT_TRUE(me.transport->progress());
      }
      if (i % 2 != static_cast<std::uint64_t>(me.rank)) in.recv_one();
    }
    EXPECT_FALSE(deadline.passed());
    me.meet();
  });
}

// Nor what it publishes afterwards.
TEST_P(Conformance, WhoHasLeftIsOwedNothing) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    End out = sender(me, slotted(me.rank, peer, 2, 4096), 1);
    End in = receiver(me, slotted(peer, me.rank, 2, 4096), 1);
    exchange(me, {out}, {in}, 4);
    me.meet();
    if (me.rank == 0) {
      me.transport->say_goodbye();
      me.transport->close();
      me.meet();
      return;
    }
    me.meet();
    me.transport->publish_done(1);
    EXPECT_TRUE(me.poll("the end of what is owed", [&] {
      EXPECT_TRUE(me.transport->progress());
      return me.transport->owed().bytes == 0 && me.transport->unflushed() == kNoRank;
    }));
  });
}

// ---- misuse -------------------------------------------------------------------------------------

TEST_P(Conformance, SpecsOutsideTheMemoryAreRefused) {
  run({.ranks = 2, .arena_bytes = 65536}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    const std::uint64_t arena = me.transport->capabilities().arena_bytes;
    ASSERT_GE(arena, 65536U);
    const auto bad = [&](Rank source, Rank destination) {
      constexpr std::uint32_t kMany = UINT32_MAX;
      std::vector<ConnectionSpec> specs = {
          at_index(flagged(source, destination, 2, 1), kMaxConnectionsPerPair),
          at_index(flagged(source, destination, 2, 1), kMany),
          flagged(source, destination, 0, 1),
          flagged(source, destination, 2, 0),
          flagged(source, destination, 2, 9),
          flagged(source, destination, 17, 1),
          flagged(source, destination, 2, 4, 9),
          flagged(source, destination, 2, 1, kMany),
          flagged(source, destination, kMany, kMany, kMany),
          slotted(source, destination, 0, 4096),
          slotted(source, destination, kMaxSlots + 1, 64),
          slotted(source, destination, 2, arena),
          slotted(source, destination, 2, 4096, arena),
          slotted(source, destination, 2, 4096, arena - 4096),
          slotted(source, destination, 2, 4096, UINT64_MAX - 63),
          slotted(source, destination, 2, UINT64_MAX / 2 - 127),
          slotted(source, destination, 2, 0),
          slotted(source, destination, 2, 100),
          slotted(source, destination, 2, 4096, 8)};
      return specs;
    };
    for (const ConnectionSpec& spec : bad(me.rank, peer)) {
      const auto sent = me.transport->open_send(spec);
      ASSERT_FALSE(sent) << spec.slots << " slots of " << spec.slot_bytes << " bytes";
      EXPECT_EQ(sent.error().code, Code::kInvalidArgument) << sent.error().message;
    }
    for (const ConnectionSpec& spec : bad(peer, me.rank)) {
      const auto received = me.transport->open_recv(spec);
      ASSERT_FALSE(received) << spec.slots << " slots of " << spec.slot_bytes << " bytes";
      EXPECT_EQ(received.error().code, Code::kInvalidArgument) << received.error().message;
    }
    // Not this rank's ends, and ranks that do not exist.
    EXPECT_FALSE(me.transport->open_send(flagged(peer, me.rank, 2, 1)));
    EXPECT_FALSE(me.transport->open_recv(flagged(me.rank, peer, 2, 1)));
    EXPECT_FALSE(me.transport->open_send(flagged(me.rank, me.rank, 2, 1)));
    EXPECT_FALSE(me.transport->open_send(flagged(me.rank, 2, 2, 1)));
    EXPECT_FALSE(me.transport->open_recv(flagged(kNoRank, me.rank, 2, 1)));
    // The largest that fit are taken.
    EXPECT_TRUE(me.transport->open_send(flagged(me.rank, peer, 16, 1)));
    EXPECT_TRUE(me.transport->open_send(slotted(me.rank, peer, 2, arena / 2 - kSlotHeaderBytes)));
  });
}

TEST_P(ConformanceOfShared, CountersThatCannotBeAreNoticedAndNotFollowed) {
  run({.ranks = 2}, [](Member& me) {
    const std::uint64_t lies[] = {1000, UINT64_MAX, std::uint64_t{1} << 63};
    std::uint32_t index = 0;
    if (me.rank == 0) me.connect(1);
    // The receiver claims to have read what was never sent.
    for (const std::uint64_t lie : lies) {
      const ConnectionSpec spec = at_index(slotted(0, 1, 2, 256), index++);
      if (me.rank == 0) {
        End end = sender(me, spec, 1);
        end.send_one();
        end.send_one();
        EXPECT_FALSE(can_send(end.connection));
        me.meet();  // rank 1 lies
        me.meet();
        EXPECT_FALSE(can_send(end.connection));
        EXPECT_TRUE(is_corrupt(end.connection));
      } else {
        End end = receiver(me, spec, 1);
        me.meet();
        end.connection.words->consumed.store(lie, std::memory_order_release);
        me.meet();
      }
    }
    // The sender claims to have sent more than any sender may.
    for (const std::uint64_t lie : lies) {
      const ConnectionSpec spec = at_index(slotted(0, 1, 2, 256), index++);
      if (me.rank == 0) {
        sender(me, spec, 1).connection.words->produced.store(lie, std::memory_order_release);
        me.meet();
      } else {
        End end = receiver(me, spec, 1);
        me.meet();
        EXPECT_FALSE(can_recv(end.connection));
        EXPECT_TRUE(is_corrupt(end.connection));
      }
    }
  });
}

// ---- life ---------------------------------------------------------------------------------------

TEST_P(Conformance, ConnectIsIdempotentAndTakesNoRankOutsideTheJob) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    const std::uint64_t mapped = me.transport->mapped_bytes();
    EXPECT_GT(mapped, 0U);
    // Once connected, not even a deadline in the past matters.
    EXPECT_TRUE(me.transport->connect(peer, Deadline{}));
    EXPECT_EQ(me.transport->mapped_bytes(), mapped);
    for (const Rank nobody : {Rank{2}, kNoRank, Rank{INT32_MAX}}) {
      const Status status = me.transport->connect(nobody, Member::patience());
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    }
    exchange(me, {sender(me, flagged(me.rank, peer, 2, 1), 1)},
             {receiver(me, flagged(peer, me.rank, 2, 1), 1)}, 9);
  });
}

TEST_P(Conformance, SendingNeedsConnect) {
  run({.ranks = 2}, [](Member& me) {
    const auto sent = me.transport->open_send(flagged(me.rank, 1 - me.rank, 2, 1));
    ASSERT_FALSE(sent);
    EXPECT_EQ(sent.error().code, Code::kInvalidUsage);
  });
}

TEST_P(Conformance, ConnectToOneThatDoesNotListenIsBounded) {
  run({.ranks = 2, .listen = false}, [](Member& me) {
    if (me.rank == 1) {
      ASSERT_TRUE(me.transport->listen());
      const Status status = me.transport->connect(0, Deadline::in_ms(100));
      ASSERT_FALSE(status);
      EXPECT_TRUE(status.error().code == Code::kTimeout ||
                  status.error().code == Code::kRemoteError)
          << status.error().message;
      EXPECT_EQ(status.error().culprit, 0);
    }
    me.meet();
    ASSERT_TRUE(me.transport->listen());
    me.meet();
    me.connect(1 - me.rank);  // and afterwards it works
  });
}

TEST_P(ConformanceOfProcesses, ConnectToAStoppedProcessIsBounded) {
  run({.ranks = 2, .receive = false}, [](Member& me) {
    if (me.rank == 0) {
      me.meet();
      ::raise(SIGSTOP);
      me.leave_at_once();
    }
    const pid_t peer = me.control->peers()[0].pid;
    me.meet();
    // Its service thread answers until it has stopped.
    EXPECT_TRUE(me.poll("the peer to stop", [&] { return process_state(peer) == 'T'; }));
    const Status status = me.transport->connect(0, Deadline::in_ms(100));
    EXPECT_FALSE(status);
    if (!status) {
      EXPECT_EQ(status.error().code, Code::kTimeout) << status.error().message;
      EXPECT_EQ(status.error().culprit, 0);
    }
    EXPECT_EQ(::kill(peer, SIGCONT), 0);
    me.leave_at_once();
  });
}

TEST_P(Conformance, CloseIsIdempotentAndLeavesThePeersMemoryValid) {
  run({.ranks = 2}, [](Member& me) {
    const Rank peer = 1 - me.rank;
    me.connect(peer);
    End end = sender(me, slotted(me.rank, peer, 2, 4096), 1);
    me.meet();
    if (me.rank == 1) {
      me.transport->close();
      me.transport->close();
      EXPECT_EQ(me.transport->mapped_bytes(), 0U);
      EXPECT_FALSE(me.transport->connect(peer, Member::patience()));
      EXPECT_FALSE(me.transport->open_recv(slotted(peer, me.rank, 2, 4096)));
      me.meet();
      return;
    }
    me.meet();
    // The peer has gone: sending is in vain, but it does no harm.
    for (int i = 0; i < 2 && can_send(end.connection); ++i) end.send_one();
    EXPECT_FALSE(is_corrupt(end.connection));
  });
}

TEST_P(Conformance, OneRankAllocatesNothing) {
  run({.ranks = 1}, [](Member& me) {
    EXPECT_EQ(me.transport->mapped_bytes(), 0U);
    EXPECT_TRUE(me.transport->connect(0, Member::patience()));
    me.transport->publish_done(1);
    EXPECT_EQ(me.transport->mapped_bytes(), 0U);
  });
}

}  // namespace tutti::test
