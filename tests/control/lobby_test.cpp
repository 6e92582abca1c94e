// SPDX-License-Identifier: Apache-2.0
// What a newcomer waits behind at a door: counted in turns of the loop and in accepted connections,
// while the clock stands still. Whatever was said before it came, a member is served after as many
// turns as it takes to accept those that stand before it, and no place is kept for a stranger.
#include "control/lobby.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "control/link.hpp"
#include "job.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

using Bytes = std::vector<std::byte>;

constexpr Claim kMember{.rank = 1, .peer = kRootRank, .ranks = 8};
// Beside those for the connections before it: its own acceptance, its proof, and what a stranger
// that was accepted in the last turn says.
constexpr int kOwnTurns = 8;

// Both ends of some connections are in this process.
bool may_open(rlim_t descriptors) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= descriptors) return true;
  limit.rlim_cur = std::min(descriptors, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= descriptors;
}

class LobbyTest : public ::testing::Test {
 protected:
  explicit LobbyTest(Medium medium = Medium::kTcp) : key_(make_session_key()) {
    auto loop = EventLoop::create();
    EXPECT_TRUE(loop);
    loop_ = *std::move(loop);
    auto listener = medium == Medium::kTcp ? listen_tcp(*parse_ip("127.0.0.1", 0)) : listen_local();
    EXPECT_TRUE(listener);
    address_ = listener->address();
    lobby_ =
        std::make_unique<Lobby>(*loop_, *std::move(listener),
                                Lobby::Options{.find_key = Acceptor::only(key_), .self = kRootRank},
                                [this](Channel channel, const SessionId&, const Claim& claim) {
                                  admitted_.push_back(claim);
                                  kept_.push_back(std::move(channel));
                                });
    EXPECT_TRUE(lobby_->open());
  }

