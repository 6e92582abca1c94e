// SPDX-License-Identifier: Apache-2.0
// The cells of the table of failures by collective: which fault meets rank 1 in which collective,
// called on a stream or not, and what the other ranks must see.
#pragma once

#include <cstddef>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "collective_call.hpp"
#include "failure_harness.hpp"
#include "tests/sanitizers.hpp"

namespace tutti::test {

inline constexpr int kVictim = 1;
// Runs of a cell, until its fault hits inside a call, which the last of them does for certain.
inline constexpr int kMostRuns = 2;
inline constexpr std::size_t kFew = 1000;
// More than a receive buffer holds, so that no rank is done before the others have called.
inline constexpr std::size_t kMany = 1 << 18;
// Cells that wait for a timeout take little of the cores: a third of a fault's, or all of those
// that sanitizers take.
inline constexpr std::size_t kWaitingCellsAtOnce = kSanitized ? 7 : 14;

enum class Fault {
  kKillBefore,
  kKillDuring,
  kKillAfter,
  kStopBefore,
  kStopDuring,
  kStopAfter,
  kCount,
  kType,
  kOp,
  kRoot,
  kOther,           // another collective
  kLeave,           // an exception of the program, which destroys the communicator on its way
  kAbort,           // while the call is in flight
  kDestroy,         // while the call is in flight
  kKillAndDestroy,  // killed before the call, in flight at the others when they destroy
};

struct FaultInfo {
  const char* name;  // as tests are named
  tuttiResult_t code;
  const char* text;  // of the errors
};
// Indexed by Fault.
inline constexpr FaultInfo kFaults[] = {
    {"kill_before", tuttiRemoteError, " died"},
    {"kill_during", tuttiRemoteError, " died"},
    {"kill_after", tuttiRemoteError, " died"},
    {"stop_before", tuttiTimeout, "is stopped"},
    {"stop_during", tuttiTimeout, "is stopped"},
    {"stop_after", tuttiTimeout, "is stopped"},
    {"wrong_count", tuttiInvalidUsage, "calls do not match"},
    {"wrong_type", tuttiInvalidUsage, "calls do not match"},
    {"wrong_op", tuttiInvalidUsage, "calls do not match"},
    {"wrong_root", tuttiInvalidUsage, "calls do not match"},
    {"other_collective", tuttiInvalidUsage, "calls do not match"},
    {"leave", tuttiRemoteError, "left the communicator without calling"},
    {"abort_in_flight", tuttiRemoteError, "aborted the communicator"},
    {"destroy_in_flight", tuttiRemoteError, "left the communicator without calling"},
    {"kill_and_destroy", tuttiRemoteError, " died"},
};
inline constexpr int kFaultCount = static_cast<int>(std::size(kFaults));
inline void PrintTo(Fault fault, std::ostream* out) {
  *out << kFaults[static_cast<std::size_t>(fault)].name;
}

// What a survivor must see of a call.
enum class Expected { kError, kSuccess, kEither };

struct Cell {
  Fault fault;
  Form form;
  int root = 0;
  bool on_stream = false;
  bool warm = false;  // the ranks have made such a call before

  [[nodiscard]] const FaultInfo& info() const { return kFaults[static_cast<std::size_t>(fault)]; }
  [[nodiscard]] std::string name() const {
    return std::string(info_of(form).name) +
           (!info_of(form).rooted() ? ""
            : root == kVictim       ? " root 1"
                                    : " root 0 or 2") +
           (on_stream ? " on a stream" : "");
  }

