#include "runtime/handle.hpp"

#include <fmt/format.h>

#include <new>
#include <vector>

namespace tutti {
namespace {

std::string& thread_text() {
  thread_local std::string text;
  return text;
}

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
    if (free_.empty()) return {new tuttiComm, life};
    tuttiComm* const comm = free_.back();
    free_.pop_back();
    return {comm, life};
  }
  void give(tuttiComm* comm, bool again) {
    const std::lock_guard lock(mutex_);
    (again ? free_ : abandoned_).push_back(comm);
  }

 private:
  std::mutex mutex_;
  std::uint64_t lives_ = 0;            // guarded by mutex_
  std::vector<tuttiComm*> free_;       // guarded by mutex_
  std::vector<tuttiComm*> abandoned_;  // guarded by mutex_; never given out again
};

bool valid(std::uint64_t life) { return life >> tuttiComm::kLifeBits == tuttiComm::kMagic; }

void end_life(HandleRef ref, bool again) {
  if (!ref.comm->life.compare_exchange_strong(ref.life, 0)) return;
  Waiter waiter({.spins = 100});
  while (ref.comm->calls != 0) (void)waiter.wait();
  ref.comm->communicator.reset();
  {
    const std::lock_guard lock(ref.comm->text_mutex);
    ref.comm->last_text.clear();
  }
  FreeHandles::of_process().give(ref.comm, again);
}

}  // namespace

tuttiResult_t report(const Error& error, const tuttiComm* comm) {
  thread_text() = fmt::format("{} ({})", error.message, describe(error.code));
  if (comm != nullptr) {
    auto* const handle = const_cast<tuttiComm*>(comm);
    const std::lock_guard lock(handle->text_mutex);
    handle->last_text = thread_text();
  }
  return static_cast<tuttiResult_t>(error.code);
}

tuttiResult_t report(const Status& status, const tuttiComm* comm) {
  return status ? tuttiSuccess : report(status.error(), comm);
}

OwnedHandle make_handle() {
  const HandleRef handle = FreeHandles::of_process().take();
  handle.comm->life = handle.life;
  return OwnedHandle(handle);
}

// Counted first and looked at again then: retire() invalidates first and counts then, both in one
// order (seq_cst), so that either it waits for this call or this call finds no handle.
void HandleUse::use(tuttiComm* comm, std::uint64_t life) {
  if (!valid(life) || comm->life != life) return;
  ++comm->calls;
  if (comm->life == life) {
    comm_ = comm;
  } else {
    --comm->calls;
  }
}

HandleUse::HandleUse(const tuttiComm* comm) {
  if (comm != nullptr) use(const_cast<tuttiComm*>(comm), comm->life);
}

HandleUse::HandleUse(HandleRef ref) { use(ref.comm, ref.life); }

HandleUse::~HandleUse() {
  if (comm_ != nullptr) --comm_->calls;
}

void retire(HandleRef ref) { end_life(ref, true); }
void abandon(HandleRef ref) { end_life(ref, false); }

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

Result<HandleRef> check_handle(tuttiComm* comm, const char* function) {
  const std::uint64_t life = comm == nullptr ? 0 : comm->life.load(std::memory_order_acquire);
  if (!valid(life))
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: the communicator is {}", function,
                                  comm == nullptr ? "NULL" : "not one, or was destroyed"));
  return HandleRef{comm, life};
}

Result<Communicator*> open_handle(const tuttiComm* comm, const char* function) {
  TUTTI_TRY(check_handle(const_cast<tuttiComm*>(comm), function));
  if (!comm->communicator)
    return make_error(Code::kInvalidUsage,
                      fmt::format("{}: the communicator is initialized by a group that has not "
                                  "ended",
                                  function));
  return comm->communicator.get();
}

const char* last_text(const tuttiComm* comm) {
  thread_local std::string copy;
  const HandleUse use(comm);
  if (use.get() == nullptr) {
    copy = thread_text();
  } else {
    {
      const std::lock_guard lock(use.get()->text_mutex);
      copy = use.get()->last_text;
    }
    if (copy.empty() && use.get()->communicator)
      if (const auto error = use.get()->communicator->error()) copy = error->message;
  }
  return copy.c_str();
}

}  // namespace tutti
