// Shrink among simulated ranks, whose calls go straight to handlers, without sockets: thousands of
// them, whose answer does not fit into one packet; and a death at a moment that is hard to meet.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "runtime/control/messages.hpp"
#include "runtime/regroup.hpp"

namespace tutti {
namespace {

constexpr std::int32_t kRanks = 4096;

// All ranks of a job, in one process.
struct SimulatedJob {
  explicit SimulatedJob(std::int32_t ranks) : handlers(static_cast<std::size_t>(ranks)) {
    for (Rank rank = 0; rank < ranks; ++rank)
      peers.push_back({.rank = rank, .pid = 1 + rank, .host = "simulated"});
  }
  std::vector<PeerInfo> peers;
  std::vector<Handler> handlers;
  std::atomic<int> calls{0};
  std::function<bool(Rank from, Rank to)> hang_up;  // before the call arrives; empty: never
};

// The new job's list is what the test looks at.
class SimulatedChild final : public ChildJob {
 public:
  SimulatedChild(Rank rank, std::vector<ChildMember>& entered)
      : address_{"unix:@" + std::string(32, 'a') + std::to_string(rank),
                 "tcp:[fd00::1]:" + std::to_string(rank)},
        entered_(entered) {}
  [[nodiscard]] const ServiceAddress& address() const override { return address_; }
  [[nodiscard]] Result<std::unique_ptr<ControlPlane>> enter(
      const control::SessionKey&, std::span<const ChildMember> members) override {
    entered_.assign(members.begin(), members.end());
    return nullptr;
  }

 private:
  const ServiceAddress address_;
  std::vector<ChildMember>& entered_;
};

class SimulatedRank final : public ControlPlane {
 public:
  SimulatedRank(SimulatedJob& job, Rank rank) : job_(job), rank_(rank) {}
  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const override { return job_.peers; }
  void serve(RequestKind, Handler handler) override {
    job_.handlers[static_cast<std::size_t>(rank_)] = std::move(handler);
  }
  [[nodiscard]] Result<Reply> call(Rank peer, RequestKind, std::span<const std::byte> payload,
                                   Deadline) override {
    ++job_.calls;
    if (job_.hang_up && job_.hang_up(rank_, peer))
      return make_error(Code::kRemoteError, "the other end hung up", peer);
    auto reply = job_.handlers[static_cast<std::size_t>(peer)]({.from = rank_, .payload = payload});
    if (!reply) return tl::unexpected(reply.error());
    EXPECT_LE(reply->payload.size(), control::kMaxPayloadBytes);
    awaits_others = reply->payload.size() == 1 && reply->payload.front() == kCollecting;
    return Reply{.payload = std::move(reply->payload), .fd = {}};
  }
  [[nodiscard]] Result<std::vector<std::byte>> allgather(std::span<const std::byte>, Deadline,
                                                         std::span<std::byte>) override {
    return make_error(Code::kInternalError, "shrink exchanges nothing");
  }
  [[nodiscard]] Result<std::unique_ptr<ChildJob>> prepare_child() override {
    return std::make_unique<SimulatedChild>(rank_, entered);
  }
  [[nodiscard]] Status await_writable(int, Deadline) override { return {}; }
  void watch_peers(std::function<void(Rank)>) override {}
  void forget_peers() override {}
  [[nodiscard]] bool has_pidfd() const override { return true; }
  [[nodiscard]] std::string note() const override { return ""; }
  [[nodiscard]] control::SessionId session() const override { return {}; }
  void end_calls_when(std::function<bool()>) override {}
  void interrupt() override {}
  void close() override {}

  std::vector<ChildMember> entered;
  bool awaits_others = false;  // the last answer

 private:
  static constexpr std::byte kCollecting{1};

