// SPDX-License-Identifier: Apache-2.0
// A rank leaves while another one still connects its watch: that is no death, however far the
// connection has come. Both ranks are services, and the test connects as the watching one's user
// thread does.
#include <poll.h>
#include <sched.h>

#include <array>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "control/link.hpp"
#include "control/service.hpp"
#include "job.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

constexpr Rank kLeaver = 1;
constexpr Claim kClaim{.rank = 0, .peer = kLeaver, .ranks = 2};

std::vector<std::byte> watch() { return start_frame({.type = FrameType::kWatch}).take(); }

class Leaving : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    watcher_ = must_start(kClaim.rank);
    leaver_ = must_start(kLeaver);
    ASSERT_TRUE(watcher_ && leaver_);
    watcher_->watch({}, [this](Rank rank) {
      EXPECT_EQ(rank, kLeaver);
      ++deaths_;
      return true;
    });
    find_leaver();
  }

  void find_leaver() {
    const bool tcp = std::string(GetParam()) == "tcp";
    address_ = tcp ? leaver_->tcp_address() : leaver_->address();
  }

  std::unique_ptr<Service> must_start(Rank self) const {
    auto service = Service::start({.tcp_at = parse_ip("127.0.0.1", 0)});
    EXPECT_TRUE(service) << service.error().message;
    if (!service) return nullptr;
    (*service)->let_in({.key = key_, .self = self, .ranks = kClaim.ranks});
    return *std::move(service);
  }

  Channel must_open() const {
    auto channel = open_connection(address_, key_, kClaim, -1, patience());
    EXPECT_TRUE(channel) << channel.error().message;
    return channel ? *std::move(channel) : Channel();
  }

  static FrameHeader must_receive(Channel& channel) {
    PacketBuffer buffer;
    const auto received = receive_within(channel, buffer.all(), false, -1, patience());
    EXPECT_TRUE(received) << received.error().message;
    if (!received) return {};
    Reader reader(buffer.first(received->packet_bytes));
    return read_header(reader);
  }

  // How many deaths the watching service reports when the connection ends, which it has.
  int deaths_at_the_end_of(Channel channel) {
    pollfd ended{.fd = channel.fd(), .events = POLLRDHUP, .revents = 0};
    EXPECT_EQ(::poll(&ended, 1, kPatienceMs), 1);
    watcher_->add_watch(kLeaver, std::move(channel));
    finish_turn_of(*watcher_);  // it has the connection
    finish_turn_of(*watcher_);  // it has seen its end
    return deaths_;
  }

  // A turn of the service's loop that begins after this call, to its end.
  static void finish_turn_of(Service& service) {
    std::promise<void> finished;
    service.look_when([&finished] {
      finished.set_value();
      return INT64_MAX;
    });
    service.look_soon();
    finished.get_future().wait();
    service.look_when(nullptr);
  }

  const SessionKey key_ = make_session_key();
  std::unique_ptr<Service> watcher_;
  std::unique_ptr<Service> leaver_;
  std::string address_;
  int deaths_ = 0;  // written on the service's thread, read after its turn
};

// What the watching rank sends from here on, it may have sent before: it is not read.
TEST_P(Leaving, BeforeTheProofHasCome) {
  auto channel = connect_to(address_, -1, patience());
  ASSERT_TRUE(channel) << channel.error().message;
  const Initiator initiator(key_, kClaim, make_nonce());
  ASSERT_TRUE(send_within(*channel, initiator.hello(), -1, patience()));
  std::array<std::byte, kMaxHandshakeBytes> buffer;
  const auto received = receive_within(*channel, buffer, false, -1, patience());
  ASSERT_TRUE(received) << received.error().message;
  const std::span<const std::byte> challenge(buffer.data(), received->packet_bytes);
  ASSERT_TRUE(initiator.prove(challenge));
  const StreamKeys keys = initiator.stream_keys(challenge);
  channel->protect(keys.from_initiator, keys.from_acceptor);
  leaver_->stop();
  EXPECT_EQ(deaths_at_the_end_of(*std::move(channel)), 0);
}

