// SPDX-License-Identifier: Apache-2.0
// The table of collectives: one row of facts for each.
//
// Argument checks, signatures, the verifier's post-conditions, passes, partitions, the choice,
// tools and perf tools read it, and no other place says what a collective is. To add a collective,
// begin with a row; CONTRIBUTING.md lists the rest.
//
// The *data* of a call is one vector, or, if `blocks`, one block for each rank. The count of a call
// is the length of the vector or of one block, in elements. A buffer holds the whole data or the
// rank's own block of it, as in NCCL's interface. Elements and chunks are always numbered in the
// whole data, so in place means the same for every collective: equal elements have equal addresses.
//
// Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/types.hpp"

namespace tutti {

enum class Collective : std::uint8_t {
  kNone = 0,  // no collective was named; nothing runs under it
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,  // point to point: the root is the peer
  kRecv,
  kBarrier,  // runs as an all-reduce of one byte
  // With a size for each block: they run the schedules of the plain ones.
  kAllGatherV,
  kReduceScatterV,
};
inline constexpr std::size_t kCollectiveCount = 14;  // with kNone

// The part of the data that a buffer holds: all of it, the rank's own block, or none: the call has
// no such buffer.
enum class Extent : std::uint8_t { kWhole, kOwnBlock, kNone };

// The input or the output of a call.
struct BufferRule {
  Extent extent = Extent::kWhole;
  bool root_only = false;  // the other ranks have no such buffer, and may pass any pointer
};

// The value of an element of the output.
enum class Outcome : std::uint8_t {
  kNothing,      // no schedule produces it
  kReduction,    // the reduction of that element of every rank's input
  kRootsInput,   // that element of the root's input
  kOwnersInput,  // that element of the input of the rank that owns its block
  kTransposed,   // in block j on rank i: the element of block i of rank j's input
};

// Bus bandwidth divided by algorithm bandwidth, as nccl-tests defines it: the bytes that a link
// must carry at least for each byte of the data, among n ranks.
enum class BusFactor : std::uint8_t {
  kOne,
  kOthers,       // (n-1)/n
  kOthersTwice,  // 2(n-1)/n
};

// One row of the table.
struct CollectiveInfo {
  std::string_view name;  // on command lines, in reports and in messages
  bool blocks = false;    // the data consists of one block for each rank
  bool rooted = false;    // the call has a root
  BufferRule input{}, output{};
  Outcome outcome = Outcome::kNothing;
  BusFactor bus = BusFactor::kOne;

