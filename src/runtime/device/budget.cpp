#include "runtime/device/budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace tutti::device {
namespace {

struct Taken {
  std::mutex mutex;
  std::map<int, int> blocks;  // by device; guarded by mutex
};
Taken& taken() {
  static auto* const all = new Taken;  // never destroyed: communicators may outlive main
  return *all;
}

}  // namespace

Result<Reservation> Reservation::take(int device, int resident, int least) {
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
  int& used = all.blocks[device];
  const int left = resident - used;
  if (least > left)
    return make_error(Code::kSystemError,
                      fmt::format("device {} runs {} blocks at once, of which {} belong to other "
                                  "communicators; {} more ranks do not fit; destroy some",
                                  device, resident, used, least));
  const int blocks = std::max(left / 2, least);
  used += blocks;
  return Reservation(device, blocks);
}

Reservation::~Reservation() {
  if (blocks_ == 0) return;
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
  all.blocks[device_] -= blocks_;
}

}  // namespace tutti::device
