// SPDX-License-Identifier: Apache-2.0
// A program that has a CUDA driver, and a library that cannot use it, through the C API: device
// memory is refused, not touched.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <array>

namespace tutti::test {
namespace {

using testing::HasSubstr;

TEST(DeviceDriver, DeviceMemoryIsRefusedWhereTheLibraryCannotUseTheDriver) {
  void* const driver = ::dlopen(TUTTI_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << ::dlerror();
  auto* const device = static_cast<float*>(::dlsym(driver, "fake_device_memory"));
  auto* const managed = static_cast<float*>(::dlsym(driver, "fake_managed_memory"));
  ASSERT_NE(device, nullptr);
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess) << tuttiGetLastError(nullptr);
  int number = 0;
  ASSERT_EQ(tuttiCommCuDevice(comm, &number), tuttiSuccess);
  EXPECT_EQ(number, TUTTI_DEVICE_HOST);
  std::array<float, 8> host{1, 2, 3};
  for (const auto& [from, to] : {std::pair{device, device},
                                 {device + 1, host.data()},
                                 {host.data(), device},
                                 {managed, device + 1}}) {
    EXPECT_EQ(tuttiAllReduce(from, to, 8, tuttiFloat, tuttiSum, comm, nullptr), tuttiNotSupported);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("device memory, but rank 0 has no CUDA device"));
  }
  EXPECT_EQ(tuttiAllReduce(host.data(), managed, 8, tuttiFloat, tuttiSum, comm, nullptr),
            tuttiSuccess)
      << tuttiGetLastError(comm);
  EXPECT_EQ(managed[2], 3);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

}  // namespace
}  // namespace tutti::test
