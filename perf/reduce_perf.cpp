// SPDX-License-Identifier: Apache-2.0
// reduce_perf: measures and checks tuttiReduce with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  using tutti::perf::Arguments;
  return tutti::perf::run_tool({tutti::Collective::kReduce,
                                [](const Arguments& a) {
                                  return tuttiReduce(a.send, a.receive, a.count, a.type, a.op,
                                                     a.root, a.comm, a.stream);
                                }},
                               argc, argv);
}
