// SPDX-License-Identifier: Apache-2.0
#include "device/driver.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <atomic>
#include <cstdint>

namespace tutti::device {
namespace {

// These declarations are from cuda.h, which a build without CUDA does not have.
using PointerGetAttribute = int(void* data, int attribute, unsigned long long pointer);
constexpr int kMemoryType = 2, kIsManaged = 8, kIsLegacyIpcCapable = 10,
              kMempoolHandle = 17;     // CU_POINTER_ATTRIBUTE_*
constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE
struct MemLocation {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
using MemPoolGetAccess = int(unsigned* flags, void* pool, MemLocation* location);
using MemGetAccess = int(unsigned long long* flags, const MemLocation* location,
                         unsigned long long pointer);
constexpr unsigned kReadWrite = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE

std::atomic<PointerGetAttribute*> pointer_attribute{nullptr};

// Of the driver that the process has; null: it is too old to have it.
template <class Function>
Function* driver_function(const char* name) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  auto* const function = reinterpret_cast<Function*>(::dlsym(driver, name));
  ::dlclose(driver);  // driver_is_loaded() keeps it open
  return function;
}

}  // namespace

std::atomic<bool> driver_detail::was_found{false};

bool driver_is_loaded() {
  if (driver_was_found()) return true;
  // Kept open from here on.
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  pointer_attribute.store(
      reinterpret_cast<PointerGetAttribute*>(::dlsym(driver, "cuPointerGetAttribute")),
      std::memory_order_relaxed);
  // Release: who sees it sees the function.
  driver_detail::was_found.store(true, std::memory_order_release);
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

Access driver_access(int device, const void* memory) {
  static_cast<void>(driver_is_loaded());  // looks for it where nobody has
  PointerGetAttribute* const ask = pointer_attribute.load(std::memory_order_relaxed);
  if (ask == nullptr) return {};
  const auto pointer = reinterpret_cast<std::uintptr_t>(memory);
  // An int that only cudaMalloc's memory sets; of the others the program decides who has access.
  int legacy = 0;
  if (ask(&legacy, kIsLegacyIpcCapable, pointer) != 0 || legacy != 0) return {};
  MemLocation location{.id = device};
  void* pool = nullptr;
  if (ask(&pool, kMempoolHandle, pointer) == 0 && pool != nullptr) {
    static auto* const pool_access = driver_function<MemPoolGetAccess>("cuMemPoolGetAccess");
    unsigned flags = 0;
    if (pool_access == nullptr || pool_access(&flags, pool, &location) != 0) return {};
    return {.allocation = Allocation::kPool, .granted = flags == kReadWrite};
  }
  static auto* const mapping_access = driver_function<MemGetAccess>("cuMemGetAccess");
  unsigned long long flags = 0;
  // It refuses memory that is no mapping.
  if (mapping_access == nullptr || mapping_access(&flags, &location, pointer) != 0) return {};
  return {.allocation = Allocation::kMapping, .granted = flags == kReadWrite};
}

std::string describe_unreachable(Allocation allocation, int owner, int device) {
  if (allocation == Allocation::kUsual) return fmt::format("memory of device {}", owner);
  const bool pool = allocation == Allocation::kPool;
  return fmt::format("memory {} device {} without access for device {} ({} gives it)",
                     pool ? "of a pool of" : "mapped on", owner, device,
                     pool ? "cudaMemPoolSetAccess" : "cuMemSetAccess");
}

}  // namespace tutti::device
