#include "runtime/handle.hpp"

#include <fmt/format.h>

#include <new>

namespace tutti {
namespace {

std::string& thread_text() {
  thread_local std::string text;
  return text;
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

HandleUse::HandleUse(const tuttiComm* comm) {
  if (comm == nullptr || comm->magic.load(std::memory_order_acquire) != tuttiComm::kMagic) return;
  comm_ = const_cast<tuttiComm*>(comm);
  comm_->calls.fetch_add(1, std::memory_order_acq_rel);
}

HandleUse::~HandleUse() {
  // Release pairs with the acquire in retire(): nothing of the call touches the handle after it.
  if (comm_ != nullptr) comm_->calls.fetch_sub(1, std::memory_order_release);
}

void retire(tuttiComm* comm) {
  comm->magic.store(0, std::memory_order_release);
  Waiter waiter({.spins = 100});
  while (comm->calls.load(std::memory_order_acquire) != 0) (void)waiter.wait();
  delete comm;
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
