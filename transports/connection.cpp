// SPDX-License-Identifier: Apache-2.0
// Names of what connection.hpp declares. The operations themselves are inline.
#include "transports/connection.hpp"

namespace tutti {

const char* name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kFlagged:
      return "flagged";
    case Protocol::kSlots:
      return "slots";
    case Protocol::kDirect:
      return "direct";
  }
  return "?";
}

}  // namespace tutti