  SimulatedJob& job_;
  const Rank rank_;
};

TEST(ShrinkScale, ThousandsOfMembersComeInSeveralAnswers) {
  SimulatedJob job(kRanks);
  std::vector<std::unique_ptr<SimulatedRank>> planes;
  std::vector<std::unique_ptr<Shrink>> ranks;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    planes.push_back(std::make_unique<SimulatedRank>(job, rank));
    ranks.push_back(std::make_unique<Shrink>(*planes.back()));
  }
  const auto is_dead = [](Rank rank) { return rank % 100 == 50; };
  const auto run = [&](Rank rank, std::function<bool()> cancelled) {
    return ranks[static_cast<std::size_t>(rank)]->run({.excluded = {7},
                                                       .is_dead = is_dead,
                                                       .cancelled = std::move(cancelled),
                                                       .deadline = Deadline::in_ms(60'000)});
  };
  const auto never = [] { return false; };
  // Those below do not wait for the answer; rank 0 shall not learn that from them.
  job.hang_up = [](Rank from, Rank) { return from == 0; };
  std::thread first([&] { EXPECT_TRUE(run(0, never)); });
  // All but the last come, are told that the others are awaited, and wait no longer.
  const Rank last = kRanks - 1;
  for (Rank rank = 1; rank < last; ++rank) {
    if (rank == 7 || is_dead(rank)) continue;
    const auto& plane = *planes[static_cast<std::size_t>(rank)];
    EXPECT_FALSE(run(rank, [&] { return plane.awaits_others; }));
  }
  job.calls = 0;
  EXPECT_TRUE(run(last, never));
  first.join();
  const std::vector<ChildMember>& list = planes[static_cast<std::size_t>(last)]->entered;
  ASSERT_EQ(list.size(), static_cast<std::size_t>(kRanks - 1 - kRanks / 100 - 1));
  EXPECT_GE(job.calls, 1 + 4) << "more than one packet";
  const auto& firsts = planes.front()->entered;
  ASSERT_EQ(firsts.size(), list.size());
  Rank before = -1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_GT(list[i].parent, before);
    before = list[i].parent;
    EXPECT_FALSE(list[i].parent == 7 || is_dead(list[i].parent));
    EXPECT_EQ(list[i].address.tcp, "tcp:[fd00::1]:" + std::to_string(list[i].parent));
    EXPECT_EQ(list[i].parent, firsts[i].parent);
    EXPECT_EQ(list[i].address.local, firsts[i].address.local);
  }
}

// Rank 2 has the answer of rank 0, which dies before rank 1 has it. Rank 1 takes over, and waits
// for rank 2 only until that says that it will not come.
TEST(ShrinkTakeover, ARankThatHasTheAnswerOfTheDeadIsNotWaitedFor) {
  SimulatedJob job(3);
  std::atomic<bool> first_died{false};
  std::vector<std::unique_ptr<SimulatedRank>> planes;
  std::vector<std::unique_ptr<Shrink>> ranks;
  for (Rank rank = 0; rank < 3; ++rank) {
    planes.push_back(std::make_unique<SimulatedRank>(job, rank));
    ranks.push_back(std::make_unique<Shrink>(*planes.back()));
  }
  const auto run = [&](std::size_t rank) {
    return ranks[rank]->run({.excluded = {},
                             .is_dead = [&](Rank which) { return which == 0 && first_died; },
                             .cancelled = [] { return false; },
                             .deadline = Deadline::in_ms(10'000)});
  };
  // Rank 1 has been told to wait. Before it asks again, rank 2 comes and gets its answer.
  job.hang_up = [&](Rank from, Rank to) {
    if (from != 1 || to != 0 || !planes[1]->awaits_others) return false;
    EXPECT_TRUE(run(2));
    first_died = true;
    return true;
  };
  std::thread first([&] { EXPECT_TRUE(run(0)); });
  const auto made = run(1);
  first.join();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kRemoteError);
  EXPECT_NE(made.error().message.find("rank 2 (pid 3 on simulated) says: its tuttiCommShrink has"),
            std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace tutti
