// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat. A call of the same kind, count and type as one before takes the same
// plan, has the same signature and moves the same bytes: all of that is kept, so that such a call
// is its checks, its number on the status page, and its exchange. Whatever is not as it was takes
// the ordinary way, as does a call that must wait for long, from where it is.
//
// The thread that uses the communicator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/call.hpp"
#include "base/result.hpp"
#include "comm/plan_cache.hpp"
#include "exec/straight_line.hpp"

namespace tutti {

class Communicator;

// A call with host memory in the caller's thread, as the C API takes it.
struct SmallCall {
  Collective collective = Collective::kNone;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
  std::uint64_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
};

class Repeats {
 public:
  explicit Repeats(Communicator& communicator) : communicator_(communicator) {}

  // The caller holds the communicator's call slot. Runs the call if it repeats another; if it had
  // to wait for long, `ended` says how it ended, as run_operations() does, else it ended well.
  // False: it repeats none, has no number, and takes the ordinary way.
  [[nodiscard]] bool run(const SmallCall& call, std::optional<Status>& ended);
  // Keeps what the next call like this one needs, if it is simple enough. After it has ended well.
  void keep(const Call& call);
  // Calls of this size at most are worth it.
  static constexpr std::uint64_t kMostBytes = kMostStraightBytes;

 private:
  struct Kept {
    std::uint64_t tag = 0;  // of kind and count; 0: such calls have not repeated, or are not simple
    std::uint64_t kind = 0, count = 0;  // collective, type, operation and root in one word
    std::uint64_t generation = 0;       // PlanCache::generation(); 0: empty
    Call call;                          // without buffers, which have been checked
    BoundPlan* plan = nullptr;
    StraightLine line;
    OperationSignature signature;  // without number
    std::uint64_t hash = 0;        // of it, without number
    Board::Record record;
    ReduceCopyFn kernel = nullptr;
    std::uint32_t average_over = 0;
    std::uint64_t input_bytes = 0, output_bytes = 0;  // on this rank; 0: it has no such buffer
    std::uint64_t input_shift = 0, output_shift = 0;  // from a buffer to Call::input_base
    std::uint64_t unaligned = 0;                      // bits that addresses must not have
  };
  struct Entry : StraightCall {
    Repeats& repeats;
    const Kept& kept;
  };
  static void enter(const StraightCall& call);
  void look_up(const Call& call);
  [[nodiscard]] Kept& place_of(std::uint64_t tag) { return kept_[tag >> 60]; }
  [[nodiscard]] inline bool takes(const Kept& kept, const SmallCall& call) const;
  [[nodiscard]] inline bool can_run(const Kept& kept) const;
  [[nodiscard]] Status go_on(const Kept& kept, const SmallCall& call, std::uint64_t operation);

  Communicator& communicator_;
  std::array<Kept, 16> kept_;  // direct-mapped, by the tag's upper bits
};

}  // namespace tutti
