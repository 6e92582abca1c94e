// SPDX-License-Identifier: Apache-2.0
// What a peer's frames do to memory that the receiver has offered for their payloads, over a socket
// pair and byte by byte: no bytes but those of the message that was meant, and none after the offer
// was withdrawn. And on which of two connections frames go, and what their order among these may
// be.
#include "transports/tcp/peer.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "transports/connection_ops.hpp"

namespace tutti::tcp {
namespace {

constexpr std::uint64_t kPayloadBytes = 20'000, kSlotBytes = 32 << 10, kSignature = 77;
static_assert(kPayloadBytes >= kLeastOfferedBytes);
constexpr InboxLayout kLayout{2, 4 * kSlotBytes};
constexpr ConnectionSpec kSpec{.source = 1,
                               .destination = 0,
                               .index = 3,
                               .protocol = Protocol::kSlots,
                               .slots = 2,
                               .slot_bytes = kSlotBytes};
constexpr std::byte kGuard{0xee};

std::byte payload_byte(std::uint64_t message, std::uint64_t at) {
  return static_cast<std::byte>(message * 31 + at * 7 + 1);
}

// The frame of a message as the other end sends it, all of it.
struct Sent {
  std::uint64_t message = 0;
  std::uint64_t signature = kSignature;
  std::uint64_t payload_bytes = kPayloadBytes;

  [[nodiscard]] std::vector<std::byte> bytes() const {
    const Frame frame{.kind = FrameKind::kSlot,
                      .index = kSpec.index,
                      .bytes = static_cast<std::uint32_t>(kSlotHeaderBytes + payload_bytes),
                      .offset = message % kSpec.slots * kSlotBytes,
                      .number = message + 1};
    const SlotHeader header{.signature = signature, .bytes = payload_bytes};
    std::vector<std::byte> all(sizeof frame + frame.bytes);
    std::memcpy(all.data(), &frame, sizeof frame);
    std::memcpy(all.data() + sizeof frame, &header, sizeof header);
    for (std::uint64_t i = 0; i < payload_bytes; ++i)
      all[sizeof frame + kSlotHeaderBytes + i] = payload_byte(message, i);
    return all;
  }
};

// Bytes of message `message` from the beginning on.
std::uint64_t equal_bytes(const std::byte* memory, std::uint64_t message) {
  for (std::uint64_t i = 0; i < kPayloadBytes; ++i)
    if (memory[i] != payload_byte(message, i)) return i;
  return kPayloadBytes;
}

// The other end of a new connection of the peer's.
UniqueFd add_stream(Peer& peer, Peer::Side side) {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  peer.stream(side).emplace(ProcessFd::from([&] { return ends[0]; }), 0);
  return UniqueFd(ends[1]);
}

// The receiving end, and what is left of the sending one: its sockets.
struct Receiver {
  Receiver() {
    home.inbox = *PrivateInbox::make(kLayout);
    others[Peer::kMade] = add_stream(peer, Peer::kMade);
    others[Peer::kAccepted] = add_stream(peer, Peer::kAccepted);
    connection = peer.open_recv(kSpec);
    begin_operation(connection, 1);
  }
  void arrives(std::span<const std::byte> bytes, Peer::Side side = Peer::kMade) {
    ASSERT_EQ(::send(others[side].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
              static_cast<ssize_t>(bytes.size()));
    peer.stream(side)->receive(peer);
  }
  void offer_all() { offer_memory(connection, kSignature, kPayloadBytes, memory.data()); }
  // Has nothing been written to what was offered, from `from` on?
  [[nodiscard]] bool untouched(std::uint64_t from = 0) const {
    return std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(from), memory.end(),
                       [](std::byte b) { return b == kGuard; });
  }
  // The message has come to its slot, whole.
  void expect_in_slot(std::uint64_t message) {
    ASSERT_TRUE(can_recv(connection));
    EXPECT_EQ(received_at(connection), nullptr);
    EXPECT_EQ(equal_bytes(recv_slot(connection).base, message), kPayloadBytes);
    EXPECT_EQ(recv_signature(connection), kSignature);
  }
  void expect_in_place(std::uint64_t message) {
    ASSERT_TRUE(can_recv(connection));
    EXPECT_EQ(received_at(connection), memory.data());
    EXPECT_EQ(equal_bytes(memory.data(), message), kPayloadBytes);
    EXPECT_TRUE(untouched(kPayloadBytes));
    EXPECT_EQ(recv_signature(connection), kSignature);
  }

