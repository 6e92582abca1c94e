// SPDX-License-Identifier: Apache-2.0
// Functions that are declared so that programs compile, and that this version does not have: each
// returns tuttiNotSupported with a text that names it.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include "api/group.hpp"
#include "api/handle.hpp"

namespace {

tuttiResult_t not_supported(const char* function, const tuttiComm* comm = nullptr) {
  const tutti::Error error{tutti::Code::kNotSupported,
                           fmt::format("{} is not supported in this version of Tutti", function)};
  tutti::Group& group = tutti::Group::current();
  if (group.active()) group.fail(error);
  return tutti::report(error, comm);
}

}  // namespace

extern "C" {

tuttiResult_t tuttiSend(const void*, size_t, tuttiDataType_t, int, tuttiComm_t comm,
                        tuttiStream_t) {
  return not_supported("tuttiSend", comm);
}

tuttiResult_t tuttiRecv(void*, size_t, tuttiDataType_t, int, tuttiComm_t comm, tuttiStream_t) {
  return not_supported("tuttiRecv", comm);
}

}  // extern "C"
