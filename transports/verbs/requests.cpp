// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/requests.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tutti::verbs {

Write part_of(const Write& write, std::uint64_t offset, std::uint64_t bytes) {
  const auto cut = [](const Piece& piece, std::uint64_t from, std::uint64_t most) {
    const std::uint64_t begin = std::min(from, piece.bytes);
    return Piece{piece.from + begin, std::min(most, piece.bytes - begin), piece.local_key};
  };
  Write part = write;
  part.first = cut(write.first, offset, bytes);
  part.second =
      cut(write.second, offset - std::min(offset, write.first.bytes), bytes - part.first.bytes);
  part.to += offset;
  if (offset + bytes < write.bytes()) part.immediate = std::nullopt;
  return part;
}

void Chain::add(const Write& write, bool signalled) {
  ibv_send_wr& request = requests_[length_];
  request = {};
  request.wr_id = ++last_;
  request.sg_list = pieces_[length_].data();
  for (const Piece& piece : {write.first, write.second})
    if (piece.bytes > 0)
      request.sg_list[request.num_sge++] = {.addr = reinterpret_cast<std::uintptr_t>(piece.from),
                                            .length = static_cast<std::uint32_t>(piece.bytes),
                                            .lkey = piece.local_key};
  request.opcode = write.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (write.immediate) request.imm_data = htonl(*write.immediate);
  request.wr.rdma.remote_addr = write.to;
  request.wr.rdma.rkey = write.remote_key;
  unsigned flags = 0;
  if (write.bytes() != 0 && write.bytes() <= limits_.inline_bytes) flags |= IBV_SEND_INLINE;
  if (signalled || last_ - last_signalled_ >= limits_.signal_every) {
    flags |= IBV_SEND_SIGNALED;
    last_signalled_ = last_;
  }
  request.send_flags = flags;
  if (length_ > 0) requests_[length_ - 1].next = &request;
  ++length_;
}

namespace {

struct Words {
  ibv_wc_status status;
  std::string_view name, text;
};
// All but RETRY_EXC_ERR, which cause_of says in full.
constexpr Words kWords[] = {
    {IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR", "a message was longer than its memory here"},
    {IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR", "this rank's adapter could not carry out a request"},
    {IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR",
     "this rank's adapter found its end-to-end context inconsistent"},
    {IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR", "the adapter may not read the memory to be sent"},
    {IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR", "the connection had failed before"},
    {IBV_WC_MW_BIND_ERR, "MW_BIND_ERR", "a memory window could not be bound"},
    {IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR", "its adapter sent an impossible answer"},
    {IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR", "its write does not fit in this rank's memory"},
    {IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR", "its adapter found a request invalid"},
    {IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR",
     "its adapter denied access to its memory; it may have closed its connections"},
    {IBV_WC_REM_OP_ERR, "REM_OP_ERR", "its adapter could not carry out a request"},
    {IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR",
     "it repeatedly had no receive buffer for a message"},
    {IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR", "the reliable datagram domains do not match"},
    {IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR",
     "its adapter found a reliable datagram request invalid"},
    {IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR", "its adapter aborted a request"},
    {IBV_WC_INV_EECN_ERR, "INV_EECN_ERR", "an end-to-end context has an impossible number"},
    {IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR", "an end-to-end context is in the wrong state"},
    {IBV_WC_FATAL_ERR, "FATAL_ERR", "this rank's adapter has failed"},
    {IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR", "its adapter did not answer in time"},
    {IBV_WC_GENERAL_ERR, "GENERAL_ERR", "this rank's adapter failed without saying how"},
};

}  // namespace

std::string cause_of(ibv_wc_status status, std::uint32_t vendor_error, const RetryPolicy& policy) {
  if (status == IBV_WC_RETRY_EXC_ERR)
    return fmt::format(
        "it did not answer after {} retries of {:.3g} s (TUTTI_IB_RETRIES, "
        "TUTTI_IB_TIMEOUT; IBV_WC_RETRY_EXC_ERR)",
        policy.retries, 4.096e-6 * std::ldexp(1.0, static_cast<int>(policy.timeout)));
  for (const Words& words : kWords)
    if (words.status == status)
      return fmt::format("{} (IBV_WC_{}, vendor code {:#x})", words.text, words.name, vendor_error);
  return fmt::format("completion status {}, vendor code {:#x}", static_cast<int>(status),
                     vendor_error);
}

}  // namespace tutti::verbs