  Home home{.rank = 0, .layout = kLayout, .inbox = std::nullopt};
  Peer peer{1, home};
  std::array<UniqueFd, 2> others;
  Connection connection;
  std::vector<std::byte> memory = std::vector<std::byte>(kPayloadBytes + 4096, kGuard);
};

TEST(TcpPeer, APayloadGoesToTheMemoryThatWasOffered) {
  Receiver to;
  EXPECT_TRUE(takes_offers(to.connection));
  EXPECT_FALSE(has_offered(to.connection));
  to.offer_all();
  EXPECT_TRUE(has_offered(to.connection));
  to.arrives(Sent{}.bytes());
  to.expect_in_place(0);
  release(to.connection);
  EXPECT_FALSE(has_offered(to.connection));
  to.arrives(Sent{.message = 1}.bytes());
  to.expect_in_slot(1);
}

TEST(TcpPeer, AFrameMayComeInPieces) {
  Receiver to;
  const std::vector<std::byte> all = Sent{}.bytes();
  const std::span<const std::byte> bytes(all);
  to.offer_all();
  // Within the frame's header, the slot's, and the payload.
  const std::size_t ends[] = {1, 24, 25, 87, 88, 89, 5000, bytes.size() - 1, bytes.size()};
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    EXPECT_FALSE(can_recv(to.connection)) << "after " << begin;
    to.arrives(bytes.subspan(begin, end - begin));
    begin = end;
  }
  to.expect_in_place(0);
}

TEST(TcpPeer, AnOfferThatComesTooLateIsNotTaken) {
  Receiver to;
  const std::vector<std::byte> all = Sent{}.bytes();
  const std::span<const std::byte> bytes(all);
  to.arrives(bytes.first(5000));
  to.offer_all();
  to.arrives(bytes.subspan(5000));
  to.expect_in_slot(0);
  EXPECT_TRUE(to.untouched());
}

TEST(TcpPeer, AnotherMessageDoesNotTakeTheOffer) {
  Receiver to;
  for (const Sent& other :
       {Sent{.payload_bytes = kPayloadBytes - 1},
        Sent{.message = 1, .payload_bytes = kSlotBytes / 2},
        Sent{.message = 2, .signature = kSignature + 1}, Sent{.message = 3, .payload_bytes = 0}}) {
    to.offer_all();
    to.arrives(other.bytes());
    ASSERT_TRUE(can_recv(to.connection));
    EXPECT_EQ(received_at(to.connection), nullptr);
    EXPECT_EQ(recv_signature(to.connection), other.signature);
    EXPECT_TRUE(to.untouched()) << "message " << other.message;
    release(to.connection);
  }
}

TEST(TcpPeer, AnOfferThatWasWithdrawnIsNotTaken) {
  Receiver to;
  to.offer_all();
  withdraw_offer(to.connection);
  EXPECT_FALSE(has_offered(to.connection));
  to.arrives(Sent{}.bytes());
  to.expect_in_slot(0);
  EXPECT_TRUE(to.untouched());
}

TEST(TcpPeer, APayloadOnItsWayKeepsItsPlace) {
  Receiver to;
  const std::vector<std::byte> all = Sent{}.bytes();
  const std::span<const std::byte> bytes(all);
  to.offer_all();
  to.arrives(bytes.first(5000));
  withdraw_offer(to.connection);
  to.arrives(bytes.subspan(5000));
  to.expect_in_place(0);
}

// As a call ends that has failed: its memory is the program's again.
TEST(TcpPeer, NoByteReachesMemoryThatWasTakenBack) {
  const std::vector<std::byte> all = Sent{}.bytes();
  const std::span<const std::byte> bytes(all);
  for (const std::size_t come : {std::size_t{0}, std::size_t{30}, std::size_t{88}, std::size_t{89},
                                 std::size_t{5000}, bytes.size() - 1, bytes.size()}) {
    SCOPED_TRACE(come);
    Receiver to;
    to.offer_all();
    to.arrives(bytes.first(come));
    to.peer.take_back();
    std::ranges::fill(to.memory, kGuard);
    to.arrives(bytes.subspan(come));
    to.expect_in_slot(0);
    EXPECT_TRUE(to.untouched());
  }
}

// Two messages, one right behind the other, of which the first was offered a place.
void two_arrive(Receiver& to) {
  std::vector<std::byte> both = Sent{}.bytes();
  const std::vector<std::byte> second = Sent{.message = 1}.bytes();
  both.insert(both.end(), second.begin(), second.end());
  to.offer_all();
  to.arrives(both);
  to.expect_in_place(0);
  EXPECT_TRUE(to.peer.waits());
}

// The place of the second message is known once the first has been received.
TEST(TcpPeer, AMessageRightBehindAnotherWaitsOneTurnForItsPlace) {
  Receiver to;
  two_arrive(to);
  release(to.connection);
  EXPECT_FALSE(can_recv(to.connection));
  std::ranges::fill(to.memory, kGuard);
  to.offer_all();
  to.peer.receive_waiting();
  EXPECT_FALSE(to.peer.waits());
  to.expect_in_place(1);
}

TEST(TcpPeer, AMessageThatIsOfferedNoPlaceWaitsNoLonger) {
  Receiver to;
  two_arrive(to);
  to.peer.receive_waiting();  // the first has not even been received
  EXPECT_FALSE(to.peer.waits());
  to.expect_in_place(0);
  release(to.connection);
  to.expect_in_slot(1);
}

// No honest rank sends messages of one connection on two streams.
TEST(TcpPeer, AMessageOnTheOtherStreamDoesNotAnnounceAPayloadThatIsNotThere) {
  const std::vector<std::byte> all = Sent{}.bytes();
  for (const std::uint64_t number : {0U, 1U}) {
    Receiver to;
    to.offer_all();
    to.arrives(std::span(all).first(5000));
    to.arrives(Sent{.message = number, .payload_bytes = 8}.bytes(), Peer::kAccepted);
    EXPECT_TRUE(to.peer.stream(Peer::kAccepted)->down());
    EXPECT_FALSE(can_recv(to.connection));
  }
}

// A message that was begun on one stream and came whole on the other is over: its end takes nothing
// back, and an offer that nobody took ended with its message.
TEST(TcpPeer, AMessageThatEndsLateRevivesNoOffer) {
  Receiver to;
  const std::vector<std::byte> all = Sent{}.bytes();
  to.arrives(std::span(all).first(5000));
  to.arrives(all, Peer::kAccepted);
  to.expect_in_slot(0);
  release(to.connection);
  to.offer_all();
  to.arrives(Sent{.message = 1, .payload_bytes = 8}.bytes(), Peer::kAccepted);
  ASSERT_TRUE(can_recv(to.connection));
  release(to.connection);
  to.arrives(std::span(all).subspan(5000));
  EXPECT_TRUE(to.peer.stream(Peer::kMade)->down());
  to.arrives(Sent{.message = 1}.bytes(), Peer::kAccepted);
  EXPECT_TRUE(to.peer.stream(Peer::kAccepted)->down());
  EXPECT_TRUE(to.untouched());
}

// The sending end with both connections, as the rank that is `self` of 0 and 1.
struct Sender {
  explicit Sender(Rank self) : home{.rank = self, .layout = kLayout, .inbox = std::nullopt} {
    home.inbox = *PrivateInbox::make(kLayout);
    EXPECT_TRUE(peer.make_mirror());
    others[Peer::kMade] = add_stream(peer, Peer::kMade);
    others[Peer::kAccepted] = add_stream(peer, Peer::kAccepted);
    ConnectionSpec spec = kSpec;
    spec.source = self;
    spec.destination = 1 - self;
    slots = peer.open_send(spec);
    spec.protocol = Protocol::kFlagged;
    spec.index = 4;
    spec.cells_per_slot = 4;
    cells = peer.open_send(spec);
    begin_operation(slots, 1);
    begin_operation(cells, 1);
  }
  // The side on which all frames of a message went.
  Peer::Side send(Connection& connection, std::uint64_t bytes) {
    commit(connection, kSignature, bytes);
    peer.pump();
    std::array<std::size_t, 2> came{};
    std::vector<std::byte> in(kSlotBytes);
    for (const Peer::Side side : {Peer::kMade, Peer::kAccepted})
      came[side] = static_cast<std::size_t>(
          std::max<ssize_t>(0, ::recv(others[side].get(), in.data(), in.size(), MSG_DONTWAIT)));
    EXPECT_GT(came[0] + came[1], bytes);
    EXPECT_EQ(std::min(came[0], came[1]), 0U);
    return came[Peer::kMade] > 0 ? Peer::kMade : Peer::kAccepted;
  }
  // Do words leave by themselves within so many turns?
  bool speaks_within(int turns) {
    std::array<std::byte, 256> in;
    for (int turn = 0; turn < turns; ++turn) {
      peer.pump();
      for (const UniqueFd& other : others)
        if (::recv(other.get(), in.data(), in.size(), MSG_DONTWAIT) > 0) return true;
    }
    return false;
  }
  void consumes(std::uint64_t number) { tells({.kind = FrameKind::kCredit, .number = number}); }
  void tells(Frame frame, Peer::Side side = Peer::kMade) {
    frame.index = frame.kind == FrameKind::kCredit ? kSpec.index : std::uint8_t{0};
    EXPECT_EQ(::send(others[side].get(), &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT),
              ssize_t{sizeof frame});
    peer.stream(side)->receive(peer);
  }

