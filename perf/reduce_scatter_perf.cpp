// SPDX-License-Identifier: Apache-2.0
// reduce_scatter_perf: measures and checks tuttiReduceScatter with the flags, table and JSON of
// nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  using tutti::perf::Arguments;
  return tutti::perf::run_tool({tutti::Collective::kReduceScatter,
                                [](const Arguments& a) {
                                  return tuttiReduceScatter(a.send, a.receive, a.count, a.type,
                                                            a.op, a.comm, a.stream);
                                }},
                               argc, argv);
}
