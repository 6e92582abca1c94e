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

Engine::Implementation::Implementation(Beginning& beginning, std::span<const Unit> given,
                                       const Layout& of_units, const Plan& of_config, int rank)
    : units(given.begin(), given.end()),
      layout(of_units),
      plan(of_config),
      state(plan, layout, units, rank % plan.shard_ranks),
      links(beginning.ready(), plan),
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

void Engine::Implementation::check_updates(const char* function) const {
  if (plan.updates) return;
  throw std::invalid_argument(std::string(function) +
                              "() of a parameter server's worker; call the ParameterServer's");
}

template <typename Function>
auto Engine::Implementation::collectively(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::invalid_argument&) {
    throw;  // found before anything was done
  } catch (const Refused&) {
    throw;
  } catch (const Agreed&) {
    links.agree_on_end();
    failure = std::current_exception();
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

// What is on its way waits for ranks that wait for this one.
void Engine::Implementation::leave_scope(int unit) noexcept {
  if (failure) return;
  failure = std::make_exception_ptr(std::runtime_error("an exception left a scope of unit '" +
                                                       units[static_cast<std::size_t>(unit)].name +
                                                       "', so this engine can only be destroyed"));
  links.give_up();
}

template <typename Optimizer>
float Engine::Implementation::step(const Optimizer& optimizer) {
  check_updates("step");
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

Engine::Engine(Communicator& comm, std::span<const Unit> units, const Config& config) {
  const int ranks = comm.nranks();
  Beginning beginning(comm, settings_of(units, config));
  try {
    const Layout layout(units, shards_of(config, ranks));
    it_ = std::make_unique<Implementation>(beginning, units, layout,
                                           checked_plan(config, ranks, layout), comm.rank());
  } catch (const std::exception& error) {
    beginning.refuse(error.what());
    throw;
  }
  if (sodium_init() < 0) throw std::runtime_error("libsodium cannot be initialized");
}
Engine::Engine(std::unique_ptr<Implementation> implementation) : it_(std::move(implementation)) {}
Engine::~Engine() = default;

void Engine::initialize(const Fill& fill) {
  it_->check_updates("initialize");
  it_->check_at_rest("initialize");
  it_->collectively([&] {
    try {
      it_->links.agree(error_of([&] { it_->state.fill(it_->units, fill); }));
    } catch (const Refused& error) {
      throw Agreed(error.what());  // some of it is filled
    }
    it_->update.begin_anew();
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
    : engine_(std::exchange(other.engine_, nullptr)),
      unit_(other.unit_),
      exceptions_(other.exceptions_) {}

Engine::Parameters::~Parameters() {
  if (engine_ == nullptr) return;
  Implementation& it = *engine_->it_;
  --it.uses[static_cast<std::size_t>(unit_)];
  if (std::uncaught_exceptions() > exceptions_)
    it.leave_scope(unit_);
  else if (it.residency)
    it.at_scope_end([&] { it.residency->close(unit_); });
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
    : engine_(std::exchange(other.engine_, nullptr)),
      unit_(other.unit_),
      exceptions_(other.exceptions_) {}

Engine::Gradients::~Gradients() {
  if (engine_ == nullptr) return;
  Implementation& it = *engine_->it_;
  if (std::uncaught_exceptions() > exceptions_)
    it.leave_scope(unit_);
  else
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
  it_->check_updates("save");
  it_->check_at_rest("save");
  it_->collectively([&] { save_checkpoint(it_->kept(), path, it_->update.saved(), note); });
}

std::string Engine::load(const std::filesystem::path& path) {
  it_->check_updates("load");
  it_->check_at_rest("load");
  return it_->collectively([&] {
    it_->update.wait_all();
    if (it_->residency) it_->residency->drop();
    Progress progress = it_->update.progress;
    std::string note = load_checkpoint(it_->kept(), path, progress);
    it_->update.restore(progress);
    it_->parameters_changed();
    return note;
  });
}

void Engine::read(int unit, int parameter, std::span<float> values) {
  it_->check_updates("read");
  it_->check_usable();
  it_->check_parameter(unit, parameter);
  const std::uint64_t elements = it_->layout.parameter(unit, parameter).elements();
  if (values.size() != elements)
    throw std::invalid_argument("read() into " + std::to_string(values.size()) +
                                " values of a parameter that has " + std::to_string(elements));
  it_->collectively([&] { read_parameter(it_->kept(), unit, parameter, values); });
}

std::uint64_t Engine::fingerprint() {
  it_->check_updates("fingerprint");
  it_->check_usable();
  return it_->collectively([&] { return fingerprint_of(it_->kept()); });
}

const Layout& Engine::layout() const { return it_->layout; }
const Memory& Engine::memory() const { return it_->memory; }

Usage Engine::usage() const { return it_->links.usage; }
void Engine::reset_usage() { it_->links.usage = {}; }
std::uint64_t Engine::library_bytes() const { return it_->links.library_bytes(); }

}  // namespace tutti::zero
