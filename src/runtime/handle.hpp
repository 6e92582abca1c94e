// What a tuttiComm_t points to, and how the C boundary turns results into codes and texts.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/communicator.hpp"

// The communicator is null inside a group until the initialization has run.
struct tuttiComm {
  static constexpr std::uint64_t kMagic = 0x7475747469636f6d;
  std::atomic<std::uint64_t> magic{kMagic};
  // Calls inside the C boundary with this handle; it is retired only when there is none.
  std::atomic<int> calls{0};
  std::unique_ptr<tutti::Communicator> communicator;
  mutable std::mutex text_mutex;
  std::string last_text;  // guarded by text_mutex
};

namespace tutti {

// Records the error's text for tuttiGetLastError (thread and, if given, communicator) and returns
// its code. Any thread.
tuttiResult_t report(const Error& error, const tuttiComm* comm = nullptr);
tuttiResult_t report(const Status& status, const tuttiComm* comm = nullptr);

// The error of an exception that is being handled: bad_alloc becomes kSystemError.
[[nodiscard]] Error caught_error(const char* function);

// Keeps what a handle holds alive while a call uses it. What is no handle, or no longer one, is
// left alone: get() is null.
class HandleUse {
 public:
  explicit HandleUse(const tuttiComm* comm);
  HandleUse(const HandleUse&) = delete;
  HandleUse& operator=(const HandleUse&) = delete;
  ~HandleUse();
  [[nodiscard]] tuttiComm* get() const { return comm_; }

 private:
  tuttiComm* comm_ = nullptr;
};

// Runs `body`, which returns a Status, so that nothing is thrown across the C boundary.
template <typename Body>
tuttiResult_t guarded(const char* function, const tuttiComm* comm, Body&& body) {
  const HandleUse use(comm);
  try {
    return report(body(), use.get());
  } catch (...) {
    return report(caught_error(function), use.get());
  }
}

// Makes the handle invalid, waits until no call uses it, and ends what it holds; of two threads
// that retire one handle, one does so. The caller has ended its operations. The handle itself stays
// in the process for the next communicator: a thread that calls with it just now finds it invalid.
void retire(tuttiComm* comm);

struct Retire {
  void operator()(tuttiComm* comm) const { retire(comm); }
};
using OwnedHandle = std::unique_ptr<tuttiComm, Retire>;
[[nodiscard]] OwnedHandle make_handle();

// The communicator behind a handle, or kInvalidArgument / kInvalidUsage naming `function`.
[[nodiscard]] Result<Communicator*> open_handle(const tuttiComm* comm, const char* function);

// The last text of this thread, or of `comm`; valid until the next call in this thread.
const char* last_text(const tuttiComm* comm);

}  // namespace tutti
