// SPDX-License-Identifier: Apache-2.0
// Any text as a schedule's JSON form, then what `tutti-plan` does with what was read: the printers,
// unrolling, and for small ones the proof.
#include <algorithm>
#include <string>

#include "schedule/builder.hpp"
#include "schedule/print.hpp"
#include "schedule/unroll.hpp"
#include "schedule/verifier.hpp"
#include "tests/fuzz/target.hpp"

namespace tutti::fuzz {
namespace {

// Of what is drawn and proved, whose cost grows with the shape's numbers and not with the text.
constexpr std::uint32_t kMostChunks = 64, kMostReplicas = 4;

void require_one_line(const Error& error) {
  require(!error.message.empty() && error.message.find('\n') == std::string::npos,
          "an error is one line");
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto schedule = from_json(text);
  if (!schedule) {
    require(schedule.error().code == Code::kInvalidArgument, "the reader blames the text");
    return require_one_line(schedule.error());
  }
  const auto again = from_json(to_json(*schedule));
  require(again && *again == *schedule, "what was read survives writing");
  const ScheduleShape& shape = schedule->shape;
  if (shape.chunks > kMostChunks || shape.scratch_chunks > kMostChunks ||
      shape.scratch_versions > kMostChunks || shape.replicas > kMostReplicas)
    return;
  require(!to_text(*schedule).empty() && !to_svg(*schedule).empty(), "it can be printed");
  const auto unrolled = unroll(*schedule, 3);
  if (!unrolled) require_one_line(unrolled.error());
  const auto proof = verify(*schedule);
  if (!proof) require_one_line(proof.error());
}

// Two ranks send each other what they have, and a copy of it with a wait and a span.
std::vector<Bytes> seeds() {
  using namespace operands;
  const auto program = [](Rank rank) {
    const Rank peer = 1 - rank;
    const Operand mine = input(chunk(0)), theirs = recv(peer, 0, chunk(0));
    LaneBuilder lane("swap");
    lane.step().to(send(peer, 0, chunk(0))).from(mine);
    lane.step()
        .to(output(chunk(0)))
        .from(rank == 0 ? mine : theirs)
        .from(rank == 0 ? theirs : mine)
        .finish();
    return assemble({std::move(lane)});
  };
  Schedule swap;
  swap.shape.algorithm = "swap";
  swap.shape.collective = Collective::kAllReduce;
  swap.shape.ranks = 2;
  swap.shape.max_incoming = 1;
  swap.ranks = {program(0), program(1)};
  require(verify(swap).has_value(), "an honest schedule is proved");
  LaneBuilder first("first"), second("second");
  first.step().to(scratch(chunks(0, 2))).from(input(chunks(0, 2)));
  second.step().to(output(chunks(0, 2))).from(scratch(chunks(0, 2))).after(0, 0, 1);
  Schedule alone;
  alone.shape.algorithm = "alone";
  alone.shape.collective = Collective::kAllReduce;
  alone.shape.chunks = alone.shape.scratch_chunks = 2;
  alone.ranks = {assemble({std::move(first), std::move(second)})};
  std::vector<Bytes> all;
  for (const Schedule& schedule : {swap, alone}) {
    const std::string text = to_json(schedule);
    const auto bytes = std::as_bytes(std::span(text));
    all.emplace_back(bytes.begin(), bytes.end());
  }
  return all;
}

}  // namespace tutti::fuzz
