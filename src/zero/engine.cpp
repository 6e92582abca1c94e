// SPDX-License-Identifier: Apache-2.0
// The public calls: arguments are checked, then the parts are called in order.
#include "zero/engine.hpp"

#include <sodium.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "zero/checkpoint.hpp"

namespace tutti::zero {
namespace {

Plan checked_plan(const Config& config, int ranks, const Layout& layout) {
  const Plan plan = make_plan(config, ranks, layout);
  check_limit(memory_of(plan, layout), config);
  return plan;
}

}  // namespace

Engine::Implementation::Implementation(Communicator& comm, std::span<const Unit> given,
                                       const Config& config)
    : units(given.begin(), given.end()),
      layout(units, shards_of(config, comm.nranks())),
      plan(checked_plan(config, comm.nranks(), layout)),
      state(plan, layout, units, comm.rank() % plan.shard_ranks),
      links(comm, plan),
      sums(plan, layout, units, state, links),
      update(plan, layout, units, state, links),
      uses(units.size()),
      exceptions(std::uncaught_exceptions()) {
  if (plan.gathers) residency.emplace(plan, layout, units, state, links);
  state.add_to(memory);
  memory.gathered = residency ? residency->memory_bytes() : 0;
  memory.reducing = sums.memory_bytes();
}

// The streams use memory of the parts, so their work ends first.
Engine::Implementation::~Implementation() {
  if (failure || std::uncaught_exceptions() > exceptions) links.give_up();
  static_cast<void>(tuttiStreamSynchronize(links.gather_stream.get()));
  static_cast<void>(tuttiStreamSynchronize(links.reduce_stream.get()));
}

void Engine::Implementation::check_unit(int unit) const {
  if (unit >= 0 && unit < layout.units()) return;
  throw std::invalid_argument("there is no unit " + std::to_string(unit) + "; the model has " +
                              std::to_string(layout.units()));
}

void Engine::Implementation::check_parameter(int unit, int parameter) const {
  check_unit(unit);
  const Unit& of = units[static_cast<std::size_t>(unit)];
  if (parameter >= 0 && static_cast<std::size_t>(parameter) < of.parameters.size()) return;
  throw std::invalid_argument("unit '" + of.name + "' has no parameter " +
                              std::to_string(parameter));
}

void Engine::Implementation::check_usable() const {
  if (failure) std::rethrow_exception(failure);
}

void Engine::Implementation::check_unused(const char* function) const {
  check_usable();
  const auto used = std::ranges::find_if(uses, [](int scopes) { return scopes > 0; });
  if (used != uses.end())
    throw std::invalid_argument(std::string(function) + "() while unit '" +
                                units[static_cast<std::size_t>(used - uses.begin())].name +
                                "' is in use");
}

void Engine::Implementation::check_at_rest(const char* function) const {
  check_unused(function);
  if (sums.is_begun())
    throw std::invalid_argument(std::string(function) +
                                "() before the step that has begun was ended by step()");
}

template <typename Function>
auto Engine::Implementation::collectively(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::invalid_argument&) {
    throw;  // found before anything was done
  } catch (const Refused&) {
    throw;
  } catch (...) {
    failure = std::current_exception();
    throw;
  }
}

template <typename Function>
void Engine::Implementation::at_scope_end(Function&& function) noexcept {
  if (failure) return;
  try {
    std::forward<Function>(function)();
  } catch (...) {
    failure = std::current_exception();
  }
}

template <typename Optimizer>
float Engine::Implementation::step(const Optimizer& optimizer) {
  check_unused("step");
  static_cast<void>(terms_of(optimizer, 1, 1));
  return collectively([&] {
    sums.finish();
    update.wait_all();
    if (residency) residency->drop();
    const float norm = update.step(optimizer);
    sums.begin_step();
    if (residency) residency->begin_step();
    return norm;
  });
}

void Engine::Implementation::parameters_changed() {
  update.wait_all();
  if (residency) residency->drop();
  update.refresh();
  if (residency) residency->begin_step();
}

const std::byte* Engine::Implementation::parameters(int unit) {
  return residency ? residency->data(unit) : state.whole_parameters(unit);
}

Engine::Engine(Communicator& comm, std::span<const Unit> units, const Config& config)
    : it_(std::make_unique<Implementation>(comm, units, config)) {
  if (sodium_init() < 0) throw std::runtime_error("libsodium cannot be initialized");
}
Engine::~Engine() = default;

