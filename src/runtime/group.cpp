#include "runtime/group.hpp"

#include <fmt/format.h>

#include <system_error>
#include <thread>

namespace tutti {
namespace {

// An exception must not leave the thread that runs an initialization.
Status run_guarded(const std::function<Status()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    return make_error(Code::kSystemError,
                      fmt::format("an initialization in a group: {}", error.what()));
  }
}

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
  for (const Init& init : inits_) init.discard();
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
  if (error_) {
    const Error error = *error_;
    forget();
    return tl::unexpected(error);
  }
  const auto calls = std::exchange(calls_, {});
  TUTTI_TRY(run_inits());
  if (calls.empty()) return {};
  return run_operations(calls);
}

Status Group::run_inits() {
  const auto inits = std::exchange(inits_, {});
  if (inits.empty()) return {};
  std::vector<Status> results(inits.size());
  std::vector<std::thread> threads;
  threads.reserve(inits.size());
  for (std::size_t i = 1; i < inits.size(); ++i) try {
      threads.emplace_back([&, i] { results[i] = run_guarded(inits[i].run); });
    } catch (const std::system_error& error) {
      results[i] =
          errno_error("starting a thread for an initialization in a group", error.code().value());
    }
  results[0] = run_guarded(inits[0].run);
  for (std::thread& thread : threads) thread.join();
  Status first_error;
  for (std::size_t i = 0; i < inits.size(); ++i)
    if (!results[i]) {
      inits[i].discard();
      if (first_error) first_error = results[i];
    }
  return first_error;
}

}  // namespace tutti
