// SPDX-License-Identifier: Apache-2.0
// The verifier's rules by name, and the one form in which all of them report a fall:
//
//   "rule: rank 3, lane 1 'up', step 4, slice 0, chunk 2: what was found, what was expected"
//
// Tests and people search for the rule's name. Pure values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace tutti::proof {

enum class Rule : std::uint8_t {
  kShape,           // the shape is no shape at all
  kBlocks,          // chunks that are no blocks, or a block map that names a rank twice
  kLane,            // a lane without steps or of a replica that does not exist
  kOperands,        // a side without operands, or an operand on the side where it means nothing
  kPeer,            // a peer that does not exist, or oneself
  kTag,             // a tag that is not the replica's own
  kSpan,            // a span that leaves its buffer
  kInputExtent,     // a read of input that the rank's buffer does not hold
  kOutputExtent,    // an access to output that the rank's buffer does not hold
  kSpanCount,       // operands of one step that name different numbers of chunks
  kChunkAgreement,  // an operand that names another chunk than its value's: element counts differ
  kStepOverlap,     // one step that touches a location at two positions, or writes it twice
  kOwner,           // a connection used by two lanes of one end, or twice by one step
  kBalance,         // messages sent on a connection and never received, or the reverse
  kWait,            // a wait for a lane or step that is not there
  kDeclared,        // a count that the shape declares wrongly
  kDeadlock,        // stuck at any number of slots
  kSlots,           // stuck at the slots declared, but not with more
  kUninitialised,   // a read of what nobody wrote in this slice
  kInPlace,         // a read of input whose place the output has taken, were they one buffer
  kDuplicate,       // a contribution twice in one value
  kMixedChunks,     // contributions to different chunks in one value
  kFinish,          // the post-operation twice, on a part of a value, or on nothing
  kMissing,         // an output chunk that is unwritten, lacks a contribution or is not finished
  kSameTree,        // an output chunk reduced in another order on another rank
  kRace,            // two accesses to one location, one a write, that nothing orders
  kRemoteBegin,     // an access to a peer's memory that may precede the peer's begin
  kRemoteEnd,       // ... or follow its end
};

[[nodiscard]] std::string_view name_of(Rule rule);

// A step as the schedule numbers it.
struct Site {
  Rank rank = kNoRank;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
};

// "rank 3, lane 1 'up', step 4"
[[nodiscard]] std::string describe(const Schedule& schedule, const Site& site);
// "input", "output", "scratch"
[[nodiscard]] std::string_view name_of(BufferKind buffer);

// kInvalidUsage with the rule's name before the text.
[[nodiscard]] tl::unexpected<Error> fall(Rule rule, std::string_view text);
[[nodiscard]] tl::unexpected<Error> fall(Rule rule, const Schedule& schedule, const Site& site,
                                         std::string_view text);

}  // namespace tutti::proof
