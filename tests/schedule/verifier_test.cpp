// SPDX-License-Identifier: Apache-2.0
// The verifier's rules one by one: a right schedule, made wrong in the one way that the rule is
// there for, must fall by that rule and no other.
#include "schedule/verifier.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/algorithm.hpp"
#include "schedule/passes.hpp"
#include "verifier_samples.hpp"

namespace tutti {
namespace {

using namespace operands;
using samples::declare_counts;
using samples::packed;
using samples::peer_read;
using samples::staged;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Schedule built(std::string_view name, std::int32_t ranks) {
  return *build_schedule(**find_algorithm(name),
                         {.collective = Collective::kAllReduce, .ranks = ranks});
}

// "" for a schedule that holds.
std::string message_of(const Schedule& schedule, std::uint32_t slots = 2) {
  const Result<Proof> proof = verify(schedule, {.slots = slots});
  return proof ? "" : proof.error().message;
}

// Applies `change` to the schedule and expects the rule to fall, with `text` in the message.
template <typename F>
void expect_fall(Schedule schedule, std::string_view rule, std::string_view text, F&& change) {
  ASSERT_EQ(message_of(schedule), "");
  change(schedule);
  EXPECT_THAT(message_of(schedule),
              AllOf(StartsWith(fmt::format("{}: ", rule)), HasSubstr(std::string(text))));
}

Step& step_of(Schedule& schedule, std::size_t rank, std::size_t lane, std::size_t step) {
  return schedule.ranks[rank].lanes[lane].steps[step];
}

// Two ranks, one chunk: each sends its input and reduces what comes, in rank order.
Schedule exchange() { return built("one_shot", 2); }

// A single rank that runs the given lanes; one chunk.
Schedule alone(const std::vector<LaneBuilder>& lanes) {
  return {
      {.algorithm = "alone", .collective = Collective::kAllReduce, .ranks = 1, .max_per_pair = 0},
      {assemble(lanes)}};
}

TEST(VerifierShape, Falls) {
  expect_fall(exchange(), "shape", "1 programs for 2 ranks",
              [](Schedule& s) { s.ranks.pop_back(); });
  expect_fall(exchange(), "shape", "ranks is 0", [](Schedule& s) { s.shape.ranks = 0; });
  expect_fall(exchange(), "shape", "chunks is 0", [](Schedule& s) { s.shape.chunks = 0; });
  expect_fall(exchange(), "shape", "replicas is 0", [](Schedule& s) { s.shape.replicas = 0; });
  expect_fall(exchange(), "shape", "tags is 0", [](Schedule& s) { s.shape.tags = 0; });
  expect_fall(exchange(), "shape", "root is 2", [](Schedule& s) { s.shape.root = 2; });
  expect_fall(exchange(), "shape", "scratch_versions is 0",
              [](Schedule& s) { s.shape.scratch_versions = 0; });
  expect_fall(exchange(), "shape", "more chunks and scratch slots",
              [](Schedule& s) { s.shape.chunks = 1U << 30; });
}

TEST(VerifierStep, LanesOperandsPeersAndTags) {
  expect_fall(exchange(), "lane", "rank 1, lane 0 'exchange': the lane has no step",
              [](Schedule& s) { s.ranks[1].lanes[0].steps.clear(); });
  expect_fall(exchange(), "lane", "replica 1, expected 0..0",
              [](Schedule& s) { s.ranks[1].lanes[0].replica = 1; });
  expect_fall(exchange(), "operands", "rank 1, lane 0 'exchange', step 0: no source",
              [](Schedule& s) { step_of(s, 1, 0, 0).sources.clear(); });
  expect_fall(exchange(), "operands", "no destination",
              [](Schedule& s) { step_of(s, 1, 0, 1).destinations.clear(); });
  expect_fall(exchange(), "operands", "a send among the sources",
              [](Schedule& s) { step_of(s, 0, 0, 0).sources.push_back(send(1, 0, chunk(0))); });
  expect_fall(exchange(), "operands", "a receive among the destinations", [](Schedule& s) {
    step_of(s, 0, 0, 1).destinations.push_back(recv(1, 0, chunk(0)));
  });
  expect_fall(exchange(), "operands", "input among the destinations",
              [](Schedule& s) { step_of(s, 0, 0, 1).destinations[0] = input(chunk(0)); });
  expect_fall(exchange(), "peer", "peer 2, expected 0..1",
              [](Schedule& s) { step_of(s, 0, 0, 0).destinations[0].peer = 2; });
  expect_fall(exchange(), "peer", "the rank itself",
              [](Schedule& s) { step_of(s, 0, 0, 0).destinations[0].peer = 0; });
  expect_fall(exchange(), "tag", "tag 1, expected 0..0 for replica 0",
              [](Schedule& s) { step_of(s, 0, 0, 0).destinations[0].tag = 1; });
}

TEST(VerifierStep, Spans) {
  expect_fall(exchange(), "span bounds", "chunk 1, expected 0..0",
              [](Schedule& s) { step_of(s, 0, 0, 0).sources[0].span.first = 1; });
  expect_fall(exchange(), "span bounds", "2 chunks of the 1",
              [](Schedule& s) { step_of(s, 0, 0, 0).sources[0].span.run = 2; });
  expect_fall(staged(2, 2), "span bounds", "scratch slots 2..2, expected 0..1 of replica 0",
              [](Schedule& s) { step_of(s, 0, 1, 0).destinations[0].span.first = 2; });
  expect_fall(replicate(staged(2, 2), 2), "span bounds", "expected 2..3 of replica 1",
              [](Schedule& s) { step_of(s, 0, 4, 0).destinations[0].span.first = 1; });
  expect_fall(exchange(), "span count", "0 chunks, expected 1",
              [](Schedule& s) { step_of(s, 0, 0, 0).sources[0].span.run = 0; });
  // The ends of a message: rank 0 sends one chunk, and rank 1 expects a signal.
  expect_fall(built("ring", 2), "span count", "receives 0 chunks from rank 0 tag 0, expected 1",
              [](Schedule& s) {
                Step& last = step_of(s, 1, 0, 2);
                last.destinations[0].span.run = last.sources[0].span.run = 0;
              });
  expect_fall(built("ring", 2), "chunk agreement",
              "step 0: names chunk 0 at position 0 of destination 0, expected chunk 1",
              [](Schedule& s) { step_of(s, 0, 0, 0).sources[0].span.first = 1; });
  expect_fall(
      built("ring", 2), "chunk agreement",
      "rank 1, lane 0 'ring', step 2: names chunk 0 at position 0 of destination 0, expected "
      "chunk 1 as in the value there, finish(",
      [](Schedule& s) {
        Step& last = step_of(s, 1, 0, 2);
        last.destinations[0].span.first = last.sources[0].span.first = 0;
      });
  expect_fall(staged(2, 2), "chunk agreement", "scratch alone has no element count",
              [](Schedule& s) {
                step_of(s, 0, 2, 0).destinations = {scratch(chunk(0))};
                step_of(s, 0, 2, 0).sources = {scratch(chunk(1))};
              });
}

TEST(VerifierStep, OverlapWithinAStep) {
  expect_fall(exchange(), "step overlap", "chunk 0 of rank 0 is written twice",
              [](Schedule& s) { step_of(s, 0, 0, 1).destinations.push_back(output(chunk(0))); });
  // Rooms 0,1 <- rooms 1,0 by position, with the size of chunks 0,1: the kernel is not a swap.
  LaneBuilder lane("swap");
  lane.step().to(scratch(chunks(0, 2))).from(input(chunks(0, 2)));
  lane.step().to(output(chunks(0, 2))).from(scratch(chunks(0, 2))).finish();
  Schedule schedule = alone({lane});
  schedule.shape.chunks = 2;
  schedule.shape.scratch_chunks = 3;
  expect_fall(
      schedule, "step overlap", "room 1 of rank 0 is read at one position",
      [](Schedule& s) { step_of(s, 0, 0, 1).destinations.push_back(scratch(chunks(1, 2))); });
  // The same room at the same position is what accumulating in place is.
  step_of(schedule, 0, 0, 1).destinations.push_back(scratch(chunks(0, 2)));
  EXPECT_EQ(message_of(schedule), "");
}

TEST(VerifierConnection, OwnersAndBalance) {
  expect_fall(built("tree", 3), "connection owner", "belongs to lane", [](Schedule& s) {
    // The inner rank of tree 0 receives one child in another lane.
    Lane extra = s.ranks[1].lanes[0];
    s.ranks[1].lanes.push_back(extra);
  });
  expect_fall(exchange(), "connection owner", "peer 1 tag 0 twice on one side", [](Schedule& s) {
    step_of(s, 0, 0, 0).destinations.push_back(send(1, 0, chunk(0)));
  });
  expect_fall(exchange(), "connection balance", "on 0 -> 1 tag 0, 2 messages sent and 1 received",
              [](Schedule& s) {
                Lane& lane = s.ranks[0].lanes[0];
                lane.steps.insert(lane.steps.begin(), Step(lane.steps[0]));
              });
  expect_fall(exchange(), "connection balance", "0 messages sent and 1 received", [](Schedule& s) {
    Lane& lane = s.ranks[0].lanes[0];
    lane.steps.erase(lane.steps.begin());
  });
}

TEST(VerifierConnection, WaitsAndDeclaredCounts) {
  expect_fall(staged(3, 2), "wait", "waits for lane 7",
              [](Schedule& s) { step_of(s, 1, 2, 0).waits[0].lane = 7; });
  expect_fall(staged(3, 2), "wait", "waits for step 9 of lane 1, which has 2",
              [](Schedule& s) { step_of(s, 1, 2, 0).waits[0].step = 9; });
  expect_fall(replicate(staged(3, 2), 2), "wait", "which is not a lane of replica 0",
              [](Schedule& s) { step_of(s, 1, 2, 0).waits[0].lane = 4; });
  expect_fall(built("one_shot", 5), "declared counts", "max_incoming is 3, counted 4",
              [](Schedule& s) { s.shape.max_incoming = 3; });
  expect_fall(built("tree", 5), "declared counts", "max_per_pair is 1, counted 2",
              [](Schedule& s) { s.shape.max_per_pair = 1; });
  expect_fall(built("rabenseifner", 8), "declared counts", "max_message_chunks is 3, counted 4",
              [](Schedule& s) { s.shape.max_message_chunks = 3; });
}

TEST(VerifierDeadlock, AtAnyNumberOfSlots) {
  // Both receive before they send.
  expect_fall(exchange(), "deadlock", "waits for a message on tag 0 from rank 1, lane 0 'exchange'",
              [](Schedule& s) {
                for (RankProgram& program : s.ranks)
                  std::swap(program.lanes[0].steps[0], program.lanes[0].steps[1]);
              });
  expect_fall(staged(2, 2), "deadlock", "rank 0, lane 0 'spread', step 0 waits for rank 0, lane 2",
              [](Schedule& s) {
                step_of(s, 0, 0, 0).waits.push_back({2, 0, 0});
              });
}

TEST(VerifierDeadlock, AtTheDeclaredSlots) {
  EXPECT_EQ(message_of(built("ring", 4), 2), "");
  EXPECT_THAT(message_of(built("ring", 4), 1),
              AllOf(StartsWith("slots: 1 slots a connection, expected at least 2"),
                    HasSubstr("full until rank 1, lane 0 'ring', step 1")));
  EXPECT_THAT(message_of(exchange(), 1), StartsWith("slots: "));
}

// Rank 0 sends three messages on tag 0 before one on tag 1, which rank 1 receives first.
TEST(VerifierDeadlock, FindsTheFewestSlots) {
  Schedule schedule{{.algorithm = "burst",
                     .collective = Collective::kAllReduce,
                     .ranks = 2,
                     .chunks = 3,
                     .tags = 2},
                    {}};
  for (const Rank rank : {0, 1}) {
    const Rank peer = 1 - rank;
    LaneBuilder lane("burst");
    for (std::uint32_t c = 0; c < 3; ++c)
      lane.step().to(send(peer, 0, chunk(c))).from(input(chunk(c)));
    lane.step().to(send(peer, 1, Span{.run = 0})).from(input(Span{.run = 0}));
    lane.step().to(output(Span{.run = 0})).from(recv(peer, 1, Span{.run = 0}));
    for (std::uint32_t c = 0; c < 3; ++c) {
      const Operand own = input(chunk(c)), other = recv(peer, 0, chunk(c));
      lane.step()
          .to(output(chunk(c)))
          .from(rank == 0 ? own : other)
          .from(rank == 0 ? other : own)
          .finish();
    }
    schedule.ranks.push_back(assemble({lane}));
  }
  declare_counts(schedule);
  EXPECT_THAT(message_of(schedule, 2),
              StartsWith("slots: 2 slots a connection, expected at least 3"));
  const Result<Proof> proof = verify(schedule, {.slots = 4});
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_EQ(proof->minimal_slots, 3U);
}

TEST(VerifierData, UninitialisedAndInPlace) {
  expect_fall(staged(3, 2), "uninitialised read", "reads scratch 0 of rank 1", [](Schedule& s) {
    step_of(s, 1, 1, 0).destinations[0].span.first = 1;  // rank 1's own room: nobody reads it
  });
  expect_fall(exchange(), "uninitialised read", "reads output 0 of rank 0",
              [](Schedule& s) { step_of(s, 0, 0, 0).sources[0] = output(chunk(0)); });
  LaneBuilder lane("twice");
  lane.step().to(output(chunk(0))).from(input(chunk(0))).finish();
  expect_fall(alone({lane}), "in place", "reads input chunk 0 of rank 0 after output chunk 0",
              [](Schedule& s) {
                auto& steps = s.ranks[0].lanes[0].steps;
                steps.insert(steps.begin(), Step(steps[0]));
              });
}

TEST(VerifierData, Contributions) {
  expect_fall(exchange(), "double contribution", "rank 0's contribution to chunk 0 arrives twice",
              [](Schedule& s) { step_of(s, 0, 0, 1).sources.push_back(input(chunk(0))); });
  expect_fall(exchange(), "post-condition",
              "rank 0, replica 0, output chunk 0: lacks rank 1's contribution", [](Schedule& s) {
                Lane& lane = s.ranks[0].lanes[0];
                lane.steps[1].sources.erase(lane.steps[1].sources.begin() + 1);
                // Received all the same, so that the connection balances.
                s.shape.scratch_chunks = 1;
                Step& receive = lane.steps.emplace_back();
                receive.destinations = {scratch(chunk(0))};
                receive.sources = {recv(1, 0, chunk(0))};
              });
  LaneBuilder copy("copy");
  copy.step().to(output(chunk(0))).from(input(chunk(0))).finish();
  expect_fall(alone({copy}), "post-condition", "output chunk 1: never written",
              [](Schedule& s) { s.shape.chunks = 2; });
}

// Scratch that holds chunk 0 is added to chunk 1: the sizes of the operands cannot tell.
TEST(VerifierData, MixedChunks) {
  LaneBuilder lane("mix");
  lane.step().to(scratch(chunk(0))).from(input(chunk(0)));
  lane.step().to(output(chunk(0))).from(input(chunk(0))).finish();
  lane.step().to(output(chunk(1))).from(input(chunk(1))).finish();
  Schedule schedule = alone({lane});
  schedule.shape.chunks = 2;
  schedule.shape.scratch_chunks = 1;
  expect_fall(schedule, "mixed chunks", "contributions to chunk 0 with those to chunk 1",
              [](Schedule& s) { step_of(s, 0, 0, 2).sources.push_back(scratch(chunk(0))); });
  expect_fall(schedule, "chunk agreement",
              "names chunk 1 at position 0 of destination 0, expected chunk 0",
              [](Schedule& s) { step_of(s, 0, 0, 2).sources[0] = scratch(chunk(0)); });
}

TEST(VerifierData, FinishOnceAndLast) {
  expect_fall(exchange(), "post-condition", "not finished: found reduce(r0, r1)",
              [](Schedule& s) { step_of(s, 0, 0, 1).finish = false; });
  expect_fall(exchange(), "finish", "reduces a finished value, finish(r1)",
              [](Schedule& s) { step_of(s, 1, 0, 0).finish = true; });
  expect_fall(built("ring", 2), "finish", "finishes a finished value",
              [](Schedule& s) { step_of(s, 0, 0, 2).finish = true; });
  expect_fall(peer_read(2), "finish", "an empty step finishes nothing",
              [](Schedule& s) { step_of(s, 0, 0, 0).finish = true; });
}

TEST(VerifierData, SameTreeOnAllRanks) {
  expect_fall(built("one_shot", 3), "same tree",
              "rank 2, replica 0, output chunk 0: found finish(reduce(r1, r0, r2)), expected "
              "finish(reduce(r0, r1, r2))",
              [](Schedule& s) {
                auto& sources = step_of(s, 2, 0, 1).sources;
                std::swap(sources[0], sources[1]);
              });
  // All ranks alike is no fault: another order, and still one.
  Schedule schedule = built("one_shot", 3);
  for (std::size_t r = 0; r < 3; ++r) {
    auto& sources = step_of(schedule, r, 0, 1).sources;
    std::swap(sources[0], sources[1]);
  }
  const Result<Proof> proof = verify(schedule);
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_FALSE(proof->in_rank_order);
  EXPECT_TRUE(proof->canonical);
}

TEST(VerifierOrder, LanesOfARankRaceWithoutWaits) {
  // reduce reads what collect stores.
  expect_fall(staged(3, 2), "race", "unordered with the", [](Schedule& s) {
    auto& waits = step_of(s, 1, 2, 0).waits;
    waits.erase(waits.begin());
  });
  // In place, reduce overwrites what spread has yet to send.
  expect_fall(staged(3, 2), "race", "output (in place: input) chunk 0 of rank 1",
              [](Schedule& s) { step_of(s, 1, 2, 0).waits.pop_back(); });
}

TEST(VerifierOrder, ScratchIsReusedAcrossSlices) {
  // Nothing keeps collect from overwriting a version that reduce still reads.
  expect_fall(staged(3, 2), "race", "in slice 2 writes scratch room 0 of rank 1",
              [](Schedule& s) { step_of(s, 1, 1, 0).waits.clear(); });
  // It keeps a distance of two slices, and there is one version.
  expect_fall(staged(3, 2), "race", "in slice 1 writes scratch room",
              [](Schedule& s) { s.shape.scratch_versions = 1; });
  expect_fall(staged(3, 2), "race", "in slice 2 writes scratch room 0 of rank 1",
              [](Schedule& s) { step_of(s, 1, 1, 0).waits[0].back = 3; });
  // A shorter distance than needed only costs time.
  Schedule schedule = staged(3, 2);
  step_of(schedule, 1, 1, 0).waits[0].back = 1;
  EXPECT_EQ(message_of(schedule), "");
}

TEST(VerifierOrder, PeersMemoryNeedsMessages) {
  // Rank 1 reads without having heard of rank 0.
  expect_fall(peer_read(2), "remote begin",
              "rank 1, lane 0 'read', step 1: touches memory of rank 0", [](Schedule& s) {
                auto& steps = s.ranks[1].lanes[0].steps;
                std::swap(steps[1], steps[2]);
              });
  // Rank 0 writes its output, in place of its input, before rank 1 has said that it has read it.
  expect_fall(peer_read(2), "race", "output (in place: input) chunk 0 of rank 0", [](Schedule& s) {
    auto& steps = s.ranks[0].lanes[0].steps;
    std::swap(steps[4], steps[5]);
  });
}

// Rank 1 sends its input; rank 0 writes the result to both outputs and, if asked, says so.
Schedule put(bool say_so) {
  const Span none{.run = 0};
  Schedule schedule{{.algorithm = "put", .collective = Collective::kAllReduce, .ranks = 2}, {}};
  LaneBuilder writer("writer"), giver("giver");
  writer.step()
      .to(output(chunk(0)))
      .to(remote(1, BufferKind::kOutput, chunk(0)))
      .from(input(chunk(0)))
      .from(recv(1, 0, chunk(0)))
      .finish();
  giver.step().to(send(0, 0, chunk(0))).from(input(chunk(0)));
  if (say_so) {
    writer.step().to(send(1, 0, none)).from(input(none));
    giver.step().to(output(none)).from(recv(0, 0, none));
  }
  schedule.ranks = {assemble({writer}), assemble({giver})};
  declare_counts(schedule);
  return schedule;
}

TEST(VerifierOrder, PeersMemoryIsLeftBeforeItsEnd) {
  EXPECT_EQ(message_of(put(true)), "");
  EXPECT_THAT(message_of(put(false)),
              AllOf(StartsWith("remote end: rank 0, lane 0 'writer', step 0"),
                    HasSubstr("memory of rank 1, which may end")));
}

TEST(VerifierReplicas, EachThatDiffersIsProved) {
  expect_fall(replicate(built("one_shot", 3), 3), "post-condition", "rank 1, replica 2",
              [](Schedule& s) { step_of(s, 1, 2, 1).finish = false; });
  Schedule schedule = replicate(built("one_shot", 3), 2);
  for (std::size_t r = 0; r < 3; ++r) {
    auto& sources = step_of(schedule, r, 1, 1).sources;
    std::swap(sources[1], sources[2]);
  }
  const Result<Proof> proof = verify(schedule);
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_FALSE(proof->in_rank_order);
}

// Two ranks and two chunks. Chunk 0 is exchanged as it is. Chunk 1 goes through scratch at both
// ends, and its message says `named`: the message of one element of two that chunk 0's name would
// make of it is cut short at an odd count.
Schedule through_scratch(std::uint32_t named) {
  Schedule schedule{{.algorithm = "through_scratch",
                     .collective = Collective::kAllReduce,
                     .ranks = 2,
                     .chunks = 2,
                     .scratch_chunks = 2},
                    {}};
  for (const Rank rank : {0, 1}) {
    const Rank peer = 1 - rank;
    LaneBuilder lane("lane");
    const auto add = [&](std::uint32_t c, const Operand& theirs) {
      const Operand own = input(chunk(c));
      lane.step()
          .to(output(chunk(c)))
          .from(rank == 0 ? own : theirs)
          .from(rank == 0 ? theirs : own)
          .finish();
    };
    lane.step().to(send(peer, 0, chunk(0))).from(input(chunk(0)));
    add(0, recv(peer, 0, chunk(0)));
    lane.step().to(scratch(chunk(0))).from(input(chunk(1)));
    lane.step().to(send(peer, 0, chunk(named))).from(scratch(chunk(0)));
    lane.step().to(scratch(chunk(1))).from(recv(peer, 0, chunk(named)));
    add(1, scratch(chunk(1)));
    schedule.ranks.push_back(assemble({lane}));
  }
  declare_counts(schedule);
  return schedule;
}

TEST(VerifierSizes, FollowTheValueThroughScratch) {
  EXPECT_EQ(message_of(through_scratch(1)), "");
  EXPECT_THAT(message_of(through_scratch(0)), AllOf(StartsWith("chunk agreement: "),
                                                    HasSubstr("step 3: names chunk 0 at position 0 "
                                                              "of destination 0, expected chunk 1 "
                                                              "as in the value there, r")));
}

// The sender's name is right, the receiver's is not, and scratch hides it from its step.
TEST(VerifierSizes, AreThoseOfBothEndsOfAMessage) {
  expect_fall(through_scratch(1), "chunk agreement",
              "step 4: names chunk 0 at position 0 of source 0, expected chunk 1",
              [](Schedule& s) { step_of(s, 1, 0, 4).sources[0].span.first = 0; });
}

// A step of scratch alone has no element count, so that a value cannot change its name there
// either.
TEST(VerifierSizes, NoStepOfScratchAlone) {
  expect_fall(through_scratch(1), "chunk agreement", "scratch alone has no element count",
              [](Schedule& s) {
                auto& steps = s.ranks[0].lanes[0].steps;
                Step copy;
                copy.destinations = {scratch(chunk(1))};
                copy.sources = {scratch(chunk(0))};
                steps.insert(steps.begin() + 3, copy);
                steps[4].sources[0] = scratch(chunk(1));
              });
}

// A message of several chunks whose values come from rooms in another order.
TEST(VerifierSizes, PositionByPosition) {
  LaneBuilder lane("lane");
  for (const std::uint32_t c : {0U, 1U}) lane.step().to(scratch(chunk(c))).from(input(chunk(c)));
  lane.step().to(output(chunks(0, 2))).from(scratch(chunks(0, 2))).finish();
  Schedule schedule = alone({lane});
  schedule.shape.chunks = schedule.shape.scratch_chunks = 2;
  expect_fall(schedule, "chunk agreement", "names chunk 0 at position 0 of destination 0",
              [](Schedule& s) {
                step_of(s, 0, 0, 0).destinations[0] = scratch(chunk(1));
                step_of(s, 0, 0, 1).destinations[0] = scratch(chunk(0));
              });
}

Schedule built(std::string_view name, Collective collective, std::int32_t ranks, Rank root = 0) {
  return *build_schedule(**find_algorithm(name), {collective, ranks, root});
}

// Rank 0 gets the sum of everything, the others nothing.
TEST(VerifierBlocks, RanksDivideTheChunks) {
  Schedule reduce = built("one_shot", Collective::kReduce, 4);
  ASSERT_EQ(message_of(reduce), "");
  reduce.shape.collective = Collective::kReduceScatter;
  EXPECT_EQ(message_of(reduce),
            "blocks: 1 chunks of reduce_scatter, expected a multiple of 4 ranks");
  Schedule broadcast = built("one_shot", Collective::kBroadcast, 4);
  broadcast.shape.collective = Collective::kAllGather;
  EXPECT_EQ(message_of(broadcast),
            "blocks: 1 chunks of all_gather, expected a multiple of 4 ranks");
  // Five chunks of four ranks, the last without an owner.
  expect_fall(built("two_shot", Collective::kAllGather, 4), "blocks", "5 chunks",
              [](Schedule& s) { s.shape.chunks = 5; });
}

TEST(VerifierBlocks, AMapNamesEachRankOnce) {
  const Schedule schedule =
      reorder(built("pat", Collective::kAllGather, 4), *RankOrder::make({2, 0, 3, 1}));
  ASSERT_EQ(schedule.shape.block_ranks, (std::vector<Rank>{2, 0, 3, 1}));
  expect_fall(schedule, "blocks", "replica 0, place 3: rank 2, expected each rank once",
              [](Schedule& s) { s.shape.block_ranks[3] = 2; });
  expect_fall(schedule, "blocks", "place 0: rank 4",
              [](Schedule& s) { s.shape.block_ranks[0] = 4; });
  expect_fall(schedule, "blocks", "3 ranks in the block map, expected 4 for 1 replicas",
              [](Schedule& s) { s.shape.block_ranks.pop_back(); });
  expect_fall(schedule, "input extent", "", [](Schedule& s) {
    s.shape.block_ranks = {0, 1, 2, 3};
  });
  expect_fall(built("ring", 4), "blocks", "all_reduce has a block map", [](Schedule& s) {
    s.shape.block_ranks = {0, 1, 2, 3};
  });
}

TEST(VerifierExtents, OutputOfTheOwnBlockAlone) {
  // Partial sums where the rank has no output, and read from there.
  expect_fall(
      built("circulant", Collective::kReduceScatter, 5), "output extent",
      "output chunk 2 of rank 0, expected its own block of reduce_scatter", [](Schedule& s) {
        for (Step& step : s.ranks[0].lanes[0].steps) {
          const bool sends = step.destinations[0].kind == OperandKind::kSend;
          const Operand sums = output(sends ? step.destinations[0].span : step.sources.back().span);
          for (auto* side : {&step.destinations, &step.sources})
            for (Operand& operand : *side)
              if (operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kScratch)
                operand = sums;
        }
      });
  // In a peer's memory.
  expect_fall(put(true), "output extent", "output chunk 0 of rank 1, expected none of reduce",
              [](Schedule& s) { s.shape.collective = Collective::kReduce; });
}

TEST(VerifierExtents, OutputOfTheRootAlone) {
  for (const char* name : {"ring", "tree", "butterfly", "one_shot"})
    expect_fall(built(name, Collective::kReduce, 5, 3), "output extent",
                "of rank 4, expected none of reduce", [](Schedule& s) {
                  Step& step = s.ranks[4].lanes[0].steps[0];
                  step.destinations.push_back(output(step.sources[0].span));
                });
}

TEST(VerifierExtents, InputOfTheOwnBlockAlone) {
  expect_fall(built("ring", Collective::kAllGather, 4), "input extent",
              "rank 2, lane 0 'ring', step 0: input chunk 1 of rank 2, expected its own block of "
              "all_gather",
              [](Schedule& s) {
                auto& steps = s.ranks[2].lanes[0].steps;
                Step copy;
                copy.destinations = {output(chunk(1))};
                copy.sources = {input(chunk(1))};
                steps.insert(steps.begin(), copy);
              });
  // Where it lies in a peer's memory.
  expect_fall(built("two_shot:access=remote", Collective::kAllGather, 3), "input extent",
              "of rank 1, expected its own block", [](Schedule& s) {
                for (Step& step : s.ranks[0].lanes[0].steps)
                  for (Operand& operand : step.sources)
                    if (operand.kind == OperandKind::kRemote && operand.peer == 1)
                      operand = remote(1, BufferKind::kInput, chunk(2));
              });
}

TEST(VerifierExtents, InputOfTheRootAlone) {
  expect_fall(built("one_shot", Collective::kBroadcast, 4, 2), "input extent",
              "input chunk 0 of rank 0, expected none of broadcast", [](Schedule& s) {
                auto& steps = s.ranks[0].lanes[0].steps;
                Step copy;
                copy.destinations = {output(chunk(0))};
                copy.sources = {input(chunk(0))};
                steps.insert(steps.begin(), copy);
              });
}

TEST(VerifierCollective, WithoutAPostCondition) {
  Schedule schedule = built("two_shot", 2);
  schedule.shape.collective = Collective::kNone;
  const Result<Proof> proof = verify(schedule);
  ASSERT_FALSE(proof);
  EXPECT_EQ(proof.error().code, Code::kNotSupported);
}

TEST(VerifierFacts, OfTheFamilies) {
  const Result<Proof> ring = verify(replicate(built("ring", 8), 2));
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ(ring->minimal_slots, 2U);
  EXPECT_EQ(ring->depth, 14U);
  EXPECT_EQ(ring->messages, 8U * 14U);
  EXPECT_EQ(ring->max_sent_chunks, 14U);
  EXPECT_EQ(ring->max_reduced_chunks, 7U);
  EXPECT_EQ(ring->max_roundings, 7U);
  EXPECT_FALSE(ring->in_rank_order);
  EXPECT_FALSE(ring->canonical);
  const Result<Proof> one_shot = verify(built("one_shot", 8));
  ASSERT_TRUE(one_shot) << one_shot.error().message;
  EXPECT_EQ(one_shot->depth, 1U);
  EXPECT_EQ(one_shot->messages, 56U);
  EXPECT_EQ(one_shot->max_sent_chunks, 7U);
  EXPECT_EQ(one_shot->max_reduced_chunks, 7U);
  EXPECT_EQ(one_shot->max_roundings, 1U);
  EXPECT_TRUE(one_shot->in_rank_order);
  EXPECT_TRUE(one_shot->canonical);
  const Result<Proof> tree = verify(built("tree", 8));
  ASSERT_TRUE(tree) << tree.error().message;
  EXPECT_EQ(tree->depth, 6U);
  EXPECT_EQ(tree->messages, 28U);
}

// The samples of this folder are right at many sizes, with scratch, waits and remote operands.
TEST(VerifierFacts, OfTheSamples) {
  for (const std::int32_t ranks : {2, 3, 5, 8, 17}) {
    for (const std::uint32_t versions : {1U, 2U, 3U})
      EXPECT_EQ(message_of(replicate(staged(ranks, versions), 2)), "") << ranks;
    EXPECT_EQ(message_of(peer_read(ranks)), "") << ranks;
    EXPECT_EQ(message_of(replicate(packed(ranks, 2), 2)), "") << ranks;
  }
}

// What a large proof costs: every step three times, once a distinct replica.
TEST(VerifierFacts, LargeRingIsCheap) {
  const Result<Proof> proof = verify(replicate(built("ring", 128), 4));
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_EQ(proof->depth, 254U);
  EXPECT_LE(proof->events, 3U * 128U * 255U);
}

}  // namespace
}  // namespace tutti
