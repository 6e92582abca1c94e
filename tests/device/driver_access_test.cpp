// SPDX-License-Identifier: Apache-2.0
// What the driver is asked about memory of other devices, by a driver that a test provides.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>

#include "device/driver.hpp"

namespace tutti::device {
namespace {

TEST(DriverAccess, OfAPoolAndAMappingTheProgramDecides) {
  const int local = 0;
  EXPECT_FALSE(driver_is_loaded());
  EXPECT_EQ(driver_access(1, &local).allocation, Allocation::kUsual);
  void* const driver = ::dlopen(TUTTI_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << ::dlerror();
  const auto check = [&](const char* name, Allocation allocation, std::array<bool, 3> granted) {
    const char* const memory = static_cast<char*>(::dlsym(driver, name)) + 1;
    for (const int device : {0, 1, 2}) {
      const Access found = driver_access(device, memory);
      EXPECT_EQ(found.allocation, allocation) << name;
      EXPECT_EQ(found.granted, granted[static_cast<std::size_t>(device)]) << name << device;
    }
  };
  check("fake_pool_memory", Allocation::kPool, {true, true, false});
  check("fake_mapping", Allocation::kMapping, {true, true, false});  // device 2 may only read it
  check("fake_device_memory", Allocation::kUsual, {});
  check("fake_managed_memory", Allocation::kUsual, {});
  EXPECT_EQ(driver_access(1, &local).allocation, Allocation::kUsual);
}

}  // namespace
}  // namespace tutti::device
