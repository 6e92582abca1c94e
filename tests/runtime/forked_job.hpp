// A job of forked ranks that meet by a unique id, through the public API: what the tests of deaths
// and of direct plans begin with.
#pragma once

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "fork_harness.hpp"

namespace tutti::test {

// The id is made in the parent after all children exist.
inline testing::ForkOptions with_unique_id() {
  testing::ForkOptions options;
  options.after_fork = [] {
    tuttiUniqueId id;
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
    return std::string(id.internal, sizeof id.internal);
  };
  return options;
}

inline tuttiUniqueId id_of(const testing::ForkedRank& self) {
  tuttiUniqueId id{};
  EXPECT_EQ(self.message.size(), sizeof id.internal);
  std::memcpy(id.internal, self.message.data(), std::min(self.message.size(), sizeof id.internal));
  return id;
}

inline tuttiComm_t join(const testing::ForkedRank& self) {
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRank(&comm, self.ranks, id_of(self), self.rank), tuttiSuccess)
      << tuttiGetLastError(nullptr);
  return comm;
}

}  // namespace tutti::test