  [[nodiscard]] bool dies() const {
    return fault <= Fault::kKillAfter || fault == Fault::kKillAndDestroy;
  }
  [[nodiscard]] bool stops() const {
    return fault >= Fault::kStopBefore && fault <= Fault::kStopAfter;
  }
  // Does the fault hit inside the call?
  [[nodiscard]] bool inside() const {
    return fault == Fault::kKillDuring || fault == Fault::kStopDuring || fault == Fault::kAbort ||
           fault == Fault::kDestroy;
  }
  [[nodiscard]] bool after() const {
    return fault == Fault::kKillAfter || fault == Fault::kStopAfter;
  }
  [[nodiscard]] bool mismatches() const { return fault >= Fault::kCount && fault <= Fault::kOther; }
  // A destroy is refused while another thread is in a call, and all goes on.
  [[nodiscard]] bool harmless() const { return fault == Fault::kDestroy && !on_stream; }
  // May it take a timeout to find the fault?
  [[nodiscard]] bool by_timeout() const { return stops(); }
  [[nodiscard]] std::size_t count() const { return inside() ? kMany : kFew; }

  // Can `rank` not end its call before `peer` has done its part?
  [[nodiscard]] bool needs(int rank, int peer) const {
    switch (info_of(form).flow) {
      case Flow::kFromAll:
        return true;
      case Flow::kToRoot:
        return rank == root;
      case Flow::kFromRoot:
        return peer == root;
      case Flow::kFromPrevious:
        return peer == (rank + kRanks - 1) % kRanks;
    }
    return true;
  }
  // Of the call that the fault meets.
  [[nodiscard]] Expected expected(int rank) const {
    if (fault == Fault::kDestroy) return Expected::kSuccess;
    if (fault == Fault::kAbort || inside()) return Expected::kEither;
    if (mismatches())
      return info_of(form).flow == Flow::kFromAll ? Expected::kError : Expected::kEither;
    return needs(rank, kVictim) ? Expected::kError : Expected::kEither;
  }
  // Of a call that the victim ends before its fault: once it has all parts, all ranks have begun.
  [[nodiscard]] Expected expected_before() const {
    for (int rank = 0; rank < kRanks; ++rank)
      if (!needs(kVictim, rank)) return Expected::kEither;
    return Expected::kSuccess;
  }

  [[nodiscard]] Arguments arguments() const {
    return {.form = form, .count = count(), .root = root};
  }
  // What the victim passes where the calls do not match.
  [[nodiscard]] Arguments wrong_arguments() const {
    Arguments wrong = arguments();
    if (fault == Fault::kCount) ++wrong.count;
    if (fault == Fault::kType) wrong.type = tuttiFloat;
    if (fault == Fault::kOp) wrong.op = tuttiMax;
    if (fault == Fault::kRoot) wrong.root = root == kVictim ? 2 : kVictim;
    if (fault == Fault::kOther)
      wrong.form = form == Form::kBarrier ? Form::kAllGather : Form::kBarrier;
    return wrong;
  }
};

// Does the collective know this fault?
inline bool has_fault(Form form, Fault fault) {
  const FormInfo& info = info_of(form);
  switch (fault) {
    case Fault::kCount:
    case Fault::kType:
      return form != Form::kBarrier;
    case Fault::kOp:
      return info.reduces;
    case Fault::kRoot:  // of sends and receives there is none
      return info.rooted() && !info.transfers;
    case Fault::kOther:  // sends and receives are in no order with collectives
      return !info.transfers;
    default:
      return true;
  }
}

// All cells of a fault. Where there is a root, it is the victim, and another rank, which `seed`
// draws, as it does whether the connections are new.
inline std::vector<Cell> cells_of(Fault fault, unsigned seed) {
  std::vector<Cell> cells;
  for (int form = 0; form < kFormCount; ++form)
    for (const int root : {kVictim, seed % 2 == 0 ? 0 : 2})
      for (const bool on_stream : {false, true}) {
        const Cell cell{fault, static_cast<Form>(form), root, on_stream,
                        (seed + cells.size()) % 3 != 0};
        if (!has_fault(cell.form, fault)) continue;
        if (root == kVictim && !info_of(cell.form).rooted()) continue;
        if (fault == Fault::kKillAndDestroy && !on_stream) continue;
        cells.push_back(cell);
      }
  return cells;
}

}  // namespace tutti::test
