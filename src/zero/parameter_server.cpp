// SPDX-License-Identifier: Apache-2.0
// The public calls, and the synchronous step. serve.cpp has the asynchronous ones.
#include "zero/parameter_server.hpp"

#include <sodium.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "zero/blocks.hpp"
#include "zero/checkpoint.hpp"
#include "zero/gatherer.hpp"

namespace tutti::zero {
namespace {

void check_servers(const Servers& servers, int workers, const Config& config) {
  if (servers.staleness < Servers::kUnbounded)
    throw std::invalid_argument("Servers::staleness is " + std::to_string(servers.staleness) +
                                "; it may be 0 or more, or Servers::kUnbounded");
  if (!servers.asynchronous &&
      (servers.staleness != Servers::kUnbounded || !servers.arrivals.empty()))
    throw std::invalid_argument(
        "Servers::staleness and Servers::arrivals are of asynchronous servers; set "
        "Servers::asynchronous, or leave them out");
  for (const int worker : servers.arrivals)
    if (worker < 0 || worker >= workers)
      throw std::invalid_argument("Servers::arrivals names worker " + std::to_string(worker) +
                                  "; there are " + std::to_string(workers));
  if (servers.asynchronous && config.loss_scaling.initial != 0)
    throw std::invalid_argument(
        "Config::loss_scaling with asynchronous servers: gradients on their way would have an "
        "older scale; leave one of them out");
}

// A worker sums its own slots and leaves the rest to the servers. The numbers of its slots are
// those of the whole batch.
Plan worker_plan(const Config& config, int workers, const Layout& layout) {
  check_config(config);
  const SlotShape shape{config.slots, config.microsteps, workers, workers, false};
  if (const std::string text = why_not(shape, config.order); !text.empty())
    throw std::invalid_argument(text);
  Config own = config;
  own.stage = Stage::kDdp;
  own.sync = Config::Sync::kByStage;
  own.slots = config.slots / workers;
  own.shard_ranks = 0;
  own.overlap = false;
  Plan plan = make_plan(own, 1, layout);
  plan.updates = false;
  plan.slots = shape;
  return plan;
}

std::uint64_t wire_bytes(const Config& config, const Layout& layout) {
  if (config.reduce == Number::kFloat32) return 0;
  return layout.largest_padded_elements() * bytes_of(config.reduce);
}

// Blocks of a unit's gradients that a server holds at once.
int blocks_of(const Servers& servers, const Roles& roles) {
  return servers.asynchronous ? 1 : roles.workers;
}

Memory memory_of_rank(const Config& config, const Servers& servers, const Roles& roles,
                      const Layout& layout) {
  Memory memory;
  if (roles.works()) {
    memory = memory_of(worker_plan(config, roles.workers, layout), layout);
    memory.reducing += wire_bytes(config, layout);
  }
  if (!roles.serves()) return memory;
  const Plan plan = server_plan(config, roles.servers, layout);
  const Memory served = memory_of(plan, layout);
  memory.parameters += served.parameters;
  memory.gradients += served.gradients;
  memory.optimizer += served.optimizer;
  memory.reducing += inbox_bytes(plan, layout, blocks_of(servers, roles));
  return memory;
}

}  // namespace

Roles roles_of(const Servers& servers, int ranks, int rank) {
  if (rank < 0 || rank >= ranks)
    throw std::invalid_argument("there is no rank " + std::to_string(rank) + " among " +
                                std::to_string(ranks));
  if (servers.count < 1)
    throw std::invalid_argument("Servers::count is " + std::to_string(servers.count) +
                                "; there is at least 1 server");
  if (servers.colocated && servers.asynchronous)
    throw std::invalid_argument(
        "asynchronous servers answer each worker when it asks, so they need ranks of their own; "
        "leave out Servers::colocated");
  const int workers = servers.colocated ? ranks : ranks - servers.count;
  if (workers < 1 || servers.count > ranks)
    throw std::invalid_argument(std::to_string(ranks) + (ranks == 1 ? " rank is" : " ranks are") +
                                " too few for " + std::to_string(servers.count) +
                                (servers.count == 1 ? " server" : " servers") +
                                (servers.colocated ? "" : " and at least one worker"));
  return {workers, servers.count, servers.colocated, rank};
}

Memory memory_of(std::span<const Unit> units, const Config& config, const Servers& servers,
                 int ranks, int rank) {
  const Roles roles = roles_of(servers, ranks, rank);
  const Layout layout(units, servers.count);
  check_servers(servers, roles.workers, config);
  static_cast<void>(worker_plan(config, roles.workers, layout));  // its errors, on all ranks
  return memory_of_rank(config, servers, roles, layout);
}

namespace {

// Throws std::invalid_argument. The first and the last rank are a worker and a server, or both.
void check_all(std::span<const Unit> units, const Config& config, const Servers& servers,
               int ranks) {
  for (const int rank : {0, ranks - 1})
    check_limit(memory_of(units, config, servers, ranks, rank), config);
}

// Asynchronous ranks wait for each other as long as the slowest takes; who dies or leaves is
// noticed all the same.
constexpr int kPatienceMs = 7 * 24 * 3600 * 1000;

Communicator split(Communicator& comm, bool part, int key, const Servers& servers) {
  const int color = part ? 0 : TUTTI_SPLIT_NOCOLOR;
  if (!servers.asynchronous) return comm.split(color, key);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.opTimeoutMs = kPatienceMs;
  return comm.split(color, key, config);
}

}  // namespace

ParameterServer::Implementation::Implementation(Communicator& comm, std::span<const Unit> given,
                                                const Config& of_config, const Servers& of_servers)
    : config(of_config),
      servers(of_servers),
      roles(roles_of(servers, comm.nranks(), comm.rank())),
      units(given.begin(), given.end()),
      layout(units, servers.count),
      exceptions(std::uncaught_exceptions()) {
  const Plan plan = worker_plan(config, roles.workers, layout);
  all = {split(comm, true, roles.rank, servers), roles.rank_of_server(0), 0, roles.workers};
  Communicator among = split(comm, roles.serves(), roles.rank, servers);
  for (int each = 0; servers.asynchronous && each < roles.workers; ++each) {
    const bool part = roles.serves() || each == roles.rank;
    Communicator own = split(comm, part, roles.serves() ? roles.server() : roles.servers, servers);
    if (part) ways.push_back({std::move(own), 0, roles.servers, 1});
  }
  // If a worker lacks memory, all hear of it. (A server that does ends the others.)
  Beginning beginning(all.comm);
  try {
    if (roles.works()) {
      wire = Block(wire_bytes(config, layout));
      worker.reset(new Engine(
          std::make_unique<Engine::Implementation>(beginning, units, layout, plan, roles.rank)));
      memory = worker->memory();
      memory.reducing += wire.bytes();
    } else {
      beginning.ready();
    }
  } catch (const std::exception& error) {
    beginning.refuse(error.what());
    throw;
  }
  usage.other_bytes += static_cast<std::uint64_t>(all.comm.nranks() - 1);  // a flag to each
  if (!roles.serves()) return;
  server = std::make_unique<ServerPart>(among, server_plan(config, roles.servers, layout), layout,
                                        units, blocks_of(servers, roles));
  server->add_to(memory);
}

ParameterServer::Implementation::~Implementation() {
  if (failure || std::uncaught_exceptions() > exceptions) give_up();
}

void ParameterServer::Implementation::give_up() noexcept {
  if (end_is_agreed) return;
  if (server) server->links.give_up();
  abort(all.comm);
  for (Way& way : ways) abort(way.comm);
}

void ParameterServer::Implementation::check_usable() const {
  if (failure) std::rethrow_exception(failure);
}

void ParameterServer::Implementation::check_mode(bool asynchronous, const char* function,
                                                 const char* instead) const {
  check_usable();
  if (servers.asynchronous == asynchronous) return;
  throw std::invalid_argument(std::string(function) + "() of " +
                              (asynchronous ? "synchronous" : "asynchronous") + " servers; call " +
                              instead);
}

void ParameterServer::Implementation::check_at_rest(const char* function) const {
  check_usable();
  if (worker) worker->it_->check_at_rest(function);
}

std::uint64_t ParameterServer::Implementation::library_bytes() const {
  std::uint64_t sum = all.comm.info().payloadBytesSent;
  for (const Way& way : ways) sum += way.comm.info().payloadBytesSent;
  return server ? sum + server->links.library_bytes() : sum;
}

// ---- what ranks send each other -----------------------------------------------------------------

void ParameterServer::Implementation::send(const Way& way, const void* data, std::size_t bytes,
                                           int rank, std::uint64_t& counted) {
  check(tuttiSend(data, bytes, tuttiUint8, rank, way.comm.get(), nullptr), way.comm.get());
  if (rank != way.comm.rank()) counted += bytes;
}

void ParameterServer::Implementation::collect(const Way& way, int unit) {
  const std::uint64_t bytes = layout.shard(unit, 0).elements() * bytes_of(config.reduce);
  if (bytes == 0) return;
  Group group;
  if (worker) {
    float* const sum = own_worker().state.kept_gradients(unit);
    const auto* shards = reinterpret_cast<const std::byte*>(sum);
    if (config.reduce != Number::kFloat32) {
      narrow(wire.data(), config.reduce, sum, layout.padded_elements(unit));
      shards = wire.data();
    }
    for (int each = 0; each < roles.servers; ++each)
      send(way, shards + static_cast<std::uint64_t>(each) * bytes, bytes, way.first_server + each,
           usage.gradient_bytes);
  }
  for (int each = 0; server && each < way.workers; ++each)
    check(tuttiRecv(server->inbox(unit, each), bytes, tuttiUint8, way.first_worker + each,
                    way.comm.get(), nullptr),
          way.comm.get());
  group.end();
  if (server) server->sum(unit, way.workers);
}

void ParameterServer::Implementation::spread(const Way& way, int unit) {
  const std::uint64_t bytes = layout.shard(unit, 0).elements() * bytes_of(config.compute);
  if (bytes == 0) return;
  Group group;
  for (int each = 0; server && each < way.workers; ++each)
    send(way, server->state.kept_parameters(unit), bytes, way.first_worker + each,
         usage.update_gather_bytes);
  std::byte* const whole = worker ? own_worker().state.whole_parameters(unit) : nullptr;
  for (int each = 0; worker && each < roles.servers; ++each)
    check(tuttiRecv(whole + static_cast<std::uint64_t>(each) * bytes, bytes, tuttiUint8,
                    way.first_server + each, way.comm.get(), nullptr),
          way.comm.get());
  group.end();
}

void ParameterServer::Implementation::collect_all(const Way& way) {
  for (int unit = 0; unit < layout.units(); ++unit) collect(way, unit);
}

void ParameterServer::Implementation::spread_all(const Way& way) {
  for (int unit = 0; unit < layout.units(); ++unit) spread(way, unit);
}

void ParameterServer::Implementation::share(const Way& way, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  const int ranks = way.comm.nranks(), own = way.comm.rank();
  Group group;
  for (int rank = 0; own == way.first_server && rank < ranks; ++rank)
    if (rank != own) send(way, bytes.data(), bytes.size(), rank, usage.other_bytes);
  if (own != way.first_server)
    check(tuttiRecv(bytes.data(), bytes.size(), tuttiUint8, way.first_server, way.comm.get(),
                    nullptr),
          way.comm.get());
  group.end();
}

void ParameterServer::Implementation::share(const Way& way, Answer& answer) {
  share(way, std::as_writable_bytes(std::span(&answer, 1)));
}

void ParameterServer::Implementation::settle(Answer& answer) {
  share(all, answer);
  if (answer.failed != 0) throw Refused(answer.text);
}

// ---- the synchronous step -----------------------------------------------------------------------

float ParameterServer::Implementation::step(const Optimizer& optimizer) {
  check_mode(false, "step", "push() on workers and serve() on servers");
  std::visit([](const auto& each) { static_cast<void>(terms_of(each, 1, 1)); }, optimizer);
  if (worker) own_worker().check_unused("step");
  return collectively([&] {
    if (worker) own_worker().sums.finish();
    Answer answer;
    {
      const Stalled stalled(usage);
      collect_all(all);
      if (server) answer = server->update(optimizer);
      share(all, answer);
      if (answer.failed != 0) throw Agreed(answer.text);
      spread_all(all);
    }
    usage.skipped_steps += answer.skipped;
    if (worker) {
      own_worker().sums.begin_step();
      own_worker().update.progress.loss_scale = answer.loss_scale;
    }
    return static_cast<float>(answer.norm);
  });
}

// ---- values -------------------------------------------------------------------------------------

void ParameterServer::Implementation::read(int unit, int parameter, std::span<float> values) {
  check_at_rest("read");
  if (unit < 0 || unit >= layout.units() || parameter < 0 ||
      static_cast<std::size_t>(parameter) >=
          units[static_cast<std::size_t>(unit)].parameters.size())
    throw std::invalid_argument("there is no parameter " + std::to_string(parameter) + " of unit " +
                                std::to_string(unit));
  const std::uint64_t elements = layout.parameter(unit, parameter).elements();
  if (values.size() != elements)
    throw std::invalid_argument("read() into " + std::to_string(values.size()) +
                                " values of a parameter that has " + std::to_string(elements));
  collectively([&] {
    if (server) read_parameter(server->kept(), unit, parameter, values);
    share(all, std::as_writable_bytes(values));
  });
}

// Parameters were filled or loaded: the workers get them, at once or from serve().
void ParameterServer::Implementation::begin_with_parameters() {
  ready = true;
  if (!servers.asynchronous)
    spread_all(all);
  else if (worker)
    static_cast<void>(receive_parameters());
}

// ---- the public calls ---------------------------------------------------------------------------

ParameterServer::ParameterServer(Communicator& comm, std::span<const Unit> units,
                                 const Config& config, const Servers& servers) {
  if (sodium_init() < 0) throw std::runtime_error("libsodium cannot be initialized");
  std::vector<Setting> settings = settings_of(units, config);
  std::ranges::copy(settings_of(servers), std::back_inserter(settings));
  Beginning beginning(comm, std::move(settings));
  try {
    check_all(units, config, servers, comm.nranks());
    beginning.ready();
  } catch (const std::exception& error) {
    beginning.refuse(error.what());
    throw;
  }
  it_ = std::make_unique<Implementation>(comm, units, config, servers);
}
ParameterServer::~ParameterServer() = default;

int ParameterServer::workers() const { return it_->roles.workers; }
bool ParameterServer::works() const { return it_->roles.works(); }
bool ParameterServer::serves() const { return it_->roles.serves(); }

Engine& ParameterServer::worker() {
  it_->check_usable();
  if (it_->worker) return *it_->worker;
  throw std::invalid_argument("worker() of a rank that only serves");
}

void ParameterServer::initialize(const Engine::Fill& fill) {
  it_->check_at_rest("initialize");
  it_->collectively([&] {
    Answer answer;
    if (it_->server) try {
        it_->server->initialize(fill);
      } catch (const Refused& error) {
        answer.fail(error.what());
      }
    it_->share(it_->all, answer);
    if (answer.failed != 0) throw Agreed(answer.text);  // some of it is filled
    it_->begin_with_parameters();
  });
}

float ParameterServer::step(const Optimizer& optimizer) { return it_->step(optimizer); }

float ParameterServer::push() { return it_->push(); }
void ParameterServer::finish() { it_->finish(); }
void ParameterServer::serve(const std::function<Optimizer(std::uint64_t update)>& optimizer_of) {
  it_->serve(optimizer_of);
}
const std::vector<Arrival>& ParameterServer::arrivals() const { return it_->arrivals; }

void ParameterServer::save(const std::filesystem::path& path, const std::string& note) {
  it_->check_at_rest("save");
  it_->collectively([&] {
    Answer answer;
    if (it_->server) try {
        save_checkpoint(it_->server->kept(), path, it_->server->updating.saved(), note);
      } catch (const Refused& error) {
        answer.fail(error.what());
      }
    it_->settle(answer);
  });
}

std::string ParameterServer::load(const std::filesystem::path& path) {
  it_->check_at_rest("load");
  return it_->collectively([&] {
    Answer answer;
    std::string note;
    if (it_->server) try {
        Progress progress = it_->server->updating.progress;
        note = load_checkpoint(it_->server->kept(), path, progress);
        it_->server->updating.restore(progress);
        it_->server->updating.refresh();
        answer.loss_scale = it_->server->updating.progress.loss_scale;
        answer.value = note.size();
      } catch (const Refused& error) {
        answer.fail(error.what());
      }
    it_->settle(answer);
    note.resize(answer.value);
    it_->share(it_->all, std::as_writable_bytes(std::span(note)));
    it_->begin_with_parameters();
    if (it_->worker) it_->own_worker().update.progress.loss_scale = answer.loss_scale;
    return note;
  });
}

void ParameterServer::read(int unit, int parameter, std::span<float> values) {
  it_->read(unit, parameter, values);
}

std::uint64_t ParameterServer::fingerprint() {
  it_->check_at_rest("fingerprint");
  return it_->collectively([&] {
    Answer answer;
    if (it_->server) answer.value = fingerprint_of(it_->server->kept());
    it_->settle(answer);
    return answer.value;
  });
}

const Layout& ParameterServer::layout() const { return it_->layout; }
const Memory& ParameterServer::memory() const { return it_->memory; }

Usage ParameterServer::usage() const {
  Usage usage = it_->usage;
  if (it_->server) usage.other_bytes += it_->server->links.usage.other_bytes;
  return usage;
}

void ParameterServer::reset_usage() {
  it_->usage = {};
  if (it_->server) it_->server->links.usage = {};
}
std::uint64_t ParameterServer::library_bytes() const { return it_->library_bytes(); }

}  // namespace tutti::zero
