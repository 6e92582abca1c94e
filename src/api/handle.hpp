// SPDX-License-Identifier: Apache-2.0
// What a tuttiComm_t points to, and how the C boundary turns results into codes and texts.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "comm/communicator.hpp"

struct tuttiComm {
  // Upper bytes of a valid handle's life; below them counts the process's communicators.
  static constexpr std::uint64_t kMagic = 0x747574;
  static constexpr int kLifeBits = 40;
  static bool valid(std::uint64_t life) { return life >> kLifeBits == kMagic; }
  std::atomic<std::uint64_t> life{0};  // 0: holds nothing; never the same twice
  // Calls inside the C boundary with this handle, but for those that hold `call` alone; it is
  // retired only when there is none of either.
  std::atomic<int> calls{0};
  // The communicator's call under way.
  tutti::CallWord call;
  // Null inside a group until the initialization has run, which may be while another thread aborts:
  // the release of its store pairs with the acquire of every load.
  std::atomic<tutti::Communicator*> communicator{nullptr};
  // Rank (upper half) and number of ranks of a communicator that has no device; else 0. What a
  // thread that has read the life, this and the same life again may believe without holding the
  // handle (host_member_of).
  std::atomic<std::uint64_t> host_member{0};
  mutable std::mutex start_mutex;              // orders the end of the initialization and abort()
  std::unique_ptr<tutti::Communicator> owned;  // what `communicator` points to
  std::stop_source aborted;                    // ends initializations; a new one for each life
  std::unique_ptr<std::thread> starting;       // guarded by start_mutex: see start_later()
  std::uint64_t starting_generation = 0;       // of the process that has this thread
  std::optional<tutti::Error> start_failure;   // guarded by start_mutex
  mutable std::mutex text_mutex;
  std::string last_text;          // guarded by text_mutex
  bool text_after_poison{false};  // guarded by text_mutex: the text is no older than the poison
};

namespace tutti {

// Records the error's text for tuttiGetLastError (thread and, if given, communicator) and returns
// its code. Any thread.
tuttiResult_t report(const Error& error, const tuttiComm* comm = nullptr);
tuttiResult_t report(const Status& status, const tuttiComm* comm = nullptr);

// The error of an exception that is being handled: bad_alloc becomes kSystemError.
[[nodiscard]] Error caught_error(const char* function);
// Reports it; the code alone where there is no memory for a text.
tuttiResult_t report_caught(const char* function, const tuttiComm* comm) noexcept;

// One life of a handle, which is used again for later communicators.
struct HandleRef {
  tuttiComm* comm = nullptr;
  std::uint64_t life = 0;
};

// Keeps what a handle holds alive while a call uses it. If the pointer is not a handle, is no
// longer one, or has been reused for another communicator, it is not touched: get() is null.
class HandleUse {
 public:
  explicit HandleUse(const tuttiComm* comm) {
    if (comm != nullptr) use(const_cast<tuttiComm*>(comm), comm->life);
  }
  explicit HandleUse(HandleRef ref) { use(ref.comm, ref.life); }
  HandleUse(const HandleUse&) = delete;
  HandleUse& operator=(const HandleUse&) = delete;
  ~HandleUse() {
    if (comm_ != nullptr) --comm_->calls;
  }
  [[nodiscard]] tuttiComm* get() const { return comm_; }

 private:
  // Counted first and looked at again then: retire() invalidates first and counts then, both in one
  // order (seq_cst), so that either it waits for this call or this call finds no handle.
  void use(tuttiComm* comm, std::uint64_t life) {
    if (!tuttiComm::valid(life) || comm->life != life) return;
    ++comm->calls;
    if (comm->life == life) {
      comm_ = comm;
    } else {
      --comm->calls;
    }
  }

  tuttiComm* comm_ = nullptr;
};

// A call that holds the handle's word, and with it both the handle and the communicator, which no
// other call uses then; calls on streams may still be under way. Null where the handle is not
// valid, holds none, or another call is there.
class HandleCall {
 public:
  // `name`: a literal.
  HandleCall(tuttiComm* comm, const char* name) {
    if (comm == nullptr) return;
    const std::uint64_t life = comm->life;
    if (!tuttiComm::valid(life) || comm->call.take(name) != nullptr) return;
    comm_ = comm;
    // Taken first and looked at again then, as in HandleUse: retire() takes the word too.
    if (comm->life == life) communicator_ = comm->communicator.load(std::memory_order_acquire);
  }
  HandleCall(const HandleCall&) = delete;
  HandleCall& operator=(const HandleCall&) = delete;
  ~HandleCall() {
    if (comm_ != nullptr) comm_->call.give_back();
  }
  [[nodiscard]] Communicator* communicator() const { return communicator_; }

