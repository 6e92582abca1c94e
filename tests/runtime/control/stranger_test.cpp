// Strangers at the root's door and at a rank's: whatever they send, honest ranks join and are
// served.
#include <poll.h>

#include <random>

#include "runtime/control/link.hpp"
#include "runtime/control/root.hpp"
#include "runtime/control/service.hpp"
#include "runtime/control/unique_id.hpp"
#include "tests/runtime/control/job.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

using Bytes = std::vector<std::byte>;

// A connection as a stranger has it: no handshake is done for it.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) {
    Result<ControlFd> socket = connect_to(address, patience());
    EXPECT_TRUE(socket) << (socket ? "" : socket.error().message);
    if (socket) socket_ = *std::move(socket);
  }
  void send(std::span<const std::byte> packet) {
    EXPECT_TRUE(send_within(socket_.get(), packet, -1, patience()));
  }
  Bytes receive() {
    Bytes buffer(kMaxPacketBytes);
    const auto received = receive_within(socket_.get(), buffer, false, -1, patience());
    EXPECT_TRUE(received) << (received ? "" : received.error().message);
    buffer.resize(received ? received->packet_bytes : 0);
    return buffer;
  }
  // The other end hangs up, after at most one packet (its refusal).
  void expect_hang_up() {
    Bytes buffer(kMaxPacketBytes);
    auto received = receive_within(socket_.get(), buffer, false, -1, patience());
    if (received) received = receive_within(socket_.get(), buffer, false, -1, patience());
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().code, Code::kRemoteError) << received.error().message;
  }

 private:
  ControlFd socket_;
};

// Where strangers knock, and what an insider would know.
struct Door {
  std::string address;
  SessionKey key;
  Claim claim;  // an honest one
};

std::vector<RawConnection> rebuffed(RawConnection connection) {
  connection.expect_hang_up();
  return {};
}

Bytes flipped(Bytes bytes, std::size_t at) {
  bytes.at(at) ^= std::byte{1};
  return bytes;
}

Initiator insider(const Door& door, const Claim& claim) {
  return Initiator(door.key, claim, make_nonce());
}

std::vector<RawConnection> keep_silent(const Door& door) {
  std::vector<RawConnection> open;
  for (std::size_t i = 0; i < Lobby::kMaxHalfOpen + 6; ++i) open.emplace_back(door.address);
  return open;
}

std::vector<RawConnection> hang_up_at_once(const Door& door) {
  for (int i = 0; i < 20; ++i) RawConnection connection(door.address);
  return {};
}

std::vector<RawConnection> send_garbage(const Door& door) {
  std::mt19937 random(7);
  for (const std::size_t packet_bytes : {1UL, 3UL, 8UL, 68UL, 100UL, kMaxHandshakeBytes}) {
    Bytes garbage(packet_bytes);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random() & 0xff);
    RawConnection connection(door.address);
    connection.send(garbage);
    connection.expect_hang_up();
  }
  return {};
}

std::vector<RawConnection> send_prefixes(const Door& door) {
  const Bytes hello = insider(door, door.claim).hello();
  for (std::size_t prefix_bytes = 1; prefix_bytes < hello.size(); prefix_bytes += 5) {
    RawConnection connection(door.address);
    connection.send(std::span(hello).first(prefix_bytes));
    connection.expect_hang_up();
  }
  RawConnection connection(door.address);
  connection.send(std::span(hello).first(8));  // right magic, version and step; then closes
  return {};
}

