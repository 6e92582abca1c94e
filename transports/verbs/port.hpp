// SPDX-License-Identifier: Apache-2.0
// An open port of an RDMA device: which one, what it can do, and the memory that it may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_fd.hpp"
#include "base/result.hpp"
#include "transports/verbs/ibverbs.hpp"
#include "transports/verbs/selection.hpp"
#include "transports/verbs/verbs_transport.hpp"
#include "transports/verbs/wire.hpp"

namespace tutti::verbs {

using Memory = Handle<ibv_mr>;
[[nodiscard]] inline Memory no_memory() { return {nullptr, nullptr}; }

// Its objects outlive what is made of it. Any thread, save events().
class Port {
 public:
  // The first active one that the options admit. Errors: those of make_verbs_transport.
  [[nodiscard]] static Result<std::unique_ptr<Port>> open(const VerbsOptions& options);

  [[nodiscard]] const Ibverbs& calls() const { return *calls_; }
  [[nodiscard]] ibv_context* context() const { return context_.get(); }
  [[nodiscard]] ibv_pd* domain() const { return domain_.get(); }
  // Where completion queues tell that something has come, once they are armed.
  [[nodiscard]] ibv_comp_channel* channel() const { return channel_.get(); }
  [[nodiscard]] const VerbsPort& about() const { return about_; }
  [[nodiscard]] const ibv_port_attr& attributes() const { return attributes_; }
  [[nodiscard]] const ibv_device_attr& limits() const { return limits_; }
  // All of a card that is the port's.
  [[nodiscard]] Card card() const;

  // Pins and registers. IBV_ACCESS_RELAXED_ORDERING is never among `access`: see README.md.
  // Error: kSystemError.
  [[nodiscard]] Result<Memory> register_memory(std::span<std::byte> bytes, int access) const;

  // Keeps from forked children what the library has mapped of the device by now: a mapping would
  // keep the queues of a dead parent alive, whose peers then see no end of it.
  void hide_from_children() const;

  // What has happened to the device since the last time. User thread.
  struct Events {
    std::vector<std::uint32_t> failed_queue_pairs;
    std::string device_failure;  // "": none
    bool changed = false;        // port_down() did
  };
  [[nodiscard]] Events events();
  [[nodiscard]] bool down() const { return down_; }
  // Sleeps until an armed completion queue has something, or the device has an event; at most `ns`.
  // User thread.
  void sleep(std::int64_t ns) const;

 private:
  Port(const Ibverbs& calls, Handle<ibv_context> context)
      : calls_(&calls),
        context_(std::move(context)),
        domain_(nullptr, calls.dealloc_pd),
        channel_(nullptr, calls.destroy_comp_channel) {}

  const Ibverbs* calls_;
  Handle<ibv_context> context_;
  Handle<ibv_pd> domain_;
  Handle<ibv_comp_channel> channel_;
  std::vector<ForeignFd> descriptors_;  // of those above
  VerbsPort about_;
  Gid gid_{};
  ibv_port_attr attributes_{};
  ibv_device_attr limits_{};
  bool down_ = false;
};

}  // namespace tutti::verbs
