// SPDX-License-Identifier: Apache-2.0
// What a spec may not be beyond what the conformance suite tries: sizes that no test's arena has.
#include "transports/spec_check.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(SpecCheck, ASlotIsNoLargerThanAMessageCanBe) {
  constexpr SpecLimits kLimits{.ranks = 2, .arena_bytes = std::uint64_t{64} << 30};
  ConnectionSpec spec{.source = 0,
                      .destination = 1,
                      .protocol = Protocol::kSlots,
                      .slots = 2,
                      .slot_bytes = kMaxSlotBytes};
  EXPECT_TRUE(check_spec(spec, kLimits));
  for (const std::uint64_t bytes :
       {kMaxSlotBytes + 64, (std::uint64_t{1} << 32) + 64, std::uint64_t{32} << 30}) {
    spec.slot_bytes = bytes;
    const Status status = check_spec(spec, kLimits);
    ASSERT_FALSE(status) << bytes;
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_EQ(status.error().message, "connection 0 -> 1 #0: slots may not be larger than 2 GiB");
  }
}

}  // namespace
}  // namespace tutti
