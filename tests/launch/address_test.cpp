// SPDX-License-Identifier: Apache-2.0
// Addresses as people write them. Meeting at one: launcher_test.py, in processes of their own.
#include "launch/address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Root, IsHostAndPort) {
  const auto written = [](const char* root) {
    const Result<HostPort> parsed = parse_root(root);
    return parsed ? parsed->host + " " + std::to_string(parsed->port) : parsed.error().message;
  };
  EXPECT_EQ(written("node0:7000"), "node0 7000");
  EXPECT_EQ(written("10.0.0.1:65535"), "10.0.0.1 65535");
  EXPECT_EQ(written("[fd00::1]:1"), "fd00::1 1");
  EXPECT_EQ(written("a.b-c.example:80"), "a.b-c.example 80");
}

TEST(Root, ThatIsNoneIsOneLine) {
  for (const char* root : {"node0", "node0:", ":7000", "node0:0", "node0:65536", "node0:-1",
                           "node0:7000x", "node0: 7000", "fd00::1:7000", "[]:7000", ":", "[::1]"}) {
    const Result<HostPort> parsed = parse_root(root);
    ASSERT_FALSE(parsed) << root;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message,
                AllOf(HasSubstr("'" + std::string(root) + "'"), HasSubstr("node0:7000"),
                      HasSubstr("TUTTI_ROOT"), Not(HasSubstr("\n"))));
  }
}

// The way of the message must follow from what the launcher is.
TEST(MeetAtAddress, SaysWhatIsMissing) {
  Place place;
  place.launcher = "srun";
  place.store = Store::kAddress;
  place.rank = 1;
  place.ranks = 4;
  const auto message = [&](const Config& config) {
    const Result<UniqueId> id = meet_at_address(place, config, Log());
    return id ? std::string("an id") : id.error().message;
  };
  EXPECT_THAT(message({}), HasSubstr("use srun --mpi=pmi2"));
  place.launcher = "torch";
  EXPECT_THAT(message({}), AllOf(HasSubstr("torch has no key-value store, so its 4 ranks"),
                                 Not(HasSubstr("srun"))));
  place.root = "127.0.0.1:7000";
  EXPECT_THAT(message({}), HasSubstr("torch does not give the ranks a secret"));
  Config config;
  config.secret_file = "/nowhere/at/all";
  EXPECT_THAT(message(config), HasSubstr("TUTTI_SECRET_FILE /nowhere/at/all"));
  config.insecure = true;
  EXPECT_THAT(message(config), HasSubstr("both set"));
}

TEST(MeetAtAddress, TheJobsNameIsPartOfTheId) {
  Place place;
  place.launcher = "environment";
  place.store = Store::kAddress;
  place.rank = 1;  // rank 0 would listen
  place.ranks = 2;
  place.root = "127.0.0.1:7000";
  Config config;
  config.insecure = true;
  const auto id = [&] { return meet_at_address(place, config, Log()).value().bytes; };
  const auto first = id();
  EXPECT_EQ(id(), first);
  config.job = "another";
  const auto named = id();
  EXPECT_NE(named, first);
  place.job = "restart 1";
  EXPECT_NE(id(), named);
}

}  // namespace
}  // namespace tutti::launch
