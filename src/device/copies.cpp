// SPDX-License-Identifier: Apache-2.0
#include "device/copies.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"

namespace tutti::device {

// Guarded by the object's mutex. Once both have come the ends stay as they are.
struct Copies::Meeting {
  std::optional<CopyEnd> send, receive;
  Event marked = nullptr;      // what the sender's stream held before
  Event copy_ended = nullptr;  // on the receiver's stream
  bool claimed = false;        // while the receiver is enqueuing the copy
  bool copied = false;         // it has
  std::optional<Error> error;  // of either end
};

Copies::~Copies() {
  for (const Event event : events_) platform_.release_event(event);
}

Result<Event> Copies::take_event(int device) {
  const Lock lock(mutex_);
  std::vector<Event>& free = free_[device];
  if (free.empty()) {
    TUTTI_TRY_ASSIGN(const Event made, platform_.make_event(device));
    events_.push_back(made);
    return made;
  }
  const Event event = free.back();
  free.pop_back();
  return event;
}

// At once: a stream that waits for an event waits for what it marked when that was enqueued.
void Copies::put_back(int device, Event event) {
  const Lock lock(mutex_);
  free_[device].push_back(event);
}

Result<Copies::Posted> Copies::post(const CopyEnd& end) {
  Event marked = nullptr;
  if (end.sends()) {
    TUTTI_TRY_ASSIGN(marked, take_event(end.device));
    TUTTI_TRY(platform_.record(marked, end.device, end.stream));
  }
  const Lock lock(mutex_);
  const auto pair = end.sends() ? std::pair(end.rank, end.peer()) : std::pair(end.peer(), end.rank);
  const auto side = end.sends() ? &Meeting::send : &Meeting::receive;
  auto& meetings = waiting_[pair];
  auto at = std::ranges::find_if(meetings, [&](const auto& one) { return !((*one).*side); });
  if (at == meetings.end()) at = meetings.insert(at, std::make_shared<Meeting>());
  std::shared_ptr<Meeting> meeting = *at;
  (*meeting).*side = end;
  if (end.sends()) meeting->marked = marked;
  if (meeting->send && meeting->receive) meetings.erase(at);
  changed_.notify_all();
  return Posted{end, std::move(meeting)};
}

// Waits for receivers that are enqueuing a copy: its buffers may be freed afterwards.
void Copies::give_up(std::span<const Posted> posted, const Error& error) {
  Lock lock(mutex_);
  for (const Posted& one : posted)
    if (!one.meeting->error) one.meeting->error = error;
  changed_.notify_all();
  for (const Posted& one : posted) changed_.wait(lock, [&] { return !one.meeting->claimed; });
}

void Copies::abort() {
  const Lock lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

Status Copies::await(const Posted& posted, const std::function<bool()>& there, const Look& look,
                     Lock& lock) {
  constexpr std::chrono::milliseconds kEvery(100);
  const Meeting& meeting = *posted.meeting;
  const auto over = [&] { return there() || meeting.error || aborted_; };
  const std::int64_t since_ns = now_ns();
  while (!changed_.wait_for(lock, kEvery, over)) {
    lock.unlock();
    const Status looked = look(posted.end, now_ns() - since_ns);
    lock.lock();
    // A peer that has done its part meanwhile may leave.
    if (!looked && !over()) return looked;
  }
  if (there()) return {};
  if (meeting.error) return tl::unexpected(*meeting.error);
  return make_error(Code::kRemoteError, "the communicator was aborted");
}

namespace {

bool are_alike(const OperationSignature& sent, const OperationSignature& received) {
  return sent.count == received.count && sent.type == received.type && sent.plan == received.plan;
}

Status check_ends(const CopyEnd& send, const CopyEnd& receive) {
  if (!are_alike(send.signature, receive.signature))
    return make_error(
        Code::kInvalidUsage,
        fmt::format("calls do not match: rank {} called {}; rank {} called {}", send.rank,
                    send.signature.to_string(), receive.rank, receive.signature.to_string()),
        send.rank);
  if (send.capture == receive.capture) return {};
  return make_error(
      Code::kNotSupported,
      fmt::format("{} by rank {}: its stream and the receiver's are not captured into one graph; "
                  "capture both into the same one, or none",
                  send.signature.to_string(), send.rank));
}

}  // namespace

std::optional<OperationSignature> Copies::differs(const Posted& posted) {
  const Lock lock(mutex_);
  const Meeting& meeting = *posted.meeting;
  const auto& other = posted.end.sends() ? meeting.receive : meeting.send;
  if (!other || are_alike(posted.end.signature, other->signature)) return std::nullopt;
  return other->signature;
}

// In the receiver's thread, which alone uses a claimed meeting's events.
Status Copies::copy(Meeting& meeting) {
  const CopyEnd &from = *meeting.send, &to = *meeting.receive;
  TUTTI_TRY(check_ends(from, to));
  TUTTI_TRY_ASSIGN(meeting.copy_ended, take_event(to.device));
  TUTTI_TRY(platform_.wait(to.device, to.stream, meeting.marked));
  TUTTI_TRY(platform_.copy(to.device, to.stream, to.buffer, from.buffer,
                           to.signature.count * element_bytes(to.signature.type)));
  return platform_.record(meeting.copy_ended, to.device, to.stream);
}

Status Copies::receive_one(const Posted& posted, const Look& look) {
  Meeting& meeting = *posted.meeting;
  Lock lock(mutex_);
  TUTTI_TRY(await(
      posted, [&] { return meeting.send && !meeting.error; }, look, lock));
  meeting.claimed = true;
  // CUDA may wait for kernels here, and these for what other threads are to enqueue.
  lock.unlock();
  Status enqueued = copy(meeting);
  lock.lock();
  meeting.claimed = false;
  meeting.copied = enqueued.has_value();
  changed_.notify_all();
  return enqueued;
}

Status Copies::send_one(const Posted& posted, const Look& look) {
  Meeting& meeting = *posted.meeting;
  {
    Lock lock(mutex_);
    TUTTI_TRY(await(
        posted, [&] { return meeting.copied; }, look, lock));
  }
  TUTTI_TRY(platform_.wait(posted.end.device, posted.end.stream, meeting.copy_ended));
  put_back(posted.end.device, meeting.marked);
  put_back(meeting.receive->device, meeting.copy_ended);
  return {};
}

Status Copies::finish_all(std::span<const Posted> posted, bool sends, Finish finish,
                          const Look& look) {
  for (const Posted& one : posted) {
    if (one.end.sends() != sends) continue;
    Status finished = (this->*finish)(one, look);
    if (finished) continue;
    give_up(posted, finished.error());
    return finished;
  }
  return {};
}

Status Copies::receive(std::span<const Posted> posted, const Look& look) {
  return finish_all(posted, false, &Copies::receive_one, look);
}
Status Copies::send(std::span<const Posted> posted, const Look& look) {
  return finish_all(posted, true, &Copies::send_one, look);
}

}  // namespace tutti::device
