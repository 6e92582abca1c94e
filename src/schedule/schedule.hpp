// The schedule: one collective for `ranks` ranks as plain data.
//
// Free of sizes, addresses, data types and transports. A generator (algorithms/) emits it one rank
// at a time; passes rewrite it; the verifier proves it; the printer, the price and the executors
// read it. Semantics, which all of those share:
//
// * Data is cut into `chunks` chunks. A Span names chunks; all operands of one step name the same
//   number of chunks, i-th with i-th. Input, output and message spans name *logical* chunks (their
//   element counts come from the cut); a scratch chunk is a room of the largest chunk's size and
//   takes the element count of the step's other operands.
// * A step is `destinations <- reduce(sources)`: it fires when every receive has a message, every
//   send has a free slot and every wait holds; then it reads each source once, reduces them in the
//   order listed, and writes the same value to each destination.
// * A lane runs its steps in order, for slice 0, then slice 1, ...: the slice loop is outermost.
//   Slice s of a chunk is its s-th part; one message carries one slice of one step. Lanes of a rank
//   run concurrently; order between them comes only from waits and from messages.
// * (peer, tag) in one direction is an ordered, bounded connection. It belongs to one lane at each
//   end. An empty span still sends a message: it carries order.
// * Reads of `input` see the user's data (with the pre-operation applied). `finish` marks the step
//   that completes a value: the post-operation (avg) is applied there, once per value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  kSend,    // destination only: the next message to `peer` on `tag`
  kRecv,    // source only: the next message from `peer` on `tag`
  kRemote,  // load or store in `peer`'s `buffer`; legal only where messages order it
};

struct Operand {
  OperandKind kind = OperandKind::kLocal;
  BufferKind buffer = BufferKind::kInput;  // kLocal, kRemote
  Rank peer = kNoRank;                     // kSend, kRecv, kRemote
  Tag tag = 0;                             // kSend, kRecv
  Span span;
  bool operator==(const Operand&) const = default;
};

// Holds once step `step` of lane `lane` (same rank, same replica) has completed in the slice that
// lies `back` slices (of this replica) before the waiting one. Slices before the first hold.
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
  bool finish = false;  // apply the post-operation to the reduced value
  bool operator==(const Step&) const = default;
};

struct Lane {
  std::string name;           // "up", "ring", ...: for people
  std::uint32_t replica = 0;  // runs the slices congruent to replica mod shape.replicas
  std::vector<Step> steps;
  bool operator==(const Lane&) const = default;
};

struct RankProgram {
  std::vector<Lane> lanes;
  bool operator==(const RankProgram&) const = default;
};

// What all ranks know alike of a schedule.
struct ScheduleShape {
  std::string algorithm;
  Collective collective = Collective::kAllReduce;
  std::int32_t ranks = 1;
  Rank root = 0;
  std::uint32_t chunks = 1;
  std::uint32_t scratch_chunks = 0;    // rooms per rank, per replica and version
  std::uint32_t scratch_versions = 1;  // a replica's n-th slice uses version n mod it
  std::uint32_t replicas = 1;
  std::uint32_t tags = 1;          // per replica; replica j uses [j*tags, (j+1)*tags)
  std::uint32_t max_incoming = 0;  // most connections (peer, tag) into any one rank, all replicas
  // Most connections from one rank to one other, all replicas.
  std::uint32_t max_per_pair = 1;
  // Most chunks in one message. With the counts above it lays out memory alike on all ranks.
  std::uint32_t max_message_chunks = 1;
  bool operator==(const ScheduleShape&) const = default;
};

struct Schedule {
  ScheduleShape shape;
  std::vector<RankProgram> ranks;  // shape.ranks of them
  bool operator==(const Schedule&) const = default;
};

// What a generator is asked for.
struct Problem {
  Collective collective = Collective::kAllReduce;
  std::int32_t ranks = 1;
  Rank root = 0;
};

}  // namespace tutti
