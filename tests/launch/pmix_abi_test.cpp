// SPDX-License-Identifier: Apache-2.0
// The binary interface that is written down in pmix_abi.hpp is that of PMIx's own headers.
#include "launch/pmix_abi.hpp"

#include <gtest/gtest.h>
#include <pmix.h>

#include <type_traits>

namespace tutti::launch {
namespace {

static_assert(pmix::kOk == PMIX_SUCCESS);
static_assert(pmix::kAllRanks == PMIX_RANK_WILDCARD);
static_assert(pmix::kGlobal == PMIX_GLOBAL);
static_assert(pmix::kBool == PMIX_BOOL && pmix::kString == PMIX_STRING);
static_assert(pmix::kUint16 == PMIX_UINT16 && pmix::kUint32 == PMIX_UINT32);
static_assert(sizeof(pmix::Status) == sizeof(pmix_status_t));
static_assert(sizeof(pmix::Scope) == sizeof(pmix_scope_t));
static_assert(sizeof(pmix::Proc) == sizeof(pmix_proc_t));
static_assert(offsetof(pmix::Proc, rank) == offsetof(pmix_proc_t, rank));
static_assert(sizeof(pmix::Value) == sizeof(pmix_value_t));
static_assert(offsetof(pmix::Value, data) == offsetof(pmix_value_t, data));
static_assert(sizeof(pmix::Value::type) == sizeof(pmix_value_t::type));
static_assert(sizeof(pmix::Info) == sizeof(pmix_info_t));
static_assert(offsetof(pmix::Info, flags) == offsetof(pmix_info_t, flags));
static_assert(offsetof(pmix::Info, value) == offsetof(pmix_info_t, value));

TEST(PmixAbi, NamesAreTheStandards) {
  EXPECT_STREQ(pmix::kJobSize, PMIX_JOB_SIZE);
  EXPECT_STREQ(pmix::kLocalSize, PMIX_LOCAL_SIZE);
  EXPECT_STREQ(pmix::kLocalRank, PMIX_LOCAL_RANK);
  EXPECT_STREQ(pmix::kCollect, PMIX_COLLECT_DATA);
}

// As many arguments, each as large, and as large a result.
template <typename... Mine, typename MyResult, typename... Theirs, typename TheirResult>
constexpr bool same_call(MyResult (*)(Mine...), TheirResult (*)(Theirs...)) {
  if constexpr (sizeof...(Mine) == sizeof...(Theirs))
    return sizeof(MyResult) == sizeof(TheirResult) && ((sizeof(Mine) == sizeof(Theirs)) && ...) &&
           ((std::is_pointer_v<Mine> == std::is_pointer_v<Theirs>)&&...);
  else
    return false;
}

TEST(PmixAbi, CallsHaveTheirArguments) {
  EXPECT_TRUE(same_call(pmix::InitCall{}, decltype(&PMIx_Init){}));
  EXPECT_TRUE(same_call(pmix::FinalizeCall{}, decltype(&PMIx_Finalize){}));
  EXPECT_TRUE(same_call(pmix::PutCall{}, decltype(&PMIx_Put){}));
  EXPECT_TRUE(same_call(pmix::CommitCall{}, decltype(&PMIx_Commit){}));
  EXPECT_TRUE(same_call(pmix::FenceCall{}, decltype(&PMIx_Fence){}));
  EXPECT_TRUE(same_call(pmix::GetCall{}, decltype(&PMIx_Get){}));
  EXPECT_TRUE(same_call(pmix::ErrorStringCall{}, decltype(&PMIx_Error_string){}));
}

}  // namespace
}  // namespace tutti::launch
