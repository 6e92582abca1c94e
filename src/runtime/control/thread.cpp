#include "runtime/control/thread.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <system_error>

namespace tutti::control {

Result<std::thread> spawn_thread(const char* name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> result;
  try {
    result = std::thread(std::move(body));
    ::pthread_setname_np(result->native_handle(), name);
  } catch (const std::system_error& refused) {
    result = make_error(Code::kSystemError,
                        fmt::format("cannot start thread {}: {}; raise 'ulimit -u' or the control "
                                    "group's pids.max",
                                    name, refused.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

}  // namespace tutti::control
