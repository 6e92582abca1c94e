// SPDX-License-Identifier: Apache-2.0
// All ranks of a job as device programs over the connections of a LocalFabric: what a launch binds.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "device/encode.hpp"
#include "device/task.hpp"
#include "tests/exec/local_fabric.hpp"

namespace tutti::test {

// One rank: its program and what lives on between operations.
class DeviceRank {
 public:
  DeviceRank(LocalFabric& fabric, Plan plan)
      : plan_(std::move(plan)),
        program_(*device::encode_program(plan_)),
        lanes_(program_.lanes.size()),
        fired_(program_.lanes.size()) {
    for (const ConnectionSpec& spec : plan_.sends) {
      sends_.push_back(fabric.open(spec, true));
      send_peers_.push_back(spec.destination);
    }
    for (const ConnectionSpec& spec : plan_.recvs) {
      recvs_.push_back(fabric.open(spec, false));
      recv_peers_.push_back(spec.source);
    }
  }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] device::RankWords& words() { return words_; }
  [[nodiscard]] const Word& fault() const { return host_.fault; }

  struct Call {
    const void* input = nullptr;
    void* output = nullptr;
    std::uint64_t count = 0;
    DataType type = DataType::kInt32;
    std::uint32_t average_over = 0;
    std::uint64_t signature = 0;
  };
  // `ranks` and `remotes` outlive the task.
  device::Task bind(const Call& call, device::Messages messages,
                    const std::vector<device::RankWords*>& ranks) {
    const std::size_t bytes_each = element_bytes(call.type);
    device::Task task;
    task.program = program_.view();
    task.sends = sends_.data();
    task.recvs = recvs_.data();
    remotes_.clear();
    for (const Rank rank : plan_.remotes) remotes_.push_back(ranks[static_cast<std::size_t>(rank)]);
    task.remotes = remotes_.data();
    task.send_peers = send_peers_.data();
    task.recv_peers = recv_peers_.data();
    task.ranks = ranks.data();
    task.rank = static_cast<std::uint32_t>(plan_.rank);
    task.rank_count = static_cast<std::uint32_t>(ranks.size());
    task.messages = messages;
    task.input = static_cast<const std::byte*>(call.input);
    task.output = static_cast<std::byte*>(call.output);
    task.cut = plan_.cut_of(call.count, bytes_each, plan_.slices_for(call.count, bytes_each));
    task.element_bytes = static_cast<std::uint32_t>(bytes_each);
    task.average_over = call.average_over;
    task.room_bytes = task.cut.max_slice_count() * bytes_each;
    const std::uint64_t rooms = std::uint64_t{plan_.shape.scratch_chunks} * plan_.shape.replicas *
                                plan_.shape.scratch_versions;
    scratch_.resize(rooms * task.room_bytes / sizeof(std::max_align_t) + 1);
    task.scratch = reinterpret_cast<std::byte*>(scratch_.data());
    task.carve = plan_.carve;
    task.signature = call.signature;
    task.lanes = lanes_.data();
    task.fired = fired_.data();
    task.host = &host_;
    return task;
  }

 private:
  Plan plan_;
  device::Program program_;
  std::vector<Connection> sends_, recvs_;
  std::vector<device::RankWords*> remotes_;
  std::vector<Rank> send_peers_, recv_peers_;
  std::vector<device::LaneState> lanes_;
  std::vector<Word> fired_;
  std::vector<std::max_align_t> scratch_;
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
