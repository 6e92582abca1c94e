// SPDX-License-Identifier: Apache-2.0
// The memory of ranks on devices against the suite of every transport. Ranks are threads: those of
// other processes have no share in it.
#include "tests/transports/conformance.hpp"

#include "device_transport.hpp"

namespace tutti::test {
namespace {

Result<std::unique_ptr<Transport>> make_device(ControlChannel& control, std::uint64_t arena_bytes) {
  auto& plane = dynamic_cast<ControlPlane&>(control);
  return std::make_unique<DeviceTransport>(plane.session(), plane.rank(),
                                           static_cast<Rank>(plane.peers().size()), arena_bytes);
}

auto values() {
  return testing::Combine(testing::Values(Factory{"device", &make_device}),
                          testing::Values(Spawn::kThreads));
}
INSTANTIATE_TEST_SUITE_P(Device, Conformance, values(), conformance_name);
INSTANTIATE_TEST_SUITE_P(Device, ConformanceOfShared, values(), conformance_name);

}  // namespace
}  // namespace tutti::test
