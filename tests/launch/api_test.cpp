// SPDX-License-Identifier: Apache-2.0
// The C boundary in a process that nobody launched. Under real launchers: launcher_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using testing::HasSubstr;

// Before the library's first look: whatever has started the tests is not what is tested.
[[maybe_unused]] const int kAlone = ::setenv("TUTTI_LAUNCHER", "none", 1);

TEST(LauncherApi, RefusesWhatIsNoLauncherStruct) {
  EXPECT_EQ(tuttiGetLauncher(nullptr), tuttiInvalidArgument);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("TUTTI_LAUNCHER_INITIALIZER"));
  tuttiLauncher_t launcher = TUTTI_LAUNCHER_INITIALIZER;
  launcher.magic = 0;
  EXPECT_EQ(tuttiGetLauncher(&launcher), tuttiInvalidArgument);
  launcher = TUTTI_LAUNCHER_INITIALIZER;
  launcher.size = 8;
  EXPECT_EQ(tuttiGetLauncher(&launcher), tuttiInvalidArgument);
  EXPECT_EQ(tuttiGetLauncherUniqueId(nullptr), tuttiInvalidArgument);
}

TEST(LauncherApi, AloneIsAJobOfOneAndItsIdComesOnce) {
  const tutti::Launcher launcher = tutti::Launcher::find();
  EXPECT_STREQ(launcher.value.name, "none");
  EXPECT_STREQ(launcher.value.store, "none");
  EXPECT_EQ(launcher.rank(), 0);
  EXPECT_EQ(launcher.nranks(), 1);
  EXPECT_EQ(launcher.value.localRank, 0);
  EXPECT_EQ(launcher.value.localRanks, 1);
  tutti::Communicator comm = tutti::Communicator::from_launcher();
  std::vector<float> values(3, 2.0f);
  comm.all_reduce(values);
  EXPECT_EQ(values, std::vector<float>(3, 2.0f));
  tuttiUniqueId id;
  EXPECT_EQ(tuttiGetLauncherUniqueId(&id), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("the process has called it before"));
}

}  // namespace
