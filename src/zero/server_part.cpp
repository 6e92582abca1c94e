// SPDX-License-Identifier: Apache-2.0
#include "zero/server_part.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "zero/blocks.hpp"

namespace tutti::zero {

void Answer::fail(const std::string& why) {
  failed = 1;
  std::memcpy(text, why.data(), std::min(why.size(), sizeof text - 1));
}

// Each server is given one slot, so that any number of them fits.
Plan server_plan(const Config& config, int servers, const Layout& layout) {
  Config own = config;
  own.stage = Stage::kZero3;
  own.sync = Config::Sync::kByStage;
  own.slots = servers;
  own.microsteps = 1;
  own.shard_ranks = 0;
  own.overlap = false;
  return make_plan(own, servers, layout);
}

std::uint64_t inbox_bytes(const Plan& plan, const Layout& layout, int blocks) {
  return static_cast<std::uint64_t>(blocks) * layout.largest_padded_elements() /
         static_cast<std::uint64_t>(plan.shard_ranks) * bytes_of(plan.config.reduce);
}

ServerPart::ServerPart(Communicator& servers, const Plan& given, const Layout& of_units,
                       std::span<const Unit> of_model, int blocks)
    : plan(given),
      layout(of_units),
      units(of_model),
      state(plan, layout, units, servers.rank()),
      links(servers, plan),
      updating(plan, layout, units, state, links),
      inbox_(inbox_bytes(plan, layout, blocks)) {}

std::byte* ServerPart::inbox(int unit, int block) const {
  return inbox_.data() + static_cast<std::uint64_t>(block) * layout.shard(unit, 0).elements() *
                             bytes_of(plan.config.reduce);
}

void ServerPart::sum(int unit, int blocks) {
  const std::uint64_t elements = layout.shard(unit, 0).elements();
  if (elements == 0) return;
  sum_blocks(state.kept_gradients(unit), {inbox(unit, 0), blocks, elements, plan.config.reduce},
             elements, false);
}

Answer ServerPart::update(const Optimizer& optimizer) {
  Answer answer;
  const std::uint64_t skipped = links.usage.skipped_steps;
  try {
    answer.norm = std::visit([this](const auto& each) { return updating.step(each); }, optimizer);
  } catch (const Agreed& error) {
    answer.fail(error.what());
  }
  answer.skipped = static_cast<std::uint32_t>(links.usage.skipped_steps - skipped);
  answer.loss_scale = updating.progress.loss_scale;
  return answer;
}

void ServerPart::initialize(const Engine::Fill& fill) {
  links.agree(error_of([&] { state.fill(units, fill); }));
  updating.begin_anew();
  updating.refresh();
}

void ServerPart::add_to(Memory& memory) const {
  state.add_to(memory);
  memory.reducing += inbox_.bytes();
}

}  // namespace tutti::zero