  Channel connect() const {
    Result<Channel> channel = connect_to(address_, -1, patience());
    EXPECT_TRUE(channel) << (channel ? "" : channel.error().message);
    return channel ? *std::move(channel) : Channel();
  }
  // Bytes as they are, in no frame.
  Channel say(std::string_view bytes) const {
    Channel channel = connect();
    EXPECT_EQ(::send(channel.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return channel;
  }
  Channel say_packet(const Bytes& packet) const {
    Channel channel = connect();
    EXPECT_EQ(channel.send(packet), IoState::kDone);
    return channel;
  }

  // A turn in which something happened. The lobby is not told that time goes by.
  void turn() {
    ++turns_;
    if (loop_->run_once(now_ns() + 5'000'000'000) == 0) stuck_ = true;
  }
  template <typename Ready>
  void turn_until(Ready&& ready) {
    while (!ready() && !stuck_) turn();
    ASSERT_FALSE(stuck_) << "nobody is served any more";
  }
  // A member that comes now is admitted after so many turns at most.
  void expect_service_within(int turns) {
    turns_ = 0;
    const std::size_t before = admitted_.size();
    const Initiator member(key_, kMember, make_nonce());
    Channel channel = say_packet(member.hello());
    pollfd answered{.fd = channel.fd(), .events = POLLIN, .revents = 0};
    ASSERT_NO_FATAL_FAILURE(turn_until([&] { return ::poll(&answered, 1, 0) == 1; }));
    Bytes buffer(kMaxHandshakeBytes);
    const Received challenge = channel.receive(buffer, false);
    ASSERT_EQ(challenge.state, IoState::kDone);
    const auto proof = member.prove(std::span(buffer).first(challenge.packet_bytes));
    ASSERT_TRUE(proof) << proof.error().message;
    ASSERT_EQ(channel.send(*proof), IoState::kDone);
    ASSERT_NO_FATAL_FAILURE(turn_until([&] { return admitted_.size() > before; }));
    EXPECT_EQ(admitted_.back(), kMember);
    EXPECT_LE(turns_, turns);
  }
  static int turns_for(std::size_t connections) {
    return static_cast<int>(connections) / Lobby::kMostAccepts + kOwnTurns;
  }

  const SessionKey key_;
  std::unique_ptr<EventLoop> loop_;
  std::string address_;
  std::unique_ptr<Lobby> lobby_;
  std::vector<Claim> admitted_;
  std::vector<Channel> kept_;
  int turns_ = 0;
  bool stuck_ = false;
};

// What each of a crowd does; with false it hangs up at once.
struct Attack {
  const char* name;
  std::size_t connections;
  std::string (*bytes)();
  bool stays = true;
};

std::string garbage() {
  static std::mt19937_64 random(7);
  std::string bytes(1 + random() % 300, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// In its frame, with the right magic, version and step: then nothing.
std::string half_hello() {
  using namespace std::string_view_literals;
  return std::string("\x64\0\0\0TUTH\3\0\1\0"sv);
}

class Attacks : public LobbyTest, public ::testing::WithParamInterface<Attack> {};

TEST_P(Attacks, AreOnlyStoodBehindWhileTheyAreAccepted) {
  const Attack& attack = GetParam();
  if (!may_open(attack.connections + 1024)) GTEST_SKIP() << "raise 'ulimit -Hn'";
  std::vector<Channel> crowd;
  for (std::size_t i = 0; i < attack.connections; ++i) {
    const std::string bytes = attack.bytes();
    Channel stranger = bytes.empty() ? connect() : say(bytes);
    if (attack.stays) crowd.push_back(std::move(stranger));
  }
  expect_service_within(turns_for(attack.connections));
  // And again, when the places are taken.
  expect_service_within(kOwnTurns + static_cast<int>(Lobby::kMaxHalfOpen) / 64);
}

INSTANTIATE_TEST_SUITE_P(
    All, Attacks,
    ::testing::Values(
        Attack{"Garbage", 1000, garbage}, Attack{"GarbageAndGone", 1000, garbage, false},
        Attack{"HalfHello", 1000, half_hello}, Attack{"FourThousandHalfHellos", 4000, half_hello},
        Attack{"OneByte", 1000, [] { return std::string("T"); }},
        Attack{"Silence", 1000, [] { return std::string(); }},
        Attack{"SilenceAndGone", 1000, [] { return std::string(); }, false},
        Attack{"Browsers", 1000, [] { return std::string("GET / HTTP/1.1\r\n\r\n"); }}),
    [](const auto& chosen) { return chosen.param.name; });

// Who knows a session and no more than that: its members' hellos have a MAC.
TEST_F(LobbyTest, AHelloWithoutTheSecretIsNotChallenged) {
  SessionKey guess = key_;
  guess.secret = make_session_key().secret;
  std::vector<Channel> crowd;
  for (int i = 0; i < 600; ++i)
    crowd.push_back(say_packet(Initiator(guess, kMember, make_nonce()).hello()));
  expect_service_within(turns_for(crowd.size()));
  EXPECT_EQ(lobby_->strangers(), crowd.size());
  Bytes buffer(kMaxHandshakeBytes);
  const Received answer = crowd.front().receive(buffer, false);
  ASSERT_EQ(answer.state, IoState::kDone);
  const auto proof =
      Initiator(guess, kMember, make_nonce()).prove(std::span(buffer).first(answer.packet_bytes));
  ASSERT_FALSE(proof);
  EXPECT_NE(proof.error().message.find("secret"), std::string::npos) << proof.error().message;
}

// Somebody on the way has recorded one and sends it again and again.
TEST_F(LobbyTest, ARecordedHelloHasOnePlaceHoweverOftenItIsSent) {
  const Bytes recorded = Initiator(key_, kMember, make_nonce()).hello();
  std::vector<Channel> crowd;
  for (int i = 0; i < 600; ++i) crowd.push_back(say_packet(recorded));
  expect_service_within(turns_for(crowd.size()));
  EXPECT_EQ(lobby_->strangers(), crowd.size() - 1);
}

// Or has recorded many.
TEST_F(LobbyTest, WhoDoesNotAnswerTheChallengeLosesItsPlaceToANewcomer) {
  std::vector<Channel> crowd;
  for (int i = 0; i < 600; ++i)
    crowd.push_back(say_packet(Initiator(key_, kMember, make_nonce()).hello()));
  expect_service_within(turns_for(crowd.size()));
}

#if !defined(__SANITIZE_ADDRESS__)
// The check of virtual tables needs a descriptor itself.
TEST_F(LobbyTest, WhereDescriptorsAreShortTheSilentGiveTheirsToNewcomers) {
  std::vector<Channel> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(say("T"));
  turn();
  const Initiator member(key_, kMember, make_nonce());
  Channel channel = say_packet(member.hello());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  {
    const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(next.get());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  pollfd answered{.fd = channel.fd(), .events = POLLIN, .revents = 0};
  turn_until([&] { return ::poll(&answered, 1, 0) == 1 || turns_ > 100; });
  EXPECT_EQ(::poll(&answered, 1, 0), 1);
  EXPECT_FALSE(lobby_->starved(INT64_MAX));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}
#endif

class UnixLobbyTest : public LobbyTest {
 protected:
  UnixLobbyTest() : LobbyTest(Medium::kUnix) {}
};

// Another user of this host, who may connect and is dropped: so many in a turn, then others have
// theirs.
TEST_F(UnixLobbyTest, AnotherUserTakesABoundedPartOfATurn) {
  constexpr int kConnections = 300;
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user: run as root";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setuid(kNobody) != 0) ::_exit(2);
    int connected = 0;
    for (int i = 0; i < kConnections; ++i) {
      // connect_to() hangs up when it sees whose listener that is; the connection was made.
      const Result<Channel> channel = connect_to(address_, -1, patience());
      if (!channel && channel.error().message.find("another user") != std::string::npos)
        ++connected;
    }
    ::_exit(connected == kConnections ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  turn();
  EXPECT_LE(lobby_->strangers(), static_cast<std::uint64_t>(Lobby::kMostAccepts));
  expect_service_within(turns_for(kConnections));
  EXPECT_EQ(lobby_->strangers(), static_cast<std::uint64_t>(kConnections));
}

TEST_F(UnixLobbyTest, WhoSaysNothingLosesItsPlaceToANewcomer) {
  std::vector<Channel> silent;
  for (std::size_t i = 0; i < 2 * Lobby::kMaxHalfOpen; ++i) silent.push_back(connect());
  expect_service_within(turns_for(silent.size()));
}

// Hundreds of ranks on two cores: all have said hello before the first can prove anything.
TEST_F(UnixLobbyTest, ManyThatSayHelloAtOnceKeepTheirPlaces) {
  constexpr std::size_t kMembers = 4 * Lobby::kMaxHalfOpen;
  std::vector<Initiator> members;
  std::vector<Channel> channels;
  for (std::size_t i = 0; i < kMembers; ++i) {
    members.emplace_back(key_, kMember, make_nonce());
    channels.push_back(say_packet(members.back().hello()));
  }
  for (std::size_t i = 0; i < kMembers; ++i) {
    pollfd answered{.fd = channels[i].fd(), .events = POLLIN, .revents = 0};
    ASSERT_NO_FATAL_FAILURE(turn_until([&] { return ::poll(&answered, 1, 0) == 1; }));
  }
  for (std::size_t i = 0; i < kMembers; ++i) {
    Bytes buffer(kMaxHandshakeBytes);
    const Received challenge = channels[i].receive(buffer, false);
    ASSERT_EQ(challenge.state, IoState::kDone);
    const auto proof = members[i].prove(std::span(buffer).first(challenge.packet_bytes));
    ASSERT_TRUE(proof) << proof.error().message;
    ASSERT_EQ(channels[i].send(*proof), IoState::kDone);
  }
  ASSERT_NO_FATAL_FAILURE(turn_until([&] { return admitted_.size() == kMembers; }));
  EXPECT_EQ(lobby_->strangers(), 0u);
}

TEST_F(UnixLobbyTest, DropsWhoDoesNotFinishInTime) {
  const Channel silent = connect();
  turn();
  lobby_->tick(now_ns());
  EXPECT_EQ(lobby_->strangers(), 0u);
  EXPECT_NE(lobby_->next_tick_ns(), INT64_MAX);
  lobby_->tick(now_ns() + Lobby::kHandshakeNs);
  EXPECT_EQ(lobby_->strangers(), 1u);
  EXPECT_EQ(lobby_->next_tick_ns(), INT64_MAX);
  pollfd hung_up{.fd = silent.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&hung_up, 1, patience().left_poll_ms()), 1);
}

}  // namespace
}  // namespace tutti::control
