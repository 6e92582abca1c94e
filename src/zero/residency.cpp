// SPDX-License-Identifier: Apache-2.0
#include "zero/residency.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tutti::zero {

Residency::Residency(const Plan& plan, const Layout& layout, std::span<const Unit> units,
                     State& state, Links& links)
    : plan_(plan),
      layout_(layout),
      units_(units),
      state_(state),
      links_(links),
      gatherer_(make_plain_gatherer(links, plan.config.compute)),
      pool_(memory_of(plan, layout).gathered),
      slots_(static_cast<std::size_t>(plan.gather_slots)),
      slot_of_(static_cast<std::size_t>(layout.units()), kNone) {
  std::byte* place = pool_.data();
  for (int number = 0; number < plan.gather_slots; ++number) {
    slot(number).data = place;
    place += bytes_of(plan.config.compute) * (plan.config.keep_after_forward
                                                  ? layout.padded_elements(number)
                                                  : layout.largest_padded_elements());
  }
}

const std::byte* Residency::data(int unit) const {
  const int number = slot_of_[static_cast<std::size_t>(unit)];
  return number == kNone ? nullptr : slots_[static_cast<std::size_t>(number)].data;
}

int Residency::any_in_use() const {
  const auto found = std::ranges::find(slots_, Phase::kOpen, &Slot::phase);
  return found == slots_.end() ? -1 : found->unit;
}

void Residency::open(int unit, Pass pass) {
  int& number = slot_of_[static_cast<std::size_t>(unit)];
  if (number == kNone) {
    check_room(unit);
    number = take({unit, pass});
    gather_ahead();  // before waiting, so that the communicator does not run dry
    links_.wait(slot(number).gathered);
  }
  Slot& place = slot(number);
  place.phase = Phase::kOpen;
  ++place.scopes;
  place.backward = place.backward || pass == Pass::kBackward;
}

void Residency::close(int unit) {
  Slot& place = slot(slot_of_[static_cast<std::size_t>(unit)]);
  if (--place.scopes > 0) return;
  if (plan_.config.keep_after_forward && !place.backward) {
    place.phase = Phase::kKept;
    return;
  }
  release(place);
  gather_ahead();
}

// Where a unit stays, each has a slot of its own, so there is always room.
void Residency::check_room(int unit) const {
  if (plan_.config.keep_after_forward) return;
  const auto open = std::ranges::count(slots_, Phase::kOpen, &Slot::phase);
  if (open < plan_.config.units_in_use) return;
  std::string names;
  for (const Slot& place : slots_)
    if (place.phase == Phase::kOpen)
      names +=
          (names.empty() ? "'" : ", '") + units_[static_cast<std::size_t>(place.unit)].name + "'";
  throw std::invalid_argument("unit '" + units_[static_cast<std::size_t>(unit)].name +
                              "' is used while " + names +
                              " are in use; Config::units_in_use allows " +
                              std::to_string(plan_.config.units_in_use) + " at once");
}

int Residency::free_slot(int unit) const {
  if (plan_.config.keep_after_forward)
    return slots_[static_cast<std::size_t>(unit)].phase == Phase::kFree ? unit : kNone;
  const auto found = std::ranges::find(slots_, Phase::kFree, &Slot::phase);
  return found == slots_.end() ? kNone : static_cast<int>(found - slots_.begin());
}

int Residency::issue(const Entry& entry, int number) {
  Slot& place = slot(number);
  const std::uint64_t padded = layout_.padded_elements(entry.unit);
  place.unit = entry.unit;
  place.phase = Phase::kAhead;
  place.backward = false;
  gatherer_->gather(state_.shard_parameters(entry.unit), place.data, padded);
  links_.gather_stream.record(place.gathered);
  Usage& usage = links_.usage;
  ++usage.gathers;
  (entry.pass == Pass::kForward ? usage.forward_gather_bytes : usage.backward_gather_bytes) +=
      gatherer_->bytes_sent(padded);
  live_bytes_ += padded * bytes_of(plan_.config.compute);
  usage.peak_gathered_bytes = std::max(usage.peak_gathered_bytes, live_bytes_);
  if (!plan_.config.overlap) links_.wait(place.gathered);
  return number;
}

int Residency::take(const Entry& entry) {
  recorded_.push_back(entry);
  if (replays_ && (next_ == learnt_.size() || learnt_[next_].unit != entry.unit)) stop_replaying();
  if (!replays_) return issue(entry, free_slot(entry.unit));
  ++next_;
  if (ahead_.empty()) return issue(entry, free_slot(entry.unit));
  const int number = ahead_.front();
  ahead_.pop_front();
  ++links_.usage.prefetch_hits;
  return number;
}

void Residency::stop_replaying() {
  replays_ = false;
  for (const int number : ahead_) {
    links_.wait(slot(number).gathered);
    release(slot(number));
  }
  ahead_.clear();
}

void Residency::gather_ahead() {
  while (replays_ && static_cast<int>(ahead_.size()) < plan_.config.prefetch &&
         next_ + ahead_.size() < learnt_.size()) {
    const Entry& entry = learnt_[next_ + ahead_.size()];
    const int number = free_slot(entry.unit);
    if (number == kNone) return;
    ahead_.push_back(issue(entry, number));
  }
}

void Residency::release(Slot& place) {
  const std::uint64_t bytes = layout_.padded_elements(place.unit) * bytes_of(plan_.config.compute);
  if (plan_.config.poison) std::memset(place.data, kPoisonByte, bytes);
  live_bytes_ -= bytes;
  int& number = slot_of_[static_cast<std::size_t>(place.unit)];
  if (place.phase != Phase::kAhead) number = kNone;
  place.unit = -1;
  place.phase = Phase::kFree;
}

void Residency::drop() {
  stop_replaying();
  for (Slot& place : slots_)
    if (place.phase == Phase::kKept) release(place);
}

void Residency::begin_step() {
  if (!recorded_.empty()) learnt_ = std::move(recorded_);
  recorded_.clear();
  next_ = 0;
  replays_ = !learnt_.empty();
  gather_ahead();
}

}  // namespace tutti::zero
