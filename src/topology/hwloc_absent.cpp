// SPDX-License-Identifier: Apache-2.0
// hwloc_reader.hpp in a build without hwloc.
#include "topology/hwloc_reader.hpp"

namespace tutti::topology {
namespace {

tl::unexpected<Error> absent() {
  return make_error(Code::kNotSupported,
                    "this build has no hwloc and cannot look at machines; install libhwloc-dev and "
                    "configure with -DTUTTI_HWLOC=ON");
}

}  // namespace

bool has_hwloc() { return false; }
Result<Graph> read_this_machine() { return absent(); }
Result<Graph> read_hwloc_file(const std::string&) { return absent(); }
Result<Graph> read_hwloc_text(std::string, const std::string&) { return absent(); }
Result<Graph> read_synthetic(const std::string&) { return absent(); }
Result<Graph> read_host(const std::function<const char*(const char*)>&) { return absent(); }

}  // namespace tutti::topology
