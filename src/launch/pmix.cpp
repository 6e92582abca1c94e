// SPDX-License-Identifier: Apache-2.0
// The key-value store of a PMIx server, through libpmix.
//
// libpmix's calls take no deadline that every server keeps, so they run on a thread of their own;
// its owner waits for it until the deadline and then leaves it to itself.
//
// A process is the server's client once: to a server, a client that has finalized has left the job,
// so a second PMIx_Init of one rank breaks the fence that others are in already.
#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "control/thread.hpp"
#include "launch/key_value.hpp"
#include "launch/pmix_abi.hpp"

namespace tutti::launch {
namespace {

struct Library {
  pmix::InitCall init = nullptr;
  pmix::FinalizeCall finalize = nullptr;
  pmix::PutCall put = nullptr;
  pmix::CommitCall commit = nullptr;
  pmix::FenceCall fence = nullptr;
  pmix::GetCall get = nullptr;
  pmix::ErrorStringCall error_string = nullptr;
};

template <typename Call>
bool find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(::dlsym(library, name));
  return call != nullptr;
}

// Never unloaded: its threads may outlive a call that timed out.
Result<Library> load_library() {
  constexpr const char* kName = "libpmix.so.2";
  void* const handle = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return make_error(
        Code::kNotSupported,
        fmt::format("the launcher's key-value store is PMIx and {} cannot be loaded ({}): install "
                    "it (Debian: libpmix2) or add its folder to LD_LIBRARY_PATH, or set TUTTI_ROOT "
                    "and TUTTI_SECRET_FILE",
                    kName, why != nullptr ? why : "the loader gave no reason"));
  }
  Library library;
  const bool all =
      find(handle, "PMIx_Init", library.init) && find(handle, "PMIx_Finalize", library.finalize) &&
      find(handle, "PMIx_Put", library.put) && find(handle, "PMIx_Commit", library.commit) &&
      find(handle, "PMIx_Fence", library.fence) && find(handle, "PMIx_Get", library.get) &&
      find(handle, "PMIx_Error_string", library.error_string);
  if (!all)
    return make_error(
        Code::kNotSupported,
        fmt::format("{} lacks a function that every PMIx library has; check that it is PMIx",
                    kName));
  return library;
}

// The membership of the server's clients, from PMIx_Init to PMIx_Finalize. One thread at a time.
class Client {
 public:
  explicit Client(const Library& library) : library_(library) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() {
    // A forked child has no part in its parent's connection.
    if (open_ && ::getpid() == owner_) static_cast<void>(library_.finalize(nullptr, 0));
  }

  // The libpmix function that runs now or ran last; any thread.
  [[nodiscard]] const char* step() const { return step_.load(std::memory_order_relaxed); }

  Status open() {
    if (open_) return {};
    TUTTI_TRY(check("PMIx_Init", [&] { return library_.init(&self_, nullptr, 0); }));
    open_ = true;
    return {};
  }
  Status close() {
    open_ = false;
    return check("PMIx_Finalize", [&] { return library_.finalize(nullptr, 0); });
  }
  Status put(const std::string& text) {
    std::string copy = text;
    pmix::Value value{};
    value.type = pmix::kString;
    value.data.string = copy.data();
    TUTTI_TRY(check("PMIx_Put", [&] { return library_.put(pmix::kGlobal, kValueKey, &value); }));
    return check("PMIx_Commit", [&] { return library_.commit(); });
  }
  // Returns when all ranks of the job have called it; what was put is known everywhere then.
  Status fence() {
    pmix::Info collect{};
    std::strncpy(collect.key, pmix::kCollect, sizeof(collect.key) - 1);
    collect.value.type = pmix::kBool;
    collect.value.data.flag = true;
    const pmix::Proc all = process(pmix::kAllRanks);
    return check("PMIx_Fence", [&] { return library_.fence(&all, 1, &collect, 1); });
  }
  Result<std::string> get_text(pmix::RankNumber rank) {
    return get(process(rank), kValueKey, pmix::kString).map([](const Held& value) {
      return std::string(value->data.string != nullptr ? value->data.string : "");
    });
  }
  Result<std::int32_t> get_number(pmix::RankNumber rank, const char* key, std::uint16_t type) {
    return get(process(rank), key, type).map([type](const Held& value) {
      return static_cast<std::int32_t>(type == pmix::kUint16 ? value->data.uint16
                                                             : value->data.uint32);
    });
  }
  [[nodiscard]] pmix::RankNumber rank() const { return self_.rank; }

 private:
  struct Free {
    void operator()(pmix::Value* value) const {
      if (value->type == pmix::kString) std::free(value->data.string);
      std::free(value);
    }
  };
  using Held = std::unique_ptr<pmix::Value, Free>;

