// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/order.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "schedule/verify/step_checks.hpp"

namespace tutti::proof {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
// The words of all clocks of one batch; clocks that do not fit go into another pass.
constexpr std::uint64_t kClockWords = std::uint64_t{16} << 20;

// One touch of one location, in the order of a slice.
struct Access {
  std::uint32_t step = 0;
  std::uint32_t location = 0;  // within its owner
  bool write = false;
  bool remote = false;
};

// The owners whose locations one pass looks at, and the lanes whose progress its clocks count.
struct Batch {
  std::vector<Rank> owners;
  std::vector<std::uint32_t> lanes;
};

// A step of a lane in a slice: `time` counts the lane's steps over all slices, from 1.
struct Epoch {
  std::uint32_t step = 0;
  std::uint32_t slice = 0;
  std::uint32_t component = 0;
  std::uint32_t time = 0;
};

struct LocationState {
  std::optional<Epoch> write;
  std::vector<Epoch> reads;  // since the write, the last of each lane
};

class OrderChecker {
 public:
  OrderChecker(const Model& model, const std::vector<std::uint32_t>& order)
      : model_(model), order_(order), component_(model.lanes.size(), kNone) {}

  Result<std::uint64_t> check() {
    gather();
    for (const Batch& batch : batches()) TUTTI_TRY(check_batch(batch));
    return walked_;
  }

 private:
  template <typename F>
  void for_each_access(std::uint32_t step, F&& f) const;
  void gather();
  [[nodiscard]] std::vector<std::uint32_t> lanes_of(Rank owner) const;
  [[nodiscard]] std::vector<Batch> batches() const;
  [[nodiscard]] Status check_batch(const Batch& batch);
  void tick(std::uint32_t step, std::uint32_t slice);
  void join(std::uint32_t* clock, std::uint32_t step, std::uint32_t slice) const;
  [[nodiscard]] Status check_accesses(Rank owner, std::uint32_t slice);
  [[nodiscard]] Status check_access(Rank owner, const Access& access, std::uint32_t slice);
  [[nodiscard]] Status check_remote(Rank owner) const;
  [[nodiscard]] tl::unexpected<Error> race(Rank owner, const Access& access, std::uint32_t slice,
                                           const Epoch& other, bool other_writes) const;

  [[nodiscard]] std::uint32_t* clock(std::uint32_t step, std::uint32_t slice) {
    return clocks_.data() + (std::size_t{slice} * model_.steps.size() + step) * components_;
  }
  [[nodiscard]] const std::uint32_t* clock(std::uint32_t step, std::uint32_t slice) const {
    return clocks_.data() + (std::size_t{slice} * model_.steps.size() + step) * components_;
  }
  [[nodiscard]] std::uint32_t time_of(std::uint32_t step, std::uint32_t slice) const {
    const FlatStep& flat = model_.steps[step];
    return slice * model_.lanes[flat.lane].steps + flat.index + 1;
  }

