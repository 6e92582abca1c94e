// SPDX-License-Identifier: Apache-2.0
// What comes from other hosts: any bytes as a TCP connection's frames, as a rank's row of the
// board, as an invitation to connect, as the answer to a hello (by the first byte, modulo 8), as
// cards and immediates of RDMA, as a hello, and as what changes an honest one.
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>

#include "board/far_rows.hpp"
#include "tests/fuzz/target.hpp"
#include "transports/connection_ops.hpp"
#include "transports/tcp/invitations.hpp"
#include "transports/tcp/peer.hpp"
#include "transports/verbs/wire.hpp"

namespace tutti::fuzz {
namespace {

constexpr Rank kRanks = 3;
constexpr InboxLayout kLayout{kRanks, 64 * 1024};

template <typename T>
void append(Bytes& bytes, const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// Frames may fill what the peer may write, and nothing else of the inbox.
// `opening_bytes`: of the reply to a hello, before the frames.
void read_frames(std::span<const std::byte> stream, std::size_t opening_bytes = 0) {
  auto inbox = PrivateInbox::make(kLayout);
  require(inbox.has_value(), "an inbox");
  tcp::Home home{.rank = 0, .layout = kLayout, .inbox = std::move(*inbox)};
  tcp::Peer peer(1, home);
  require(peer.make_mirror().has_value(), "a mirror, which credits are for");
  std::array<int, 2> ends{-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
          "a socket pair");
  UniqueFd other(ends[1]);
  peer.stream(tcp::Peer::kAccepted)
      .emplace(ProcessFd::from([&] { return ends[0]; }), opening_bytes);
  // Among guards, for the first message of the seed.
  std::array<std::byte, 48> memory{};
  Connection receiver = peer.open_recv({.source = 1,
                                        .destination = 0,
                                        .index = 1,
                                        .protocol = Protocol::kSlots,
                                        .slot_bytes = 1024});
  offer_memory(receiver, 0x0707'0707'0707'0707, 16, &memory[16]);
  const auto sent = ::send(other.get(), stream.data(), stream.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  require(sent == static_cast<ssize_t>(stream.size()), "the stream fits into a socket");
  other.reset();
  tcp::Stream& end = *peer.stream(tcp::Peer::kAccepted);
  while (!end.down()) static_cast<void>(end.receive(peer));
  require(!end.cause().empty(), "a stream that has ended says why");
  require(std::all_of(memory.begin(), memory.begin() + 16,
                      [](std::byte b) { return b == std::byte{}; }) &&
              std::all_of(memory.begin() + 32, memory.end(),
                          [](std::byte b) { return b == std::byte{}; }),
          "no payload goes beyond the memory that was offered");
  for (const Rank stranger : {0, 2}) {
    const auto* const pair = reinterpret_cast<const std::byte*>(&home.inbox->pair(stranger));
    require(
        std::all_of(pair, pair + sizeof(PairArea), [](std::byte b) { return b == std::byte{}; }),
        "other pairs are untouched");
  }
}

void read_row(std::span<const std::byte> bytes) {
  const auto row = control::decode_row(bytes, kRanks);
  if (!row) return;
  require(row->waits_for >= kNoRank && row->waits_for < kRanks, "a rank of the job, or none");
  require(control::decode_row(control::encode_row(*row), kRanks).has_value(),
          "what was a row is one");
}

void read_invitation(std::span<const std::byte> bytes) {
  const auto invitation = tcp::decode_invitation(bytes);
  if (!invitation) return;
  const auto again = tcp::decode_invitation(tcp::encode(*invitation));
  require(again && again->at == invitation->at, "what was an invitation is one");
}

// Its first `have` bytes, as the door reads them. Once it is no hello it is none for good.
void judge_hello(const tcp::Hello& whole) {
  tcp::Greeting before = tcp::Greeting::kUnfinished;
  tcp::Hello hello;
  for (std::size_t have = 0; have <= sizeof whole; ++have) {
    std::memcpy(&hello, &whole, have);
    const tcp::Greeting greeting = tcp::judge(hello, have, 0);
    require(before == tcp::Greeting::kUnfinished || greeting == before, "a verdict that stays");
    before = greeting;
  }
  require(before != tcp::Greeting::kUnfinished, "a verdict");
  require((before == tcp::Greeting::kWhole) ==
              (whole.magic == tcp::kMagic && whole.version == tcp::kVersion && whole.to == 0 &&
               whole.zero == 0),
          "only a hello is taken for one");
}

// Who was invited gets in once, with the very hello that it was to show.
void read_hello(std::span<const std::byte> bytes) {
  tcp::Hello given;
  bytes = bytes.first(std::min(bytes.size(), sizeof given));
  std::memcpy(&given, bytes.data(), bytes.size());
  judge_hello(given);
  tcp::Invitations invitations;
  invitations.open(*parse_ip("10.0.0.1", 4000));
  const auto asked = invitations.invite(1);
  require(asked.has_value(), "an invitation");
  const auto invitation = tcp::decode_invitation(asked->payload);
  require(invitation.has_value(), "an invitation that can be read");
  const tcp::Hello honest{.from = 1, .to = 0, .token = invitation->hello};
  std::array<std::byte, sizeof honest> changed;
  std::memcpy(changed.data(), &honest, sizeof honest);
  for (std::size_t i = 0; i < bytes.size(); ++i) changed[i] ^= bytes[i];
  tcp::Hello hello;
  std::memcpy(&hello, changed.data(), sizeof hello);
  judge_hello(hello);
  const bool admitted = tcp::judge(hello, sizeof hello, 0) == tcp::Greeting::kWhole &&
                        invitations.admit(hello).has_value();
  require(admitted == (std::memcmp(&hello, &honest, sizeof hello) == 0), "who was invited");
  require(!admitted || !invitations.admit(hello), "once");
}

// A card that is taken can be used.
void read_card(std::span<const std::byte> bytes) {
  const auto card = verbs::read_card(bytes, {.arena_bytes = kLayout.arena_bytes});
  if (!card) return;
  require(card->queue_pair <= verbs::kMostNumber24 && card->mtu >= 1 && card->mtu <= 5,
          "a card whose numbers can be");
  require(card->arena_address + card->arena_bytes >= card->arena_address,
          "an arena that ends where memory does");
}

struct Message {
  std::uint32_t immediate = 0, bytes = 0;
};

// Messages fill what the peer may write.
void read_messages(std::span<const std::byte> bytes) {
  const auto landing = std::make_unique<verbs::Landing>();
  const auto pair = std::make_unique<PairArea>();
  verbs::Arrivals arrivals;
  std::uint64_t taken = 0;
  for (Message message; bytes.size() >= sizeof message; bytes = bytes.subspan(sizeof message)) {
    std::memcpy(&message, bytes.data(), sizeof message);
    if (!arrivals.take(message.immediate, message.bytes, *landing, *pair)) return;
    ++taken;
    const std::uint8_t index = verbs::decode(message.immediate).index;
    require(pair->words[index].produced.load(std::memory_order_relaxed) <= taken,
            "messages are counted one by one");
  }
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  const auto rest = input.subspan(1, std::min(input.size() - 1, std::size_t{65536}));
  if (rest.empty()) return;
  switch (std::to_integer<int>(input[0] & std::byte{7})) {
    case 0:
      return read_frames(rest);
    case 1:
      return read_row(rest);
    case 2:
      return read_invitation(rest);
    case 4:
      return read_card(rest);
    case 5:
      return read_messages(rest);
    case 6:
      return read_hello(rest);
    default:
      return read_frames(rest, sizeof(tcp::HelloReply));
  }
}

std::vector<Bytes> seeds() {
  Bytes frames;
  append(frames, tcp::Frame{.kind = tcp::FrameKind::kSlot, .index = 1, .bytes = 80, .number = 1});
  frames.resize(frames.size() + 80, std::byte{7});
  append(frames, tcp::Frame{.kind = tcp::FrameKind::kCells, .bytes = 24, .offset = 512});
  frames.resize(frames.size() + 24, std::byte{9});
  append(frames, tcp::Frame{.kind = tcp::FrameKind::kCredit, .index = 1, .number = 2});
  append(frames, tcp::Frame{.kind = tcp::FrameKind::kDone, .number = 3});
  append(frames, tcp::Frame{.kind = tcp::FrameKind::kBye, .number = 1});
  control::RankRow row;
  row.state = RankState::kAlive;
  row.entered = 5;
  row.waits_for = 2;
  row.last = OperationSignature{.operation = 5, .count = 100};
  row.poison = Poison{.culprit = 1, .reporter = 2, .kind = Poison::Kind::kDeath};
  const tcp::Invitation invitation{.at = *parse_ip("10.0.0.1", 4000), .hello = {}, .reply = {}};
  Bytes answered;
  append(answered, tcp::HelloReply{});
  answered.insert(answered.end(), frames.begin(), frames.end());
  Bytes card;
  append(card, verbs::Card{.arena_bytes = kLayout.arena_bytes, .mtu = 3});
  Bytes hello;
  append(hello, tcp::Hello{.from = 1, .to = 0});
  const auto cells = [](std::uint8_t number) {
    return verbs::encode({.kind = verbs::Kind::kCells, .index = 2, .number = number});
  };
  const std::vector<Message> messages{
      {cells(1), 24}, {cells(2), 24}, {verbs::encode({.kind = verbs::Kind::kBye}), 0}};
  return {marked(0, frames),
          marked(1, control::encode_row(row)),
          marked(2, tcp::encode(invitation)),
          marked(3, answered),
          marked(4, card),
          marked(5, std::as_bytes(std::span(messages))),
          marked(6, hello),
          marked(6, Bytes(sizeof(tcp::Hello)))};
}

}  // namespace tutti::fuzz
