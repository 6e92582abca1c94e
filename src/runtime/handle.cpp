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
  if (comm == nullptr || comm->magic != tuttiComm::kMagic)
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
  if (comm == nullptr) {
    copy = thread_text();
  } else {
    {
      const std::lock_guard lock(comm->text_mutex);
      copy = comm->last_text;
    }
    if (copy.empty() && comm->communicator)
      if (const auto error = comm->communicator->error()) copy = error->message;
  }
  return copy.c_str();
}

}  // namespace tutti