  const Model& model_;
  const std::vector<std::uint32_t>& order_;
  std::vector<std::vector<Access>> accesses_;  // by owner: to locations that can conflict, remotes
  bool scratch_conflicts_ = false;
  std::vector<std::uint32_t> component_;  // by lane, of the batch at hand
  std::size_t components_ = 0;
  std::vector<std::uint32_t> clocks_;  // [slice][step][component]
  std::unordered_map<std::uint64_t, LocationState> states_;
  std::uint64_t walked_ = 0;
};

template <typename F>
void OrderChecker::for_each_access(std::uint32_t step, F&& f) const {
  const FlatStep& flat = model_.steps[step];
  const auto each = [&](const Operand& operand, bool write) {
    if (is_message(operand)) return;
    const bool remote = operand.kind == OperandKind::kRemote;
    const Rank owner = remote ? operand.peer : model_.rank_of(flat);
    for (std::uint32_t k = 0; k < operand.span.count(); ++k)
      f(owner,
        Access{step, location_of(model_.shape(), model_.replica, operand, k), write, remote});
  };
  for (const Operand& operand : flat.step->sources) each(operand, false);
  for (const Operand& operand : flat.step->destinations) each(operand, true);
}

// Keeps the accesses that order matters to: those to locations that two lanes touch and at least
// one writes, and all remote ones. A ring has none, so that its proof ends here.
void OrderChecker::gather() {
  const ScheduleShape& shape = model_.shape();
  const auto ranks = static_cast<std::size_t>(shape.ranks);
  const std::size_t stride = locations_of(shape);
  struct Use {
    std::uint32_t lane = kNone;
    bool shared = false;
    bool written = false;
  };
  std::vector<Use> uses(ranks * stride);
  const auto use_of = [&](Rank owner, const Access& access) -> Use& {
    return uses[static_cast<std::size_t>(owner) * stride + access.location];
  };
  for (const std::uint32_t step : order_) {
    for_each_access(step, [&](Rank owner, const Access& access) {
      Use& use = use_of(owner, access);
      const std::uint32_t lane = model_.steps[step].lane;
      if (use.lane == kNone) use.lane = lane;
      use.shared = use.shared || use.lane != lane;
      use.written = use.written || access.write;
    });
  }
  accesses_.resize(ranks);
  for (const std::uint32_t step : order_) {
    for_each_access(step, [&](Rank owner, const Access& access) {
      const Use& use = use_of(owner, access);
      const bool conflicts = use.shared && use.written;
      if (!conflicts && !access.remote) return;
      accesses_[static_cast<std::size_t>(owner)].push_back(access);
      scratch_conflicts_ =
          scratch_conflicts_ || (conflicts && is_scratch_room(shape, access.location));
    });
  }
}

// The lanes whose progress matters to accesses of `owner`'s memory; with remote accesses, all of
// the owner's too.
std::vector<std::uint32_t> OrderChecker::lanes_of(Rank owner) const {
  const auto o = static_cast<std::size_t>(owner);
  std::vector<std::uint32_t> lanes;
  bool remote = false;
  for (const Access& access : accesses_[o]) {
    lanes.push_back(model_.steps[access.step].lane);
    remote = remote || access.remote;
  }
  if (remote)
    for (std::uint32_t l = model_.rank_lanes[o]; l < model_.rank_lanes[o + 1]; ++l)
      lanes.push_back(l);
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  return lanes;
}

std::vector<Batch> OrderChecker::batches() const {
  const std::uint64_t slices = scratch_conflicts_ ? model_.shape().scratch_versions + 1U : 1U;
  const std::uint64_t limit = kClockWords / (model_.steps.size() * slices + 1) + 1;
  std::vector<Batch> batches;
  std::vector<bool> counted(model_.lanes.size());
  for (Rank owner = 0; owner < model_.shape().ranks; ++owner) {
    if (accesses_[static_cast<std::size_t>(owner)].empty()) continue;
    const std::vector<std::uint32_t> lanes = lanes_of(owner);
    if (batches.empty() || batches.back().lanes.size() + lanes.size() > limit) {
      batches.emplace_back();
      counted.assign(counted.size(), false);
    }
    Batch& batch = batches.back();
    batch.owners.push_back(owner);
    for (const std::uint32_t lane : lanes) {
      if (counted[lane]) continue;
      counted[lane] = true;
      batch.lanes.push_back(lane);
    }
  }
  return batches;
}

Status OrderChecker::check_batch(const Batch& batch) {
  const std::uint32_t last_slice = scratch_conflicts_ ? model_.shape().scratch_versions : 0;
  std::fill(component_.begin(), component_.end(), kNone);
  for (std::uint32_t c = 0; c < batch.lanes.size(); ++c) component_[batch.lanes[c]] = c;
  components_ = batch.lanes.size();
  clocks_.assign(std::size_t{last_slice + 1} * model_.steps.size() * components_, 0);
  for (std::uint32_t slice = 0; slice <= last_slice; ++slice)
    for (const std::uint32_t step : order_) tick(step, slice);
  for (const Rank owner : batch.owners) {
    states_.clear();
    TUTTI_TRY(check_accesses(owner, 0));
    if (last_slice > 0) TUTTI_TRY(check_accesses(owner, last_slice));
    TUTTI_TRY(check_remote(owner));
  }
  return {};
}

void OrderChecker::join(std::uint32_t* into, std::uint32_t step, std::uint32_t slice) const {
  const std::uint32_t* from = clock(step, slice);
  for (std::size_t c = 0; c < components_; ++c) into[c] = std::max(into[c], from[c]);
}

void OrderChecker::tick(std::uint32_t step, std::uint32_t slice) {
  ++walked_;
  const FlatStep& flat = model_.steps[step];
  std::uint32_t* now = clock(step, slice);
  if (flat.index > 0)
    join(now, step - 1, slice);
  else if (slice > 0)
    join(now, step + model_.lanes[flat.lane].steps - 1, slice - 1);
  for (const std::uint32_t m : model_.recvs_of(flat)) join(now, model_.messages[m].sender, slice);
  for (const FlatWait& wait : model_.waits_of(flat))
    if (wait.back <= slice) join(now, wait.step, slice - wait.back);
  if (component_[flat.lane] != kNone) now[component_[flat.lane]] = time_of(step, slice);
}

// Input and output of different slices are distinct: they count in slice 0 only. Scratch counts in
// slice 0 and in the next one of the same version.
Status OrderChecker::check_accesses(Rank owner, std::uint32_t slice) {
  for (const Access& access : accesses_[static_cast<std::size_t>(owner)])
    if (slice == 0 || is_scratch_room(model_.shape(), access.location))
      TUTTI_TRY(check_access(owner, access, slice));
  return {};
}

Status OrderChecker::check_access(Rank owner, const Access& access, std::uint32_t slice) {
  LocationState& state = states_[access.location];
  const std::uint32_t* now = clock(access.step, slice);
  const auto before = [&](const Epoch& other) { return now[other.component] >= other.time; };
  if (state.write && !before(*state.write)) return race(owner, access, slice, *state.write, true);
  const std::uint32_t component = component_[model_.steps[access.step].lane];
  const Epoch here{access.step, slice, component, time_of(access.step, slice)};
  if (access.write) {
    for (const Epoch& read : state.reads)
      if (!before(read)) return race(owner, access, slice, read, false);
    state.write = here;
    state.reads.clear();
    return {};
  }
  const auto mine = std::ranges::find(state.reads, component, &Epoch::component);
  if (mine == state.reads.end())
    state.reads.push_back(here);
  else
    *mine = here;
  return {};
}

// A path from the owner's begin to the access leaves the owner through one of its steps, and one
// from the access to the owner's end enters it through one.
Status OrderChecker::check_remote(Rank owner) const {
  const auto o = static_cast<std::size_t>(owner);
  const std::uint32_t first = model_.rank_lanes[o], last = model_.rank_lanes[o + 1];
  for (const Access& access : accesses_[o]) {
    if (!access.remote) continue;
    const std::uint32_t* at = clock(access.step, 0);
    const std::uint32_t component = component_[model_.steps[access.step].lane];
    bool begun = false, awaited = false;
    for (std::uint32_t l = first; l < last; ++l) {
      const FlatLane& lane = model_.lanes[l];
      begun = begun || at[component_[l]] > 0;
      const std::uint32_t* end = clock(lane.first_step + lane.steps - 1, 0);
      awaited = awaited || end[component] >= time_of(access.step, 0);
    }
    if (!begun)
      return model_.fall_at(Rule::kRemoteBegin, access.step,
                            fmt::format("touches memory of rank {} with no message that shows "
                                        "that it has begun",
                                        owner));
    if (!awaited)
      return model_.fall_at(Rule::kRemoteEnd, access.step,
                            fmt::format("touches memory of rank {}, which may end without a "
                                        "message that shows that this is over",
                                        owner));
  }
  return {};
}

tl::unexpected<Error> OrderChecker::race(Rank owner, const Access& access, std::uint32_t slice,
                                         const Epoch& other, bool other_writes) const {
  return model_.fall_at(
      Rule::kRace, access.step,
      fmt::format("in slice {} {} {} of rank {}, unordered with the {} in slice {} by {}", slice,
                  access.write ? "writes" : "reads",
                  name_of_location(model_.shape(), access.location), owner,
                  other_writes ? "write" : "read", other.slice,
                  describe(*model_.schedule, model_.site_of(other.step))));
}

}  // namespace

Result<std::uint64_t> check_order(const Model& model, const std::vector<std::uint32_t>& order) {
  return OrderChecker(model, order).check();
}

}  // namespace tutti::proof
