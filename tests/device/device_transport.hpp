// SPDX-License-Identifier: Apache-2.0
// The memory that ranks share on devices, under the contract of a transport: for the conformance
// suite. The host reaches an emulated device's memory, and does what kernels do.
#pragma once

#include <memory>

#include "device/job.hpp"
#include "emulated_platform.hpp"
#include "transports/spec_check.hpp"
#include "transports/transport.hpp"

namespace tutti::test {

class DeviceTransport final : public Transport {
 public:
  DeviceTransport(const SessionId& session, Rank rank, Rank ranks, std::uint64_t arena_bytes)
      : session_(session), rank_(rank), ranks_(ranks), arena_bytes_(arena_bytes) {}

  [[nodiscard]] std::string_view name() const override { return "device"; }
  [[nodiscard]] Capabilities capabilities() const override {
    return {.shares = true, .flagged = {}, .slots = {}, .arena_bytes = arena_bytes_};
  }
  [[nodiscard]] bool reaches(const PeerInfo&) const override { return true; }
  [[nodiscard]] Status listen() override {
    if (job_ != nullptr) return {};
    TUTTI_TRY_ASSIGN(job_, device::Job::join(platform(), session_, rank_, ranks_, 0, arena_bytes_));
    return {};
  }
  [[nodiscard]] Status connect(Rank peer, Deadline deadline) override {
    if (job_ == nullptr) return make_error(Code::kInvalidUsage, "connect before listen");
    if (peer < 0 || peer >= ranks_) return make_error(Code::kInvalidArgument, "no such rank");
    if (peer == rank_) return {};
    TUTTI_TRY(job_->await_members(deadline));
    TUTTI_TRY(job_->prepare());
    connected_ = true;
    return {};
  }
  [[nodiscard]] Result<Connection> open_send(const ConnectionSpec& spec) override {
    if (spec.source == rank_ && spec.destination < ranks_ && !connected_)
      return make_error(Code::kInvalidUsage, "sends without connect");
    return open(spec, true);
  }
  [[nodiscard]] Result<Connection> open_recv(const ConnectionSpec& spec) override {
    if (job_ == nullptr) return make_error(Code::kInvalidUsage, "open_recv after close");
    TUTTI_TRY(job_->prepare());
    return open(spec, false);
  }
  void publish_done(std::uint64_t operation) override {
    if (ranks_ > 1) job_->words_of(rank_)->done.store(operation, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t done_of(Rank peer) const override {
    return job_->words_of(peer)->done.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t mapped_bytes() const override {
    return connected_ ? arena_bytes_ : 0;
  }
  void close() override {
    job_.reset();
    connected_ = false;
  }

 private:
  // One for all jobs of this process: they may come and go at the same time.
  static EmulatedPlatform& platform() {
    static auto* const shared = new EmulatedPlatform({.blocks = 1 << 20});
    return *shared;
  }
  [[nodiscard]] Result<Connection> open(const ConnectionSpec& spec, bool sender) {
    if ((sender ? spec.source : spec.destination) != rank_)
      return make_error(Code::kInvalidArgument, "not an end of this rank");
    // The suite knows the limits of the host's memory; devices have more room.
    TUTTI_TRY(check_spec(spec, {.ranks = ranks_, .arena_bytes = arena_bytes_}));
    const bool slots = spec.protocol == Protocol::kSlots;
    return job_->open(spec, slots ? device::Messages::kSlots : device::Messages::kCells, sender);
  }

  const SessionId session_;
  const Rank rank_, ranks_;
  const std::uint64_t arena_bytes_;
  std::shared_ptr<device::Job> job_;
  bool connected_ = false;
};

}  // namespace tutti::test