  Home home;
  Peer peer{1 - home.rank, home};
  std::array<UniqueFd, 2> others;
  Connection slots, cells;
};

TEST(TcpPeer, SmallMessagesOfBothRanksTakeTheLowerOnesConnection) {
  Sender lower(0), upper(1);
  for (const std::uint64_t bytes : {8, 1024}) {
    EXPECT_EQ(lower.send(lower.cells, bytes), Peer::kMade);
    EXPECT_EQ(upper.send(upper.cells, bytes), Peer::kAccepted);
  }
}

TEST(TcpPeer, LargeMessagesTakeTheConnectionThatTheirSenderMade) {
  for (const Rank self : {0, 1}) {
    Sender from(self);
    EXPECT_EQ(from.send(from.cells, 4 * kCellPayloadBytes), Peer::kMade);
    EXPECT_EQ(from.send(from.slots, kPayloadBytes), Peer::kMade);
  }
}

// In slots, messages are known by the number of the last one.
TEST(TcpPeer, AMessageInASlotTakesAnotherWayOnlyWhenAllBeforeHaveBeenRead) {
  Sender from(1);
  EXPECT_EQ(from.send(from.slots, kPayloadBytes), Peer::kMade);
  EXPECT_EQ(from.send(from.slots, 8), Peer::kMade);
  from.consumes(1);
  EXPECT_EQ(from.send(from.slots, 8), Peer::kMade);
  from.consumes(3);
  EXPECT_EQ(from.send(from.slots, 8), Peer::kAccepted);
  EXPECT_EQ(from.send(from.slots, kPayloadBytes), Peer::kAccepted);
}

TEST(TcpPeer, AnOlderWordOnTheOtherConnectionChangesNothing) {
  Sender from(1);
  ASSERT_TRUE(can_send(from.slots));
  for (int i = 0; i < 2; ++i) from.send(from.slots, 8);
  EXPECT_FALSE(can_send(from.slots));
  from.tells({.kind = FrameKind::kCredit, .number = 2});
  from.tells({.kind = FrameKind::kCredit, .number = 1}, Peer::kAccepted);
  from.send(from.slots, 8);
  EXPECT_TRUE(can_send(from.slots));
  from.tells({.kind = FrameKind::kDone, .number = 7});
  from.tells({.kind = FrameKind::kDone, .number = 6}, Peer::kAccepted);
  EXPECT_EQ(from.peer.done(), 7U);
  EXPECT_TRUE(from.peer.connected());
}

// Credits of a call that has ended and its number wait for a message; not for ever, not where none
// is to come, and not where the peer may lack credits.
TEST(TcpPeer, WordsWaitForAMessage) {
  Sender from(1);
  ConnectionSpec spec = kSpec;
  spec.source = 0;
  spec.destination = 1;
  spec.slots = 4;
  Connection in = from.peer.open_recv(spec);
  from.peer.end_call();
  EXPECT_TRUE(from.peer.flushed());  // nothing has come, though the plan has not begun either
  begin_operation(in, 1);
  const auto receives = [&] { ++in.state->next; };
  from.send(from.cells, 8);
  receives();
  from.home.done = 1;
  from.peer.end_call();
  EXPECT_TRUE(from.peer.flushed());  // the peer has credits enough
  from.home.done_due = 1;
  EXPECT_FALSE(from.peer.flushed());
  EXPECT_FALSE(from.speaks_within(10));
  from.send(from.cells, 8);  // with them
  EXPECT_TRUE(from.peer.flushed());
  EXPECT_FALSE(from.speaks_within(1000));
  receives();
  from.peer.hasten();
  EXPECT_FALSE(from.speaks_within(10));
  receives();
  from.peer.hasten();
  EXPECT_TRUE(from.speaks_within(1));
  from.home.done = 2;
  from.peer.tell_all();
  EXPECT_FALSE(from.peer.flushed());
  from.peer.hasten();
  EXPECT_TRUE(from.speaks_within(1));
  EXPECT_TRUE(from.peer.flushed());
  receives();
  EXPECT_FALSE(from.speaks_within(10));
  EXPECT_TRUE(from.speaks_within(1000));
  for (int i = 0; i < 2; ++i) receives();
  EXPECT_TRUE(from.speaks_within(2));
  for (int i = 0; i < 2; ++i) receives();
  from.peer.end_call();
  EXPECT_FALSE(from.peer.flushed());
  from.peer.hasten();
  EXPECT_TRUE(from.speaks_within(1));
  EXPECT_TRUE(from.peer.flushed());
}

TEST(TcpPeer, WhoHasLeftHasSaidSoOnBothConnections) {
  Sender from(0), to(1);
  from.peer.say_goodbye();
  for (const Peer::Side side : {Peer::kMade, Peer::kAccepted}) {
    EXPECT_FALSE(to.peer.has_left());
    Frame bye;
    ASSERT_EQ(::recv(from.others[side].get(), &bye, sizeof bye, MSG_DONTWAIT), ssize_t{sizeof bye});
    EXPECT_EQ(bye.kind, FrameKind::kBye);
    to.tells(bye, side);
    // It may be a while until what was sent on the other connection has come.
    to.others[side] = {};
    to.peer.stream(side)->receive(to.peer);
    EXPECT_TRUE(to.peer.stream(side)->down());
    EXPECT_EQ(to.peer.connected(), side == Peer::kMade);
  }
  EXPECT_TRUE(to.peer.has_left());
}

// What was lent for the one is not read any more once the other is lost.
TEST(TcpPeer, NothingIsSentToAPeerOfWhichAConnectionIsLost) {
  Sender from(0);
  from.others[Peer::kAccepted] = {};
  from.peer.stream(Peer::kAccepted)->receive(from.peer);
  const std::vector<std::byte> payload(kPayloadBytes);
  commit_lent(from.slots, kSignature, payload.size(), payload.data());
  EXPECT_EQ(from.slots.state->taken, 0U);
  from.peer.pump();
  EXPECT_EQ(from.slots.state->taken, 1U);
  EXPECT_TRUE(from.peer.flushed());
  std::byte byte{};
  EXPECT_LE(::recv(from.others[Peer::kMade].get(), &byte, 1, MSG_DONTWAIT), 0);
}

}  // namespace
}  // namespace tutti::tcp
