// A rank's share of its device: joins the ranks of the process and takes memory when the
// communicator starts, takes blocks at its first call with device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "runtime/device/executor.hpp"

namespace tutti {

struct HeldCall;

class RankOnDevice {
 public:
  // `timeout_ns`: of an operation that waits for a peer. Errors: those of Job::join.
  [[nodiscard]] static Result<std::unique_ptr<RankOnDevice>> join(device::Platform& platform,
                                                                  const control::SessionId& session,
                                                                  Rank rank, std::int32_t ranks,
                                                                  int device,
                                                                  std::int64_t timeout_ns);

  // Before anybody's first call.
  void limit_blocks(const device::BlockRange& range) { job_->limit_blocks(rank_, range); }
  [[nodiscard]] int device() const { return job_->device_of(rank_); }
  [[nodiscard]] device::Job& job() const { return *job_; }
  [[nodiscard]] std::int64_t timeout_ns() const { return timeout_ns_; }
  // Does a buffer lie in a device's memory? Any thread.
  [[nodiscard]] bool holds(const void* memory) const {
    return job_->platform().device_of(memory) >= 0;
  }
  // While the communicator starts, after all ranks have joined. Errors: those of Job::allocate.
  [[nodiscard]] Status allocate() { return job_->allocate(); }
  // The user's thread. Errors: those of Job::prepare and Executor::prepare.
  [[nodiscard]] Result<device::Issue> prepare(const device::DeviceCall& call, const Forced& forced);
  // Every way to run a call, as a text. Errors: those of Choice::choose.
  [[nodiscard]] Result<std::string> explain(std::uint64_t bytes, const Forced& forced);
  // Of the last call, or null.
  [[nodiscard]] const Plan* last_plan() const {
    return executor_ == nullptr ? nullptr : executor_->last_plan();
  }
  // Its calls that have not ended.
  [[nodiscard]] device::Calls& calls() { return job_->calls_of(rank_); }
  // Where the calls of any rank are now. Any thread.
  [[nodiscard]] device::Calls::Now calls_now(Rank rank) {
    return job_->calls_of(rank).now(job_->left(rank));
  }
  // Of a fault that no call explains. Any thread.
  [[nodiscard]] Error describe(const device::Job::Found& found) const;
  // Ends all operations of all ranks. Any thread.
  void abort() { job_->abort(); }
  // Returns when all that this rank has enqueued has ended.
  void drain() { job_->drain(rank_); }

 private:
  RankOnDevice(std::shared_ptr<device::Job> job, Rank rank, std::int64_t timeout_ns)
      : job_(std::move(job)), rank_(rank), timeout_ns_(timeout_ns) {}

  std::shared_ptr<device::Job> job_;
  const Rank rank_;
  const std::int64_t timeout_ns_;
  std::unique_ptr<device::Executor> executor_;  // from the first call on
};

// Enqueues calls with device memory: those of one communicator in the order given, those of ranks
// that share a device together. Returns when all are launched. Returns the first error; its
// communicator is poisoned, unless all ranks find that error alike. The others' calls run.
[[nodiscard]] Status run_on_devices(std::span<HeldCall> calls);

}  // namespace tutti
