// SPDX-License-Identifier: Apache-2.0
#include "device/driver.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

namespace tutti::device {
namespace {

// These declarations are from cuda.h, which a build without CUDA does not have.
using PointerGetAttribute = int(void* data, int attribute, unsigned long long pointer);
constexpr int kMemoryType = 2, kIsManaged = 8;  // CU_POINTER_ATTRIBUTE_*
constexpr unsigned kDeviceMemory = 2;           // CU_MEMORYTYPE_DEVICE

std::atomic<PointerGetAttribute*> pointer_attribute{nullptr};

}  // namespace

bool driver_is_loaded() {
  // Relaxed: a function's address, with nothing behind it.
  if (pointer_attribute.load(std::memory_order_relaxed) != nullptr) return true;
  // Kept open from here on.
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  pointer_attribute.store(
      reinterpret_cast<PointerGetAttribute*>(::dlsym(driver, "cuPointerGetAttribute")),
      std::memory_order_relaxed);
  return true;
}

bool driver_knows_for_device(const void* memory) {
  PointerGetAttribute* const ask = pointer_attribute.load(std::memory_order_relaxed);
  if (ask == nullptr) return false;
  const auto pointer = reinterpret_cast<std::uintptr_t>(memory);
  unsigned type = 0;
  if (ask(&type, kMemoryType, pointer) != 0 || type != kDeviceMemory) return false;
  unsigned managed = 0;  // a bool; the host may touch it too
  return ask(&managed, kIsManaged, pointer) != 0 || managed == 0;
}

}  // namespace tutti::device
