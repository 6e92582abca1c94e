// SPDX-License-Identifier: Apache-2.0
// RDMA against the conformance suite. Needs a device; ranks take the active ports in turn.
#include "transports/verbs/verbs_transport.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/transports/verbs/ports.hpp"
#include "transports/conformance.hpp"

namespace tutti::test {
namespace {

Result<std::unique_ptr<Transport>> make_verbs(ControlChannel& control, std::uint64_t arena_bytes) {
  const std::vector<VerbsPort> ports = usable_ports();
  const auto which = static_cast<std::size_t>(control.rank()) % std::max(ports.size(), 1UL);
  const std::string hca =
      ports.empty() ? "" : "=" + ports[which].device + ":" + std::to_string(ports[which].port);
  TUTTI_TRY_ASSIGN(VerbsWay way,
                   make_verbs_transport(control, {.hca = hca, .arena_bytes = arena_bytes}));
  return std::move(way.transport);
}

std::string missing() {
  const auto ports = verbs_ports({});
  if (!ports) return ports.error().message;
  return usable_ports().empty() ? "no active RDMA port" : "";
}

// How this thread's waits in ppoll(), by which the transport sleeps, have ended.
struct Naps {
  int slept = 0;  // to the end of their time
  int woken = 0;
};
thread_local Naps naps;

// Goodbyes that nobody acknowledges cost time, not a core: a thread that is busy meanwhile does not
// wait, or is woken each time at once.
TEST(VerbsTransport, WhoLeavesSleepsUntilItsGoodbyeHasArrived) {
  const char* const spoilable = std::getenv("SPOILABLE");  // the interfaces under the devices
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  if (spoilable == nullptr) GTEST_SKIP() << "SPOILABLE names no network interface";
  const std::string each = std::string("for d in ") + spoilable + "; do ";
  run_job(
      {.ranks = 2, .spawn = Spawn::kProcesses}, {"verbs", &make_verbs, &missing}, [&](Member& me) {
        me.connect(1 - me.rank);
        me.meet();
        if (me.rank == 0) {
          ASSERT_EQ(std::system((each + "tc qdisc add dev $d root netem loss 100%; done").c_str()),
                    0);
          me.transport->say_goodbye();
          naps = {};
          me.transport->close();
          EXPECT_GT(naps.slept, naps.woken);
          EXPECT_EQ(std::system((each + "tc qdisc del dev $d root; done").c_str()), 0);
        }
        me.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Verbs, Conformance,
                         conformance_values(Factory{"verbs", &make_verbs, &missing}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(Verbs, ConformanceOfProcesses,
                         process_values(Factory{"verbs", &make_verbs, &missing}), conformance_name);

// A cache: what is covered is not registered again, and goes with its last holder.
TEST(VerbsTransport, RegistersPagesOnceAndAsLongAsSomebodyHoldsThem) {
  const Factory verbs{"verbs", &make_verbs, &missing};
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  run_job({.ranks = 2}, verbs, [](Member& me) {
    std::vector<std::byte> memory(1 << 20);
    const std::span all(memory), part = all.subspan(100'000, 200'000);
    Transport& transport = *me.transport;
    EXPECT_FALSE(transport.may_lend(part));
    const auto first = transport.register_memory(all), second = transport.register_memory(part);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(*first, *second);
    EXPECT_TRUE(transport.may_lend(all));
    EXPECT_FALSE(transport.may_lend({memory.data(), memory.size() + 8192}));
    transport.unregister_memory(*first);
    EXPECT_TRUE(transport.may_lend(part)) << "somebody holds it";
    transport.unregister_memory(*second);
    EXPECT_FALSE(transport.may_lend(part));
    // A wider range is one of its own; the narrow one stays.
    const auto narrow = transport.register_memory(part), wide = transport.register_memory(all);
    ASSERT_TRUE(narrow && wide);
    EXPECT_NE(*narrow, *wide);
    transport.unregister_memory(*wide);
    EXPECT_TRUE(transport.may_lend(part));
    EXPECT_FALSE(transport.may_lend(all));
    transport.unregister_memory(*narrow);
    // Pages that nobody has mapped.
    const auto refused = transport.register_memory({reinterpret_cast<std::byte*>(4096), 4096});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kSystemError) << refused.error().message;
  });
}

}  // namespace

void count_nap(bool woken) { ++(woken ? naps.woken : naps.slept); }

}  // namespace tutti::test

// The program's own: found before libc's.
extern "C" __attribute__((visibility("default"))) int ppoll(pollfd* ends, nfds_t count,
                                                            const timespec* most,
                                                            const sigset_t* signals) {
  timespec left = most != nullptr ? *most : timespec{};  // the kernel writes to it
  constexpr std::size_t kSignalBytes = 8;                // as the kernel counts them
  const auto ready = static_cast<int>(
      ::syscall(SYS_ppoll, ends, count, most != nullptr ? &left : nullptr, signals, kSignalBytes));
  tutti::test::count_nap(ready != 0);
  return ready;
}
