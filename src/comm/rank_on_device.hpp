// SPDX-License-Identifier: Apache-2.0
// A rank's share of its device: joins the ranks of the process and takes memory when the
// communicator starts, takes blocks at its first call with device memory, and watches over calls
// that have returned and not ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/membership.hpp"
#include "comm/operation_counts.hpp"
#include "device/executor.hpp"

namespace tutti {

class RankOnDevice {
 public:
  // `members` outlives the object; errors on its ranks' side end the device's operations from now
  // on, and the service thread looks after the calls. Errors: those of Job::join.
  [[nodiscard]] static Result<std::unique_ptr<RankOnDevice>> join(device::Platform& platform,
                                                                  Membership& members, int device);
  ~RankOnDevice();
  RankOnDevice(const RankOnDevice&) = delete;
  RankOnDevice& operator=(const RankOnDevice&) = delete;

  // Before anybody's first call.
  void limit_blocks(const device::BlockRange& range) { job_->limit_blocks(rank(), range); }
  // What all ranks have agreed on. Before this rank's first call.
  void price_by(device::Prices prices) { prices_ = std::move(prices); }
  [[nodiscard]] int device() const { return job_->device_of(rank()); }
  [[nodiscard]] device::Job& job() const { return *job_; }
  // Of an operation that waits for a peer.
  [[nodiscard]] std::int64_t timeout_ns() const { return members_.config().op_timeout_ns; }
  // Does a buffer lie in a device's memory? Any thread.
  [[nodiscard]] bool holds(const void* memory) const {
    return job_->platform().device_of(memory) >= 0;
  }
  // While the communicator starts, after all ranks have joined. What fails here matters to calls
  // with device memory only, the first of which tries again.
  void allocate();

  // Makes a launch of a call with at least one element. The user's thread. What every rank finds
  // alike (kNotSupported, kInvalidArgument) is refused before the call has a number, and leaves the
  // communicator as it was; after other errors it is poisoned.
  [[nodiscard]] Result<device::Issue> prepare(const Call& call, const Forced& forced,
                                              OperationCounts& counts);
  // Would prepare() refuse the call before it has a number? The error of that.
  [[nodiscard]] Status check(const Call& call, const Forced& forced);
  // Every way to run a call, as a text. Errors: those of Choice::choose.
  [[nodiscard]] Result<std::string> explain(const Call& call, const Forced& forced);
  // Returns the plan of the last call, or null.
  [[nodiscard]] const Plan* last_plan() const {
    return executor_ == nullptr ? nullptr : executor_->last_plan();
  }
  // Poisons the job with an error of a launch, or with what explains it, and returns that.
  Error fail(const Error& found);
  // Ends all operations of all ranks. Any thread.
  void abort() { job_->abort(); }
  // Returns when all that this rank has enqueued has ended, and has been looked at.
  void drain();

 private:
  RankOnDevice(std::shared_ptr<device::Job> job, Membership& members);

  [[nodiscard]] Rank rank() const { return members_.rank(); }
  // Returns the present state of any rank's calls. Any thread.
  [[nodiscard]] device::Calls::Now calls_now(Rank rank) const {
    return job_->calls_of(rank).now(job_->left(rank));
  }
  [[nodiscard]] Result<device::Issue> make_issue(const Call& call, const Forced& forced);
  // The service thread, now and then while calls have not ended: when to look again.
  [[nodiscard]] std::int64_t look();
  void note_fault();
  void warn_of(const device::RunningCall& call, Rank late) const;
  // Only of the rank's own kernel and calls: the others tell of theirs.
  [[nodiscard]] std::optional<Poison> trouble() const;
  [[nodiscard]] std::optional<Poison> mismatch(Rank rank, const OperationSignature& mine) const;
  [[nodiscard]] Poison poison_of(const device::Job::Found& found) const;
  // Describes a fault that no call explains. Any thread.
  [[nodiscard]] Error describe(const device::Job::Found& found) const;
  [[nodiscard]] std::optional<Error> fault() const;

  const std::shared_ptr<device::Job> job_;
  Membership& members_;
  device::Prices prices_;
  std::unique_ptr<device::Executor> executor_;  // from the first call on
};

}  // namespace tutti
