// SPDX-License-Identifier: Apache-2.0
// alltoall_perf: measures and checks tuttiAlltoAll with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  using tutti::perf::Arguments;
  return tutti::perf::run_tool({tutti::Collective::kAllToAll,
                                [](const Arguments& a) {
                                  return tuttiAlltoAll(a.send, a.receive, a.count, a.type, a.comm,
                                                       a.stream);
                                }},
                               argc, argv);
}
