// SPDX-License-Identifier: Apache-2.0
// One operation of one communicator, carried forward by turns: its number, signature, plan and
// fence, its steps, and the checks of a long wait. The thread that holds the communicator's call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/call.hpp"
#include "comm/apart_output.hpp"
#include "comm/communicator.hpp"
#include "comm/fp32_partials.hpp"
#include "comm/ongoing_call.hpp"

namespace tutti {

// What a call reduces or copies by, and by what its kernel divides the result; 0: by nothing.
[[nodiscard]] ReduceCopyFn kernel_of(const Call& call);
[[nodiscard]] std::uint32_t averaged_over(const Call& call, std::int32_t ranks);

class Operation final : public OngoingCall {
 public:
  // `call` outlives the object.
  Operation(Communicator& communicator, const Call& call);

  // Numbers, announces and plans the operation.
  [[nodiscard]] Status start() override;
  // Before start(), which then finds all of that done and the plan's executor at work; only an
  // error of the transport that ended that work is left to tell.
  void begin(BoundPlan& plan, const OperationSignature& signature, Status pump_error);
  [[nodiscard]] Result<bool> advance() override;

 private:
  [[nodiscard]] bool pass_fence();
  [[nodiscard]] Rank blocked_on() const override;
  // Chooses, among all ranks that this rank waits for in several lanes, the one to check and to
  // report: one of this host that has not come, else one of another host, where messages can get
  // lost.
  [[nodiscard]] Rank suspect() const override;
  [[nodiscard]] WaitPlace place() const override;
  [[nodiscard]] std::optional<Error> own_fault() override;
  void withdraw() override;
  [[nodiscard]] bool has_died(Rank peer) const;
  [[nodiscard]] Error executor_fault(Rank peer);
  void finish();
  void prepare_input();
  [[nodiscard]] bool may_lend(const void* memory, std::uint64_t bytes) const;

  Communicator& communicator_;
  PlanCache& plans_;
  OperationCounts& counts_;
  Call call_;
  std::optional<Fp32Partials> partials_;
  std::optional<ApartOutput> apart_;
  std::shared_ptr<const std::byte> scaled_input_;  // of a pre-multiplied sum
  BoundPlan* plan_ = nullptr;
  Status pump_error_;  // begin()
  std::uint64_t fence_ = 0;
  Rank fence_peer_ = kNoRank;
  bool fenced_ = false;
  bool at_fence_ = false;  // so it began: others may wait for what this rank has to tell
};

}  // namespace tutti
