// SPDX-License-Identifier: Apache-2.0
// scatter_perf: measures and checks tuttiScatter with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  using tutti::perf::Arguments;
  return tutti::perf::run_tool({tutti::Collective::kScatter,
                                [](const Arguments& a) {
                                  return tuttiScatter(a.send, a.receive, a.count, a.type, a.root,
                                                      a.comm, a.stream);
                                }},
                               argc, argv);
}
