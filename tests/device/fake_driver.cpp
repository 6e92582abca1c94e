// SPDX-License-Identifier: Apache-2.0
// What a program's driver is to a library that cannot use it: libcuda.so.1, which knows of four
// allocations, and of nothing else: memory of cudaMalloc, managed memory, memory of a pool and a
// mapping. Devices 0 and 1 have access to the last two; device 2 may read the mapping.
#include <cstdint>

extern "C" {

#define TUTTI_FAKE __attribute__((visibility("default")))

alignas(64) TUTTI_FAKE char fake_device_memory[64];
alignas(64) TUTTI_FAKE char fake_managed_memory[64];
alignas(64) TUTTI_FAKE char fake_pool_memory[64];
alignas(64) TUTTI_FAKE char fake_mapping[64];

namespace {

int fake_pool;
constexpr int kInvalidValue = 1;  // CUDA_ERROR_INVALID_VALUE
// CU_POINTER_ATTRIBUTE_*
enum Attribute { kMemoryType = 2, kIsManaged = 8, kIsLegacyIpcCapable = 10, kMempoolHandle = 17 };
struct Location {
  int type, id;
};

bool within(const char* memory, unsigned long long pointer) {
  return pointer - reinterpret_cast<std::uintptr_t>(memory) < 64;
}
unsigned access_of(const Location& location, unsigned others) {
  constexpr unsigned kReadWrite = 3;
  return location.type == 1 && location.id < 2 ? kReadWrite : others;
}

}  // namespace

TUTTI_FAKE int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  const bool managed = within(fake_managed_memory, pointer),
             pool = within(fake_pool_memory, pointer), usual = within(fake_device_memory, pointer);
  if (!managed && !pool && !usual && !within(fake_mapping, pointer)) return kInvalidValue;
  switch (attribute) {
    case kMemoryType:
      *static_cast<unsigned*>(data) = 2;  // CU_MEMORYTYPE_DEVICE
      return 0;
    case kIsManaged:
      *static_cast<bool*>(data) = managed;
      return 0;
    case kIsLegacyIpcCapable:
      *static_cast<bool*>(data) = usual;
      return 0;
    case kMempoolHandle:
      *static_cast<void**>(data) = pool ? &fake_pool : nullptr;
      return 0;
    default:
      return kInvalidValue;
  }
}

TUTTI_FAKE int cuMemPoolGetAccess(unsigned* flags, void* pool, Location* location) {
  if (pool != &fake_pool) return kInvalidValue;
  *flags = access_of(*location, 0);
  return 0;
}

TUTTI_FAKE int cuMemGetAccess(unsigned long long* flags, const Location* location,
                              unsigned long long pointer) {
  if (!within(fake_mapping, pointer)) return kInvalidValue;
  *flags = access_of(*location, 1);
  return 0;
}
}
