// One rank's operations on its device: chooses and compiles plans, keeps them in device memory, and
// makes of each call a task for Job::enqueue. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/device/choice.hpp"
#include "runtime/device/encode.hpp"
#include "runtime/device/job.hpp"
#include "runtime/explain.hpp"

namespace tutti::device {

struct DeviceCall {
  const void* input = nullptr;
  void* output = nullptr;  // may equal input
  std::uint64_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Stream stream = nullptr;
};

class Executor {
 public:
  // Of a job that is prepared. `timeout_ns`: of a kernel that waits for one thing; 0: for ever.
  Executor(std::shared_ptr<Job> job, Rank rank, std::uint64_t timeout_ns);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  // What it has enqueued has ended when it goes.
  ~Executor() { job_->drain(rank_); }

  // A call of at least one element. Allocates the first time a plan is used, never afterwards.
  // Errors: those of Choice::choose, compile_plan and of the device's memory.
  [[nodiscard]] Result<Issue> prepare(const DeviceCall& call, const Forced& forced);
  // Every way to run a call of so many bytes, and the one that runs.
  [[nodiscard]] Result<Explanation> explain(std::uint64_t bytes, const Forced& forced);
  // Of the last call, or null.
  [[nodiscard]] const Plan* last_plan() const { return last_; }
  [[nodiscard]] Job& job() const { return *job_; }

 private:
  struct Bound {
    Plan plan;
    Messages messages = Messages::kSlots;
    std::uint32_t blocks = 1;
    Task task;  // all but the call's own
  };
  [[nodiscard]] Result<Bound*> bind(const Candidate& candidate);
  [[nodiscard]] Status place(Bound& bound, const Program& program);

  std::shared_ptr<Job> job_;
  const Rank rank_;
  const std::uint64_t timeout_ns_;
  Choice choice_;
  std::map<std::uint64_t, std::unique_ptr<Bound>> plans_;           // by plan id and messages
  std::map<std::pair<std::string, std::uint64_t>, Bound*> chosen_;  // by what is forced, and bytes
  const Plan* last_ = nullptr;
};

}  // namespace tutti::device
