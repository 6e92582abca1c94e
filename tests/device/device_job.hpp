// SPDX-License-Identifier: Apache-2.0
// All ranks of a job as device programs over the connections of a LocalFabric: what a launch binds.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "device/image.hpp"
#include "tests/exec/local_fabric.hpp"

namespace tutti::test {

// One rank: its plan and what lives on between operations.
class DeviceRank {
 public:
  // `blocks`: at most.
  DeviceRank(LocalFabric& fabric, Plan plan, device::Messages messages, std::uint32_t blocks)
      : plan_(std::move(plan)),
        messages_(messages),
        blocks_(device::blocks_for(plan_, messages, blocks)) {
    for (const ConnectionSpec& spec : plan_.sends) sends_.push_back(fabric.open(spec, true));
    for (const ConnectionSpec& spec : plan_.recvs) recvs_.push_back(fabric.open(spec, false));
  }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] device::RankWords& words() { return words_; }
  [[nodiscard]] device::FaultFound fault() const { return device::read_fault(host_); }

  // Once, when there are all ranks; they outlive this.
  void place(const std::vector<device::RankWords*>& ranks, std::uint64_t timeout_ns,
             bool one_lane) {
    std::vector<device::RankWords*> remotes;
    for (const Rank rank : plan_.remotes) remotes.push_back(ranks[static_cast<std::size_t>(rank)]);
    device::Image image(plan_, *device::encode_program(plan_),
                        {.messages = messages_,
                         .blocks = blocks_,
                         .most_blocks = kMostBlocks,
                         .sends = sends_,
                         .recvs = recvs_,
                         .remotes = remotes,
                         .own = &words_,
                         .ranks = ranks.data(),
                         .host = &host_,
                         .timeout_ns = timeout_ns,
                         .one_lane = one_lane});
    memory_.resize(image.memory_bytes() / sizeof(Line) + 1);
    std::memcpy(memory_.data(), image.placed_at(memory_.data()->bytes).data(),
                image.uploaded_bytes());
  }

  struct Call {
    const void* input = nullptr;
    void* output = nullptr;
    std::uint64_t count = 0;
    DataType type = DataType::kInt32;
    std::uint32_t average_over = 0;
    std::uint64_t signature = 0;
    std::uint64_t slices = 0;  // 0: the fewest
  };
  [[nodiscard]] device::Common common_of(const Call& call) const {
    const std::size_t bytes_each = element_bytes(call.type);
    const UniformCut cut =
        plan_.cut_of(call.count, bytes_each,
                     call.slices > 0 ? call.slices : plan_.slices_for(call.count, bytes_each));
    device::Common common;
    common.cut = device::DeviceCut(cut);
    common.element_bytes = static_cast<std::uint32_t>(bytes_each);
    common.average_over = call.average_over;
    common.room_bytes = cut.max_slice_count() * bytes_each;
    common.signature = call.signature;
    return common;
  }
  [[nodiscard]] device::LaunchTask task_of(const Call& call) const {
    return {reinterpret_cast<const device::BoundTask*>(memory_.data()),
            static_cast<const std::byte*>(call.input), static_cast<std::byte*>(call.output)};
  }

 private:
  static constexpr std::uint32_t kMostBlocks = 8;  // of a launch
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  Plan plan_;
  device::Messages messages_;
  std::uint32_t blocks_;
  std::vector<Connection> sends_, recvs_;
  std::vector<Line> memory_;
  device::HostWords host_;
  device::RankWords words_;
};

// The plan options that a way of messages needs.
[[nodiscard]] inline PlanOptions options_for(device::Messages messages) {
  PlanOptions options;
  options.arena_bytes = 64 << 10;
  options.slot_bytes = 1024;
  options.cells_per_pair = 32;
  if (messages == device::Messages::kSlots) return options;
  options.protocol = Protocol::kFlagged;
  if (device::in_packets(messages))
    options.packets = static_cast<PacketFormat>(static_cast<int>(messages) -
                                                static_cast<int>(device::Messages::kLl8));
  return options;
}

}  // namespace tutti::test
