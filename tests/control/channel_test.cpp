// SPDX-License-Identifier: Apache-2.0
// What a channel over a stream lets through when somebody sits on the wire.
#include "control/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <random>

#include "control/handshake.hpp"
#include "job.hpp"
#include "tests/seed.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

using Bytes = std::vector<std::byte>;

// A stream as TCP is one, whose other end the test holds.
struct Wire {
  Channel channel;
  UniqueFd other;
};

Wire make_wire() {
  std::array<int, 2> ends{-1, -1};
  ProcessFd mine = ProcessFd::from([&] {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    return ends[0];
  });
  return {.channel = Channel(std::move(mine), Medium::kTcp), .other = UniqueFd(ends[1])};
}

Bytes read_raw(int socket) {
  Bytes bytes(1 << 20);
  const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

void write_raw(int socket, std::span<const std::byte> bytes) {
  ASSERT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

StreamKey key_of(int seed) {
  StreamKey key{};
  key.fill(static_cast<std::byte>(seed));
  return key;
}

// The frames as they go over the wire of a sender with the keys 1 (out) and 2 (in).
std::vector<Bytes> sealed(const std::vector<Bytes>& packets, int out = 1, int in = 2) {
  Wire wire = make_wire();
  wire.channel.protect(key_of(out), key_of(in));
  std::vector<Bytes> frames;
  for (const Bytes& packet : packets) {
    EXPECT_EQ(wire.channel.send(packet), IoState::kDone);
    frames.push_back(read_raw(wire.other.get()));
    EXPECT_EQ(frames.back().size(), packet.size() + Channel::kFrameOverheadBytes);
  }
  return frames;
}

// What its peer receives of these bytes: packets, and how it ended.
struct Heard {
  std::vector<Bytes> packets;
  IoState end = IoState::kAgain;
};

Heard hear(std::span<const std::byte> bytes, int in = 1, int out = 2, bool hang_up = false) {
  Wire wire = make_wire();
  wire.channel.protect(key_of(out), key_of(in));
  write_raw(wire.other.get(), bytes);
  if (hang_up) wire.other.reset();
  Heard heard;
  Bytes buffer(kMaxPacketBytes);
  for (;;) {
    const Received received = wire.channel.receive(buffer, false);
    heard.end = received.state;
    if (received.state != IoState::kDone) return heard;
    heard.packets.emplace_back(buffer.begin(),
                               buffer.begin() + static_cast<std::ptrdiff_t>(received.packet_bytes));
  }
}

const std::vector<Bytes>& packets() {
  static const std::vector<Bytes> all = {bytes_of("first"), bytes_of("second, longer"),
                                         bytes_of("third")};
  return all;
}

TEST(Channel, FramesArriveAsTheyWereSent) {
  const auto frames = sealed(packets());
  const Heard heard = hear(joined({frames[0], frames[1], frames[2]}));
  EXPECT_EQ(heard.packets, packets());
  EXPECT_EQ(heard.end, IoState::kAgain);
  // Contents are not to be seen.
  const Bytes wire = joined({frames[0], frames[1], frames[2]});
  for (const Bytes& packet : packets())
    EXPECT_EQ(std::search(wire.begin(), wire.end(), packet.begin(), packet.end()), wire.end());
}

TEST(Channel, NoChangedByteGetsThrough) {
  const auto frames = sealed(packets());
  for (std::size_t at = 0; at < frames[1].size(); ++at) {
    Bytes changed = frames[1];
    changed[at] ^= std::byte{0x04};
    const Heard heard = hear(joined({frames[0], changed, frames[2]}), 1, 2, true);
    EXPECT_EQ(heard.packets, std::vector<Bytes>{packets()[0]}) << "byte " << at;
    // A longer length swallows what follows and still does not open, or waits for the end.
    EXPECT_TRUE(heard.end == IoState::kViolation || heard.end == IoState::kClosed) << "byte " << at;
  }
}

struct Attack {
  const char* name;
  Bytes wire;
  std::size_t heard_packets;
};

TEST(Channel, NothingIsRepeatedLeftOutMovedSentBackOrBorrowed) {
  const auto frames = sealed(packets());
  const auto other_connection = sealed(packets(), 7, 8);
  const auto other_direction = sealed(packets(), 2, 1);
  const std::vector<Attack> attacks = {
      {"repeated", joined({frames[0], frames[0]}), 1},
      {"repeated later", joined({frames[0], frames[1], frames[0]}), 2},
      {"left out", joined({frames[0], frames[2]}), 1},
      {"first left out", frames[1], 0},
      {"moved", joined({frames[1], frames[0]}), 0},
      {"sent back", joined({frames[0], other_direction[1]}), 1},
      {"of another connection", other_connection[0], 0},
      {"in the clear",
       joined({Bytes{std::byte{5}, std::byte{0}, std::byte{0}, std::byte{0}}, packets()[0],
               Bytes(64)}),
       0},
      {"without contents", joined({frames[0], Bytes(4)}), 1},
      {"endless", joined({frames[0], Bytes(4, std::byte{0xff})}), 1},
  };
  for (const Attack& attack : attacks) {
    const Heard heard = hear(attack.wire);
    EXPECT_EQ(heard.packets.size(), attack.heard_packets) << attack.name;
    EXPECT_EQ(heard.end, IoState::kViolation) << attack.name;
  }
}

TEST(Channel, ACutFrameIsNoPacket) {
  const auto frames = sealed(packets());
  for (std::size_t cut = 1; cut < frames[1].size(); ++cut) {
    const Heard heard = hear(
        joined({frames[0], Bytes(frames[1].begin(), frames[1].end() - static_cast<long>(cut))}), 1,
        2, true);
    EXPECT_EQ(heard.packets.size(), 1u) << cut;
    EXPECT_EQ(heard.end, IoState::kClosed) << cut;
  }
}

TEST(Channel, FramesMayComeByteByByte) {
  const auto frames = sealed(packets());
  Wire wire = make_wire();
  wire.channel.protect(key_of(2), key_of(1));
  Bytes buffer(kMaxPacketBytes);
  std::size_t got = 0;
  for (const Bytes& frame : frames) {
    for (std::size_t i = 0; i < frame.size(); ++i) {
      EXPECT_EQ(wire.channel.receive(buffer, false).state, IoState::kAgain);
      write_raw(wire.other.get(), std::span(frame).subspan(i, 1));
    }
    const Received received = wire.channel.receive(buffer, false);
    ASSERT_EQ(received.state, IoState::kDone);
    EXPECT_TRUE(
        std::ranges::equal(std::span(buffer).first(received.packet_bytes), packets()[got++]));
  }
}

TEST(Channel, BeforeTheProofNoFrameIsLongerThanAHandshakePacket) {
  for (const std::size_t packet_bytes :
       {std::size_t{1}, kMaxHandshakeBytes, kMaxHandshakeBytes + 1, kMaxPacketBytes}) {
    Wire sender = make_wire();
    EXPECT_EQ(sender.channel.send(Bytes(packet_bytes, std::byte{3})), IoState::kDone);
    Wire receiver = make_wire();
    write_raw(receiver.other.get(), read_raw(sender.other.get()));
    Bytes buffer(kMaxPacketBytes);
    const Received received = receiver.channel.receive(buffer, false);
    EXPECT_EQ(received.state,
              packet_bytes <= kMaxHandshakeBytes ? IoState::kDone : IoState::kViolation)
        << packet_bytes;
  }
}

// A full socket: what was taken is sent to its last byte, what was not is not begun.
TEST(Channel, WhatIsTakenArrivesWholeThroughAFullSocket) {
  Wire wire = make_wire();
  wire.channel.protect(key_of(1), key_of(2));
  Wire peer = make_wire();
  peer.channel.protect(key_of(2), key_of(1));
  std::size_t taken = 0;
  while (wire.channel.send(Bytes(kMaxPacketBytes, static_cast<std::byte>(taken))) ==
         IoState::kDone) {
    ++taken;
    ASSERT_LT(taken, 10'000u);
  }
  ASSERT_TRUE(wire.channel.unsent());
  std::size_t arrived = 0;
  Bytes buffer(kMaxPacketBytes);
  while (arrived < taken) {
    const Bytes some = read_raw(wire.other.get());
    for (std::size_t at = 0; at < some.size();) {
      const ssize_t sent = ::send(peer.other.get(), some.data() + at, some.size() - at, 0);
      if (sent > 0) at += static_cast<std::size_t>(sent);
      for (Received received;
           (received = peer.channel.receive(buffer, false)).state == IoState::kDone;) {
        ASSERT_EQ(received.packet_bytes, kMaxPacketBytes);
        EXPECT_EQ(buffer.front(), static_cast<std::byte>(arrived));
        EXPECT_EQ(buffer.back(), static_cast<std::byte>(arrived));
        ++arrived;
      }
    }
    ASSERT_EQ(wire.channel.flush(), IoState::kDone);
    ASSERT_TRUE(!some.empty() || arrived == taken);
  }
  EXPECT_FALSE(wire.channel.unsent());
}

TEST(Channel, TakesNoDescriptorAndNothingEmptyOrTooLong) {
  Wire wire = make_wire();
  EXPECT_FALSE(wire.channel.carries_descriptors());
  EXPECT_EQ(wire.channel.send(Bytes(3), 0), IoState::kViolation);
  EXPECT_EQ(wire.channel.send({}), IoState::kViolation);
  EXPECT_EQ(wire.channel.send(Bytes(kMaxPacketBytes + 1)), IoState::kViolation);
  EXPECT_TRUE(read_raw(wire.other.get()).empty());
}

TEST(Channel, RandomBytesNeverOpen) {
  const unsigned seed = draw_seed();
  std::mt19937 random(seed);
  for (int round = 0; round < 2'000; ++round) {
    Bytes bytes(1 + random() % 400);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
    if (bytes.size() >= 4) bytes[1] = bytes[2] = bytes[3] = std::byte{0};  // a length that may be
    EXPECT_TRUE(hear(bytes, 1, 2, true).packets.empty());
  }
}

// Both ends derive the same two keys, and nobody else does.
TEST(Handshake, KeysAreOfThisConnectionAndThisDirection) {
  const SessionKey key = make_session_key();
  const Claim claim{.rank = 1, .peer = 0, .ranks = 4};
  const auto keys_of = [&](const SessionKey& secret, const Claim& who) {
    const Initiator initiator(secret, who, make_nonce());
    Acceptor acceptor(secret, who.peer, who.ranks, make_nonce());
    const Bytes challenge = acceptor.challenge(initiator.hello()).packet;
    const auto proof = initiator.prove(challenge);
    EXPECT_TRUE(proof);
    EXPECT_TRUE(acceptor.accepts(*proof));
    const StreamKeys mine = initiator.stream_keys(challenge);
    EXPECT_EQ(mine.from_initiator, acceptor.stream_keys().from_initiator);
    EXPECT_EQ(mine.from_acceptor, acceptor.stream_keys().from_acceptor);
    EXPECT_NE(mine.from_initiator, mine.from_acceptor);
    return mine;
  };
  const StreamKeys first = keys_of(key, claim);
  const StreamKeys second = keys_of(key, claim);
  EXPECT_NE(first.from_initiator, second.from_initiator);
  EXPECT_NE(first.from_acceptor, second.from_acceptor);
  // An eavesdropper with another secret who saw everything said.
  SessionKey other = key;
  other.secret[5] ^= std::byte{1};
  const Nonce nonce = make_nonce();
  const Initiator honest(key, claim, nonce);
  const Initiator guess(other, claim, nonce);
  Acceptor acceptor(key, claim.peer, claim.ranks, make_nonce());
  const Bytes challenge = acceptor.challenge(honest.hello()).packet;
  EXPECT_NE(honest.stream_keys(challenge).from_initiator,
            guess.stream_keys(challenge).from_initiator);
}

TEST(Handshake, ARefusalOfAnotherVersionNamesBoth) {
  const Claim claim{.rank = 1, .peer = 0, .ranks = 4};
  const SessionKey key = make_session_key();
  const Initiator initiator(key, claim, make_nonce());
  for (const int theirs : {kProtocolVersion - 1, kProtocolVersion + 1}) {
    Bytes hello = initiator.hello();
    hello.at(4) = static_cast<std::byte>(theirs);
    Acceptor acceptor(key, 0, 4, make_nonce());
    const Acceptor::Answer answer = acceptor.challenge(hello);
    EXPECT_FALSE(answer.proceed);
    EXPECT_EQ(acceptor.other_version(), theirs);
    Bytes refusal = answer.packet;
    refusal.at(4) = static_cast<std::byte>(theirs);
    const auto proof = initiator.prove(refusal);
    ASSERT_FALSE(proof);
    EXPECT_EQ(proof.error().code, Code::kInvalidUsage);
    EXPECT_NE(proof.error().message.find("protocol version " + std::to_string(theirs) +
                                         ", this library " + std::to_string(kProtocolVersion)),
              std::string::npos)
        << proof.error().message;
  }
}

}  // namespace
}  // namespace tutti::control
