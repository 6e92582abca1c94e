// SPDX-License-Identifier: Apache-2.0
// alltoallv_perf: measures and checks tuttiAlltoAllv with the flags, table and JSON of nccl-tests,
// and with blocks in its pattern (common/traffic.hpp). tuttiAlltoAllv needs two buffers: in place
// the same sends and receives are timed as a group, as nccl-tests does, and not checked.
#include <charconv>
#include <cstdlib>
#include <string>

#include "common/main.hpp"

namespace {

using tutti::perf::Arguments;

tuttiResult_t in_one_buffer(const Arguments& a) {
  const tutti::perf::PeerBlocks& blocks = *a.blocks;
  const std::size_t element = tutti::perf::element_bytes(a.type);
  // What a call in the group finds wrong, its end tells too.
  if (const tuttiResult_t result = tuttiGroupStart(); result != tuttiSuccess) return result;
  for (std::size_t peer = 0; peer < blocks.send_counts.size(); ++peer) {
    const int rank = static_cast<int>(peer);
    static_cast<void>(
        tuttiSend(static_cast<const std::byte*>(a.send) + blocks.send_offsets[peer] * element,
                  blocks.send_counts[peer], a.type, rank, a.comm, a.stream));
    static_cast<void>(
        tuttiRecv(static_cast<std::byte*>(a.receive) + blocks.receive_offsets[peer] * element,
                  blocks.receive_counts[peer], a.type, rank, a.comm, a.stream));
  }
  return tuttiGroupEnd();
}

tuttiResult_t exchange(const Arguments& a) {
  if (a.blocks == nullptr) return tuttiSuccess;  // a probe: there is no operation to be missing
  if (a.send == a.receive) return in_one_buffer(a);
  return tuttiAlltoAllv(a.send, a.blocks->send_counts.data(), a.blocks->send_offsets.data(),
                        a.receive, a.blocks->receive_counts.data(),
                        a.blocks->receive_offsets.data(), a.type, a.comm, a.stream);
}

std::string complete(tutti::perf::Options& options) {
  if (std::getenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE") != nullptr)
    return "NCCL_TESTS_ALLTOALLV_MATRIX_FILE is not supported; NCCL_TESTS_ALLTOALLV_SPREAD is";
  const char* const set = std::getenv("NCCL_TESTS_ALLTOALLV_SPREAD");
  if (set == nullptr) return {};
  const std::string_view text = set;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, options.spread);
  if (error == std::errc() && rest == end && options.spread >= 0 && options.spread <= 1) return {};
  return "NCCL_TESTS_ALLTOALLV_SPREAD='" + std::string(text) + "' is not a number from 0 to 1";
}

}  // namespace

int main(int argc, char** argv) {
  tutti::perf::Tool tool{tutti::Collective::kAllToAll, exchange};
  tool.row.name = "alltoallv";
  tool.uneven = true;
  tool.complete = complete;
  return tutti::perf::run_tool(tool, argc, argv);
}
