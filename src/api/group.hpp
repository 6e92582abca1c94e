// SPDX-License-Identifier: Apache-2.0
// Group calls: what a thread issues between GroupStart and GroupEnd is carried out together at the
// outermost GroupEnd. Thread-local. Keeps handles, never communicators nor the user's variables:
// both may be gone by the end, which is an error then.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "api/handle.hpp"
#include "comm/communicator.hpp"
#include "comm/run_operations.hpp"
#include "comm/transfer.hpp"
#include "stream/stream.hpp"

namespace tutti {

class Group {
 public:
  // The calling thread's group.
  [[nodiscard]] static Group& current();
  // Is the calling thread in a group?
  [[nodiscard]] static bool active() { return any_.load(std::memory_order_relaxed) && depth_ > 0; }
  static void start() {
    any_.store(true, std::memory_order_relaxed);
    ++depth_;
  }
  // `stream`: null where the calling thread runs it, or a device.
  void add(HandleRef handle, const Call& call, std::shared_ptr<Stream> stream) {
    settle_transfers();
    calls_.push_back({handle, call, std::move(stream)});
  }
  // The same of a send or receive with host memory that the calling thread runs, whose arguments
  // have been checked. False: not one of few, all of one handle, with which the group began: add().
  [[nodiscard]] bool add_transfer(HandleRef handle, const Transfer& transfer) {
    if (transfers_ == 0) {
      if (!calls_.empty()) return false;
      transfers_handle_ = handle;
    }
    if (transfers_ == few_.size() || transfers_handle_.comm != handle.comm ||
        transfers_handle_.life != handle.life)
      return false;
    few_[transfers_++] = transfer;
    return true;
  }
  // A blocking initialization of the handle; those of one group run at the same time, a thread
  // each. The first that fails ends the others by the token. The handle of one that fails or never
  // runs is abandoned. Of one that is not `blocking` the group's end does not wait.
  using Init = std::function<Status(tuttiComm& handle, const std::stop_token& cancel)>;
  void add_init(HandleRef handle, Init run, bool blocking) {
    inits_.push_back({handle, std::move(run), blocking});
  }
  // A blocking collective of the communicator; those of one run in the order given, those of
  // different ones at the same time, after initializations and before operations. `makes` is
  // abandoned where the task fails or never runs.
  using Task = std::function<Status(Communicator&)>;
  void add_task(HandleRef handle, Task run, HandleRef makes = {}) {
    tasks_.push_back({handle, std::move(run), makes});
  }
  // Remembers an error of a call in the group: the outermost end returns it and runs nothing.
  void fail(const Error& error) {
    if (!error_) error_ = error;
  }
  // Ends the innermost group; the outermost one runs everything. Errors: kInvalidUsage without a
  // start or where a communicator of the group has been destroyed (nothing runs), the first error
  // of any call otherwise.
  [[nodiscard]] Status end();
  // Ends the outermost group, runs nothing, and returns what its calls would take, in nanoseconds:
  // of one communicator the collectives one after the other, and then its sends and receives
  // together; those of several communicators at the same time. Errors: kInvalidUsage without a
  // start, in an inner group, and where the group has more than calls; kNotSupported for device
  // memory; that of a call in the group.
  [[nodiscard]] Result<double> simulate();

 private:
  struct IssuedCall {
    HandleRef handle;
    Call call;
    std::shared_ptr<Stream> stream;
  };
  struct IssuedInit {
    HandleRef handle;
    Init run;
    bool blocking;
  };
  struct IssuedTask {
    HandleRef handle;
    Task run;
    HandleRef makes;
  };
  [[nodiscard]] Status leave();
  void settle_transfers();
  [[nodiscard]] Status run_transfers();
  void forget();
  [[nodiscard]] Status run();
  [[nodiscard]] Result<double> price() const;
  [[nodiscard]] Status run_inits();  // kInProgress where it does not wait for all of them
  struct TaskQueue {                 // of one communicator
    std::shared_ptr<const HandleUse> hold;
    std::vector<Task> tasks;
    std::vector<std::shared_ptr<const HandleUse>> made;  // by the tasks
  };
  [[nodiscard]] Result<std::vector<TaskQueue>> hold_tasks() const;
  [[nodiscard]] Status run_tasks(const std::vector<TaskQueue>& queues);

  static constinit thread_local int depth_;  // of the calling thread
  // Has any thread opened one? Every small call asks, and a thread's own word costs it a call.
  static constinit std::atomic<bool> any_;
  // Sends and receives before any other call, of one handle: what a group of few needs no memory
  // for.
  std::size_t transfers_ = 0;
  HandleRef transfers_handle_;
  std::array<Transfer, 16> few_;
  std::vector<IssuedCall> calls_;  // behind them
  std::vector<IssuedInit> inits_;
  std::vector<IssuedTask> tasks_;
  std::optional<Error> error_;
};

// What every C function of a communication call does: runs the call that `check` makes, puts it on
// the stream, or into the thread's group. An error of a call in a group is the group's too.
using CheckCall = std::function<Result<Call>(Communicator& communicator)>;
[[nodiscard]] tuttiResult_t submit(const char* function, tuttiComm* comm, tuttiStream_t stream,
                                   const CheckCall& check);
// The same of one that consists of sends and receives, which run together; never of none.
using CheckParts = std::function<Result<Parts>(Communicator& communicator)>;
[[nodiscard]] tuttiResult_t submit_several(const char* function, tuttiComm* comm,
                                           tuttiStream_t stream, const CheckParts& check);

}  // namespace tutti
