// SPDX-License-Identifier: Apache-2.0
#include "device/budget.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>

namespace tutti::device {
namespace {

struct Taken {
  std::mutex mutex;
  std::map<int, int> blocks, queues;  // by device; guarded by mutex
};
Taken& taken() {
  static auto* const all = new Taken;  // never destroyed: communicators may outlive main
  return *all;
}

}  // namespace

Result<Reservation> Reservation::take(int device, int resident, int ranks, const BlockRange& each) {
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
  const int used = all.blocks[device];
  const int left = resident - used;
  if (ranks > left)
    return make_error(
        Code::kSystemError,
        fmt::format("device {} runs {} blocks at once, and other communicators hold {} of them, so "
                    "{} more ranks do not fit; destroy communicators that are no longer needed, "
                    "or set maxCTAs of the earlier ones",
                    device, resident, used, ranks));
  const auto of_all = [&](std::uint32_t blocks) {
    return static_cast<int>(std::min<std::int64_t>(std::int64_t{ranks} * blocks, left));
  };
  const int most = std::max(of_all(each.most), ranks);
  const int least = std::min(of_all(std::max(each.least, 1U)), most);
  return Reservation(all.blocks, device, std::clamp(left / 2, least, most));
}

Result<Reservation> Reservation::take_queues(int device, int queues, int ranks) {
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
  const int used = all.queues[device];
  if (ranks > queues - used)
    return make_error(
        Code::kInvalidUsage,
        fmt::format("{} ranks of device {} are captured into graphs of their own, and of its {} "
                    "hardware queues (CUDA_DEVICE_MAX_CONNECTIONS) other communicators' graphs "
                    "have {}; capture them in one group call, or set the variable to 32 at most",
                    ranks, device, queues, used));
  return Reservation(all.queues, device, ranks);
}

Reservation::~Reservation() {
  if (count_ == 0) return;
  const std::lock_guard lock(taken().mutex);
  (*pool_)[device_] -= count_;
}

}  // namespace tutti::device
