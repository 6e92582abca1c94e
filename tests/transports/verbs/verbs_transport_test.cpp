// RDMA against the conformance suite. Needs a device; ranks take the active ports in turn.
#include "transports/verbs/verbs_transport.hpp"

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

INSTANTIATE_TEST_SUITE_P(Verbs, Conformance,
                         conformance_values(Factory{"verbs", &make_verbs, &missing}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(Verbs, ConformanceOfProcesses,
                         process_values(Factory{"verbs", &make_verbs, &missing}), conformance_name);

}  // namespace
}  // namespace tutti::test
