// SPDX-License-Identifier: Apache-2.0
#include "control/root_server.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "base/clock.hpp"

namespace tutti::control {

Result<std::unique_ptr<RootServer>> RootServer::create() {
  TUTTI_TRY_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::create());
  return std::unique_ptr<RootServer>(new RootServer(std::move(loop)));
}

// As Service::run: where memory is short, what was at hand is lost, and never the program.
void RootServer::run(const std::function<bool()>& may_end) {
  while (!stopped_) {
    try {
      loop_->run_once(next_tick_ns());
      tick();
    } catch (const std::bad_alloc&) {
      constexpr std::chrono::milliseconds kMemoryPause{1};
      std::this_thread::sleep_for(kMemoryPause);
    }
    if (roots_.empty() && may_end()) break;
  }
  roots_.clear();
  doors_.clear();
}

Result<bool> RootServer::open(std::vector<Doorway>& doorways, const Log& log) {
  const auto stands = [&](const Doorway& doorway) { return doors_.contains(doorway.place); };
  if (!std::ranges::all_of(doorways,
                           [&](const Doorway& way) { return way.listener || stands(way); }))
    return false;
  for (Doorway& doorway : doorways) {
    if (!stands(doorway)) {
      auto door = std::make_shared<Lobby>(
          *loop_, *std::move(doorway.listener),
          Lobby::Options{.find_key = [this](const SessionId& session) -> std::optional<SessionKey> {
                           const Root* const root = find(session);
                           return root != nullptr ? std::optional(root->key()) : std::nullopt;
                         },
                         .self = kRootRank,
                         .log = log},
          [this](Channel channel, const SessionId& session, const Claim& claim) {
            // It may have ended since the hello.
            if (Root* const root = find(session)) root->admit(std::move(channel), claim);
          });
      TUTTI_TRY(door->open());
      doors_.emplace(doorway.place, std::move(door));
    }
    doorway.listener.reset();
    doorway.address = doors_.at(doorway.place)->address();
  }
  return true;
}

void RootServer::serve(const SessionKey& key, const Log& log, const std::vector<Doorway>& doorways,
                       std::int64_t idle_ns) {
  Root::Doors doors;
  for (const Doorway& doorway : doorways) doors.push_back(doors_.at(doorway.place));
  roots_[key.session] = std::make_unique<Root>(*loop_, key, log, std::move(doors), idle_ns);
}

Root* RootServer::find(const SessionId& session) {
  const auto found = roots_.find(session);
  return found != roots_.end() && !found->second->over() ? found->second.get() : nullptr;
}

void RootServer::tick() {
  const std::int64_t at_ns = now_ns();
  for (const auto& [place, door] : doors_) door->tick(at_ns);
  for (const auto& [session, root] : roots_) root->tick(at_ns);
  std::erase_if(roots_, [](const auto& entry) { return entry.second->over(); });
  std::erase_if(doors_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

std::int64_t RootServer::next_tick_ns() const {
  std::int64_t next_ns = INT64_MAX;
  for (const auto& [place, door] : doors_) next_ns = std::min(next_ns, door->next_tick_ns());
  for (const auto& [session, root] : roots_) next_ns = std::min(next_ns, root->next_tick_ns());
  return next_ns;
}

}  // namespace tutti::control
