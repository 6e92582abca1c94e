// SPDX-License-Identifier: Apache-2.0
// A program as data: a list of steps that every rank goes through in the same order. A step is a
// call of a communicator, a function on a stream, or one that orders them (an event, a wait).
//
// Each rank has the same buffers, which live as long as the program, so that a call that begins too
// early, ends too late or writes beside its place leaves something wrong in the end. Ranks take
// part in the steps of the communicators that they belong to and pass over the others.
//
// Because all ranks issue their steps in one order, and a step waits for earlier ones alone, no
// program can deadlock.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::programs {

enum class Kind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kBcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kAllToAllV,
  kGatherV,
  kScatterV,
  kAllGatherV,
  kReduceScatterV,
  kTransfer,  // a send at one rank and a receive at another, which may be the same
  kSplit,
  kDestroy,
  kAlgorithm,  // the n-th of kAlgorithms, n = salt
  kFill,       // new values for a whole buffer
  kAdd,        // one more in every element of a buffer
  kSnapshot,   // what a buffer holds now is compared too
  kRecord,
  kWait,              // of a stream for an event
  kSynchronizeEvent,  // of the calling thread
  kSynchronizeStream,
  kQuery,  // a stream and an event; the answer may be either
};
inline constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kQuery) + 1;
[[nodiscard]] std::string_view name_of(Kind kind);

inline constexpr const char* kAlgorithms[] = {
    "auto",         "ring",         "tree",
    "one_shot",     "two_shot",     "butterfly",
    "circulant",    "auto@flagged", "auto@slots:replicas=2",
    "rabenseifner", "pat",          "hierarchical"};

// How kSplit divides.
enum Division : int { kCopy = 0, kReversed = 1, kOddEven = 2, kWithoutLast = 3 };
inline constexpr int kDivisions = 4;

inline constexpr int kNoStream = -1;  // the calling thread

struct Step {
  Kind kind = Kind::kBarrier;
  int comm = 0;  // 0: of all ranks; others are made by kSplit
  int stream = kNoStream;
  int stagger = 0;      // rank r uses stream (stream + r * stagger) modulo the number of streams
  int group = 0;        // successive steps with the same number other than 0 are a group
  int in = 0, out = 0;  // buffers; functions and kBcast use `out`
  std::uint32_t in_first = 0, out_first = 0;  // first element
  std::uint32_t count = 0;                    // as in the call; v-forms: the most of a block
  tuttiRedOp_t op = tuttiSum;
  int root = 0;                // modulo the size of the communicator; kTransfer: the sender
  int peer = 0;                // kTransfer: the receiver, modulo too; kSplit: the Division
  std::uint32_t in_place = 0;  // bit r: rank r of the job has its input in the output's buffer
  int event = 0;
  int made = 0;            // kSplit: the number of the new communicator
  std::uint32_t salt = 0;  // kFill: of the values; v-forms: of the counts
  bool derived = false;    // put in by Order, which puts it in again where it is needed
};

struct Program {
  int ranks = 1;
  int streams = 1;
  std::vector<tuttiDataType_t> buffers{};
  std::vector<Step> steps{};
};

// ---- Which rank does what ---------------------------------------------------------------------

// Ranks of the job, in the order of their numbers in a communicator.
using Part = std::vector<int>;
// What all ranks call communicator k: one or more communicators without a common rank. Empty: none
// yet, or destroyed.
using Parts = std::vector<Part>;

[[nodiscard]] Parts divide(const Parts& parent, Division division);
// The part that `rank` belongs to; null: none.
[[nodiscard]] const Part* part_of(const Parts& parts, int rank);
[[nodiscard]] int place_in(const Part& part, int rank);

[[nodiscard]] constexpr bool is_call(Kind kind) { return kind <= Kind::kTransfer; }
[[nodiscard]] constexpr bool is_function(Kind kind) {
  return kind == Kind::kFill || kind == Kind::kAdd || kind == Kind::kSnapshot;
}
[[nodiscard]] bool is_v_form(Kind kind);
[[nodiscard]] bool reduces(Kind kind);
[[nodiscard]] bool is_rooted(Kind kind);
[[nodiscard]] bool uses_comm(Kind kind);

// kNoStream stays.
[[nodiscard]] int stream_of(const Program& program, const Step& step, int rank);
// The first step behind the group that begins at `first`, or behind that step alone.
[[nodiscard]] std::size_t end_of_unit(const std::vector<Step>& steps, std::size_t first);

// ---- Which elements ----------------------------------------------------------------------------

struct Span {
  int buffer = 0;
  std::size_t first = 0, count = 0;
};
// What a step reads and writes at a rank; of a v-form all blocks and what lies between them.
struct Places {
  bool reads = false, writes = false;
  Span input{}, output{};
};
// `part`: that of the rank; null for steps without a communicator.
[[nodiscard]] Places places_of(const Program& program, const Step& step, const Part* part,
                               int rank);

// Of a v-form: how many elements go from place `from` to place `to` (of an all-gather-v and a
// reduce-scatter-v the size of the block of place `from`, for all `to`), and where the block of a
// place begins, in elements from the beginning of a buffer.
[[nodiscard]] std::size_t v_count(const Step& step, int from, int to);
[[nodiscard]] std::size_t v_displacement(const Step& step, int place, int places);

// Elements of each buffer: what the steps use, and some behind.
[[nodiscard]] std::vector<std::size_t> buffer_counts(const Program& program);

}  // namespace tutti::programs
