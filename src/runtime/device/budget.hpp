// How many blocks the communicators of a process may have resident on a device, all together:
// blocks wait for each other, so those that wait must never keep the others out.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.hpp"

namespace tutti::device {

// Blocks of one device, given back when it goes.
class Reservation {
 public:
  // Half of what is left, at least `least`. kSystemError where that is more than is left.
  [[nodiscard]] static Result<Reservation> take(int device, int resident, int least);
  Reservation(Reservation&& other) noexcept
      : device_(other.device_), blocks_(std::exchange(other.blocks_, 0)) {}
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();
  [[nodiscard]] int blocks() const { return blocks_; }

 private:
  Reservation(int device, int blocks) : device_(device), blocks_(blocks) {}
  int device_;
  int blocks_;
};

}  // namespace tutti::device
