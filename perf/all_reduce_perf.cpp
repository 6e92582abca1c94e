// all_reduce_perf: measures and checks tuttiAllReduce with the flags, table and JSON of nccl-tests.
#include "common/main.hpp"

int main(int argc, char** argv) {
  // Each rank's link carries 2(n-1)/n of the data at least, whatever the algorithm.
  constexpr auto kFactor = [](int ranks) { return 2.0 * (ranks - 1) / ranks; };
  const tutti::perf::Collective all_reduce{
      "all_reduce_perf", "all_reduce", kFactor,
      [](const void* send, void* receive, std::size_t count, tuttiDataType_t type, tuttiRedOp_t op,
         int /*root*/, tuttiComm_t comm, tuttiStream_t stream) {
        return tuttiAllReduce(send, receive, count, type, op, comm, stream);
      }};
  return tutti::perf::run_tool(all_reduce, argc, argv);
}
