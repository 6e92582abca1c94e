// SPDX-License-Identifier: Apache-2.0
// One thread for all roots of a process: their doors, their meetings.
//
// A door is a listening socket with its lobby; roots that are reached at the same place share it,
// and it is closed with the last of them. Everything but post() runs on the thread of run(), and
// nothing of it blocks. Knows nothing of the thread itself, nor of processes (root_registry.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/root.hpp"

namespace tutti::control {

// A place where ranks can come to a root.
struct Doorway {
  std::string place{};                 // doors of equal places are one
  std::optional<Listener> listener{};  // to make the door with, if it is not there yet
  std::string address{};               // where it listens, once it is there
};

class RootServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RootServer>> create();

  // Serves until stop(), or until no root is left and `may_end` says yes.
  void run(const std::function<bool()>& may_end);
  void stop() { stopped_ = true; }
  // Runs `work` on the thread of run(), soon. Any thread.
  void post(std::function<void()> work) { loop_->post(std::move(work)); }

  // Gives every doorway its address, and makes doors of the listeners that are needed. False: some
  // doorway has neither a door nor a listener; nothing was changed. Error: kSystemError.
  [[nodiscard]] Result<bool> open(std::vector<Doorway>& doorways, const Log& log);
  // A root behind doorways that are open.
  void serve(const SessionKey& key, const Log& log, const std::vector<Doorway>& doorways,
             std::int64_t idle_ns);
  [[nodiscard]] Root* find(const SessionId& session);  // null: none

 private:
  explicit RootServer(std::unique_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  [[nodiscard]] std::int64_t next_tick_ns() const;
  void tick();

  std::unique_ptr<EventLoop> loop_;
  std::map<std::string, std::shared_ptr<Lobby>> doors_;  // by place
  std::map<SessionId, std::unique_ptr<Root>> roots_;     // before their doors are gone
  bool stopped_ = false;
};

}  // namespace tutti::control