// It has been let in, as its answered call shows.
TEST_P(Leaving, BeforeTheWatchHasCome) {
  Channel channel = must_open();
  const FrameHeader request{.type = FrameType::kRequest,
                            .kind = static_cast<std::uint16_t>(RequestKind::kExchangeState)};
  ASSERT_TRUE(send_within(channel, start_frame(request).bytes(), -1, patience()));
  EXPECT_EQ(must_receive(channel).type, FrameType::kReply);
  leaver_->stop();
  EXPECT_EQ(deaths_at_the_end_of(std::move(channel)), 0);
}

// At any moment of the handshake, many times. Where the watching rank finds that it cannot send, it
// does not watch.
TEST_P(Leaving, WhileTheWatchIsConnected) {
  constexpr int kRounds = 200;
  int watched = 0;
  for (int round = 0; round < kRounds; ++round) {
    leaver_ = must_start(kLeaver);
    ASSERT_TRUE(leaver_);
    find_leaver();
    std::thread stopping([&] {
      for (int i = 0; i < 4 * round; ++i) ::sched_yield();
      leaver_->stop();
    });
    auto channel = open_connection(address_, key_, kClaim, -1, patience());
    const bool sent = channel && send_within(*channel, watch(), -1, patience());
    stopping.join();
    if (!sent) continue;
    ++watched;
    ASSERT_EQ(deaths_at_the_end_of(*std::move(channel)), 0) << "round " << round;
  }
  RecordProperty("watched", watched);
}

// As a program does that finalizes its communicator, and then ends without destroying it.
TEST_P(Leaving, BeforeTheWatchIsSent) {
  leaver_->leave_watches();
  Channel channel = must_open();
  ASSERT_TRUE(send_within(channel, watch(), -1, patience()));
  EXPECT_EQ(must_receive(channel).type, FrameType::kBye);
}

// Nothing of this hides a death.
TEST_P(Leaving, WithoutAWordIsADeath) {
  const auto listener =
      GetParam() == std::string("tcp") ? listen_tcp(*parse_ip("127.0.0.1", 0)) : listen_local();
  ASSERT_TRUE(listener);
  auto channel = connect_to(listener->address(), -1, patience());
  ASSERT_TRUE(channel) << channel.error().message;
  // The kernel shows nobody a peer that has sent nothing.
  ASSERT_TRUE(send_within(*channel, watch(), -1, patience()));
  {
    pollfd knock{.fd = listener->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&knock, 1, kPatienceMs), 1);
    Channel accepted = accept_from(*listener);
    ASSERT_TRUE(accepted);
    EXPECT_EQ(must_receive(accepted).type, FrameType::kWatch);
  }
  EXPECT_EQ(deaths_at_the_end_of(*std::move(channel)), 1);
}

// A rank whose time is over hangs up before it has its answer. It is not gone, though the service
// finds that it can send it nothing before it reads its Bye. (Over TCP the kernel takes the answer
// all the same.)
TEST_P(Leaving, AnAskerWhoseTimeIsOverIsNotGone) {
  std::promise<void> asked, over;
  leaver_->serve(RequestKind::kEcho, [&](const Request&) {
    asked.set_value();
    over.get_future().wait();
    return std::optional<Result<HandlerReply>>(HandlerReply{});
  });
  static_cast<void>(leaver_->mailbox().enter());
  {
    Channel channel = must_open();
    const FrameHeader request{.type = FrameType::kRequest,
                              .kind = static_cast<std::uint16_t>(RequestKind::kEcho)};
    ASSERT_TRUE(send_within(channel, start_frame(request).bytes(), -1, patience()));
    asked.get_future().wait();
    channel.send_last(start_frame({.type = FrameType::kBye}).bytes());
  }
  over.set_value();
  finish_turn_of(*leaver_);
  finish_turn_of(*leaver_);
  const auto message = leaver_->mailbox().take(kClaim.rank, 0, 0, Deadline{0});
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code, Code::kTimeout) << message.error().message;
}

INSTANTIATE_TEST_SUITE_P(Media, Leaving, ::testing::Values("unix", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tutti::control
