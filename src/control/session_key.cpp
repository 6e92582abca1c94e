// SPDX-License-Identifier: Apache-2.0
#include "control/session_key.hpp"

#include <sodium.h>

namespace tutti::control {

SessionKey make_session_key() {
  SessionKey key;
  ::randombytes_buf(key.session.data(), key.session.size());
  ::randombytes_buf(key.secret.data(), key.secret.size());
  return key;
}

}  // namespace tutti::control
