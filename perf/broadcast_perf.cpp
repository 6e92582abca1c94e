// SPDX-License-Identifier: Apache-2.0
// broadcast_perf: measures and checks tuttiBroadcast with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  using tutti::perf::Arguments;
  return tutti::perf::run_tool({tutti::Collective::kBroadcast,
                                [](const Arguments& a) {
                                  return tuttiBroadcast(a.send, a.receive, a.count, a.type, a.root,
                                                        a.comm, a.stream);
                                }},
                               argc, argv);
}
