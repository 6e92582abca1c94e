// SPDX-License-Identifier: Apache-2.0
// The calls of one rank that have been made and have not ended: what they are, since when nothing
// of them has moved. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "base/signature.hpp"

namespace tutti::device {

struct RunningCall {
  OperationSignature signature;
  std::int64_t since_ns = 0;  // nothing of this rank has ended
  bool captured = false;      // into a graph: over once it is made
  bool warned = false;
};

class Calls {
 public:
  // A call that is about to be made. True: somebody has to begin to look after the calls.
  [[nodiscard]] bool begin(const OperationSignature& signature, bool captured);
  struct Now {
    std::uint64_t ended = 0;  // number of the last one that has
    std::optional<RunningCall> oldest;
  };
  // `left`: number of the last one that a kernel has ended.
  [[nodiscard]] Now now(std::uint64_t left);
  // True once in the life of a call that is the oldest, and late.
  [[nodiscard]] bool warns_of(const RunningCall& call);
  // True: nothing is left to look after.
  [[nodiscard]] bool at_rest();

 private:
  std::mutex mutex_;
  std::deque<RunningCall> running_;  // guarded by mutex_; a launch queue's length at most
  std::uint64_t ended_ = 0;          // guarded by mutex_
  bool looked_after_ = false;        // guarded by mutex_
};

}  // namespace tutti::device
