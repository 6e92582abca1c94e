// SPDX-License-Identifier: Apache-2.0
// Strangers at the root's door and at a rank's: whatever they send, honest ranks join and are
// served.
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>

#include "base/host.hpp"
#include "control/link.hpp"
#include "control/root.hpp"
#include "control/service.hpp"
#include "control/unique_id.hpp"
#include "job.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

using Bytes = std::vector<std::byte>;

// A connection as a stranger has it: no handshake is done for it.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) {
    Result<Channel> channel = connect_to(address, -1, patience());
    EXPECT_TRUE(channel) << (channel ? "" : channel.error().message);
    if (channel) channel_ = *std::move(channel);
  }
  void send(std::span<const std::byte> packet) {
    EXPECT_TRUE(send_within(channel_, packet, -1, patience()));
  }
  // Bytes as they are, in no frame. True: all of them went out.
  bool send_raw(std::string_view bytes) {
    const ssize_t sent = ::send(channel_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(bytes.size());
  }
  // Empty: the other end hung up.
  Bytes hear() {
    Bytes buffer(kMaxPacketBytes);
    const auto received = receive_within(channel_, buffer, false, -1, patience());
    buffer.resize(received ? received->packet_bytes : 0);
    return buffer;
  }
  Bytes receive() {
    Bytes packet = hear();
    EXPECT_FALSE(packet.empty()) << "the other end hung up";
    return packet;
  }
  // The other end hangs up, after at most one packet (its refusal).
  void expect_hang_up() {
    Bytes buffer(kMaxPacketBytes);
    auto received = receive_within(channel_, buffer, false, -1, patience());
    if (received) received = receive_within(channel_, buffer, false, -1, patience());
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().code, Code::kRemoteError) << received.error().message;
  }

 private:
  Channel channel_;
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

// A person with a browser, and a port scanner: both wait for an answer.
std::vector<RawConnection> speak_http(const Door& door) {
  std::vector<RawConnection> open;
  for (int i = 0; i < 20; ++i) {
    open.emplace_back(door.address);
    EXPECT_TRUE(open.back().send_raw("GET / HTTP/1.1\r\nHost: node7\r\n\r\n"));
    open.emplace_back(door.address);
    EXPECT_TRUE(open.back().send_raw("abc"));
  }
  return open;
}

std::vector<RawConnection> lie_about_lengths(const Door& door) {
  using namespace std::string_view_literals;
  for (const std::string_view length :
       {"\0\0\0\0"sv, "\x81\0\0\0"sv, "\xff\xff\xff\xff"sv, "\0\0\0\x80"sv, "\0\0\1\0"sv}) {
    RawConnection connection(door.address);
    EXPECT_TRUE(connection.send_raw(length));
    connection.expect_hang_up();
  }
  return {};
}

// A frame that never ends: the right magic, then nothing.
std::vector<RawConnection> begin_a_hello(const Door& door) {
  using namespace std::string_view_literals;
  std::vector<RawConnection> open;
  for (int i = 0; i < 10; ++i) {
    open.emplace_back(door.address);
    EXPECT_TRUE(open.back().send_raw("\x44\0\0\0TUTH\2\0\1\0"sv));
  }
  return open;
}

