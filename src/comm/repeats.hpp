// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat. A call of the same kind, count and type as one before takes the same
// plan, has the same signature and moves the same bytes: all of that is kept, so that such a call
// is its checks, its number on the status page, and its exchange. Whatever is not as it was takes
// the ordinary way, as does a call that must wait for long, from where it is.
//
// The thread that uses the communicator.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "base/call.hpp"
#include "base/result.hpp"
#include "comm/plan_cache.hpp"
#include "exec/straight_line.hpp"

namespace tutti {

class Communicator;

// A call with host memory in the caller's thread, as the C API takes it.
struct SmallCall {
  std::uint64_t kind = 0;  // kind_of()
  std::uint64_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;

  // All but the count and the buffers, in one word; never 0.
  [[nodiscard]] static constexpr std::uint64_t kind_of(Collective collective, DataType type,
                                                       ReduceOp op, Rank root) {
    return static_cast<std::uint64_t>(collective) << 56 | static_cast<std::uint64_t>(type) << 48 |
           static_cast<std::uint64_t>(op) << 40 | static_cast<std::uint32_t>(root);
  }
};

class Repeats {
 public:
  explicit Repeats(Communicator& communicator) : communicator_(communicator) {}

  enum class Ran : std::uint8_t {
    kNot,   // it repeats none, has no number, and takes the ordinary way
    kWell,  // it has ended well
    // It had to wait for long, or the transport failed: ended() says how it ended, as
    // run_operations() does.
    kSlowly,
  };
  // The caller holds the communicator's call slot. Runs the call if it repeats another.
  [[nodiscard]] Ran run(const SmallCall& call);
  [[nodiscard]] Status ended() { return std::exchange(ended_, {}); }
  // Keeps what the next call like this one needs, if it is simple enough. After it has ended well.
  void keep(const Call& call);
  // Calls of this size at most are worth it.
  static constexpr std::uint64_t kMostBytes = kMostStraightBytes;

 private:
  struct Kept {
    std::uint64_t kind = 0, count = 0;
    std::uint64_t generation = 0;  // PlanCache::generation(); 0: it has not repeated yet
    BoundPlan* plan = nullptr;     // null: such calls are not simple, or have not repeated
    // The buffers of the last call, which have been checked, and Call::input_base of them.
    const void* input = nullptr;
    void* output = nullptr;
    std::uint64_t input_base = 0, output_base = 0;
    std::uint64_t hash = 0;                      // of the signature, without number
    std::atomic<std::uint64_t>* done = nullptr;  // Transport::done_word(), if nothing is pumped
    bool silent = false;                         // this rank sends no message
    Board::Record record;
    StraightLine line;
    Call call;                                        // without buffers
    OperationSignature signature;                     // without number
    std::uint64_t input_bytes = 0, output_bytes = 0;  // on this rank; 0: it has no such buffer
    std::uint64_t input_shift = 0, output_shift = 0;  // from a buffer to its base
    std::uint64_t unaligned = 0;                      // bits that addresses must not have
  };
  struct Entry : StraightCall {
    Repeats& repeats;
    const Kept& kept;
  };
  static void enter(const StraightCall& call);
  static bool pump(const StraightCall& call, bool over);
  static bool flushed(const StraightCall& call);
  void look_up(const Call& call);
  [[nodiscard]] Kept& place_of(std::uint64_t kind, std::uint64_t count) {
    return kept_[(kind ^ count << 20) * 0x9e3779b97f4a7c15u >> 60];
  }
  // The kept call with the buffers of this one.
  [[nodiscard]] static Call whole(const Kept& kept, const SmallCall& call);
  [[nodiscard]] bool take(Kept& kept, const SmallCall& call) const;
  [[nodiscard]] inline bool can_run(const Kept& kept) const;
  [[nodiscard]] bool passes(const Kept& kept, std::uint64_t fence) const;
  [[nodiscard]] Ran run(Kept& kept, const SmallCall& call);
  [[nodiscard]] Status go_on(const Kept& kept, const SmallCall& call, std::uint64_t operation);

  Communicator& communicator_;
  std::array<Kept, 16> kept_;  // direct-mapped, by kind and count
  Status pump_error_;          // of the call at hand
  Status ended_;
};

}  // namespace tutti