std::vector<RawConnection> send_oversized(const Door& door) {
  RawConnection connection(door.address);
  connection.send(Bytes(60'000));
  return rebuffed(std::move(connection));
}

std::vector<RawConnection> lie_about_the_mac(const Door& door) {
  RawConnection connection(door.address);
  const Initiator initiator = insider(door, door.claim);
  connection.send(initiator.hello());
  const auto proof = initiator.prove(connection.receive());
  EXPECT_TRUE(proof) << (proof ? "" : proof.error().message);
  connection.send(flipped(*proof, proof->size() - 1));
  return rebuffed(std::move(connection));
}

std::vector<RawConnection> cut_the_proof(const Door& door) {
  RawConnection connection(door.address);
  const Initiator initiator = insider(door, door.claim);
  connection.send(initiator.hello());
  const auto proof = initiator.prove(connection.receive());
  EXPECT_TRUE(proof);
  connection.send(std::span(*proof).first(proof->size() - 1));
  return rebuffed(std::move(connection));
}

// Says again what an honest rank once said.
std::vector<RawConnection> replay(const Door& door) {
  const Initiator initiator = insider(door, door.claim);
  RawConnection first(door.address);
  first.send(initiator.hello());
  const auto proof = initiator.prove(first.receive());
  EXPECT_TRUE(proof);
  RawConnection second(door.address);
  second.send(initiator.hello());
  second.receive();
  second.send(*proof);
  return rebuffed(std::move(second));
}

// Sends the acceptor's own proof back.
std::vector<RawConnection> reflect(const Door& door) {
  RawConnection connection(door.address);
  const Initiator initiator = insider(door, door.claim);
  connection.send(initiator.hello());
  const Bytes challenge = connection.receive();
  const auto proof = initiator.prove(challenge);
  EXPECT_TRUE(proof);
  Bytes reflected = *proof;
  std::copy_n(challenge.end() - 32, 32, reflected.end() - 32);
  connection.send(reflected);
  return rebuffed(std::move(connection));
}

// Proves one rank and claims another.
std::vector<RawConnection> swap_the_rank(const Door& door) {
  Claim other = door.claim;
  other.rank = (other.rank + 1) % other.ranks;
  const Nonce nonce = make_nonce();
  const Initiator claims(door.key, other, nonce);
  RawConnection connection(door.address);
  connection.send(claims.hello());
  const Bytes challenge = connection.receive();
  EXPECT_FALSE(Initiator(door.key, door.claim, nonce).prove(challenge));
  Door without_secret = door;
  without_secret.key.secret[0] ^= std::byte{1};
  EXPECT_FALSE(Initiator(without_secret.key, other, nonce).prove(challenge));
  const auto proof = claims.prove(challenge);
  EXPECT_TRUE(proof);
  connection.send(flipped(*proof, proof->size() - 32));
  return rebuffed(std::move(connection));
}

std::vector<RawConnection> come_with_another_id(const Door& door) {
  const auto open = [&](const SessionKey& key) {
    const auto socket = open_connection(door.address, key, door.claim, -1, patience());
    EXPECT_FALSE(socket);
    return socket ? Code::kSuccess : socket.error().code;
  };
  SessionKey other_session = door.key;
  other_session.session[3] ^= std::byte{1};
  EXPECT_EQ(open(other_session), Code::kInvalidUsage);
  SessionKey other_secret = door.key;
  other_secret.secret[3] ^= std::byte{1};
  EXPECT_EQ(open(other_secret), Code::kRemoteError);
  return {};
}

std::vector<RawConnection> speak_another_version(const Door& door) {
  RawConnection connection(door.address);
  connection.send(flipped(insider(door, door.claim).hello(), 4));
  return rebuffed(std::move(connection));
}

std::vector<RawConnection> claim_impossible_ranks(const Door& door) {
  for (const auto& [rank, ranks] : {std::pair<Rank, std::int32_t>{-1, 2},
                                    {2, 2},
                                    {0, 0},
                                    {0, -5},
                                    {1, INT32_MAX},
                                    {INT32_MIN, 4}}) {
    Claim claim = door.claim;
    claim.rank = rank;
    claim.ranks = ranks;
    const auto socket = open_connection(door.address, door.key, claim, -1, patience());
    EXPECT_FALSE(socket);
  }
  Claim elsewhere = door.claim;
  elsewhere.peer += 7;
  EXPECT_FALSE(open_connection(door.address, door.key, elsewhere, -1, patience()));
  return {};
}

constexpr auto strangers() {
  return std::to_array<std::pair<const char*, std::vector<RawConnection> (*)(const Door&)>>({
      {"Silent", keep_silent},
      {"HangUp", hang_up_at_once},
      {"Garbage", send_garbage},
      {"Prefixes", send_prefixes},
      {"Oversized", send_oversized},
      {"WrongMac", lie_about_the_mac},
      {"CutProof", cut_the_proof},
      {"Replay", replay},
      {"Reflection", reflect},
      {"SwappedRank", swap_the_rank},
      {"OtherId", come_with_another_id},
      {"OtherVersion", speak_another_version},
      {"ImpossibleRanks", claim_impossible_ranks},
  });
}

class Strangers : public ::testing::TestWithParam<std::size_t> {
 protected:
  static std::vector<RawConnection> knock(const Door& door) {
    return strangers()[GetParam()].second(door);
  }
};

TEST_P(Strangers, AtTheRootKeepNobodyOut) {
  constexpr std::int32_t kRanks = 4;
  const UniqueId id = must_create_id();
  const auto content = decode_id(id);
  ASSERT_TRUE(content);
  const Door door{.address = content->address,
                  .key = content->key,
                  .claim = {.rank = 1, .peer = kRootRank, .ranks = kRanks}};
  const std::vector<RawConnection> open = knock(door);
  run_threads(kRanks, [&](Rank rank) {
    const JoinResult plane = ControlPlane::join(id, rank, kRanks, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
    EXPECT_TRUE((*plane)->barrier(patience()));
  });
}

TEST_P(Strangers, AtAServiceKeepNobodyOut) {
  const SessionKey key = make_session_key();
  const auto service = Service::start({.key = key, .self = 1, .ranks = 4});
  ASSERT_TRUE(service) << service.error().message;
  (*service)->serve(RequestKind::kEcho, [](const Request& request) -> Result<HandlerReply> {
    return HandlerReply{.payload = {static_cast<std::byte>(request.from)}};
  });
  const std::vector<RawConnection> open = knock(
      {.address = (*service)->address(), .key = key, .claim = {.rank = 2, .peer = 1, .ranks = 4}});
  Links links(key, 3, 4, -1);
  links.set_address(1, (*service)->address());
  const auto reply = links.call(1, RequestKind::kEcho, {}, patience());
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->payload, Bytes{std::byte{3}});
}

INSTANTIATE_TEST_SUITE_P(All, Strangers, ::testing::Range(std::size_t{0}, strangers().size()),
                         [](const auto& chosen) { return strangers()[chosen.param].first; });

// Members of the job that break the protocol lose their connection and harm nobody else.
TEST(Insiders, IllegalPacketsCostTheConnectionOnly) {
  const SessionKey key = make_session_key();
  const auto service = Service::start({.key = key, .self = 1, .ranks = 4});
  ASSERT_TRUE(service) << service.error().message;
  (*service)->serve(RequestKind::kEcho,
                    [](const Request&) -> Result<HandlerReply> { return HandlerReply{}; });
  const auto post = [](std::uint64_t offset, std::uint64_t total_bytes, std::size_t bytes,
                       std::uint32_t round) {
    Writer writer = start_frame({.type = FrameType::kPost, .round = round, .number = 1});
    return writer.number(offset).number(total_bytes).raw(Bytes(bytes)).take();
  };
  Writer two_requests = start_frame({.type = FrameType::kRequest, .kind = 99, .number = 1});
  const std::vector<std::vector<Bytes>> offences = {
      {Bytes(1)},
      {Bytes(kFrameHeaderBytes)},                                     // type 0
      {start_frame({.type = FrameType::kMet}).take()},                // not to a service
      {start_frame({.type = FrameType::kPost, .number = 1}).take()},  // no body
      {post(0, 4, 8, 0)},                                             // more than announced
      {post(UINT64_MAX, 8, 8, 0)},                                    // offset + length wraps
      {post(0, UINT64_MAX, 8, 0)},                                    // without bound
      {post(0, 16, 8, 40)},                                           // no such round
      {post(8, 16, 8, 0)},                                            // a hole
      {post(0, 16, 8, 1), post(8, 32, 8, 1)},                         // another total
      {two_requests.bytes(), two_requests.bytes()},                   // does not wait its turn
      {Bytes(70'000)},
  };
  Links honest(key, 3, 4, -1);
  honest.set_address(1, (*service)->address());
  for (std::size_t i = 0; i < offences.size(); ++i) {
    SCOPED_TRACE(i);
    auto socket = open_connection((*service)->address(), key, {.rank = 2, .peer = 1, .ranks = 4},
                                  -1, patience());
    ASSERT_TRUE(socket) << socket.error().message;
    for (const Bytes& packet : offences[i]) {
      ASSERT_TRUE(send_within(socket->get(), packet, -1, patience()));
    }
    Bytes buffer(kMaxPacketBytes);
    const auto received = receive_within(socket->get(), buffer, false, -1, patience());
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().code, Code::kRemoteError) << received.error().message;
    EXPECT_TRUE(honest.call(1, RequestKind::kEcho, {}, patience()));
  }
}

TEST(Insiders, MoreConnectionsThanAllowedReplaceTheOldest) {
  const SessionKey key = make_session_key();
  const auto service = Service::start({.key = key, .self = 0, .ranks = 2});
  ASSERT_TRUE(service) << service.error().message;
  std::vector<ControlFd> sockets;
  for (std::size_t i = 0; i <= Service::kMaxConnectionsPerPeer; ++i) {
    auto socket = open_connection((*service)->address(), key, {.rank = 1, .peer = 0, .ranks = 2},
                                  -1, patience());
    ASSERT_TRUE(socket) << socket.error().message;
    sockets.push_back(*std::move(socket));
  }
  Bytes buffer(kMaxPacketBytes);
  const auto first = receive_within(sockets.front().get(), buffer, false, -1, patience());
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, Code::kRemoteError);
}

TEST(Insiders, AMemberThatLeavesAfterMeetingEndsTheJoinOfAll) {
  const UniqueId id = must_create_id();
  const auto content = decode_id(id);
  ASSERT_TRUE(content);
  run_threads(4, [&](Rank rank) {
    if (rank != 2) {
      const JoinResult plane = ControlPlane::join(id, rank, 4, {.deadline = patience()});
      ASSERT_FALSE(plane);
      EXPECT_EQ(plane.error().code, Code::kRemoteError) << plane.error().message;
      EXPECT_EQ(plane.error().culprit, 2) << plane.error().message;
      return;
    }
    const auto root = open_connection(content->address, content->key,
                                      {.rank = 2, .peer = kRootRank, .ranks = 4}, -1, patience());
    ASSERT_TRUE(root) << root.error().message;
    CheckIn check_in;
    check_in.left_ns = kPatienceMs * 1'000'000;
    check_in.member.info.rank = 2;
    check_in.member.info.pid = 1;
    // Somebody must listen there: a refused connection would name rank 2 just as well.
    const auto listener = listen_local();
    ASSERT_TRUE(listener);
    check_in.member.address = listener->address();
    ASSERT_TRUE(send_within(root->get(), encode_check_in(check_in), -1, patience()));
    Bytes buffer(kMaxPacketBytes);
    ASSERT_TRUE(receive_within(root->get(), buffer, false, -1, patience()));  // Met
  });
}

// A service that sheds its load at every step of the handshake and answers at last.
TEST(Links, ACallIsAskedAgainWhereTheConnectionWasShed) {
  const SessionKey key = make_session_key();
  const auto listener = listen_local();
  ASSERT_TRUE(listener);
  const auto receive = [](int socket) {
    Bytes buffer(kMaxPacketBytes);
    const auto received = receive_within(socket, buffer, false, -1, patience());
    EXPECT_TRUE(received);
    buffer.resize(received ? received->packet_bytes : 0);
    return buffer;
  };
  std::thread service([&] {
    for (int steps = 0; steps <= 4; ++steps) {
      ASSERT_TRUE(wait_for(listener->fd(), POLLIN, -1, patience()));
      const ControlFd socket = accept_from(listener->fd());
      ASSERT_TRUE(socket);
      Acceptor acceptor(key, 1, 2, make_nonce());
      if (steps == 0) continue;
      const Bytes challenge = acceptor.challenge(receive(socket.get())).packet;
      if (steps == 1) continue;
      ASSERT_TRUE(send_within(socket.get(), challenge, -1, patience()));
      if (steps == 2) continue;
      ASSERT_TRUE(acceptor.accepts(receive(socket.get())));
      if (steps == 3) continue;
      const Bytes request = receive(socket.get());
      Reader reader(request);
      const FrameHeader asked = read_header(reader);
      const Bytes reply = start_frame({.type = FrameType::kReply, .number = asked.number}).take();
      ASSERT_TRUE(send_within(socket.get(), reply, -1, patience()));
    }
  });
  Links links(key, 0, 2, -1);
  links.set_address(1, listener->address());
  const auto reply = links.call(1, RequestKind::kEcho, {}, patience());
  EXPECT_TRUE(reply) << reply.error().message;
  service.join();
}

TEST(Links, ACallThatIsOverEndsBeforeItsDeadline) {
  const auto listener = listen_local();  // never accepts
  ASSERT_TRUE(listener);
  Links links(make_session_key(), 0, 2, -1);
  links.set_address(1, listener->address());
  int asked = 0;
  links.end_when([&] { return ++asked == 2; });
  const auto reply = links.call(1, RequestKind::kEcho, {}, Deadline{INT64_MAX});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::kInvalidUsage) << reply.error().message;
}

TEST(Lobby, DropsWhoDoesNotFinishInTime) {
  const auto loop = EventLoop::create();
  ASSERT_TRUE(loop);
  auto listener = listen_local();
  ASSERT_TRUE(listener);
  const std::string address = listener->address();
  Lobby lobby(**loop, *std::move(listener), {.key = make_session_key(), .log = Log()},
              [](ControlFd, const Claim&) { FAIL() << "nobody proved anything"; });
  ASSERT_TRUE(lobby.open());
  RawConnection silent(address);
  (*loop)->run_once(now_ns() + kPatienceMs * 1'000'000);
  lobby.tick(now_ns());
  EXPECT_EQ(lobby.strangers(), 0u);
  EXPECT_NE(lobby.next_tick_ns(), INT64_MAX);
  lobby.tick(now_ns() + Lobby::kHandshakeNs);
  EXPECT_EQ(lobby.strangers(), 1u);
  EXPECT_EQ(lobby.next_tick_ns(), INT64_MAX);
  silent.expect_hang_up();
}

}  // namespace
}  // namespace tutti::control
