// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/link.hpp"

#include <fmt/core.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::verbs {
namespace {

constexpr std::uint32_t kInlineBytes[] = {256, 96, 0};  // asked for in this order
constexpr std::uint64_t kMostMessageBytes = std::uint64_t{1} << 30;
constexpr std::uint8_t kHops = 64;
constexpr std::int64_t kLeastSilenceNs = 10'000'000'000;
constexpr std::uint8_t kNotReadyTimer = 12;   // 0.64 ms: no receive is ever missing for long
constexpr std::uint8_t kNotReadyRetries = 6;  // 7 would be for ever

}  // namespace

Link::Link(const Port& port, const RetryPolicy& policy)
    : calls_(&port.calls()),
      policy_(policy),
      message_bytes_(std::clamp<std::uint64_t>(port.attributes().max_msg_sz, 1, kMostMessageBytes)),
      port_number_(port.about().port),
      gid_index_(static_cast<std::uint8_t>(std::max(port.about().gid_index, 0))),
      completions_(nullptr, port.calls().destroy_cq),
      queue_pair_(nullptr, port.calls().destroy_qp) {}

Result<std::unique_ptr<Link>> Link::make(const Port& port, const RetryPolicy& policy) {
  std::unique_ptr<Link> link(new Link(port, policy));
  TUTTI_TRY(link->make_queues(port));
  port.hide_from_children();
  if (::getrandom(&link->first_psn_, sizeof link->first_psn_, 0) != sizeof link->first_psn_)
    return errno_error("verbs: the system provides no random numbers", errno);
  link->first_psn_ &= kMostNumber24;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<std::uint8_t>(link->port_number_);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  TUTTI_TRY(link->modify(
      attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT"));
  TUTTI_TRY(link->post_receives(kReceives));
  return link;
}

Status Link::make_queues(const Port& port) {
  const std::string& device = port.about().device;
  const auto most = static_cast<std::uint32_t>(std::max(port.limits().max_qp_wr, 0));
  if (most < kReceives)
    return make_error(
        Code::kSystemError,
        fmt::format(
            "verbs: a queue of {} holds {} requests, but {} are needed; set TUTTI_TRANSPORT=tcp",
            device, most, kReceives));
  send_depth_ = std::min(kSends, most);
  completions_.reset(calls_->create_cq(port.context(), static_cast<int>(send_depth_ + kReceives),
                                       nullptr, port.channel(), 0));
  if (!completions_)
    return errno_error(fmt::format("verbs: {} has no completion queue left; end other RDMA "
                                   "programs, or set TUTTI_TRANSPORT=tcp",
                                   device),
                       errno);
  for (const std::uint32_t inline_bytes : kInlineBytes) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions_.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {.max_send_wr = send_depth_,
                  .max_recv_wr = kReceives,
                  .max_send_sge = Chain::kPieces,
                  .max_recv_sge = 1,
                  .max_inline_data = inline_bytes};
    queue_pair_.reset(calls_->create_qp(port.domain(), &wanted));
    if (!queue_pair_) continue;
    chain_.limit({.message_bytes = message_bytes_,
                  .inline_bytes = wanted.cap.max_inline_data,
                  .signal_every = std::max(send_depth_ / 4, 1U)});
    return {};
  }
  return errno_error(fmt::format("verbs: {} has no queue pair left; raise the limit of locked "
                                 "memory ('ulimit -l unlimited')",
                                 device),
                     errno);
}

Status Link::post_receives(std::uint32_t number) {
  // A message's bytes have their place, so a receive has none.
  std::array<ibv_recv_wr, 64> requests;
  while (number > 0) {
    const std::size_t length = std::min<std::size_t>(number, requests.size());
    for (std::size_t i = 0; i < length; ++i) {
      requests[i] = {};
      if (i + 1 < length) requests[i].next = &requests[i + 1];
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(queue_pair_.get(), requests.data(), &bad); error != 0)
      return errno_error("verbs: ibv_post_recv", error);
    number -= static_cast<std::uint32_t>(length);
  }
  return {};
}

Status Link::modify(ibv_qp_attr& attributes, int mask, const char* to) {
  const int error = calls_->modify_qp(queue_pair_.get(), &attributes, mask);
  if (error == 0) return {};
  return errno_error(fmt::format("verbs: a queue pair cannot be brought to {}", to), error);
}

Status Link::join(const Card& mine, const Card& theirs) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(mine.mtu, theirs.mtu));
  attributes.dest_qp_num = theirs.queue_pair;
  attributes.rq_psn = theirs.first_psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kNotReadyTimer;
  ibv_ah_attr& way = attributes.ah_attr;
  way.port_num = static_cast<std::uint8_t>(port_number_);
  way.dlid = theirs.lid;
  // Between subnets of InfiniBand, and always on Ethernet, a global header says where to.
  const bool same_subnet = std::equal(mine.gid.begin(), mine.gid.begin() + 8, theirs.gid.begin());
  if (mine.link_layer == LinkLayer::kEthernet || !same_subnet ||
      (mine.grh_required | theirs.grh_required) != 0) {
    way.is_global = 1;
    std::memcpy(way.grh.dgid.raw, theirs.gid.data(), theirs.gid.size());
    way.grh.sgid_index = gid_index_;
    way.grh.hop_limit = kHops;
  }
  TUTTI_TRY(modify(attributes,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                   "RTR, to receive"));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = static_cast<std::uint8_t>(policy_.timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(policy_.retries);
  attributes.rnr_retry = kNotReadyRetries;
  attributes.sq_psn = first_psn_;
  attributes.max_rd_atomic = 1;
  TUTTI_TRY(modify(attributes,
                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                   "RTS, to send"));
  peer_ = theirs;
  joined_ = true;
  return {};
}

