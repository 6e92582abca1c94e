// SPDX-License-Identifier: Apache-2.0
// all_gather_perf: measures and checks tuttiAllGather with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  using tutti::perf::Arguments;
  return tutti::perf::run_tool({tutti::Collective::kAllGather,
                                [](const Arguments& a) {
                                  return tuttiAllGather(a.send, a.receive, a.count, a.type, a.comm,
                                                        a.stream);
                                }},
                               argc, argv);
}
