// SPDX-License-Identifier: Apache-2.0
// RDMA where the build had no headers of libibverbs.
#include "transports/verbs/verbs_transport.hpp"

namespace tutti {
namespace {

tl::unexpected<Error> absent() {
  return make_error(Code::kNotSupported,
                    "this build has no RDMA: it was built without the headers of libibverbs "
                    "(Debian: libibverbs-dev); set TUTTI_TRANSPORT=tcp");
}

}  // namespace

bool has_verbs_transport() { return false; }

std::string text_of(const VerbsPort& port) { return port.device; }

Result<std::vector<VerbsPort>> verbs_ports(const VerbsOptions& /*options*/) { return absent(); }

Result<VerbsWay> make_verbs_transport(ControlChannel& /*control*/,
                                      const VerbsOptions& /*options*/) {
  return absent();
}

}  // namespace tutti
