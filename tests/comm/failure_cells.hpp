// SPDX-License-Identifier: Apache-2.0
// The cells of the failure table: which fault meets which rank when, and what the others must see.
#pragma once

#include <cstddef>
#include <iterator>
#include <ostream>
#include <tutti/tutti.hpp>

#include "failure_harness.hpp"

namespace tutti::test {

// Runs of a cell, until its fault hits inside a call, which the last of them does for certain.
inline constexpr int kMostRuns = 4;

enum class Fault {
  kKill,
  kStop,
  kExit,
  kThrow,
  kDescriptors,
  kSpace,
  kMemory,
  kCount,
  kType,
  kOp,
  kMissing,
  kDoubled
};
enum class Phase {
  kBeforeInit,
  kInInit,
  kConnect,
  kInConnect,
  kReduce,
  kInReduce,
  kSplit,
  kInSplit,
  kShrink,
  kInShrink,
  kFinalize,
  kInFinalize,  // until it is destroyed
  kAfterFinalize,
  kAbort,
  kInAbort,
  kNone,
};
inline constexpr const char* kPhaseNames[] = {
    "before init",   "in init",      "before connect", "in connect",    "before reduce",
    "in reduce",     "before split", "in split",       "before shrink", "in shrink",
    "bef. finalize", "in finalize",  "aft. finalize",  "before abort",  "in abort"};
static_assert(std::size(kPhaseNames) == static_cast<std::size_t>(Phase::kNone));

// Where the ranks' shared memory lies: in memfds; in unnamed files, as where memfd_create is
// refused; the board in a flight recorder's file.
enum class Backing { kMemfd, kFile, kFlight };

struct Row {
  const char* name;  // as tests are named
  Fault fault;
  int victim = 1;
  Backing backing = Backing::kMemfd;
  unsigned left = 0;  // descriptors that the victim may still open, about
};
inline void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }
inline constexpr Row kRows[] = {
    {"kill", Fault::kKill},
    {"kill_rank_0", Fault::kKill, 0},
    {"kill_no_memfd", Fault::kKill, 1, Backing::kFile},
    {"kill_flight_file", Fault::kKill, 1, Backing::kFlight},
    {"stop", Fault::kStop},
    {"stop_rank_0", Fault::kStop, 0},
    {"exit", Fault::kExit},
    {"exit_rank_0", Fault::kExit, 0},
    {"exception", Fault::kThrow},
    {"exception_rank_0", Fault::kThrow, 0},
    {"exception_flight_file", Fault::kThrow, 1, Backing::kFlight},
#if !defined(__SANITIZE_ADDRESS__)
    // The check of virtual tables needs a descriptor itself.
    {"no_descriptor", Fault::kDescriptors},
    {"no_descriptor_rank_0", Fault::kDescriptors, 0},
    {"no_descriptor_no_memfd", Fault::kDescriptors, 1, Backing::kFile},
    {"one_descriptor", Fault::kDescriptors, 1, Backing::kMemfd, 1},
    {"two_descriptors", Fault::kDescriptors, 1, Backing::kMemfd, 2},
    {"three_descriptors", Fault::kDescriptors, 2, Backing::kMemfd, 3},
    {"five_descriptors", Fault::kDescriptors, 1, Backing::kMemfd, 5},
    {"five_descriptors_rank_0", Fault::kDescriptors, 0, Backing::kMemfd, 5},
    {"eight_descriptors", Fault::kDescriptors, 1, Backing::kMemfd, 8},
#endif
    // The first rank alone makes files.
    {"no_space", Fault::kSpace, 0},
    {"no_space_no_memfd", Fault::kSpace, 0, Backing::kFile},
    {"no_space_flight_file", Fault::kSpace, 0, Backing::kFlight},
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    // A sanitizer's own allocator ends the process.
    {"no_memory", Fault::kMemory},
    {"no_memory_rank_0", Fault::kMemory, 0},
#endif
    {"wrong_count", Fault::kCount},
    {"wrong_type", Fault::kType},
    {"wrong_op", Fault::kOp},
    {"missing", Fault::kMissing},
    {"doubled", Fault::kDoubled},
};

