// SPDX-License-Identifier: Apache-2.0
// The layout of work requests, and what failed completions say.
#include "transports/verbs/requests.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

namespace tutti::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(VerbsRequests, AMessageIsOneRequestWithItsImmediate) {
  std::array<std::byte, 512> bytes{};
  Chain chain;
  chain.limit({.message_bytes = 1 << 20, .inline_bytes = 64, .signal_every = 100});
  chain.add(
      {.first = {bytes.data(), 512, 5}, .to = 4096, .remote_key = 6, .immediate = 0x40000001});
  ASSERT_NE(chain.first(), nullptr);
  const ibv_send_wr& request = *chain.first();
  EXPECT_EQ(request.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(request.imm_data, htonl(0x40000001));
  EXPECT_EQ(request.wr.rdma.remote_addr, 4096U);
  EXPECT_EQ(request.wr.rdma.rkey, 6U);
  EXPECT_EQ(request.num_sge, 1);
  EXPECT_EQ(request.sg_list->addr, reinterpret_cast<std::uintptr_t>(bytes.data()));
  EXPECT_EQ(request.sg_list->length, 512U);
  EXPECT_EQ(request.sg_list->lkey, 5U);
  EXPECT_EQ(request.send_flags, 0U);
  EXPECT_EQ(request.next, nullptr);
}

TEST(VerbsRequests, SmallOnesAreInlineAndNothingHasNoPiece) {
  std::byte byte{};
  Chain chain;
  chain.limit({.message_bytes = 1 << 20, .inline_bytes = 64, .signal_every = 100});
  chain.add({.first = {.from = &byte, .bytes = 64}});
  chain.add({.first = {.from = &byte, .bytes = 65}});
  chain.add({.to = 8});
  const ibv_send_wr* const first = chain.first();
  EXPECT_EQ(first->send_flags, IBV_SEND_INLINE);
  EXPECT_EQ(first->opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(first->next->send_flags, 0U);
  EXPECT_EQ(first->next->next->num_sge, 0);
  EXPECT_EQ(first->next->next->next, nullptr);
}

TEST(VerbsRequests, OneOfManyAsksForACompletionAcrossChains) {
  Chain chain;
  chain.limit({.message_bytes = 64, .inline_bytes = 0, .signal_every = 4});
  std::vector<std::uint64_t> signalled;
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < 3; ++i) chain.add({});
    for (const ibv_send_wr* it = chain.first(); it != nullptr; it = it->next)
      if ((it->send_flags & IBV_SEND_SIGNALED) != 0) signalled.push_back(it->wr_id);
    chain.clear();
    EXPECT_EQ(chain.first(), nullptr);
  }
  EXPECT_EQ(signalled, (std::vector<std::uint64_t>{4, 8}));
  EXPECT_EQ(chain.last(), 9U);
  chain.add({}, true);
  EXPECT_EQ(chain.first()->send_flags, IBV_SEND_SIGNALED);
  EXPECT_EQ(chain.last_signalled(), 10U);
}

TEST(VerbsRequests, AChainHoldsItsRequestsInOrder) {
  Chain chain;
  chain.limit({.message_bytes = 64, .inline_bytes = 0, .signal_every = 1000});
  while (!chain.full()) chain.add({.to = chain.length()});
  std::size_t length = 0;
  for (const ibv_send_wr* it = chain.first(); it != nullptr; it = it->next)
    EXPECT_EQ(it->wr.rdma.remote_addr, length++);
  EXPECT_EQ(length, Chain::kMost);
}

TEST(VerbsRequests, LargeMessagesTakeSeveralRequests) {
  EXPECT_EQ(requests_for(0, 100), 1U);
  EXPECT_EQ(requests_for(100, 100), 1U);
  EXPECT_EQ(requests_for(101, 100), 2U);
  EXPECT_EQ(requests_for(std::uint64_t{1} << 40, std::uint64_t{1} << 30), 1024U);
}

TEST(VerbsRequests, CompletionsThatFailedSayWhy) {
  const RetryPolicy policy{.timeout = 16, .retries = 7};
  EXPECT_THAT(cause_of(IBV_WC_RETRY_EXC_ERR, 0x81, policy),
              AllOf(HasSubstr("did not answer after 7 retries of 0.268 s"),
                    HasSubstr("TUTTI_IB_TIMEOUT"), HasSubstr("IBV_WC_RETRY_EXC_ERR")));
  EXPECT_THAT(
      cause_of(IBV_WC_REM_ACCESS_ERR, 0x88, policy),
      AllOf(HasSubstr("denied access"), HasSubstr("IBV_WC_REM_ACCESS_ERR"), HasSubstr("0x88")));
  EXPECT_THAT(cause_of(IBV_WC_WR_FLUSH_ERR, 0, policy), HasSubstr("had failed before"));
  std::set<std::string> causes;
  for (int status = 1; status <= IBV_WC_GENERAL_ERR; ++status) {
    const std::string cause = cause_of(static_cast<ibv_wc_status>(status), 0, policy);
    EXPECT_THAT(cause, HasSubstr("IBV_WC_")) << status;
    EXPECT_TRUE(causes.insert(cause).second) << cause;
  }
  EXPECT_THAT(cause_of(static_cast<ibv_wc_status>(31), 7, policy), HasSubstr("status 31"));
}

TEST(VerbsRequests, WhatComesIsAMessageOrAStrangers) {
  const auto told = [](ibv_wc_status status, ibv_wc_opcode opcode) {
    ibv_wc completion{};
    completion.status = status;
    completion.opcode = opcode;
    return told_by(completion);
  };
  EXPECT_EQ(told(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE), Told::kRequest);
  EXPECT_EQ(told(IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM), Told::kMessage);
  EXPECT_EQ(told(IBV_WC_SUCCESS, IBV_WC_RECV), Told::kStranger);  // a SEND
  EXPECT_EQ(told(IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV_RDMA_WITH_IMM), Told::kRequest);
}

}  // namespace
}  // namespace tutti::verbs
