// SPDX-License-Identifier: Apache-2.0
#include "plan/access.hpp"

namespace tutti {

const char* name_of(PeerAccess access) {
  switch (access) {
    case PeerAccess::kNone:
      return "none";
    case PeerAccess::kAttach:
      return "attach";
    case PeerAccess::kMapped:
      return "mapped";
  }
  return "?";
}

}  // namespace tutti
