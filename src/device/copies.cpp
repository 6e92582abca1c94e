// SPDX-License-Identifier: Apache-2.0
#include "device/copies.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"

namespace tutti::device {

// Guarded by the object's mutex. Once both have come the ends stay as they are, and the thread of
// the second one alone uses the events until `copied`.
struct Copies::Meeting {
  std::optional<CopyEnd> send, receive;
  Event marked = nullptr;      // what the first one's stream held before
  Event copy_ended = nullptr;  // on the second one's
  bool claimed = false;        // while the copy is being enqueued
  bool copied = false;         // it has been
  std::optional<Error> error;  // of either end
};

Copies::~Copies() {
  for (const Event event : events_) platform_.release_event(event);
}

Result<Event> Copies::take_event(int device) {
  {
    const Lock lock(mutex_);
    std::vector<Event>& free = free_[device];
    if (!free.empty()) {
      const Event event = free.back();
      free.pop_back();
      return event;
    }
  }
  TUTTI_TRY_ASSIGN(const Event made, platform_.make_event(device));
  const Lock lock(mutex_);
  events_.push_back(made);
  return made;
}

// At once: a stream that waits for an event waits for what it marked when that was enqueued.
void Copies::put_back(int device, Event event) {
  const Lock lock(mutex_);
  free_[device].push_back(event);
}

Status Copies::post(const CopyEnd& end, std::vector<Posted>& posted) {
  TUTTI_TRY_ASSIGN(const Event event, take_event(end.device));
  TUTTI_TRY(platform_.record(event, end.device, end.stream));
  Lock lock(mutex_);
  const auto pair = end.sends ? std::pair(end.rank, end.peer) : std::pair(end.peer, end.rank);
  const auto side = end.sends ? &Meeting::send : &Meeting::receive;
  auto& meetings = waiting_[pair];
  auto at = std::ranges::find_if(meetings, [&](const auto& one) { return !((*one).*side); });
  const bool second = at != meetings.end();
  if (!second) at = meetings.insert(at, std::make_shared<Meeting>());
  posted.push_back({end, *at, second});
  Meeting& meeting = *posted.back().meeting;
  meeting.*side = end;
  (second ? meeting.copy_ended : meeting.marked) = event;
  if (!second) return {};
  meetings.erase(at);
  if (meeting.error) return tl::unexpected(*meeting.error);
  meeting.claimed = true;
  // CUDA may wait for kernels here, and these for what other threads are to enqueue.
  lock.unlock();
  Status enqueued = copy(meeting, end.sends);
  lock.lock();
  meeting.claimed = false;
  meeting.copied = enqueued.has_value();
  if (!enqueued && !meeting.error) meeting.error = enqueued.error();
  changed_.notify_all();
  return enqueued;
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
  const auto& other = posted.end.sends ? meeting.receive : meeting.send;
  if (!other || are_alike(posted.end.signature, other->signature)) return std::nullopt;
  return other->signature;
}

// In the thread of the end that came second. In place, as a root's own block may be, nothing moves.
Status Copies::copy(Meeting& meeting, bool sends) {
  const CopyEnd &from = *meeting.send, &to = *meeting.receive;
  TUTTI_TRY(check_ends(from, to));
  const CopyEnd& own = sends ? from : to;
  TUTTI_TRY(platform_.wait(own.device, own.stream, meeting.marked));
  if (from.buffer != to.buffer)
    TUTTI_TRY(platform_.copy(own.device, own.stream, to.buffer, from.buffer,
                             to.signature.count * element_bytes(to.signature.type)));
  return platform_.record(meeting.copy_ended, own.device, own.stream);
}

Status Copies::await_one(const Posted& posted, const Look& look) {
  constexpr std::chrono::milliseconds kEvery(100);
  Meeting& meeting = *posted.meeting;
  const auto over = [&] { return meeting.copied || meeting.error || aborted_; };
  const std::int64_t since_ns = now_ns();
  Lock lock(mutex_);
  while (!changed_.wait_for(lock, kEvery, over)) {
    lock.unlock();
    const Status looked = look(posted.end, now_ns() - since_ns);
    lock.lock();
    // A peer that has come meanwhile may leave.
    if (looked || over() || meeting.claimed) continue;
    meeting.error = looked.error();
    return looked;
  }
  changed_.wait(lock, [&] { return !meeting.claimed; });
  if (meeting.copied) return {};
  if (meeting.error) return tl::unexpected(*meeting.error);
  return make_error(Code::kRemoteError, "the communicator was aborted");
}

Status Copies::await(std::span<const Posted> posted, const Look& look) {
  for (const Posted& one : posted) {
    if (one.second) continue;
    TUTTI_TRY(await_one(one, look));
    TUTTI_TRY(platform_.wait(one.end.device, one.end.stream, one.meeting->copy_ended));
    const CopyEnd& other = one.end.sends ? *one.meeting->receive : *one.meeting->send;
    put_back(one.end.device, one.meeting->marked);
    put_back(other.device, std::exchange(one.meeting->copy_ended, nullptr));
  }
  return {};
}

void Copies::give_up(std::span<const Posted> posted, const Error& error) {
  Lock lock(mutex_);
  for (const Posted& one : posted)
    if (!one.meeting->copied && !one.meeting->error) one.meeting->error = error;
  changed_.notify_all();
  for (const Posted& one : posted) {
    changed_.wait(lock, [&] { return !one.meeting->claimed; });
    if (one.second || !one.meeting->copied || one.meeting->copy_ended == nullptr) continue;
    lock.unlock();
    static_cast<void>(platform_.wait(one.end.device, one.end.stream, one.meeting->copy_ended));
    lock.lock();
  }
}

void Copies::abort() {
  const Lock lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

}  // namespace tutti::device
