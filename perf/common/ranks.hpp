// SPDX-License-Identifier: Apache-2.0
// The ranks that one thread drives, and the small collectives by which a benchmark's threads and
// processes keep step: barrier, sum, minimum, maximum. Those run on the communicator under test
// itself, so nothing else connects the ranks.
//
// One thread per object. Uses only the public API.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/gpus.hpp"
#include "tutti/tutti.hpp"

namespace tutti::perf {

class ThreadRanks {
 public:
  // Takes over the handles, in rank order; ranks are consecutive from first_rank.
  ThreadRanks(std::vector<Communicator> comms, int first_rank, int all_ranks)
      : comms_(std::move(comms)), first_rank_(first_rank), all_ranks_(all_ranks) {}

  [[nodiscard]] int count() const { return static_cast<int>(comms_.size()); }
  [[nodiscard]] int all_ranks() const { return all_ranks_; }
  [[nodiscard]] int first_rank() const { return first_rank_; }
  [[nodiscard]] int rank(int i) const { return first_rank_ + i; }
  [[nodiscard]] Communicator& comm(int i) { return comms_[static_cast<std::size_t>(i)]; }

  // Calls issue(i) for each of the thread's ranks, as one group where there are several or where
  // `group` asks for it. Throws Exception.
  template <typename Issue>
  void for_each(bool group, Issue&& issue) {
    group = group || comms_.size() > 1;
    if (group) check(tuttiGroupStart());
    tuttiResult_t first = tuttiSuccess;
    for (int i = 0; i < count() && first == tuttiSuccess; ++i) first = issue(i);
    if (group) {
      const tuttiResult_t end = tuttiGroupEnd();
      if (first == tuttiSuccess) first = end;
    }
    if (first != tuttiSuccess) fail(first);
  }

  // Collective over all ranks: the thread's ranks in the group of `color`, in the same order. A
  // color's ranks must be whole processes. Throws Exception.
  [[nodiscard]] ThreadRanks split(int color);

  // Returns when all ranks of the communicator have called it.
  void barrier();
  // Element-wise over all ranks of the communicator; each of this thread's ranks contributes
  // values[i * width ..). The result has `width` values. Throws Exception.
  [[nodiscard]] std::vector<double> reduce(std::vector<double> values, std::size_t width,
                                           tuttiRedOp_t op);
  // One value, the same for all of this thread's ranks.
  [[nodiscard]] double reduce_one(double value, tuttiRedOp_t op);

  // Aborts all communicators, so that peers end at once. Never throws.
  void abort() noexcept;
  // Destroys them; throws the first error.
  void finish();

 private:
  [[noreturn]] void fail(tuttiResult_t result);

  std::vector<Communicator> comms_;
  int first_rank_ = 0;
  int all_ranks_ = 0;
};

// Says where a process of the job runs.
struct ProcessPlace {
  int pid = 0;
  std::string host;
};
// Returns the places of all processes, in order; collective over all ranks. Throws Exception.
[[nodiscard]] std::vector<ProcessPlace> gather_places(ThreadRanks& ranks, int process,
                                                      int processes, const std::string& host);

// Initializes ranks [first_rank, first_rank + count) of `all_ranks` in the calling thread; with
// GPUs, each while its own is the current one.
[[nodiscard]] std::vector<Communicator> init_ranks(const tuttiUniqueId& id, int all_ranks,
                                                   int first_rank, int count,
                                                   const tuttiConfig_t& config,
                                                   Gpus* gpus = nullptr);

}  // namespace tutti::perf
