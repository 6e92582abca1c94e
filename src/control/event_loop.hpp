// SPDX-License-Identifier: Apache-2.0
// A small epoll loop: callbacks by token, and work posted from other threads.
//
// One thread runs the loop and owns every callback; only post() may be called from elsewhere.
// A callback may remove any watch, its own too. Knows nothing of sockets' contents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/process_fd.hpp"
#include "base/result.hpp"

namespace tutti::control {

class EventLoop {
 public:
  using Token = std::uint64_t;  // never reused; 0 is never given
  using Callback = std::function<void(std::uint32_t events)>;

  [[nodiscard]] static Result<std::unique_ptr<EventLoop>> create();

  // The descriptor stays the caller's and must outlive remove(). 0 if the kernel refuses.
  [[nodiscard]] Token add(int fd, std::uint32_t events, Callback callback);
  void modify(Token token, std::uint32_t events);
  void remove(Token token);
  // Waits for events until `until_ns` (monotonic; INT64_MAX: for ever) and serves what came.
  // Returns how many there were.
  int run_once(std::int64_t until_ns);
  // Runs `work` on the loop's thread, soon. Any thread. Needs no memory for as few as are under way
  // when a rank leaves.
  void post(std::function<void()> work);

 private:
  struct Watch {
    int fd;
    std::shared_ptr<Callback> callback;
  };

  EventLoop(ProcessFd epoll, ProcessFd wake);
  void run_posted();
  [[nodiscard]] std::function<void()> take_posted();
  void wake();

  static constexpr std::size_t kPostedWithoutMemory = 64;

  ProcessFd epoll_;
  ProcessFd wake_;
  Token next_token_ = 1;
  std::unordered_map<Token, Watch> watches_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
  std::size_t next_posted_ = 0;                // guarded by mutex_: those before have run
};

}  // namespace tutti::control
