#include "runtime/group.hpp"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti {
namespace {

using Hold = std::shared_ptr<const HandleUse>;

// Keeps what the handle holds until the group is done with it.
Result<Hold> hold(HandleRef handle) {
  Hold held = std::make_shared<const HandleUse>(handle);
  if (held->get() == nullptr)
    return make_error(Code::kInvalidUsage,
                      "a communicator of the group was destroyed before tuttiGroupEnd; nothing of "
                      "the group has run");
  return held;
}

// The initializations of a group, a thread each. The first that fails ends the others: they would
// wait for its rank.
class Inits {
 public:
  // An exception must not leave the thread that runs an initialization.
  void run(const Group::Init& init, tuttiComm& handle) {
    try {
      if (const Status status = init(handle, cancel_.get_token()); !status) fail(status.error());
    } catch (const std::exception& error) {
      fail({Code::kSystemError, fmt::format("an initialization in a group: {}", error.what())});
    }
  }
  // Keeps the cause: the first error, but what this machine refused before what ranks tell of it.
  void fail(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!cause_ || (cause_->code != Code::kSystemError && error.code == Code::kSystemError))
        cause_ = error;
    }
    cancel_.request_stop();
  }
  // After all have run.
  [[nodiscard]] Status outcome() const {
    return cause_ ? Status(tl::unexpected(*cause_)) : Status();
  }

 private:
  std::stop_source cancel_;
  std::mutex mutex_;
  std::optional<Error> cause_;  // guarded by mutex_
};

}  // namespace

Group& Group::current() {
  thread_local Group group;
  return group;
}

Status Group::leave() {
  if (depth_ == 0)
    return make_error(Code::kInvalidUsage,
                      "the end of a group without tuttiGroupStart in this "
                      "thread");
  --depth_;
  return {};
}

void Group::forget() {
  calls_.clear();
  for (const IssuedInit& init : inits_) abandon(init.handle);
  inits_.clear();
  error_.reset();
}

Status Group::drop() {
  TUTTI_TRY(leave());
  if (depth_ == 0) forget();
  return {};
}

Status Group::end() {
  TUTTI_TRY(leave());
  if (depth_ > 0) return {};
  const struct Forget {  // also after an exception
    Group& group;
    ~Forget() { group.forget(); }
  } at_the_end{*this};
  if (error_) return tl::unexpected(*error_);
  return run();
}

Status Group::run() {
  std::vector<Hold> starting;
  std::vector<HeldCall> calls;
  for (const IssuedInit& init : inits_) {
    TUTTI_TRY_ASSIGN(Hold held, hold(init.handle));
    starting.push_back(std::move(held));
  }
  for (const IssuedCall& issued : calls_) {
    TUTTI_TRY_ASSIGN(Hold held, hold(issued.handle));
    Communicator* const communicator = held->get()->communicator.get();
    calls.push_back({communicator, issued.call, std::move(held)});
  }
  Inits inits;
  std::vector<std::thread> threads;
  threads.reserve(inits_.size());
  for (std::size_t i = 1; i < inits_.size(); ++i) try {
      threads.emplace_back([&, i] { inits.run(inits_[i].run, *inits_[i].handle.comm); });
    } catch (const std::system_error& error) {
      inits.fail(
          errno_error("starting a thread for an initialization in a group", error.code().value())
              .value());
    }
  if (!inits_.empty()) inits.run(inits_[0].run, *inits_[0].handle.comm);
  for (std::thread& thread : threads) thread.join();
  TUTTI_TRY(inits.outcome());
  inits_.clear();
  return calls.empty() ? Status() : run_operations(calls);
}

}  // namespace tutti