struct Cell {
  Row row;
  Phase phase;
  [[nodiscard]] Fault fault() const { return row.fault; }
  [[nodiscard]] bool dies() const { return fault() == Fault::kKill || fault() == Fault::kExit; }
  [[nodiscard]] bool regroups() const {
    return phase >= Phase::kSplit && phase <= Phase::kInShrink;
  }
  [[nodiscard]] bool inside() const {
    using enum Phase;
    return phase == kInInit || phase == kInConnect || phase == kInReduce || phase == kInSplit ||
           phase == kInShrink || phase == kInFinalize || phase == kInAbort;
  }
  // Does the victim lack something that the machine refuses?
  [[nodiscard]] bool lacks() const {
    return fault() == Fault::kDescriptors || fault() == Fault::kSpace || fault() == Fault::kMemory;
  }
  // Does the victim live on, so that it too has to return and to leave nothing behind?
  [[nodiscard]] bool lives() const { return !dies() && fault() != Fault::kStop; }
  // May it take a timeout to find the fault?
  [[nodiscard]] bool by_timeout() const {
    const bool joining = phase <= Phase::kInInit;
    switch (fault()) {
      case Fault::kStop:
      case Fault::kMissing:
        return true;
      case Fault::kKill:
      case Fault::kExit:
        return joining || phase == Phase::kInShrink;
      case Fault::kThrow:
      case Fault::kDescriptors:
      case Fault::kMemory:
        return joining;
      default:
        return false;
    }
  }
  // In a join too: a fault at a random moment may come when that is over, and meet an operation.
  [[nodiscard]] int op_timeout_ms() const {
    return by_timeout() && phase >= Phase::kInInit ? kTimeoutMs : kPatientMs;
  }
  [[nodiscard]] int init_timeout_ms() const {
    return by_timeout() && (phase <= Phase::kInInit || regroups()) ? kTimeoutMs : kPatientMs;
  }
  [[nodiscard]] int bound_ms() const { return test::bound_ms(by_timeout()); }
  [[nodiscard]] bool ends() const {
    return phase >= Phase::kFinalize && phase <= Phase::kAfterFinalize;
  }
  [[nodiscard]] bool need_not_tell() const {
    return ends() || (dies() && phase == Phase::kInShrink);
  }
};

// What the others must see.
enum class Expected { kNone, kError, kSuccess, kEither };

// `hit`: the fault met the victim inside the phase's call.
inline Expected expected(const Cell& cell, bool hit) {
  const Phase phase = cell.phase;
  const bool aborts = phase == Phase::kAbort || phase == Phase::kInAbort;
  // There ranks meet, and what they share is not there yet.
  if (cell.row.backing != Backing::kMemfd && phase <= Phase::kInInit &&
      cell.fault() != Fault::kSpace)
    return Expected::kNone;
  const bool told = cell.inside() || aborts;  // faults that a program makes are met between calls
  switch (cell.fault()) {
    case Fault::kKill:
    case Fault::kStop:
    case Fault::kExit:
      if (aborts) return Expected::kError;
      if (phase == Phase::kAfterFinalize) return Expected::kSuccess;
      if (cell.ends() || phase == Phase::kInReduce || phase == Phase::kInShrink)
        return Expected::kEither;
      if (phase == Phase::kShrink)  // without the dead
        return cell.fault() == Fault::kStop ? Expected::kError : Expected::kSuccess;
      return !cell.inside() || hit ? Expected::kError : Expected::kEither;
    case Fault::kThrow:
      if (told) return Expected::kNone;
      return cell.ends() || phase == Phase::kShrink ? Expected::kSuccess : Expected::kError;
    case Fault::kDescriptors:
    case Fault::kSpace:
    case Fault::kMemory:
      if (cell.inside() || phase == Phase::kAfterFinalize) return Expected::kNone;
      // Of a rank out of memory there nobody hears before the timeout.
      if (cell.fault() == Fault::kMemory &&
          (phase == Phase::kBeforeInit || phase == Phase::kShrink))
        return Expected::kNone;
      if (phase == Phase::kFinalize) return Expected::kSuccess;
      // Once joined, a rank may have what its operations need.
      if (phase != Phase::kConnect && phase != Phase::kReduce) return Expected::kError;
      return cell.fault() == Fault::kSpace ? Expected::kSuccess : Expected::kEither;
    case Fault::kCount:
    case Fault::kType:
    case Fault::kOp:
      return phase == Phase::kConnect || phase == Phase::kReduce ? Expected::kError
                                                                 : Expected::kNone;
    case Fault::kMissing:
      if (told) return Expected::kNone;
      return cell.ends() ? Expected::kSuccess : Expected::kError;
    case Fault::kDoubled:
      return phase == Phase::kBeforeInit ? Expected::kError : Expected::kNone;
  }
  return Expected::kNone;
}

// Is that the code for what happened? A death is none that a timeout found.
inline bool fits(const Cell& cell, tuttiResult_t code) {
  const bool joining = cell.phase <= Phase::kInInit;
  switch (cell.fault()) {
    case Fault::kKill:
    case Fault::kExit:         // in a shrink: before all had heard its decision
    case Fault::kDescriptors:  // without one a rank cannot even tell the others that it has none
    case Fault::kMemory:
      return code == tuttiRemoteError || (cell.by_timeout() && code == tuttiTimeout);
    case Fault::kStop:
      return code == tuttiTimeout ||
             ((joining || cell.phase == Phase::kInAbort || cell.phase == Phase::kInSplit ||
               cell.phase == Phase::kInShrink) &&
              code == tuttiRemoteError);
    case Fault::kThrow:
      return code == (joining ? tuttiTimeout : tuttiRemoteError);
    case Fault::kSpace:
      return code == tuttiRemoteError;
    case Fault::kMissing:
      return code == tuttiTimeout;
    default:
      return code == tuttiInvalidUsage;
  }
}

}  // namespace tutti::test
