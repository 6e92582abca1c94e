// SPDX-License-Identifier: Apache-2.0
// What the communicators of a process may have of a device, all together, since their kernels wait
// for each other: blocks that are resident at once, so that those that wait never keep the others
// out, and hardware queues, so that no kernel stands behind one that waits for it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/result.hpp"

namespace tutti::device {

// How many blocks a rank is to have: tuttiConfig_t's minCTAs and maxCTAs.
struct BlockRange {
  std::uint32_t least = 1, most = UINT32_MAX;
};

// A share of one device, given back when it goes. Any thread.
class Reservation {
 public:
  // Blocks of so many ranks: half of what is left; within the range for `each`, as far as that is
  // left. kSystemError where not even one for each rank is.
  [[nodiscard]] static Result<Reservation> take(int device, int resident, int ranks,
                                                const BlockRange& each);
  // A queue for each of `ranks`, of so many that the device has. kInvalidUsage where fewer are
  // left.
  [[nodiscard]] static Result<Reservation> take_queues(int device, int queues, int ranks);
  Reservation(Reservation&& other) noexcept
      : pool_(other.pool_), device_(other.device_), count_(std::exchange(other.count_, 0)) {}
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();
  [[nodiscard]] int count() const { return count_; }

 private:
  using Pool = std::map<int, int>;  // what is taken, by device
  Reservation(Pool& pool, int device, int count) : pool_(&pool), device_(device), count_(count) {
    pool[device] += count;
  }
  Pool* pool_;
  int device_;
  int count_;
};

}  // namespace tutti::device
