// SPDX-License-Identifier: Apache-2.0
#include "transports/routed_transport.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

class RoutedTransport final : public Transport {
 public:
  RoutedTransport(ControlChannel& control, std::unique_ptr<Transport> near,
                  std::unique_ptr<Transport> far)
      : near_(std::move(near)),
        far_(std::move(far)),
        name_(std::string(near_->name()) + "+" + std::string(far_->name())) {
    for (const PeerInfo& peer : control.peers())
      routes_.push_back(near_->reaches(peer) ? near_.get() : far_.get());
  }

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Capabilities capabilities() const override {
    const Capabilities near = near_->capabilities(), far = far_->capabilities();
    return {.shares = near.shares && far.shares,
            .pumps = near.pumps || far.pumps,
            .remote_access = near.remote_access && far.remote_access,
            .flagged = far.flagged,
            .slots = far.slots,
            .arena_bytes = std::min(near.arena_bytes, far.arena_bytes)};
  }
  [[nodiscard]] bool reaches(const PeerInfo& peer) const override {
    return near_->reaches(peer) || far_->reaches(peer);
  }
  [[nodiscard]] Status listen() override {
    TUTTI_TRY(near_->listen());
    return far_->listen();
  }
  [[nodiscard]] Status connect(Rank peer, Deadline deadline) override {
    return of(peer).connect(peer, deadline);
  }
  [[nodiscard]] Result<Connection> open_send(const ConnectionSpec& spec) override {
    return of(spec.destination).open_send(spec);
  }
  [[nodiscard]] Result<Connection> open_recv(const ConnectionSpec& spec) override {
    return of(spec.source).open_recv(spec);
  }
  void publish_done(std::uint64_t operation) override {
    near_->publish_done(operation);
    far_->publish_done(operation);
  }
  [[nodiscard]] std::uint64_t done_of(Rank peer) const override { return of(peer).done_of(peer); }
  // Only what takes the wire is lent.
  [[nodiscard]] Result<std::uint64_t> register_memory(std::span<std::byte> memory) override {
    return far_->register_memory(memory);
  }
  void unregister_memory(std::uint64_t key) override { far_->unregister_memory(key); }
  [[nodiscard]] bool may_lend(std::span<const std::byte> memory) const override {
    return far_->may_lend(memory);
  }
  void take_back() override { far_->take_back(); }
  [[nodiscard]] Status progress() override {
    TUTTI_TRY(near_->progress());
    return far_->progress();
  }
  [[nodiscard]] Status flush() override {
    TUTTI_TRY(near_->flush());
    return far_->flush();
  }
  [[nodiscard]] Rank unflushed() const override {
    const Rank near = near_->unflushed();
    return near != kNoRank ? near : far_->unflushed();
  }
  void hasten() override {
    near_->hasten();
    far_->hasten();
  }
  void tell_done() override {
    near_->tell_done();
    far_->tell_done();
  }
  [[nodiscard]] bool await(Rank peer, std::int64_t ns) override { return of(peer).await(peer, ns); }
  [[nodiscard]] Owed owed() const override {
    const Owed near = near_->owed();
    return near.bytes > 0 ? near : far_->owed();
  }
  [[nodiscard]] bool connected(Rank peer) const override { return of(peer).connected(peer); }
  void give_up_if_silent(Rank peer) override { of(peer).give_up_if_silent(peer); }
  [[nodiscard]] bool has_left(Rank peer) const override { return of(peer).has_left(peer); }
  [[nodiscard]] bool shares_with(Rank peer) const override { return of(peer).shares_with(peer); }
  [[nodiscard]] Status health(Rank peer) const override { return of(peer).health(peer); }
  [[nodiscard]] std::uint64_t mapped_bytes() const override {
    return near_->mapped_bytes() + far_->mapped_bytes();
  }
  void say_goodbye() override {
    near_->say_goodbye();
    far_->say_goodbye();
  }
  void close() override {
    near_->close();
    far_->close();
  }

 private:
  // A rank that does not exist is refused by either.
  [[nodiscard]] Transport& of(Rank peer) const {
    return peer >= 0 && static_cast<std::size_t>(peer) < routes_.size()
               ? *routes_[static_cast<std::size_t>(peer)]
               : *near_;
  }

  const std::unique_ptr<Transport> near_, far_;
  const std::string name_;
  std::vector<Transport*> routes_;  // by rank
};

}  // namespace

std::unique_ptr<Transport> make_routed_transport(ControlChannel& control,
                                                 std::unique_ptr<Transport> near,
                                                 std::unique_ptr<Transport> far) {
  return std::make_unique<RoutedTransport>(control, std::move(near), std::move(far));
}

}  // namespace tutti