// Any step but a hello, before one.
std::vector<RawConnection> begin_in_the_middle(const Door& door) {
  for (const int step : {0, 2, 3, 4, 255}) {
    Bytes hello = insider(door, door.claim).hello();
    hello.at(6) = static_cast<std::byte>(step);
    RawConnection connection(door.address);
    connection.send(hello);
    connection.expect_hang_up();
  }
  return {};
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

// Says again what an honest rank once said. While that one is still being let in, its hello has a
// place already, and who repeats it is sent away.
std::vector<RawConnection> replay(const Door& door) {
  const Initiator initiator = insider(door, door.claim);
  Bytes proof;
  {
    RawConnection first(door.address);
    first.send(initiator.hello());
    const auto made = initiator.prove(first.receive());
    EXPECT_TRUE(made);
    proof = *made;
  }
  for (;;) {
    RawConnection second(door.address);
    second.send(initiator.hello());
    if (second.hear().empty()) continue;
    second.send(proof);
    return rebuffed(std::move(second));
  }
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
  EXPECT_EQ(open(other_secret), Code::kInvalidUsage);
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
      {"Http", speak_http},
      {"Lengths", lie_about_lengths},
      {"HalfHello", begin_a_hello},
      {"WrongStep", begin_in_the_middle},
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

class Strangers : public ::testing::TestWithParam<std::tuple<std::size_t, Medium>> {
 protected:
  static std::vector<RawConnection> knock(const Door& door) {
    return strangers()[std::get<0>(GetParam())].second(door);
  }
  static bool over_tcp() { return std::get<1>(GetParam()) == Medium::kTcp; }
};

// As a rank of the root's host, or as one that has only TCP.
void expect_join(const UniqueId& id, Rank rank, std::int32_t ranks, bool over_tcp) {
  const JoinResult plane = over_tcp ? join_from(static_cast<std::uint64_t>(rank), id, rank, ranks)
                                    : ControlPlane::join(id, rank, ranks, {.deadline = patience()});
  ASSERT_TRUE(plane) << plane.error().message;
  EXPECT_TRUE((*plane)->barrier(patience()));
}

TEST_P(Strangers, AtTheRootKeepNobodyOut) {
  constexpr std::int32_t kRanks = 4;
  const UniqueId id = must_create_id();
  const auto content = decode_id(id);
  ASSERT_TRUE(content);
  const Door door{.address = over_tcp() ? content->tcp : content->local,
                  .key = content->key,
                  .claim = {.rank = 1, .peer = kRootRank, .ranks = kRanks}};
  const std::vector<RawConnection> open = knock(door);
  run_threads(kRanks, [&](Rank rank) { expect_join(id, rank, kRanks, over_tcp()); });
}

// A rank's service with both doors, and what it answers to rank 3.
class EchoService {
 public:
  EchoService() : key_(make_session_key()) {
    auto service = Service::start({.tcp_at = *parse_ip("127.0.0.1", 0)});
    EXPECT_TRUE(service) << (service ? "" : service.error().message);
    service_ = *std::move(service);
    service_->let_in({.key = key_, .self = 1, .ranks = 4});
    service_->serve(RequestKind::kEcho, [](const Request& request) -> Result<HandlerReply> {
      return HandlerReply{.payload = {static_cast<std::byte>(request.from)}};
    });
  }
  Door door(bool over_tcp) const {
    return {.address = over_tcp ? service_->tcp_address() : service_->address(),
            .key = key_,
            .claim = {.rank = 2, .peer = 1, .ranks = 4}};
  }
  void expect_answer(bool over_tcp) const {
    Links links(key_, 3, 4, -1);
    links.set_address(1, door(over_tcp).address);
    const auto reply = links.call(1, RequestKind::kEcho, {}, patience());
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->payload, Bytes{std::byte{3}});
  }

 private:
  SessionKey key_;
  std::unique_ptr<Service> service_;
};

TEST_P(Strangers, AtAServiceKeepNobodyOut) {
  const EchoService service;
  const std::vector<RawConnection> open = knock(service.door(over_tcp()));
  service.expect_answer(over_tcp());
}

INSTANTIATE_TEST_SUITE_P(All, Strangers,
                         ::testing::Combine(::testing::Range(std::size_t{0}, strangers().size()),
                                            ::testing::Values(Medium::kUnix, Medium::kTcp)),
                         [](const auto& chosen) {
                           return std::string(strangers()[std::get<0>(chosen.param)].first) +
                                  (std::get<1>(chosen.param) == Medium::kTcp ? "Tcp" : "Unix");
                         });

// Both ends of a connection are in this process.
bool may_open(rlim_t descriptors) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= descriptors) return true;
  limit.rlim_cur = std::min(descriptors, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= descriptors;
}

// A thousand that say nothing, and more than a lobby holds that stop in the middle of a word.
std::vector<RawConnection> crowd_before(const std::string& address) {
  std::vector<RawConnection> crowd;
  for (int i = 0; i < 1000; ++i) crowd.emplace_back(address);
  for (std::size_t i = 0; i < Lobby::kMaxHalfOpen + 6; ++i) {
    crowd.emplace_back(address);
    EXPECT_TRUE(crowd.back().send_raw("abc"));
  }
  return crowd;
}

TEST(Crowd, AThousandIdleConnectionsKeepNoRankFromTheRoot) {
  if (!may_open(4096)) GTEST_SKIP() << "ulimit -n is below 4096 here";
  const UniqueId id = must_create_id();
  const auto content = decode_id(id);
  ASSERT_TRUE(content);
  const std::vector<RawConnection> crowd = crowd_before(content->tcp);
  run_threads(4, [&](Rank rank) { expect_join(id, rank, 4, true); });
}

TEST(Crowd, AThousandIdleConnectionsKeepNoRankFromAService) {
  if (!may_open(4096)) GTEST_SKIP() << "ulimit -n is below 4096 here";
  const EchoService service;
  const std::vector<RawConnection> crowd = crowd_before(service.door(true).address);
  service.expect_answer(true);
  service.expect_answer(false);
}

