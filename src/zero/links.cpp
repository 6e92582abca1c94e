// SPDX-License-Identifier: Apache-2.0
#include "zero/links.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace tutti::zero {
namespace {

constexpr std::size_t kTextBytes = 512;  // of an error's text that is told to other ranks

// Is the flag set on any rank of the communicator, and on which first?
bool is_set_on_any(Communicator& comm, int ranks, bool here, int& first) {
  const std::uint8_t own = here ? 1 : 0;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(ranks));
  comm.all_gather(std::span(&own, 1), all);
  const auto found = std::ranges::find(all, std::uint8_t{1});
  first = static_cast<int>(found - all.begin());
  return found != all.end();
}

void spread_text(Communicator& comm, int root, std::string& text) {
  std::array<std::uint8_t, kTextBytes> bytes{};
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), kTextBytes - 1));
  comm.broadcast(bytes, root);
  text = reinterpret_cast<const char*>(bytes.data());
}

}  // namespace

void abort(Communicator& comm) noexcept {
  if (comm.get() == nullptr) return;
  try {
    comm.abort();
  } catch (const std::exception&) {
    // There is nobody left to tell.
  }
}

Communicator& Beginning::ready() {
  tell({});
  const int ranks = comm_.nranks();
  if (settings_.empty() || ranks == 1) return comm_;
  std::vector<std::uint64_t> own;
  for (const Setting& setting : settings_) own.push_back(setting.value);
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(ranks));
  comm_.all_gather(std::span<const std::uint64_t>(own), all);
  const std::string text = difference(settings_, all);
  if (!text.empty()) throw std::invalid_argument(text);
  return comm_;
}

void Beginning::refuse(const std::string& why) {
  if (!told_) tell(why);
}

void Beginning::tell(const std::string& why) {
  told_ = true;
  const int ranks = comm_.nranks();
  std::string text = why;
  int first = 0;
  if (ranks > 1 && is_set_on_any(comm_, ranks, !why.empty(), first))
    spread_text(comm_, first, text);
  if (!text.empty()) throw std::invalid_argument(text);
}

Links::Links(Communicator& comm, const Plan& plan)
    : rank_(comm.rank()),
      shard_(rank_ % plan.shard_ranks),
      shard_ranks_(plan.shard_ranks),
      group_(rank_ / plan.shard_ranks),
      groups_(plan.groups),
      exceptions_(std::uncaught_exceptions()) {
  if (shard_ranks_ > 1) {
    gathers = comm.split(group_, rank_);
    reductions = comm.split(group_, rank_);
  }
  if (groups_ > 1) replicas = comm.split(shard_, rank_);
}

Links::~Links() {
  if (std::uncaught_exceptions() > exceptions_) give_up();
}

void Links::give_up() noexcept {
  if (end_is_agreed_) return;
  for (Communicator* const comm : {&gathers, &reductions, &replicas}) abort(*comm);
}

void Links::check_state() const {
  for (const Communicator* const comm : {&gathers, &reductions, &replicas})
    if (comm->get() != nullptr) check(comm->state(), comm->get());
}

void Links::wait(const Event& event) {
  if (!event.done()) {
    const auto begin = std::chrono::steady_clock::now();
    event.synchronize();
    usage.stall_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  check_state();
}

std::vector<std::uint64_t> Links::collect(std::span<const std::uint64_t> own) {
  if (shard_ranks_ == 1) return {own.begin(), own.end()};
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(shard_ranks_));
  reductions.all_gather(own, all);
  usage.other_bytes += own.size_bytes() * static_cast<std::uint64_t>(shard_ranks_ - 1);
  return all;
}

std::uint64_t Links::from_first(std::uint64_t value) {
  value = collect(std::span(&value, 1)).front();
  if (groups_ == 1) return value;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(groups_));
  replicas.all_gather(std::span(&value, 1), all);
  usage.other_bytes += sizeof value * static_cast<std::uint64_t>(groups_ - 1);
  return all.front();
}

bool Links::any(Communicator& comm, int ranks, bool here, int& first) {
  usage.other_bytes += static_cast<std::uint64_t>(ranks - 1);
  return is_set_on_any(comm, ranks, here, first);
}

void Links::agree(const std::string& error) {
  std::string text = error;
  int first = 0;
  if (shard_ranks_ > 1 && any(reductions, shard_ranks_, !text.empty(), first))
    spread_text(reductions, first, text);
  if (groups_ > 1 && any(replicas, groups_, !text.empty(), first))
    spread_text(replicas, first, text);
  if (!text.empty()) throw Refused(text);
}

std::uint64_t Links::library_bytes() const {
  std::uint64_t sum = 0;
  for (const Communicator* const comm : {&gathers, &reductions, &replicas})
    if (comm->get() != nullptr) sum += comm->info().payloadBytesSent;
  return sum;
}

}  // namespace tutti::zero
