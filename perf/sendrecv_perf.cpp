// SPDX-License-Identifier: Apache-2.0
// sendrecv_perf: every rank sends to the next one and receives from the one before, in one group,
// with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

namespace {

tuttiResult_t exchange(const tutti::perf::Arguments& a) {
  int rank = 0, ranks = 0;
  if (const tuttiResult_t result = tuttiCommUserRank(a.comm, &rank); result != tuttiSuccess)
    return result;
  if (const tuttiResult_t result = tuttiCommCount(a.comm, &ranks); result != tuttiSuccess)
    return result;
  // What a call in the group finds wrong, its end tells too.
  if (const tuttiResult_t result = tuttiGroupStart(); result != tuttiSuccess) return result;
  static_cast<void>(tuttiSend(a.send, a.count, a.type, (rank + 1) % ranks, a.comm, a.stream));
  static_cast<void>(
      tuttiRecv(a.receive, a.count, a.type, (rank + ranks - 1) % ranks, a.comm, a.stream));
  return tuttiGroupEnd();
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::perf::run_tool(
      {"sendrecv", exchange, [](int rank, int ranks) { return (rank + ranks - 1) % ranks; }}, argc,
      argv);
}
