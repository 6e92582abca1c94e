// SPDX-License-Identifier: Apache-2.0
#include "api/handle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/config.hpp"
#include "base/process_fd.hpp"
#include "comm/either_stops.hpp"
#include "control/thread.hpp"

namespace tutti {
namespace {

// A text of a thread. It has no destructor: to register one takes memory, without which glibc ends
// the process, and a text is wanted just then.
class ThreadText {
 public:
  void set(std::string_view text) {
    text.copy(text_, kMostBytes);
    text_[std::min(text.size(), kMostBytes)] = '\0';
  }
  [[nodiscard]] const char* c_str() const { return text_; }

 private:
  static constexpr std::size_t kMostBytes = 4095;
  char text_[kMostBytes + 1];
};
constinit thread_local ThreadText last_report{};
constinit thread_local ThreadText last_answer{};  // of last_text(), until the thread asks again

// Handles that hold nothing now. Never destroyed, as calls may come while the process ends.
class FreeHandles {
 public:
  static FreeHandles& of_process() {
    static auto* const instance = new FreeHandles;
    return *instance;
  }
  HandleRef take() {
    const std::lock_guard lock(mutex_);
    ++lives_;
    const std::uint64_t life = tuttiComm::kMagic << tuttiComm::kLifeBits | lives_;
    if (free_.size() <= kRestingHandles) return {new tuttiComm, life};
    tuttiComm* const comm = free_.front();
    free_.pop_front();
    return {comm, life};
  }
  void give(tuttiComm* comm, bool again) try {
    const std::lock_guard lock(mutex_);
    (again ? free_ : abandoned_).push_back(comm);
  } catch (const std::bad_alloc&) {
    // It is not used again.
  }

 private:
  std::mutex mutex_;
  std::uint64_t lives_ = 0;  // guarded by mutex_
  // Guarded by mutex_. A second destroy must not hit another communicator, so a handle rests while
  // kRestingHandles others are used.
  std::deque<tuttiComm*> free_;
  std::deque<tuttiComm*> abandoned_;  // guarded by mutex_; never given out again
};

// An initialization that nobody waits for ends, early if need be.
void end_start(tuttiComm& handle) {
  std::unique_ptr<std::thread> starting;
  {
    const std::lock_guard lock(handle.start_mutex);
    starting = std::move(handle.starting);
    handle.start_failure.reset();
  }
  if (starting == nullptr) return;
  if (handle.starting_generation != fork_generation()) {
    static_cast<void>(starting.release());  // the parent's thread: neither joined nor destroyed
    return;
  }
  handle.aborted.request_stop();
  starting->join();
  const std::lock_guard lock(handle.start_mutex);
  handle.start_failure.reset();
}

void end_life(HandleRef ref, bool again) {
  if (!ref.comm->life.compare_exchange_strong(ref.life, 0)) return;
  Waiter waiter({.spins = 100});
  while (ref.comm->calls != 0) (void)waiter.wait();
  // Who destroys it has taken the word already; an initialization that ends early has not.
  for (const char* other = ref.comm->call.take(CallSlot::kDestroy);
       other != nullptr && other != CallSlot::kDestroy;
       other = ref.comm->call.take(CallSlot::kDestroy))
    (void)waiter.wait();
  end_start(*ref.comm);
  ref.comm->host_member.store(0, std::memory_order_relaxed);  // before the next life
  ref.comm->communicator.store(nullptr, std::memory_order_release);
  ref.comm->owned.reset();
  {
    const std::lock_guard lock(ref.comm->text_mutex);
    ref.comm->last_text.clear();
    ref.comm->text_after_poison = false;
  }
  ref.comm->call.give_back();
  FreeHandles::of_process().give(ref.comm, again);
}

std::string text_of(const Error& error) {
  return fmt::format("{} ({})", error.message, describe(error.code));
}

std::optional<Error> poison_of(const tuttiComm& handle) {
  const Communicator* const communicator = handle.communicator.load(std::memory_order_acquire);
  return communicator == nullptr ? std::nullopt : communicator->error();
}

}  // namespace

tuttiResult_t report(const Error& error, const tuttiComm* comm) {
  if (error.code == Code::kInProgress) return tuttiInProgress;
  const std::string text = text_of(error);
  last_report.set(text);
  if (comm != nullptr) {
    auto* const handle = const_cast<tuttiComm*>(comm);
    const bool after_poison = poison_of(*handle).has_value();
    const std::lock_guard lock(handle->text_mutex);
    handle->last_text = text;
    handle->text_after_poison = after_poison;
  }
  return static_cast<tuttiResult_t>(error.code);
}

tuttiResult_t report(const Status& status, const tuttiComm* comm) {
  return status ? tuttiSuccess : report(status.error(), comm);
}

OwnedHandle make_handle() {
  const HandleRef handle = FreeHandles::of_process().take();
  handle.comm->aborted = std::stop_source();
  handle.comm->life = handle.life;
  return OwnedHandle(handle);
}

void retire(HandleRef ref) { end_life(ref, true); }
void abandon(HandleRef ref) { end_life(ref, false); }

Status destroy_handle(tuttiComm* comm, const char* function) {
  TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(comm, function));
  {
    const HandleUse use(handle);
    if (use.get() == nullptr) return check_handle(comm, function).map([](HandleRef) {});
    Communicator* const communicator = comm->communicator.load(std::memory_order_acquire);
    // Kept: calls that begin now are refused, until the handle is invalid.
    const char* const other = communicator != nullptr
                                  ? communicator->call_slot().take(CallSlot::kDestroy)
                              : comm->calls > 1 ? "tuttiGroupEnd, which initializes it,"
                                                : nullptr;
    if (other != nullptr)
      return make_error(Code::kInvalidUsage,
                        fmt::format("{}: another thread is in {} on this communicator; wait for "
                                    "that call, or end it by tuttiCommAbort",
                                    function, other));
    if (communicator != nullptr)
      TUTTI_TRY(communicator->complete_issued().map_error([&](Error error) {
        communicator->call_slot().give_back();
        return in_call(function, std::move(error));
      }));
  }
  retire(handle);
  return {};
}

