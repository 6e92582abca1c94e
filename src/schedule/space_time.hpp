// SPDX-License-Identifier: Apache-2.0
// Space and time of one slice: when each step runs if a message takes one unit of time and the next
// step of a lane begins one unit after the one before, and which step each message joins. Holds
// what the picture draws. (Messages in a row, without the steps between them, are Proof::depth.)
//
// Runs the schedule as it is, unproved: steps that can never run are counted, not waited for.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti {

struct Event {
  Rank rank = 0;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
  std::uint32_t time = 0;
};

struct Message {
  std::uint32_t sender = 0;    // index of the event that sent it
  std::uint32_t receiver = 0;  // and of the one that took it
  Tag tag = 0;
};

struct SpaceTime {
  std::vector<Event> events;
  std::vector<Message> messages;    // delivered ones
  std::uint32_t depth = 0;          // time of the last event
  std::uint64_t stuck_steps = 0;    // never ran: the schedule deadlocks
  std::uint64_t lost_messages = 0;  // sent and never received
};

// Slice 0, so the lanes of replica 0, with unbounded slots.
[[nodiscard]] SpaceTime space_time(const Schedule& schedule);

}  // namespace tutti
