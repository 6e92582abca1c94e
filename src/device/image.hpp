// SPDX-License-Identifier: Apache-2.0
// A rank's plan as it lies in device memory, in one piece: the task, then for each block the part
// of the program that it runs, then room that operations write. On the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/encode.hpp"
#include "device/task.hpp"

namespace tutti::device {

// The blocks that a rank's plan is divided among, at most `most`; ranks may differ. Packets order
// their own payload alone: all that a replica does is one block's then, whose barriers order the
// rest (packets.hpp).
[[nodiscard]] std::uint32_t blocks_for(const Plan& plan, Messages messages, std::uint32_t most);

struct Bindings {
  Messages messages = Messages::kSlots;
  std::uint32_t blocks = 1;
  std::uint32_t most_blocks = 1;             // that a launch may have, for the sake of other ranks
  std::span<const Connection> sends, recvs;  // in the order of the plan; states where they live
  std::span<RankWords* const> remotes;       // of Plan::remotes, in that order
  RankWords* own = nullptr;
  RankWords* const* ranks = nullptr;
  HostWords* host = nullptr;
  std::uint64_t timeout_ns = 0;
  bool one_device = false;
  bool one_lane = false;  // has a replica, on each rank?
};

class Image {
 public:
  Image(const Plan& plan, const Program& program, const Bindings& bindings);

  // What it takes, aligned to a cache line: what is uploaded, and scratch behind it.
  [[nodiscard]] std::uint64_t memory_bytes() const { return uploaded_bytes() + scratch_bytes_; }
  [[nodiscard]] std::uint64_t uploaded_bytes() const { return bytes_.size(); }
  // The bytes to upload to `memory`. The task is at its start.
  [[nodiscard]] std::span<const std::byte> placed_at(std::byte* memory);

 private:
  template <typename T>
  std::uint32_t add(std::span<const T> values);
  std::uint32_t room(std::uint64_t size);
  BlockPart add_part(const Plan& plan, const Program& part, const Bindings& bindings,
                     std::span<const std::uint16_t> sends, std::span<const std::uint16_t> recvs);

  std::vector<std::byte> bytes_;
  BoundTask task_;
  std::uint32_t parts_ = 0, fired_ = 0;
  std::uint64_t scratch_bytes_ = 0;
};

}  // namespace tutti::device
