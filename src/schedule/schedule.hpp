// SPDX-License-Identifier: Apache-2.0
// The schedule: one collective among `ranks` ranks as plain data.
//
// It contains no sizes, addresses, data types or transports. A generator (algorithms/) emits it one
// rank at a time, passes rewrite it, the verifier proves it, and the printers, the price and the
// executors read it. All of them share these semantics:
//
// * Data is divided into `chunks` chunks. A Span names chunks. All operands of a step name the same
//   number of chunks, and the i-th chunk of one belongs to the i-th of the others. Input, output
//   and message spans name *logical* chunks, whose element counts come from the partition
//   (cut.hpp). A scratch chunk is a scratch slot as large as the largest chunk; its element count
//   is that of the step's other operands. A value is as long as the chunk that it carries: every
//   operand that names a chunk must name the chunk of the value that passes through it. Only in an
//   all-to-all, whose blocks are of one size, each end of a message names the block by a number of
//   its own: the sender for instance by whom it is for, the receiver by whom it is from.
// * If the data of a collective consists of blocks, `ranks` divides `chunks`, and chunk c belongs
//   to the block at place c / (chunks / ranks). Chunks are numbered over the whole data everywhere,
//   also in a buffer that holds one block of it.
// * A step is `destinations <- reduce(sources)`. It fires when every receive has a message, every
//   send has a free slot and every wait holds. It then reads each source once, reduces the sources
//   in the order listed, and writes the same value to each destination.
// * A lane runs its steps in order, for slice 0, then for slice 1, and so on: the slice loop is
//   outermost. Slice s of a chunk is its s-th part, and one message carries one slice of one step.
//   The lanes of a rank run concurrently; only waits and messages order them.
// * (peer, tag) in one direction is an ordered, bounded connection. It belongs to one lane at each
//   end. An empty span still sends a message, which carries order.
// * Reads of `input` see the user's data, after the pre-operation. `finish` marks the step that
//   completes a value: the post-operation (the division of avg) happens there, once per value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "base/device.hpp"
#include "base/types.hpp"

namespace tutti {

// The chunks {first + i*stride + j mod chunks : i < repetitions, j < run}, i outermost.
struct Span {
  std::uint32_t first = 0;
  std::uint32_t run = 1;
  std::uint32_t stride = 0;
  std::uint32_t repetitions = 1;

  [[nodiscard]] TUTTI_HD std::uint32_t count() const { return run * repetitions; }
  // The k-th chunk of the span, 0 <= k < count().
  [[nodiscard]] TUTTI_HD std::uint32_t at(std::uint32_t k, std::uint32_t chunks) const {
    const std::uint64_t i = k / run, j = k % run;
    return static_cast<std::uint32_t>((first + i * stride + j) % chunks);
  }
  bool operator==(const Span&) const = default;
};

enum class BufferKind : std::uint8_t { kInput, kOutput, kScratch };

enum class OperandKind : std::uint8_t {
  kLocal,   // this rank's `buffer`
  kSend,    // the next message to `peer` on `tag`; only as a destination
  kRecv,    // the next message from `peer` on `tag`; only as a source
  kRemote,  // a load or store in `peer`'s `buffer`; legal only if messages order it
};

struct Operand {
  OperandKind kind = OperandKind::kLocal;
  BufferKind buffer = BufferKind::kInput;  // used by kLocal, kRemote
  Rank peer = kNoRank;                     // used by kSend, kRecv, kRemote
  Tag tag = 0;                             // used by kSend, kRecv
  Span span;
  bool operator==(const Operand&) const = default;
};

// A dependency on step `step` of lane `lane` of the same rank and replica. It holds once that step
// has completed the slice that is `back` slices of this replica before the waiting step's slice. It
// holds from the start if there is no such slice.
struct Wait {
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
  std::uint32_t back = 0;
  bool operator==(const Wait&) const = default;
};

struct Step {
  std::vector<Operand> destinations;
  std::vector<Operand> sources;
  std::vector<Wait> waits;
  bool finish = false;  // applies the post-operation to the reduced value
  bool operator==(const Step&) const = default;
};

struct Lane {
  std::string name;           // "up", "ring", ...; printed, never interpreted
  std::uint32_t replica = 0;  // the lane runs the slices congruent to this mod shape.replicas
  std::vector<Step> steps;
  bool operator==(const Lane&) const = default;
};

struct RankProgram {
  std::vector<Lane> lanes;
  bool operator==(const RankProgram&) const = default;
};

// The part of a schedule that all ranks know. With it every rank lays out memory alike, without any
// other rank's program.
struct ScheduleShape {
  std::string algorithm;
  Collective collective = Collective::kNone;
  std::int32_t ranks = 1;
  Rank root = 0;
  std::uint32_t chunks = 1;
  std::uint32_t scratch_chunks = 0;    // scratch slots per rank, replica and version
  std::uint32_t scratch_versions = 1;  // a replica's n-th slice uses version n mod this
  std::uint32_t replicas = 1;
  std::uint32_t tags = 1;          // per replica; replica j uses [j*tags, (j+1)*tags)
  std::uint32_t max_incoming = 0;  // most connections (peer, tag) into one rank, over all replicas
  // Most connections from one rank to another, over all replicas.
  std::uint32_t max_per_pair = 1;
  // Most chunks in one message.
  std::uint32_t max_message_chunks = 1;
  // Input and output are two memories on every rank: whoever calls in place gives the schedule an
  // output of its own and copies that at the end, so no rank may use another's output. Else each
  // rank may call in place as it likes.
  bool apart = false;
  // The rank whose block is at each place, indexed [replica * ranks + place]; empty: rank k's block
  // is at place k. Only for collectives whose data consists of blocks (block_map.hpp).
  std::vector<Rank> block_ranks = {};
  bool operator==(const ScheduleShape&) const = default;
};

struct Schedule {
  ScheduleShape shape;
  std::vector<RankProgram> ranks;  // shape.ranks of them
  bool operator==(const Schedule&) const = default;
};

// A request to a generator. The collective has no default: a Problem without one does not compile
// with -Werror, and no generator supports kNone.
struct Problem {
  Collective collective;
  std::int32_t ranks = 1;
  Rank root = 0;
};

}  // namespace tutti
