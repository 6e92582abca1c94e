// SPDX-License-Identifier: Apache-2.0
// A rank gives up while its job joins, another one because of it, and a third one asks that for
// something: it must hear whose fault it was.
#include <stop_token>
#include <thread>

#include "control/handshake.hpp"
#include "control/link.hpp"
#include "control/messages.hpp"
#include "control/root.hpp"
#include "control/socket.hpp"
#include "control/unique_id.hpp"
#include "job.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

// Rank 0 hears that rank 1 cannot come, passes that on and ends, while rank 2 is still on its way
// to ask rank 0 for something.
TEST(GivingUp, IsNamedToWhoAsksTheRankThatFollowed) {
  auto planes = join_threads(3);
  planes[1]->call_off();
  const auto failed = planes[0]->allgather(bytes_of("0"), patience());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().culprit, 1) << failed.error().message;
  planes[0].reset();
  const auto reply = planes[2]->call(0, RequestKind::kBoard, {}, patience());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::kRemoteError);
  EXPECT_EQ(reply.error().culprit, 1) << reply.error().message;
  EXPECT_EQ(reply.error().message, failed.error().message);
}

// Rank 0 is done with rank 2, which has all records then, when rank 1 gives up before it has its
// own.
TEST(GivingUp, BeforeTheEndOfTheMeetingIsNamedToWhoHasMet) {
  const UniqueId id = must_create_id();
  const auto content = decode_id(id);
  ASSERT_TRUE(content);
  auto listener = listen_local();
  ASSERT_TRUE(listener);
  Member self;
  self.info = own_info(1, "");
  self.address = listener->address();
  self.locality = host_identity("");
  auto root = open_connection(content->local, content->key,
                              {.rank = 1, .peer = kRootRank, .ranks = 3}, -1, patience());
  ASSERT_TRUE(root) << root.error().message;
  const CheckIn check_in{
      .member = self, .left_ns = kPatienceMs * 1'000'000, .root = {.job = content->key.session}};
  ASSERT_TRUE(send_within(*root, encode_check_in(check_in), -1, patience()));
  std::jthread rank_0([&] {
    const JoinResult plane = ControlPlane::join(id, 0, 3, {.deadline = patience()});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().culprit, 1) << plane.error().message;
  });
  JoinResult met;
  std::jthread rank_2([&] { met = ControlPlane::join(id, 2, 3, {.deadline = patience()}); });
  std::vector<std::byte> buffer(kMaxPacketBytes);
  const auto told = receive_within(*root, buffer, false, -1, patience());
  ASSERT_TRUE(told) << told.error().message;
  Reader reader{std::span(buffer).first(told->packet_bytes)};
  ASSERT_EQ(read_header(reader).type, FrameType::kMet);
  const auto contacts = decode_met(reader, 3);
  ASSERT_TRUE(contacts);
  Links links(content->key, 1, 3, -1);
  links.set_address(0, contacts->at(0).second);
  ASSERT_TRUE(links.post(0, 1, 0, encode_member(self), patience()));
  rank_2.join();
  ASSERT_TRUE(met) << met.error().message;
  ASSERT_TRUE(
      send_within(*root,
                  encode_error({.type = FrameType::kGiveUp},
                               {Code::kRemoteError, "rank 1 cannot join: it may open no more", 1}),
                  -1, patience()));
  { const Listener closed = *std::move(listener); }
  rank_0.join();
  const auto reply = (*met)->call(0, RequestKind::kBoard, {}, patience());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().culprit, 1) << reply.error().message;
  EXPECT_EQ(reply.error().message, "rank 1 cannot join: it may open no more");
}

// Once a rank has met the others, the end of the process that made the id is no failure.
TEST(TheEndOfTheRoot, IsNoFailureOfWhoHasMet) {
  const UniqueId id = must_create_id();
  std::vector<std::unique_ptr<ControlPlane>> planes(2);
  run_threads(2, [&](Rank rank) {
    JoinResult plane = ControlPlane::join(id, rank, 2, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
    (*plane)->serve(RequestKind::kEcho,
                    [](const Request&) -> Result<HandlerReply> { return HandlerReply{}; });
    planes[static_cast<std::size_t>(rank)] = *std::move(plane);
  });
  retire_root(decode_id(id)->key.session);
  ASSERT_TRUE(wait_for_roots(patience()));
  // Each service answers after it has heard of that.
  for (const Rank rank : {0, 1})
    ASSERT_TRUE(
        planes[static_cast<std::size_t>(rank)]->call(1 - rank, RequestKind::kEcho, {}, patience()));
  run_threads(2, [&](Rank rank) {
    const Status met = planes[static_cast<std::size_t>(rank)]->barrier(patience());
    EXPECT_TRUE(met) << met.error().message;
  });
}

// It may hang up before the rank has said who it is, or after.
TEST(TheEndOfTheRoot, RightAfterTheHandshakeIsNamed) {
  auto listener = listen_local();
  ASSERT_TRUE(listener);
  const auto made = decode_id(must_create_id());
  ASSERT_TRUE(made);
  IdContent content = *made;
  content.local = listener->address();
  const auto id = encode_id(content);
  ASSERT_TRUE(id);
  std::jthread root([&](const std::stop_token& over) {
    std::vector<std::byte> buffer(kMaxHandshakeBytes);
    while (!over.stop_requested()) {
      Channel guest = accept_from(*listener);
      if (!guest) {
        std::this_thread::yield();
        continue;
      }
      Acceptor acceptor(content.key, kRootRank, 0, make_nonce());
      const auto hello = receive_within(guest, buffer, false, -1, patience());
      ASSERT_TRUE(hello);
      ASSERT_EQ(guest.send(acceptor.challenge(std::span(buffer).first(hello->packet_bytes)).packet),
                IoState::kDone);
      while (guest.receive(buffer, false).state == IoState::kAgain && !over.stop_requested()) {
      }
    }
  });
  for (int i = 0; i < 20; ++i) {
    const JoinResult plane = ControlPlane::join(*id, 0, 2, {.deadline = patience()});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kRemoteError);
    EXPECT_EQ(plane.error().message,
              "rank 0 waited for its job to meet: the process that made the unique id has ended");
  }
}

}  // namespace
}  // namespace tutti::control
