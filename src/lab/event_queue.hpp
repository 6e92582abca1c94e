// SPDX-License-Identifier: Apache-2.0
// Event queue: events by time, ties by their own order, for walks that never go back in time.
//
// A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan 1990) on the bits of the time, which of numbers that
// are not negative order as the numbers: bucket b holds the times that first differ from the last
// one taken in bit b. An event moves down a bucket a few times in its life instead of up and down a
// heap, and all of one time are sorted and served together: ranks in lockstep make thousands.
//
// Event has `time_ns` >= 0 and operator>. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

namespace tutti {

template <typename Event>
class EventQueue {
 public:
  // Not before the time of the last event that was popped.
  void push(const Event& event) {
    const std::uint64_t bits = bits_of(event.time_ns);
    if (bits == last_) {
      late_.push(event);
      return;
    }
    buckets_[bucket_of(bits)].push_back(event);
    ++waiting_;
    if (next_known_) next_ = std::min(next_, event.time_ns);
  }

  [[nodiscard]] bool empty() const { return at_ == now_.size() && late_.empty() && waiting_ == 0; }
  // Infinity: none.
  [[nodiscard]] double next_ns() const {
    if (at_ < now_.size()) return now_[at_].time_ns;
    if (!late_.empty()) return late_.top().time_ns;
    if (waiting_ == 0) return std::numeric_limits<double>::infinity();
    if (!next_known_) {
      next_ = std::ranges::min(buckets_[first_bucket()], {}, &Event::time_ns).time_ns;
      next_known_ = true;
    }
    return next_;
  }
  // There must be one.
  Event pop() {
    if (at_ == now_.size() && late_.empty()) refill();
    if (late_.empty() || (at_ < now_.size() && late_.top() > now_[at_])) return now_[at_++];
    const Event event = late_.top();
    late_.pop();
    return event;
  }
  // One that may be popped soon, so that its memory can be fetched; null: not known.
  [[nodiscard]] const Event* ahead(std::size_t events) const {
    return at_ + events < now_.size() ? &now_[at_ + events] : nullptr;
  }

 private:
  [[nodiscard]] static std::uint64_t bits_of(double time_ns) {
    return std::bit_cast<std::uint64_t>(time_ns + 0.0);  // no negative zero
  }
  [[nodiscard]] std::size_t bucket_of(std::uint64_t bits) const {
    return 63 - static_cast<std::size_t>(std::countl_zero(bits ^ last_));
  }
  [[nodiscard]] std::size_t first_bucket() const {
    std::size_t b = 0;
    while (buckets_[b].empty()) ++b;
    return b;
  }

  // Takes all events of the next time.
  void refill() {
    std::vector<Event>& bucket = buckets_[first_bucket()];
    const double next_ns = this->next_ns();
    last_ = bits_of(next_ns);
    next_known_ = false;
    now_.clear();
    at_ = 0;
    // All of them go to lower buckets than this one, so it is not written to.
    for (const Event& event : bucket) {
      if (event.time_ns == next_ns) {
        now_.push_back(event);
      } else {
        buckets_[bucket_of(bits_of(event.time_ns))].push_back(event);
      }
    }
    bucket.clear();
    waiting_ -= now_.size();
    const auto less = [](const Event& a, const Event& b) { return b > a; };
    if (!std::is_sorted(now_.begin(), now_.end(), less)) std::sort(now_.begin(), now_.end(), less);
  }

  std::array<std::vector<Event>, 64> buckets_;
  std::vector<Event> now_;  // of the present time, in order; taken up to at_
  std::size_t at_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> late_;  // of the present time
  std::uint64_t last_ = 0;
  std::size_t waiting_ = 0;
  mutable double next_ = 0;
  mutable bool next_known_ = false;
};

}  // namespace tutti