// Nobody can end a meeting by another version; the log names both, and so does the error of who
// waits in vain.
TEST(Versions, AreNamedToThoseWhoWaitInVain) {
  for (const int theirs : {kProtocolVersion - 1, kProtocolVersion + 1}) {
    ASSERT_TRUE(wait_for_roots(patience()));  // ids share a door, and its log is the first one's
    const UniqueFd log(::memfd_create("tutti-test", MFD_CLOEXEC));
    const auto to_file = Log::open(LogLevel::kWarn, "/proc/self/fd/" + std::to_string(log.get()));
    ASSERT_TRUE(to_file) << to_file.error().message;
    const auto id = create_unique_id({.log = *to_file, .interfaces = "lo"});
    ASSERT_TRUE(id) << id.error().message;
    const auto content = decode_id(*id);
    ASSERT_TRUE(content);
    const Door door{.address = content->tcp,
                    .key = content->key,
                    .claim = {.rank = 1, .peer = kRootRank, .ranks = 2}};
    RawConnection other(door.address);
    Bytes hello = insider(door, door.claim).hello();
    hello.at(4) = static_cast<std::byte>(theirs);
    other.send(hello);
    other.expect_hang_up();
    const std::string both = "protocol version " + std::to_string(theirs) +
                             " tried to join, but this library has version " +
                             std::to_string(kProtocolVersion);
    const JoinResult plane = ControlPlane::join(*id, 0, 2, {.deadline = Deadline::in_ms(100)});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().culprit, 1);
    EXPECT_NE(plane.error().message.find(both), std::string::npos) << plane.error().message;
    std::string lines(4096, '\0');
    const ssize_t got = ::pread(log.get(), lines.data(), lines.size(), 0);
    lines.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << lines;
    const std::string logged = "protocol version " + std::to_string(theirs) + ", this library " +
                               std::to_string(kProtocolVersion);
    EXPECT_NE(lines.find(logged), std::string::npos) << lines;
    retire_root(content->key.session);
  }
}

// Members of the job that break the protocol lose their connection and harm nobody else.
TEST(Insiders, IllegalPacketsCostTheConnectionOnly) {
  const SessionKey key = make_session_key();
  const auto service = Service::start({});
  ASSERT_TRUE(service) << service.error().message;
  (*service)->let_in({.key = key, .self = 1, .ranks = 4});
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
      {post(0, 16, 8, 64)},                                           // no such round
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
      ASSERT_TRUE(send_within(*socket, packet, -1, patience()));
    }
    Bytes buffer(kMaxPacketBytes);
    const auto received = receive_within(*socket, buffer, false, -1, patience());
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().code, Code::kRemoteError) << received.error().message;
    EXPECT_TRUE(honest.call(1, RequestKind::kEcho, {}, patience()));
  }
}

TEST(Insiders, MoreConnectionsThanAllowedReplaceTheOldest) {
  const SessionKey key = make_session_key();
  const auto service = Service::start({});
  ASSERT_TRUE(service) << service.error().message;
  (*service)->let_in({.key = key, .self = 0, .ranks = 2});
  std::vector<Channel> sockets;
  for (std::size_t i = 0; i <= Service::kMaxConnectionsPerPeer; ++i) {
    auto socket = open_connection((*service)->address(), key, {.rank = 1, .peer = 0, .ranks = 2},
                                  -1, patience());
    ASSERT_TRUE(socket) << socket.error().message;
    sockets.push_back(*std::move(socket));
  }
  Bytes buffer(kMaxPacketBytes);
  const auto first = receive_within(sockets.front(), buffer, false, -1, patience());
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
    auto root = open_connection(content->local, content->key,
                                {.rank = 2, .peer = kRootRank, .ranks = 4}, -1, patience());
    ASSERT_TRUE(root) << root.error().message;
    CheckIn check_in;
    check_in.left_ns = kPatienceMs * 1'000'000;
    check_in.root.job = content->key.session;
    check_in.member.info.rank = 2;
    check_in.member.info.pid = 1;
    // Somebody must listen there: a refused connection would name rank 2 just as well.
    const auto listener = listen_local();
    ASSERT_TRUE(listener);
    check_in.member.address = listener->address();
    check_in.member.locality = host_identity("");
    ASSERT_TRUE(send_within(*root, encode_check_in(check_in), -1, patience()));
    Bytes buffer(kMaxPacketBytes);
    ASSERT_TRUE(receive_within(*root, buffer, false, -1, patience()));  // Met
  });
}

// A service that sheds its load at every step of the handshake and answers at last.
TEST(Links, ACallIsAskedAgainWhereTheConnectionWasShed) {
  const SessionKey key = make_session_key();
  const auto listener = listen_local();
  ASSERT_TRUE(listener);
  const auto receive = [](Channel& socket) {
    Bytes buffer(kMaxPacketBytes);
    const auto received = receive_within(socket, buffer, false, -1, patience());
    EXPECT_TRUE(received);
    buffer.resize(received ? received->packet_bytes : 0);
    return buffer;
  };
  std::thread service([&] {
    for (int steps = 0; steps <= 4; ++steps) {
      ASSERT_TRUE(wait_for(listener->fd(), POLLIN, -1, patience()));
      Channel socket = accept_from(*listener);
      ASSERT_TRUE(socket);
      Acceptor acceptor(key, 1, 2, make_nonce());
      if (steps == 0) continue;
      const Bytes challenge = acceptor.challenge(receive(socket)).packet;
      if (steps == 1) continue;
      ASSERT_TRUE(send_within(socket, challenge, -1, patience()));
      if (steps == 2) continue;
      ASSERT_TRUE(acceptor.accepts(receive(socket)));
      if (steps == 3) continue;
      const Bytes request = receive(socket);
      Reader reader(request);
      const FrameHeader asked = read_header(reader);
      const Bytes reply = start_frame({.type = FrameType::kReply, .number = asked.number}).take();
      ASSERT_TRUE(send_within(socket, reply, -1, patience()));
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

}  // namespace
}  // namespace tutti::control