 private:
  tuttiComm* comm_ = nullptr;
  Communicator* communicator_ = nullptr;
};

// Runs `body`, which returns a Status, so that nothing is thrown across the C boundary. It may take
// the handle, which is held meanwhile; null: it is not valid.
template <typename Body>
tuttiResult_t guarded(const char* function, const tuttiComm* comm, Body&& body) {
  const HandleUse use(comm);
  try {
    if constexpr (std::is_invocable_v<Body, tuttiComm*>)
      return report(body(use.get()), use.get());
    else
      return report(body(), use.get());
  } catch (...) {
    return report_caught(function, use.get());
  }
}

// Makes the handle invalid, waits until no call uses it, and ends what it holds; of two threads
// that retire one handle, one does so. The caller has ended its operations. The handle itself stays
// in the process, for a later communicator (kRestingHandles others are used before it): a thread
// that calls with it meanwhile finds it invalid.
void retire(HandleRef ref);
// The same for a user who destroys his communicator. Errors: kInvalidArgument (it was destroyed),
// kInvalidUsage where a call of another thread is under way, by name; nothing has changed then.
[[nodiscard]] Status destroy_handle(tuttiComm* comm, const char* function);
inline constexpr std::size_t kRestingHandles = 4096;
// The same for a handle that a user still holds without knowing: it is not used again, so that his
// destroying it cannot hit another communicator.
void abandon(HandleRef ref);

// A handle's life, its communicator's rank and number of ranks, without holding it. 0 ranks: it is
// not valid, or holds no communicator, or one with a device.
struct HostMember {
  HandleRef handle;
  Rank rank = 0;
  std::int32_t ranks = 0;
};
[[nodiscard]] inline HostMember host_member_of(tuttiComm* comm) {
  if (comm == nullptr) return {};
  // Acquire pairs with the store of a life's beginning, after which no numbers of a life before are
  // read, and with that of the numbers, after which no life before is read.
  const std::uint64_t life = comm->life.load(std::memory_order_acquire);
  const std::uint64_t member = comm->host_member.load(std::memory_order_acquire);
  if (life >> tuttiComm::kLifeBits != tuttiComm::kMagic ||
      comm->life.load(std::memory_order_relaxed) != life)
    return {};
  return {{comm, life},
          static_cast<Rank>(member >> 32),
          static_cast<std::int32_t>(member & 0xffffffff)};
}

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

// A communicator that this thread's call holds.
struct OpenCall {
  Communicator* communicator;
  InFlightCall in_flight;
  Communicator* operator->() const { return communicator; }
};
// Every call that only one thread at a time may make begins with this. Errors: those of
// open_handle(); kInvalidUsage naming the call of another thread that holds the communicator.
[[nodiscard]] Result<OpenCall> enter_handle(const tuttiComm* comm, const char* function);

// Makes what the handle holds by `make`, which gets the options and a token: it stops when `cancel`
// does and when the handle is aborted, and ends the making early with an error.
using MakeCommunicator =
    std::function<Result<std::unique_ptr<Communicator>>(const CommunicatorOptions& options)>;
[[nodiscard]] Status start_handle(tuttiComm& handle, CommunicatorOptions options,
                                  const std::stop_token& cancel, const MakeCommunicator& make);
// Makes it in a thread of its own: until `start`, which calls start_handle(), has returned, the
// handle holds nothing. Errors: kInProgress, no error; kSystemError where the thread cannot start.
[[nodiscard]] Status start_later(HandleRef handle, std::function<Status(tuttiComm& handle)> start);
// kInProgress until then; afterwards what its making failed by or what the communicator suffers
// from, if anything. Errors: those of open_handle().
[[nodiscard]] Result<Code> state_of(tuttiComm* comm, const char* function);
// Ends what the handle's communicator does, or its initialization. Any thread; the handle is held.
void abort_handle(tuttiComm& handle);

// The last text of this thread, or of `comm`; valid until the next call in this thread.
const char* last_text(const tuttiComm* comm) noexcept;

}  // namespace tutti