  [[nodiscard]] pmix::Proc process(pmix::RankNumber rank) const {
    pmix::Proc other = self_;
    other.rank = rank;
    return other;
  }
  Result<Held> get(const pmix::Proc& whose, const char* key, std::uint16_t type) {
    pmix::Value* raw = nullptr;
    TUTTI_TRY(check("PMIx_Get", [&] { return library_.get(&whose, key, nullptr, 0, &raw); }));
    Held value(raw);
    if (value && value->type == type) return value;
    return make_error(
        Code::kSystemError,
        fmt::format("PMIx_Get: {} has another type than the PMIx standard says", key));
  }
  template <typename Call>
  Status check(const char* step, Call&& call) {
    step_.store(step, std::memory_order_relaxed);  // for the owner's message, orders nothing
    const pmix::Status status = call();
    if (status == pmix::kOk) return {};
    const char* const text = library_.error_string(status);
    return make_error(Code::kSystemError,
                      fmt::format("{}: {} ({})", step, text != nullptr ? text : "?", status));
  }

  const Library library_;
  std::atomic<const char*> step_{"PMIx_Init"};  // static texts
  pmix::Proc self_{};
  const pid_t owner_ = ::getpid();
  bool open_ = false;
};

// The process's client between calls; finalized when the process ends, at the latest.
struct Kept {
  std::mutex mutex;
  std::shared_ptr<Client> client;  // guarded by mutex; null: none yet, in use, or left to itself
};
Kept& kept() {
  static Kept instance;
  return instance;
}

Result<std::shared_ptr<Client>> take_client() {
  const std::lock_guard lock(kept().mutex);
  if (kept().client) return std::exchange(kept().client, nullptr);
  return load_library().map(
      [](const Library& library) { return std::make_shared<Client>(library); });
}

void keep_client(std::shared_ptr<Client> client) {
  const std::lock_guard lock(kept().mutex);
  kept().client = std::move(client);
}

template <typename T>
struct Task {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Result<T>> result;  // guarded by mutex
};

// Runs body(client) on a thread of its own, and waits for it.
template <typename T>
Result<T> with_client(const Place& place, Deadline deadline,
                      std::function<Result<T>(Client&)> body) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<Client> client, take_client());
  const auto task = std::make_shared<Task<T>>();
  TUTTI_TRY_ASSIGN(std::thread thread,
                   control::spawn_thread("tutti-pmix", [task, client, body = std::move(body)] {
                     Result<T> result = client->open().and_then([&] { return body(*client); });
                     const std::lock_guard lock(task->mutex);
                     task->result = std::move(result);
                     task->ended.notify_all();
                   }));
  std::unique_lock lock(task->mutex);
  const auto until =
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns));
  if (!task->ended.wait_until(lock, until, [&] { return task->result.has_value(); })) {
    thread.detach();
    return make_error(Code::kTimeout,
                      fmt::format("PMIx of {}: {} did not return in time: a rank has not reached "
                                  "this call, or the launcher hangs (TUTTI_INIT_TIMEOUT_S)",
                                  place.launcher, client->step()));
  }
  Result<T> result = *std::move(task->result);
  lock.unlock();
  thread.join();
  keep_client(client);
  return std::move(result).map_error([&](Error error) {
    error.message = fmt::format("PMIx of {}: {}", place.launcher, error.message);
    return error;
  });
}

}  // namespace

Result<std::string> exchange_by_pmix(const StoreCall& call) {
  const bool gives = call.place.rank == 0;
  return with_client<std::string>(
      call.place, call.deadline,
      [gives, value = call.value](Client& client) -> Result<std::string> {
        if (gives) TUTTI_TRY(client.put(value));
        TUTTI_TRY(client.fence());
        TUTTI_TRY_ASSIGN(std::string text, client.get_text(0));
        TUTTI_TRY(client.close());
        return text;
      });
}

Status complete_by_pmix(Place& place, Deadline deadline) {
  struct Numbers {
    std::int32_t rank, ranks, local_rank, local_ranks;
  };
  TUTTI_TRY_ASSIGN(
      const Numbers numbers,
      with_client<Numbers>(place, deadline, [](Client& client) -> Result<Numbers> {
        Numbers found{static_cast<std::int32_t>(client.rank()), 0, kUnknown, kUnknown};
        TUTTI_TRY_ASSIGN(found.ranks,
                         client.get_number(pmix::kAllRanks, pmix::kJobSize, pmix::kUint32));
        found.local_rank =
            client.get_number(client.rank(), pmix::kLocalRank, pmix::kUint16).value_or(kUnknown);
        found.local_ranks =
            client.get_number(pmix::kAllRanks, pmix::kLocalSize, pmix::kUint32).value_or(kUnknown);
        return found;
      }));
  place.rank = numbers.rank;
  place.ranks = numbers.ranks;
  place.local_rank = numbers.local_rank;
  place.local_ranks = numbers.local_ranks;
  return check_place(place);
}

}  // namespace tutti::launch
