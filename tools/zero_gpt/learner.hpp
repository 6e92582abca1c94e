// SPDX-License-Identifier: Apache-2.0
// What keeps and updates the model: the engine, or parameter servers. One interface for both, where
// they do the same.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tutti/parameter_server.hpp"
#include "tutti/zero.hpp"
#include "zero_gpt/options.hpp"

namespace tutti::gpt {

class Learner {
 public:
  Learner(Communicator& comm, const std::vector<zero::Unit>& units, const Options& options) {
    if (options.servers)
      servers_.emplace(comm, units, options.engine, *options.servers);
    else
      engine_.emplace(comm, units, options.engine);
  }

  // What this rank computes on; null where it only serves.
  [[nodiscard]] zero::Engine* model() {
    if (engine_) return &*engine_;
    return servers_->works() ? &servers_->worker() : nullptr;
  }
  // Null: the engine.
  [[nodiscard]] zero::ParameterServer* servers() { return servers_ ? &*servers_ : nullptr; }
  [[nodiscard]] bool asynchronous(const Options& options) const {
    return options.servers && options.servers->asynchronous;
  }

  void initialize(const zero::Engine::Fill& fill) {
    engine_ ? engine_->initialize(fill) : servers_->initialize(fill);
  }
  float step(const zero::Optimizer& optimizer) {
    if (servers_) return servers_->step(optimizer);
    return std::visit([this](const auto& each) { return engine_->step(each); }, optimizer);
  }
  void save(const std::filesystem::path& path, const std::string& note) {
    engine_ ? engine_->save(path, note) : servers_->save(path, note);
  }
  std::string load(const std::filesystem::path& path) {
    return engine_ ? engine_->load(path) : servers_->load(path);
  }
  [[nodiscard]] std::uint64_t fingerprint() {
    return engine_ ? engine_->fingerprint() : servers_->fingerprint();
  }
  [[nodiscard]] zero::Memory memory() const {
    return engine_ ? engine_->memory() : servers_->memory();
  }
  [[nodiscard]] zero::Usage usage() const { return engine_ ? engine_->usage() : servers_->usage(); }
  void reset_usage() { engine_ ? engine_->reset_usage() : servers_->reset_usage(); }

 private:
  std::optional<zero::Engine> engine_;
  std::optional<zero::ParameterServer> servers_;
};

}  // namespace tutti::gpt
