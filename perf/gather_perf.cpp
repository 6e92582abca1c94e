// SPDX-License-Identifier: Apache-2.0
// gather_perf: measures and checks tuttiGather with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  using tutti::perf::Arguments;
  return tutti::perf::run_tool({tutti::Collective::kGather,
                                [](const Arguments& a) {
                                  return tuttiGather(a.send, a.receive, a.count, a.type, a.root,
                                                     a.comm, a.stream);
                                }},
                               argc, argv);
}