void Link::add(const Write& write, bool signalled) {
  const std::uint64_t all = write.bytes();
  if (write.immediate) ++immediates_;
  std::uint64_t offset = 0;
  do {
    const std::uint64_t bytes = std::min(message_bytes_, all - offset);
    if (chain_.full()) flush();
    chain_.add(part_of(write, offset, bytes), signalled && offset + bytes == all);
    offset += bytes;
  } while (offset < all);
}

void Link::flush() {
  ibv_send_wr* const first = chain_.first();
  if (first == nullptr) return;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(queue_pair_.get(), first, &bad); error != 0)
    fail(fmt::format("this rank's adapter accepts no more requests: {}", std::strerror(error)));
  chain_.clear();
}

void Link::arm() {
  if (const int error = ibv_req_notify_cq(completions_.get(), 0); error != 0)
    fail(fmt::format("its completion queue cannot be armed: {}", std::strerror(error)));
}

bool Link::acknowledged() {
  if (down() || completed_ == chain_.last()) return true;
  if (chain_.last_signalled() < chain_.last()) probe();
  return false;
}

void Link::probe() {
  if (!joined_ || down() || chain_.last_signalled() > completed_ || !has_room(0)) return;
  add({.to = peer_.landing_address, .remote_key = peer_.landing_key}, true);
  flush();
}

void Link::give_up_if_silent(std::int64_t now_ns) {
  const bool awaits = chain_.last_signalled() > completed_;
  if (!awaits || silent_since_ns_ == 0 || silent_at_ != completed_) {
    silent_since_ns_ = awaits ? now_ns : 0;
    silent_at_ = completed_;
    return;
  }
  const auto turn_ns = static_cast<std::int64_t>(4096) << policy_.timeout;
  const std::int64_t most_ns = std::max(4 * turn_ns * (policy_.retries + 1), kLeastSilenceNs);
  if (now_ns - silent_since_ns_ > most_ns)
    fail(fmt::format(
        "it did not answer for {} s, although this rank's adapter has not reported it as lost",
        most_ns / 1'000'000'000));
}

void Link::complete(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    fail(cause_of(completion.status, completion.vendor_err, policy_));
    return;
  }
  completed_ = std::max(completed_, completion.wr_id);
}

}  // namespace tutti::verbs
