// SPDX-License-Identifier: Apache-2.0
// What can be said of one step, or of the shape, without looking at any other: operand kinds,
// peers, tags, spans, what the ranks' buffers hold, overlap within the step.
#pragma once

#include <string>
#include <vector>

#include "schedule/block_map.hpp"
#include "schedule/verify/rules.hpp"

namespace tutti::proof {

// Bounds of the verifier itself, so that a schedule from a file cannot exhaust memory.
inline constexpr std::uint64_t kMaxLocations = std::uint64_t{1} << 28;  // ranks * (chunks + rooms)
inline constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 28;
inline constexpr std::uint32_t kMaxVersions = 64;

[[nodiscard]] Status check_shape(const Schedule& schedule);
// The same without programs, at any number of ranks.
[[nodiscard]] Status check_shape(const ScheduleShape& shape);

// The location that chunk k of a local or remote operand names within its owner: input and output
// share [0, chunks), so that in place is covered; scratch rooms of the replica follow, and behind
// them the input where the schedule keeps it apart.
[[nodiscard]] std::uint32_t location_of(const ScheduleShape& shape, std::uint32_t replica,
                                        const Operand& operand, std::uint32_t k);
[[nodiscard]] inline std::uint64_t locations_of(const ScheduleShape& shape) {
  return std::uint64_t{shape.chunks} * (shape.apart ? 2 : 1) + shape.scratch_chunks;
}
[[nodiscard]] inline bool is_scratch_room(const ScheduleShape& shape, std::uint32_t location) {
  return location >= shape.chunks && location - shape.chunks < shape.scratch_chunks;
}
// For messages: "scratch room 3".
[[nodiscard]] std::string name_of_location(const ScheduleShape& shape, std::uint32_t location);

[[nodiscard]] inline bool is_message(const Operand& operand) {
  return operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv;
}
// Returns whether the operand's chunks are the user's (their sizes come from the cut).
[[nodiscard]] inline bool is_logical(const Operand& operand) {
  return is_message(operand) || operand.buffer != BufferKind::kScratch;
}

// Returns whether `rank`'s buffer under this rule holds the chunk. If it does not, no step may
// touch it.
[[nodiscard]] inline bool holds(const ScheduleShape& shape, const BufferRule& rule,
                                const BlockMap& blocks, Rank rank, std::uint32_t chunk) {
  if (!CollectiveInfo::has(rule, rank, shape.root)) return false;
  return rule.extent == Extent::kWhole || blocks.owner_of(chunk) == rank;
}

// Checks the steps of a replica one by one; keeps its working memory between them.
class StepChecker {
 public:
  StepChecker(const Schedule& schedule, std::uint32_t replica)
      : schedule_(schedule), blocks_(block_map(schedule.shape, replica)) {}
  [[nodiscard]] Status check(const Site& site, const Lane& lane, const Step& step);

 private:
  struct Touch {
    Rank owner;
    std::uint32_t location;
    std::uint32_t position;
    bool write;
  };

  [[nodiscard]] Status check_operand(const Lane& lane, const Operand& operand, bool destination);
  [[nodiscard]] Status check_span(const Lane& lane, const Operand& operand);
  [[nodiscard]] Status check_extent(const Operand& operand);
  [[nodiscard]] Status check_counts(const Step& step);
  [[nodiscard]] Status check_connections(const Step& step);
  [[nodiscard]] Status check_overlap(const Lane& lane, const Step& step);
  void touch(const Lane& lane, const Operand& operand, bool write);
  [[nodiscard]] tl::unexpected<Error> fall_here(Rule rule, std::string_view text) const {
    return fall(rule, schedule_, site_, text);
  }

  const Schedule& schedule_;
  BlockMap blocks_;
  Site site_;
  std::vector<Touch> touches_;
  std::vector<std::pair<Rank, Tag>> connections_;
};

}  // namespace tutti::proof
