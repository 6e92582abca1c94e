// SPDX-License-Identifier: Apache-2.0
#include "api/streams.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "api/config.hpp"
#include "api/handle.hpp"

namespace tutti {
namespace {

// The upper bytes of a handle; below them counts the process's handles. Bits 47 to 63 of an address
// are equal, these are not.
constexpr std::uint64_t kUpperBytes = 0x7475;
constexpr int kNumberBits = 48;

bool is_handle(const void* handle) {
  return reinterpret_cast<std::uintptr_t>(handle) >> kNumberBits == kUpperBytes;
}

// What a kind of handles stands for. Never destroyed, as calls may come while the process ends.
template <typename Object>
class Table {
 public:
  static Table& of_process() {
    static auto* const instance = new Table;
    return *instance;
  }
  void* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t handle = kUpperBytes << kNumberBits | ++last_;
    objects_.emplace(handle, std::move(object));
    return reinterpret_cast<void*>(handle);
  }
  std::shared_ptr<Object> find(const void* handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  // False: it was removed before.
  bool remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    return objects_.erase(reinterpret_cast<std::uintptr_t>(handle)) != 0;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::uint64_t last_ = 0;                                              // guarded by mutex_
  std::unordered_map<std::uint64_t, std::shared_ptr<Object>> objects_;  // guarded by mutex_
};

using Streams = Table<Stream>;
using Events = Table<Event>;

Result<std::shared_ptr<Stream>> find_stream(const char* function, tuttiStream_t stream) {
  std::shared_ptr<Stream> found = Streams::of_process().find(stream);
  if (found == nullptr)
    return bad_argument(function, stream == nullptr
                                      ? "stream is NULL"
                                      : "stream was not made by tuttiStreamCreate, or was "
                                        "destroyed");
  return found;
}

Result<std::shared_ptr<Event>> find_event(const char* function, tuttiEvent_t event) {
  std::shared_ptr<Event> found = Events::of_process().find(event);
  if (found == nullptr)
    return bad_argument(function, event == nullptr
                                      ? "event is NULL"
                                      : "event was not made by tuttiEventCreate, or was destroyed");
  return found;
}

tuttiResult_t in_progress_or(const char* function, const Result<bool>& done) {
  if (!done) return report(in_call(function, done.error()));
  return *done ? tuttiSuccess : tuttiInProgress;
}

}  // namespace

Result<std::shared_ptr<Stream>> stream_of(const char* function, tuttiStream_t stream,
                                          const Call& call) {
  if (stream == nullptr) return nullptr;
  if (!call.on_device && (is_handle(stream) || call.count > 0))
    return find_stream(function, stream).map_error([&](Error error) {
      error.message += "; calls with host memory take such a stream, or NULL";
      return error;
    });
  if (is_handle(stream))
    return bad_argument(function,
                        "stream was made by tuttiStreamCreate, for host memory; calls with device "
                        "memory take a cudaStream_t");
  return nullptr;
}

}  // namespace tutti

using namespace tutti;

extern "C" {

tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream) {
  constexpr const char* kName = "tuttiStreamCreate";
  return guarded(kName, nullptr, [&]() -> Status {
    if (stream == nullptr) return bad_argument(kName, "stream is NULL");
    *stream = Streams::of_process().add(std::make_shared<Stream>());
    return {};
  });
}

tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream) {
  constexpr const char* kName = "tuttiStreamDestroy";
  return guarded(kName, nullptr, [&]() -> Status {
    if (stream == nullptr) return {};
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Stream> own, find_stream(kName, stream));
    TUTTI_TRY(
        own->drain().map_error([&](Error error) { return in_call(kName, std::move(error)); }));
    // Of two threads that destroy it, one does.
    if (!Streams::of_process().remove(stream)) return {};
    own->end();
    return {};
  });
}

tuttiResult_t tuttiStreamQuery(tuttiStream_t stream) {
  constexpr const char* kName = "tuttiStreamQuery";
  tuttiResult_t answer = tuttiSuccess;
  const tuttiResult_t result = guarded(kName, nullptr, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Stream> own, find_stream(kName, stream));
    answer = in_progress_or(kName, own->done());
    return {};
  });
  return result == tuttiSuccess ? answer : result;
}

tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream) {
  constexpr const char* kName = "tuttiStreamSynchronize";
  return guarded(kName, nullptr, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Stream> own, find_stream(kName, stream));
    return own->synchronize();
  });
}

tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event) {
  constexpr const char* kName = "tuttiStreamWaitEvent";
  return guarded(kName, nullptr, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Stream> own, find_stream(kName, stream));
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Event> awaited, find_event(kName, event));
    own->wait_for(awaited->recorded());
    return {};
  });
}

tuttiResult_t tuttiLaunchHostFunc(tuttiStream_t stream, tuttiHostFn_t fn, void* userData) {
  constexpr const char* kName = "tuttiLaunchHostFunc";
  return guarded(kName, nullptr, [&]() -> Status {
    if (fn == nullptr) return bad_argument(kName, "fn is NULL");
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Stream> own, find_stream(kName, stream));
    return own->call([=] { fn(userData); }).map_error([&](Error error) {
      return in_call(kName, std::move(error));
    });
  });
}

tuttiResult_t tuttiEventCreate(tuttiEvent_t* event) {
  constexpr const char* kName = "tuttiEventCreate";
  return guarded(kName, nullptr, [&]() -> Status {
    if (event == nullptr) return bad_argument(kName, "event is NULL");
    *event = static_cast<tuttiEvent_t>(Events::of_process().add(std::make_shared<Event>()));
    return {};
  });
}

tuttiResult_t tuttiEventDestroy(tuttiEvent_t event) {
  constexpr const char* kName = "tuttiEventDestroy";
  return guarded(kName, nullptr, [&]() -> Status {
    if (event == nullptr) return {};
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Event> own, find_event(kName, event));
    Events::of_process().remove(event);
    return {};
  });
}

tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream) {
  constexpr const char* kName = "tuttiEventRecord";
  return guarded(kName, nullptr, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Event> own, find_event(kName, event));
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Stream> recorded, find_stream(kName, stream));
    own->record(*recorded);
    return {};
  });
}

tuttiResult_t tuttiEventQuery(tuttiEvent_t event) {
  constexpr const char* kName = "tuttiEventQuery";
  tuttiResult_t answer = tuttiSuccess;
  const tuttiResult_t result = guarded(kName, nullptr, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Event> own, find_event(kName, event));
    answer = in_progress_or(kName, own->done());
    return {};
  });
  return result == tuttiSuccess ? answer : result;
}

tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event) {
  constexpr const char* kName = "tuttiEventSynchronize";
  return guarded(kName, nullptr, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<Event> own, find_event(kName, event));
    return own->synchronize().map_error(
        [&](Error error) { return in_call(kName, std::move(error)); });
  });
}

}  // extern "C"
