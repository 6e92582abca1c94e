// What a tuttiComm_t points to, and how the C boundary turns results into codes and texts.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/communicator.hpp"

// The communicator is null inside a group until the initialization has run.
struct tuttiComm {
  // Upper bytes of a valid handle's life; below them counts the process's communicators.
  static constexpr std::uint64_t kMagic = 0x747574;
  static constexpr int kLifeBits = 40;
  std::atomic<std::uint64_t> life{0};  // 0: holds nothing; never the same twice
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

// One life of a handle, which is used again for later communicators.
struct HandleRef {
  tuttiComm* comm = nullptr;
  std::uint64_t life = 0;
};

// Keeps what a handle holds alive while a call uses it. What is no handle, or no longer one, or
// lives another life than the one meant, is left alone: get() is null.
class HandleUse {
 public:
  explicit HandleUse(const tuttiComm* comm);
  explicit HandleUse(HandleRef ref);
  HandleUse(const HandleUse&) = delete;
  HandleUse& operator=(const HandleUse&) = delete;
  ~HandleUse();
  [[nodiscard]] tuttiComm* get() const { return comm_; }

 private:
  void use(tuttiComm* comm, std::uint64_t life);

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
void retire(HandleRef ref);
// The same for a handle that a user still holds without knowing: it is not used again, so that his
// destroying it cannot hit another communicator.
void abandon(HandleRef ref);

// A handle that is retired unless it is given away.
class OwnedHandle {
 public:
  explicit OwnedHandle(HandleRef ref) : ref_(ref) {}
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;
  ~OwnedHandle() {
    if (ref_.comm != nullptr) retire(ref_);
  }
  [[nodiscard]] HandleRef get() const { return ref_; }
  HandleRef release() { return std::exchange(ref_, {}); }

 private:
  HandleRef ref_;
};
[[nodiscard]] OwnedHandle make_handle();

// The life of a valid handle, or kInvalidArgument naming `function`.
[[nodiscard]] Result<HandleRef> check_handle(tuttiComm* comm, const char* function);
// The communicator behind a handle, or kInvalidArgument / kInvalidUsage naming `function`.
[[nodiscard]] Result<Communicator*> open_handle(const tuttiComm* comm, const char* function);

// The last text of this thread, or of `comm`; valid until the next call in this thread.
const char* last_text(const tuttiComm* comm);

}  // namespace tutti
