// SPDX-License-Identifier: Apache-2.0
// What a server keeps: one shard of every unit with its optimizer state, room for the gradients
// that come, and the update. A server is a rank of ZeRO-3 among the servers: norm, clipping,
// checkpoints and fingerprints are the engine's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/parameter_server.hpp"
#include "zero/block.hpp"
#include "zero/fingerprint.hpp"
#include "zero/update.hpp"

namespace tutti::zero {

// What server 0 tells the others at the end of an update, or of another common call.
struct Answer {
  double norm = 0;
  std::uint64_t value = 0;
  float loss_scale = 1;
  std::uint32_t skipped = 0;  // 1: loss scaling left the update out
  std::uint32_t failed = 0;   // 1: `text` says why
  char text[1024] = {};
  void fail(const std::string& why);
};

class ServerPart {
 public:
  // Collective among `servers`. `layout` has a shard for each of them; `blocks`: workers whose
  // gradients of one unit are here at once.
  ServerPart(Communicator& servers, const Plan& plan, const Layout& layout,
             std::span<const Unit> units, int blocks);

  // Where worker `block`'s gradients of a unit are received, in the reduce type.
  [[nodiscard]] std::byte* inbox(int unit, int block) const;
  // The sum of the first `blocks` inboxes becomes the unit's gradients.
  void sum(int unit, int blocks);
  // Updates all units. What keeps every server from it (gradients that are not finite) is in the
  // answer. Throws Exception if a call among the servers failed.
  [[nodiscard]] Answer update(const Optimizer& optimizer);
  // Throws Refused on all servers if `fill` throws on one.
  void initialize(const Engine::Fill& fill);

  [[nodiscard]] Kept kept() { return {plan, layout, units, state, links}; }
  void add_to(Memory& memory) const;

  const Plan plan;
  const Layout& layout;
  std::span<const Unit> units;
  State state;
  Links links;
  Update updating;

 private:
  Block inbox_;
};

// A server's plan, and what it allocates for so many blocks. Throws std::invalid_argument.
[[nodiscard]] Plan server_plan(const Config& config, int servers, const Layout& layout);
[[nodiscard]] std::uint64_t inbox_bytes(const Plan& plan, const Layout& layout, int blocks);

}  // namespace tutti::zero