Error caught_error(const char* function) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {Code::kSystemError, fmt::format("{}: out of memory", function)};
  } catch (const std::exception& error) {
    return {Code::kInternalError, fmt::format("{}: {}", function, error.what())};
  } catch (...) {
    return {Code::kInternalError, fmt::format("{}: unknown exception", function)};
  }
}

tuttiResult_t report_caught(const char* function, const tuttiComm* comm) noexcept {
  try {
    return report(caught_error(function), comm);
  } catch (...) {
    return tuttiSystemError;
  }
}

Result<HandleRef> check_handle(tuttiComm* comm, const char* function) {
  const std::uint64_t life = comm == nullptr ? 0 : comm->life.load(std::memory_order_acquire);
  if (!tuttiComm::valid(life))
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{}: the communicator is {}", function,
                    comm == nullptr ? "NULL" : "not a communicator, or was destroyed"));
  return HandleRef{comm, life};
}

namespace {

// Why a valid handle holds no communicator.
Error not_ready(const tuttiComm& comm, const char* function) {
  const std::lock_guard lock(comm.start_mutex);
  if (comm.start_failure) return *comm.start_failure;
  const char* const what =
      comm.starting != nullptr
          ? "the communicator is being initialized: wait until tuttiCommGetAsyncError says "
            "tuttiSuccess"
          : "the communicator is not ready: call tuttiGroupEnd, which initializes it, first";
  return {Code::kInvalidUsage, fmt::format("{}: {}", function, what)};
}

}  // namespace

Result<Communicator*> open_handle(const tuttiComm* comm, const char* function) {
  TUTTI_TRY(check_handle(const_cast<tuttiComm*>(comm), function));
  Communicator* const communicator = comm->communicator.load(std::memory_order_acquire);
  if (communicator == nullptr) return tl::unexpected(not_ready(*comm, function));
  return communicator;
}