  [[nodiscard]] constexpr bool reduces() const { return outcome == Outcome::kReduction; }
  // The number of blocks of the data among `ranks` ranks.
  [[nodiscard]] constexpr std::uint32_t blocks_among(std::int32_t ranks) const {
    return blocks ? static_cast<std::uint32_t>(ranks) : 1;
  }
  // True if `rank` has this buffer.
  [[nodiscard]] static constexpr bool has(const BufferRule& rule, Rank rank, Rank root) {
    return rule.extent != Extent::kNone && (!rule.root_only || rank == root);
  }
  // The number of elements of a buffer, on a rank that has it, for a call's count.
  [[nodiscard]] constexpr std::uint64_t elements(const BufferRule& rule, std::uint64_t count,
                                                 std::int32_t ranks) const {
    if (rule.extent == Extent::kNone) return 0;
    return rule.extent == Extent::kWhole ? count * blocks_among(ranks) : count;
  }
  // The number, in the whole data, of the first element of the buffer of `rank`.
  [[nodiscard]] constexpr std::uint64_t first_element(const BufferRule& rule, std::uint64_t count,
                                                      Rank rank) const {
    return rule.extent == Extent::kOwnBlock ? count * static_cast<std::uint64_t>(rank) : 0;
  }
  [[nodiscard]] constexpr double bus_factor(std::int32_t ranks) const {
    const double n = ranks;
    switch (bus) {
      case BusFactor::kOthers:
        return (n - 1) / n;
      case BusFactor::kOthersTwice:
        return 2 * (n - 1) / n;
      case BusFactor::kOne:
        break;
    }
    return 1;
  }
};

// Indexed by Collective.
inline constexpr std::array<CollectiveInfo, kCollectiveCount> kCollectives{{
    {.name = "none"},
    {.name = "all_reduce", .outcome = Outcome::kReduction, .bus = BusFactor::kOthersTwice},
    {.name = "broadcast",
     .rooted = true,
     .input = {.root_only = true},
     .outcome = Outcome::kRootsInput},
    {.name = "reduce",
     .rooted = true,
     .output = {.root_only = true},
     .outcome = Outcome::kReduction},
    {.name = "all_gather",
     .blocks = true,
     .input = {.extent = Extent::kOwnBlock},
     .outcome = Outcome::kOwnersInput,
     .bus = BusFactor::kOthers},
    {.name = "reduce_scatter",
     .blocks = true,
     .output = {.extent = Extent::kOwnBlock},
     .outcome = Outcome::kReduction,
     .bus = BusFactor::kOthers},
    {.name = "alltoall",
     .blocks = true,
     .outcome = Outcome::kTransposed,
     .bus = BusFactor::kOthers},
    {.name = "gather",
     .blocks = true,
     .rooted = true,
     .input = {.extent = Extent::kOwnBlock},
     .output = {.root_only = true},
     .outcome = Outcome::kOwnersInput,
     .bus = BusFactor::kOthers},
    {.name = "scatter",
     .blocks = true,
     .rooted = true,
     .input = {.root_only = true},
     .output = {.extent = Extent::kOwnBlock},
     .outcome = Outcome::kRootsInput,
     .bus = BusFactor::kOthers},
    {.name = "send", .rooted = true, .output = {.extent = Extent::kNone}},
    {.name = "recv", .rooted = true, .input = {.extent = Extent::kNone}},
    {.name = "barrier", .outcome = Outcome::kReduction},
    {.name = "all_gather_v",
     .blocks = true,
     .input = {.extent = Extent::kOwnBlock},
     .outcome = Outcome::kOwnersInput,
     .bus = BusFactor::kOthers},
    {.name = "reduce_scatter_v",
     .blocks = true,
     .output = {.extent = Extent::kOwnBlock},
     .outcome = Outcome::kReduction,
     .bus = BusFactor::kOthers},
}};

[[nodiscard]] constexpr const CollectiveInfo& info_of(Collective collective) {
  return kCollectives[static_cast<std::size_t>(collective)];
}
[[nodiscard]] constexpr std::string_view name_of(Collective collective) {
  return info_of(collective).name;
}
// Does the call concern two ranks alone?
[[nodiscard]] constexpr bool is_point_to_point(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kRecv;
}
// Has each block a size of its own, that all ranks know?
[[nodiscard]] constexpr bool has_sizes(Collective collective) {
  return collective == Collective::kAllGatherV || collective == Collective::kReduceScatterV;
}
// The collective whose schedules a call runs, and whose choices hold for it. A rank's result of an
// all-reduce depends on every rank's input, so none has it before all have come.
[[nodiscard]] constexpr Collective scheduled_as(Collective collective) {
  switch (collective) {
    case Collective::kBarrier:
      return Collective::kAllReduce;
    case Collective::kAllGatherV:
      return Collective::kAllGather;
    case Collective::kReduceScatterV:
      return Collective::kReduceScatter;
    default:
      return collective;
  }
}
// The collective of that name; never kNone. nullopt for an unknown name.
[[nodiscard]] constexpr std::optional<Collective> parse_collective(std::string_view name) {
  for (std::size_t i = 1; i < kCollectiveCount; ++i)
    if (kCollectives[i].name == name) return static_cast<Collective>(i);
  return std::nullopt;
}

// "all_reduce, broadcast, ...", for messages.
[[nodiscard]] inline std::string known_collectives() {
  std::string names;
  for (std::size_t i = 1; i < kCollectiveCount; ++i)
    names.append(i == 1 ? "" : ", ").append(kCollectives[i].name);
  return names;
}

}  // namespace tutti
