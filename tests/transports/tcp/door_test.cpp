// SPDX-License-Identifier: Apache-2.0
// The door of a rank's TCP connections, with real sockets and no job: whatever strangers send, who
// was invited gets in, the log stays short and nothing is kept.
#include "transports/tcp/door.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/tcp_socket.hpp"
#include "transports/job.hpp"

namespace tutti::tcp {
namespace {

using test::test_seed;

constexpr Rank kSelf = 1, kGuest = 3;

Deadline patience() { return Deadline::in_ms(30'000); }

// A connection as a stranger has it.
class Visitor {
 public:
  explicit Visitor(const TcpAddress& at) : socket_(start_connect(at)) {
    EXPECT_TRUE(socket_) << std::strerror(errno);
    EXPECT_TRUE(wait_for(POLLOUT));
    EXPECT_EQ(outcome_of_connect(socket_.get(), at), 0);
  }
  void say(std::span<const std::byte> bytes) const {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_EQ(sent, static_cast<ssize_t>(bytes.size()));
  }
  void say(std::string_view text) const { say(std::as_bytes(std::span(text))); }
  template <typename T>
  void say_value(const T& value) const {
    say(std::as_bytes(std::span(&value, 1)));
  }
  // Everything until the other end has hung up.
  std::string hear_all() const {
    std::string heard;
    std::array<char, 256> buffer;
    while (wait_for(POLLIN)) {
      const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      heard.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return heard;
  }

 private:
  bool wait_for(short events) const {
    pollfd poll{.fd = socket_.get(), .events = events, .revents = 0};
    return ::poll(&poll, 1, patience().left_poll_ms()) == 1;
  }
  ProcessFd socket_;
};

class DoorTest : public ::testing::Test {
 protected:
  DoorTest()
      : epoll_(ProcessFd::from([] { return ::epoll_create1(EPOLL_CLOEXEC); })),
        log_file_(::memfd_create("tutti-test", MFD_CLOEXEC)) {
    auto log = Log::open(LogLevel::kWarn, "/proc/self/fd/" + std::to_string(log_file_.get()));
    EXPECT_TRUE(log) << (log ? "" : log.error().message);
    door_ = std::make_unique<Door>(epoll_.get(), kSelf, invitations_, log.value_or(Log{}),
                                   [this](Rank from, ProcessFd socket, const Token&) {
                                     admitted_.push_back(from);
                                     kept_.push_back(std::move(socket));
                                   });
    const auto at = door_->open(*parse_ip("127.0.0.1", 0));
    EXPECT_TRUE(at) << (at ? "" : at.error().message);
    at_ = at.value_or(TcpAddress{});
    invitations_.open(at_);
  }

  // One turn of progress(). The number of events.
  int turn() {
    std::array<epoll_event, 16> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 1);
    for (int i = 0; i < ready; ++i) door_->hear(events[static_cast<std::size_t>(i)].data.u64);
    told_ = door_->tick();
    return ready;
  }
  template <typename Ready>
  void turn_until(Ready&& ready) {
    for (const Deadline deadline = patience(); !ready() && !deadline.passed();) turn();
    EXPECT_TRUE(ready());
  }
  Hello invited(Rank guest = kGuest) {
    const auto answer = invitations_.invite(guest);
    EXPECT_TRUE(answer);
    const auto invitation = decode_invitation(answer->payload);
    EXPECT_TRUE(invitation);
    EXPECT_EQ(invitation->at, at_);
    return {.from = guest, .to = kSelf, .token = invitation->hello};
  }
  void expect_guest_gets_in() {
    const Visitor guest(at_);
    guest.say_value(invited());
    turn_until([&] { return !admitted_.empty(); });
    EXPECT_EQ(admitted_, std::vector<Rank>{kGuest});
  }
  std::string log_text() const {
    std::string text(1 << 16, '\0');
    const ssize_t got = ::pread(log_file_.get(), text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return text;
  }
  std::ptrdiff_t log_lines() const { return std::ranges::count(log_text(), '\n'); }

  ProcessFd epoll_;
  UniqueFd log_file_;
  Invitations invitations_;
  std::vector<Rank> admitted_;
  std::vector<ProcessFd> kept_;
  std::unique_ptr<Door> door_;
  TcpAddress at_;
  Status told_;
};

TEST_F(DoorTest, StrangersAreDroppedAndTheLogStaysShort) {
  std::mt19937_64 random(test_seed());
  std::uint64_t rude = 0;
  const auto knock = [&](const Visitor& visitor) {
    turn_until([&] { return door_->strangers() > rude; });
    rude = door_->strangers();
    visitor.hear_all();
    EXPECT_EQ(door_->newcomers(), 0u);
  };
  for (int i = 0; i < 50; ++i) {
    const Visitor garbage(at_);
    std::vector<std::byte> bytes(kVersionBytes + random() % 500);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    bytes[0] = std::byte{0};  // surely not the magic
    garbage.say(bytes);
    knock(garbage);
  }
  const Hello honest = invited();
  for (int i = 0; i < 4; ++i) {
    Hello hello = honest;
    if (i == 0) hello.token[15] ^= std::byte{1};
    if (i == 1) hello.to = 0;
    if (i == 2) hello.from = -7;
    if (i == 3) hello.zero = 1;
    const Visitor liar(at_);
    liar.say_value(hello);
    knock(liar);
  }
  {
    const Visitor browser(at_);
    browser.say("GET / HTTP/1.1\r\n\r\n");
    knock(browser);
  }
  EXPECT_GE(log_lines(), 1);
  EXPECT_LE(log_lines(), 8) << log_text();  // the 1st, 2nd, 4th, ... of 55
  expect_guest_gets_in();
}

TEST_F(DoorTest, AThousandHalfHellosKeepNobodyOutAndAreNotKept) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 4096) GTEST_SKIP() << "ulimit -Hn is below 4096 here: raise it";
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<std::unique_ptr<Visitor>> crowd;
  const Hello hello = invited(2);
  for (int i = 0; i < 1000; ++i) {
    crowd.push_back(std::make_unique<Visitor>(at_));
    crowd.back()->say(std::as_bytes(std::span(&hello, 1)).first(20));
    if (i % 50 == 0) turn();
  }
  turn_until([&] { return door_->strangers() + door_->newcomers() == crowd.size(); });
  EXPECT_LE(door_->newcomers(), Door::kMostNewcomers);
  expect_guest_gets_in();
  crowd.clear();
  turn_until([&] { return door_->newcomers() == 0; });
  EXPECT_EQ(log_lines(), 0) << log_text();  // any of them may have been a rank in trouble
}

TEST_F(DoorTest, AnotherVersionIsToldAndNamedInOneLine) {
  int lines = 0;
  for (const std::uint32_t theirs : {kVersion + 1, kVersion - 1}) {
    Hello hello = invited();
    hello.version = theirs;
    const Visitor visitor(at_);
    visitor.say_value(hello);
    turn_until([&] { return log_lines() > lines; });
    EXPECT_EQ(log_lines(), ++lines);
    EXPECT_NE(log_text().find("speaks version " + std::to_string(theirs) +
                              " of the protocol, this library " + std::to_string(kVersion)),
              std::string::npos)
        << log_text();
    const std::string heard = visitor.hear_all();
    ASSERT_EQ(heard.size(), sizeof(HelloReply));
    HelloReply reply;
    std::memcpy(&reply, heard.data(), sizeof reply);
    EXPECT_EQ(reply.magic, kMagic);
    EXPECT_EQ(reply.version, kVersion);
    EXPECT_EQ(reply.token, Token{});
  }
  EXPECT_TRUE(admitted_.empty());
}

// As of a program that has used up its descriptors: so many above those that are open now.
class NoDescriptors {
 public:
  explicit NoDescriptors(rlim_t spare = 0) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit none = before_;
    const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    none.rlim_cur = static_cast<rlim_t>(next.get()) + spare;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

#if !defined(__SANITIZE_ADDRESS__)
// The check of virtual tables needs a descriptor itself.
TEST_F(DoorTest, WithoutADescriptorConnectionsWaitAndTheLogSaysSoOnce) {
  const Visitor guest(at_);
  guest.say_value(invited());
  {
    const NoDescriptors none;
    turn_until([&] { return log_lines() > 0; });
    EXPECT_NE(log_text().find("raise 'ulimit -n'"), std::string::npos) << log_text();
    EXPECT_EQ(turn(), 0);  // nobody is woken again and again
    // Somebody who was invited waits: in the end the caller is told.
    turn_until([&] { return !told_; });
    EXPECT_EQ(told_.error().code, Code::kSystemError);
    EXPECT_NE(told_.error().message.find("no free descriptor"), std::string::npos);
  }
  turn_until([&] { return !admitted_.empty(); });
  EXPECT_TRUE(told_);
  EXPECT_EQ(log_lines(), 1) << log_text();
}
#endif

TEST_F(DoorTest, TheLastDescriptorIsNoShortageWhileNobodyElseWaits) {
  const Visitor guest(at_);
  guest.say_value(invited());
  const NoDescriptors none(1);
  turn_until([&] { return !admitted_.empty(); });
  EXPECT_EQ(turn(), 0);
  EXPECT_EQ(log_lines(), 0) << log_text();
}

#if !defined(__SANITIZE_ADDRESS__)
// The check of virtual tables needs a descriptor itself.
TEST_F(DoorTest, ForAStrangerWithoutADescriptorNothingEnds) {
  const Visitor stranger(at_);
  stranger.say("hello");
  EXPECT_EQ(log_lines(), 0);
  const NoDescriptors none;
  turn_until([&] { return log_lines() > 0; });
  const Deadline past = Deadline::in_ns(Door::kShortageNs + 2 * Door::kShortagePauseNs);
  turn_until([&] { return past.passed() || !told_; });
  EXPECT_TRUE(told_);
}
#endif

TEST(InvitationText, IsReadBackOrRefused) {
  for (const char* ip : {"10.1.2.3", "fd00::17"}) {
    Invitation invitation{.at = *parse_ip(ip, 4000), .hello = {}, .reply = {}};
    invitation.hello[3] = std::byte{7};
    invitation.reply[15] = std::byte{9};
    std::vector<std::byte> bytes = encode(invitation);
    const auto read = decode_invitation(bytes);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->at, invitation.at);
    EXPECT_EQ(read->hello, invitation.hello);
    EXPECT_EQ(read->reply, invitation.reply);
    for (std::size_t bytes_left = 0; bytes_left < bytes.size(); ++bytes_left)
      EXPECT_FALSE(decode_invitation(std::span(bytes).first(bytes_left)));
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_invitation(bytes));
  }
}

}  // namespace
}  // namespace tutti::tcp
