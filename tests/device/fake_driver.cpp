// SPDX-License-Identifier: Apache-2.0
// What a program's driver is to a library that cannot use it: libcuda.so.1, which knows of two
// allocations, one of a device's memory and one of managed memory, and of nothing else.
#include <cstdint>

extern "C" {

__attribute__((visibility("default"))) alignas(64) char fake_device_memory[64];
__attribute__((visibility("default"))) alignas(64) char fake_managed_memory[64];

__attribute__((visibility("default"))) int cuPointerGetAttribute(void* data, int attribute,
                                                                 unsigned long long pointer) {
  const auto within = [pointer](const char* memory) {
    return pointer - reinterpret_cast<std::uintptr_t>(memory) < 64;
  };
  const bool managed = within(fake_managed_memory);
  if (!managed && !within(fake_device_memory)) return 1;  // CUDA_ERROR_INVALID_VALUE
  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE and its CU_MEMORYTYPE_DEVICE; the other asks for a bool.
  if (attribute == 2)
    *static_cast<unsigned*>(data) = 2;
  else
    *static_cast<bool*>(data) = managed;
  return 0;
}
}
