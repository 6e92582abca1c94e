// TCP against the conformance suite, over IPv4 and IPv6, and what is its alone.
#include "transports/tcp/tcp_transport.hpp"

#include "transports/conformance.hpp"

namespace tutti::test {
namespace {

Result<std::unique_ptr<Transport>> make_v4(ControlChannel& control, std::uint64_t arena_bytes) {
  return make_tcp_transport(control, {.ip = "127.0.0.1", .arena_bytes = arena_bytes});
}
Result<std::unique_ptr<Transport>> make_v6(ControlChannel& control, std::uint64_t arena_bytes) {
  return make_tcp_transport(control, {.ip = "::1", .arena_bytes = arena_bytes});
}

INSTANTIATE_TEST_SUITE_P(TcpV4, Conformance, conformance_values(Factory{"tcp_v4", &make_v4}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(TcpV6, Conformance, conformance_values(Factory{"tcp_v6", &make_v6}),
                         conformance_name);

}  // namespace
}  // namespace tutti::test
