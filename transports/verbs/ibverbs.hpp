// SPDX-License-Identifier: Apache-2.0
// libibverbs, loaded when it is first asked for: a machine without it starts all the same.
//
// Its inline functions (ibv_post_send, ibv_poll_cq, ...) call the device's own and need no symbol;
// the others are called through this table, whose names are theirs. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "base/process_fd.hpp"
#include "base/result.hpp"

namespace tutti::verbs {

struct Ibverbs {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  // Fills what a port has had since the first version, all that is used here.
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*) = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int) = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_event_type_str) event_type_str = nullptr;
};

// Loaded once, never unloaded. Error: kNotSupported, what is missing.
[[nodiscard]] const Result<Ibverbs>& ibverbs();

// Destroys by the library what this process made. What a forked child inherits is its parent's, by
// a descriptor that both share: it is left alone.
template <typename T>
class Destroy {
 public:
  Destroy(int (*call)(T*)) : call_(call) {}  // as the library's functions are handed over
  void operator()(T* it) const {
    if (generation_ == fork_generation()) call_(it);
  }

 private:
  int (*call_)(T*);
  std::uint64_t generation_ = fork_generation();
};

template <typename T>
using Handle = std::unique_ptr<T, Destroy<T>>;

}  // namespace tutti::verbs