Result<Code> state_of(tuttiComm* comm, const char* function) {
  TUTTI_TRY(check_handle(comm, function));
  {
    const std::lock_guard lock(comm->start_mutex);
    if (comm->start_failure) return comm->start_failure->code;
    const bool made = comm->communicator.load(std::memory_order_acquire) != nullptr;
    if (comm->starting != nullptr && !made) return Code::kInProgress;
  }
  TUTTI_TRY_ASSIGN(const Communicator* const communicator, open_handle(comm, function));
  const auto error = communicator->error();
  return error ? error->code : Code::kSuccess;
}

Result<OpenCall> enter_handle(const tuttiComm* comm, const char* function) {
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, function));
  InFlightCall in_flight(communicator->call_slot(), function);
  TUTTI_TRY(in_flight.status().map_error(
      [&](Error error) { return in_call(function, std::move(error)); }));
  return OpenCall{communicator, std::move(in_flight)};
}

Status start_handle(tuttiComm& handle, CommunicatorOptions options, const std::stop_token& cancel,
                    const MakeCommunicator& make) {
  const EitherStops stops(cancel, handle.aborted.get_token());
  options.cancel = stops.token();
  options.call_word = &handle.call;
  Result<std::unique_ptr<Communicator>> made = make(options);
  if (!made && options.cancel.stop_requested() && made.error().code != Code::kSystemError)
    return make_error(Code::kInvalidUsage,
                      "this rank was aborted while it joined the communicator");
  if (!made) return tl::unexpected(std::move(made).error());
  {
    const std::lock_guard lock(handle.start_mutex);
    handle.owned = *std::move(made);
    handle.communicator.store(handle.owned.get(), std::memory_order_release);
    // Last: who finds it finds the communicator.
    if (handle.owned->on_device() == nullptr)
      handle.host_member.store(static_cast<std::uint64_t>(handle.owned->rank()) << 32 |
                                   static_cast<std::uint64_t>(handle.owned->ranks()),
                               std::memory_order_release);
  }
  // An abort before that point did not see the communicator.
  if (handle.aborted.stop_requested()) handle.owned->abort();
  return {};
}

Status start_later(HandleRef handle, std::function<Status(tuttiComm& handle)> start) {
  tuttiComm& comm = *handle.comm;
  const auto run = [&comm, start = std::move(start)] {
    Status started;
    try {
      started = start(comm);
    } catch (...) {
      started = tl::unexpected(caught_error("tuttiCommInitRank"));
    }
    if (started) return;
    static_cast<void>(report(started.error(), &comm));
    const std::lock_guard lock(comm.start_mutex);
    comm.start_failure = started.error();
  };
  const std::lock_guard lock(comm.start_mutex);
  auto thread = std::make_unique<std::thread>();
  TUTTI_TRY_ASSIGN(*thread,
                   control::spawn_thread("tutti-init", run, control::Runs::kCallsOfProgram));
  comm.starting = std::move(thread);
  comm.starting_generation = fork_generation();
  return make_error(Code::kInProgress, "");
}

void abort_handle(tuttiComm& handle) {
  handle.aborted.request_stop();
  Communicator* communicator = nullptr;
  {
    const std::lock_guard lock(handle.start_mutex);
    communicator = handle.communicator.load(std::memory_order_acquire);
  }
  if (communicator != nullptr) communicator->abort();
}

const char* last_text(const tuttiComm* comm) noexcept try {
  const HandleUse use(comm);
  if (use.get() == nullptr) {
    last_answer = last_report;
  } else {
    std::string copy;
    {
      const std::lock_guard lock(use.get()->text_mutex);
      copy = use.get()->text_after_poison ? use.get()->last_text : std::string();
    }
    // A poison that no call has told yet is newer than what the last failed call said.
    if (copy.empty()) {
      if (const auto error = poison_of(*use.get())) {
        copy = text_of(*error);
      } else {
        const std::lock_guard lock(use.get()->text_mutex);
        copy = use.get()->last_text;
      }
    }
    last_answer.set(copy);
  }
  return last_answer.c_str();
} catch (...) {
  return "out of memory";
}

}  // namespace tutti