void Engine::initialize(const Fill& fill) {
  it_->check_at_rest("initialize");
  it_->collectively([&] {
    for (int unit = 0; unit < it_->layout.units(); ++unit)
      for (const Piece& piece : it_->state.pieces(unit)) {
        const Unit& of = it_->units[static_cast<std::size_t>(unit)];
        const auto count = static_cast<std::size_t>(piece.elements);
        fill(of.parameters[static_cast<std::size_t>(piece.parameter)], piece.first,
             {it_->state.master(unit) + piece.offset, count});
        std::fill_n(it_->state.first_moments(unit) + piece.offset, count, 0.0F);
        std::fill_n(it_->state.second_moments(unit) + piece.offset, count, 0.0F);
      }
    it_->update.progress.steps = 0;
    it_->parameters_changed();
  });
}

Range Engine::slots(int microstep) const {
  if (microstep < 0 || microstep >= microsteps())
    throw std::invalid_argument("there is no microstep " + std::to_string(microstep) +
                                "; a step has " + std::to_string(microsteps()));
  return it_->plan.slots.of(it_->links.rank(), microstep);
}

int Engine::microsteps() const { return it_->plan.config.microsteps; }
float Engine::loss_scale() const { return it_->update.progress.loss_scale; }

Engine::Parameters Engine::use(int unit, Pass pass) {
  it_->check_usable();
  it_->check_unit(unit);
  it_->collectively([&] {
    if (it_->residency)
      it_->residency->open(unit, pass);
    else
      it_->update.wait(unit);
  });
  ++it_->uses[static_cast<std::size_t>(unit)];
  return {this, unit};
}

Engine::Parameters::Parameters(Parameters&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)), unit_(other.unit_) {}

Engine::Parameters::~Parameters() {
  if (engine_ == nullptr) return;
  Implementation& it = *engine_->it_;
  --it.uses[static_cast<std::size_t>(unit_)];
  if (it.residency) it.at_scope_end([&] { it.residency->close(unit_); });
}

const void* Engine::Parameters::operator[](int parameter) const {
  Implementation& it = *engine_->it_;
  it.check_parameter(unit_, parameter);
  return it.parameters(unit_) +
         it.layout.parameter(unit_, parameter).begin * bytes_of(it.plan.config.compute);
}

Engine::Gradients Engine::gradients(int unit) {
  it_->check_usable();
  it_->check_unit(unit);
  it_->collectively([&] { it_->sums.open(unit); });
  return {this, unit};
}

Engine::Gradients::Gradients(Gradients&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)), unit_(other.unit_) {}

Engine::Gradients::~Gradients() {
  if (engine_ == nullptr) return;
  Implementation& it = *engine_->it_;
  it.at_scope_end([&] { it.sums.close(unit_); });
}

float* Engine::Gradients::operator[](int parameter) const {
  Implementation& it = *engine_->it_;
  it.check_parameter(unit_, parameter);
  return it.sums.data(unit_) + it.layout.parameter(unit_, parameter).begin;
}

float Engine::step(const AdamW& optimizer) { return it_->step(optimizer); }
float Engine::step(const Sgd& optimizer) { return it_->step(optimizer); }

void Engine::save(const std::filesystem::path& path, const std::string& note) {
  it_->check_at_rest("save");
  it_->collectively([&] { save_checkpoint(it_->kept(), path, it_->update.progress, note); });
}

std::string Engine::load(const std::filesystem::path& path) {
  it_->check_at_rest("load");
  return it_->collectively([&] {
    it_->update.wait_all();
    if (it_->residency) it_->residency->drop();
    Progress progress = it_->update.progress;
    std::string note = load_checkpoint(it_->kept(), path, progress);
    if (it_->plan.config.loss_scaling.initial == 0) progress.loss_scale = 1;
    it_->update.progress = progress;
    it_->parameters_changed();
    return note;
  });
}

void Engine::read(int unit, int parameter, std::span<float> values) {
  it_->check_usable();
  it_->check_parameter(unit, parameter);
  const std::uint64_t elements = it_->layout.parameter(unit, parameter).elements();
  if (values.size() != elements)
    throw std::invalid_argument("read() into " + std::to_string(values.size()) +
                                " values of a parameter that has " + std::to_string(elements));
  it_->collectively([&] { read_parameter(it_->kept(), unit, parameter, values); });
}

std::uint64_t Engine::fingerprint() {
  it_->check_usable();
  return it_->collectively([&] { return fingerprint_of(it_->kept()); });
}

const Layout& Engine::layout() const { return it_->layout; }
const Memory& Engine::memory() const { return it_->memory; }

Usage Engine::usage() const {
  Usage usage = it_->links.usage;
  usage.library_bytes = it_->links.library_bytes() - it_->library_bytes;
  return usage;
}

void Engine::reset_usage() {
  it_->links.usage = {};
  it_->library_bytes = it_->links.library_bytes();
}

}  // namespace tutti::zero
