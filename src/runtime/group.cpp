#include "runtime/group.hpp"

#include <system_error>
#include <thread>

namespace tutti {

Group& Group::current() {
  thread_local Group group;
  return group;
}

Status Group::end() {
  if (depth_ == 0)
    return make_error(Code::kInvalidUsage, "tuttiGroupEnd without tuttiGroupStart in this thread");
  if (--depth_ > 0) return {};
  const auto calls = std::exchange(calls_, {});
  if (const auto error = std::exchange(error_, std::nullopt)) {
    inits_.clear();
    return tl::unexpected(*error);
  }
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
  Status spawned;
  for (std::size_t i = 1; i < inits.size(); ++i) try {
      threads.emplace_back([&, i] { results[i] = inits[i](); });
    } catch (const std::system_error& error) {
      spawned =
          errno_error("starting a thread for an initialization in a group", error.code().value());
      break;
    }
  if (spawned) results[0] = inits[0]();
  for (std::thread& thread : threads) thread.join();
  TUTTI_TRY(spawned);
  for (const Status& result : results) TUTTI_TRY(result);
  return {};
}

}  // namespace tutti
