// SPDX-License-Identifier: Apache-2.0
// The pool of gathered units (kZero3): which are there, which are on their way, and what comes
// next.
//
// The order of gathers is learnt in one step and replayed in the next: after each use the gathers
// of the next `prefetch` units are under way. A use that is not the expected one lets go of what
// was gathered ahead, gathers on demand, and the step from there on is learnt anew. All of it
// follows from the order of calls alone, which is equal on all ranks, so the gathers are too.
//
// The engine's thread uses it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "zero/block.hpp"
#include "zero/gatherer.hpp"
#include "zero/state.hpp"

namespace tutti::zero {

class Residency {
 public:
  // All of these outlive it.
  Residency(const Plan& plan, const Layout& layout, std::span<const Unit> units, State& state,
            Links& links);

  // The scope of a use begins: returns when the unit is there. Throws std::invalid_argument if too
  // many units are in use.
  void open(int unit, Pass pass);
  // It ends. Throws if a gather cannot be issued.
  void close(int unit);
  [[nodiscard]] const std::byte* data(int unit) const;
  // A unit in use, or -1.
  [[nodiscard]] int any_in_use() const;

  // Ends what was gathered ahead and not used, and frees what was kept: the parameters change.
  void drop();
  // Between steps: what was learnt is replayed from its beginning.
  void begin_step();

  [[nodiscard]] std::uint64_t memory_bytes() const { return pool_.bytes(); }

 private:
  struct Entry {
    int unit;
    Pass pass;
  };
  enum class Phase : std::uint8_t { kFree, kAhead, kOpen, kKept };
  struct Slot {
    std::byte* data = nullptr;
    int unit = -1;
    Phase phase = Phase::kFree;
    int scopes = 0;
    bool backward = false;  // did a backward pass use it?
    Event gathered;
  };
  static constexpr int kNone = -1;

  [[nodiscard]] Slot& slot(int number) { return slots_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] int free_slot(int unit) const;
  int issue(const Entry& entry, int number);
  int take(const Entry& entry);
  void stop_replaying();
  void gather_ahead();
  void release(Slot& slot);
  void check_room(int unit) const;

  const Plan& plan_;
  const Layout& layout_;
  std::span<const Unit> units_;
  State& state_;
  Links& links_;
  std::unique_ptr<Gatherer> gatherer_;
  Block pool_;
  std::vector<Slot> slots_;
  std::vector<int> slot_of_;  // of a unit that is open or kept, else kNone

  std::vector<Entry> learnt_, recorded_;  // the gathers of the last step and of this one
  bool replays_ = false;
  std::size_t next_ = 0;   // of learnt_: the gather that is expected
  std::deque<int> ahead_;  // slots of learnt_[next_], learnt_[next_ + 1], ...
  std::uint64_t live_bytes_ = 0;
};

}  // namespace tutti::zero
