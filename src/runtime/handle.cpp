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
  tuttiComm* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return new tuttiComm;
    tuttiComm* const comm = free_.back();
    free_.pop_back();
    return comm;
  }
  void give(tuttiComm* comm) {
    const std::lock_guard lock(mutex_);
    free_.push_back(comm);
  }

 private:
  std::mutex mutex_;
  std::vector<tuttiComm*> free_;  // guarded by mutex_
};

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
  OwnedHandle handle(FreeHandles::of_process().take());
  handle->magic = tuttiComm::kMagic;
  return handle;
}

// Counted first and looked at again then: retire() invalidates first and counts then, both in one
// order (seq_cst), so that either it waits for this call or this call finds no handle.
HandleUse::HandleUse(const tuttiComm* comm) {
  if (comm == nullptr || comm->magic != tuttiComm::kMagic) return;
  auto* const counted = const_cast<tuttiComm*>(comm);
  ++counted->calls;
  if (counted->magic == tuttiComm::kMagic) {
    comm_ = counted;
  } else {
    --counted->calls;
  }
}

HandleUse::~HandleUse() {
  if (comm_ != nullptr) --comm_->calls;
}

void retire(tuttiComm* comm) {
  if (comm->magic.exchange(0) != tuttiComm::kMagic) return;
  Waiter waiter({.spins = 100});
  while (comm->calls != 0) (void)waiter.wait();
  comm->communicator.reset();
  {
    const std::lock_guard lock(comm->text_mutex);
    comm->last_text.clear();
  }
  FreeHandles::of_process().give(comm);
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

Result<Communicator*> open_handle(const tuttiComm* comm, const char* function) {
  if (comm == nullptr || comm->magic.load(std::memory_order_acquire) != tuttiComm::kMagic)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: the communicator is {}", function,
                                  comm == nullptr ? "NULL" : "not one, or was destroyed"));
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
