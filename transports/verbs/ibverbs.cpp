// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/ibverbs.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

namespace tutti::verbs {
namespace {

Result<Ibverbs> load() {
  constexpr const char* kName = "libibverbs.so.1";
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return make_error(
        Code::kNotSupported,
        fmt::format("RDMA needs {}, which cannot be loaded ({}): install it (Debian: libibverbs1 "
                    "and ibverbs-providers) or set TUTTI_TRANSPORT=tcp",
                    kName, why != nullptr ? why : "the loader gave no reason"));
  }
  Ibverbs table;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find("ibv_get_device_list", table.get_device_list);
  find("ibv_free_device_list", table.free_device_list);
  find("ibv_get_device_name", table.get_device_name);
  find("ibv_open_device", table.open_device);
  find("ibv_close_device", table.close_device);
  find("ibv_query_device", table.query_device);
  find("ibv_query_port", table.query_port);
  find("ibv_query_gid", table.query_gid);
  find("ibv_alloc_pd", table.alloc_pd);
  find("ibv_dealloc_pd", table.dealloc_pd);
  find("ibv_reg_mr", table.reg_mr);
  find("ibv_dereg_mr", table.dereg_mr);
  find("ibv_create_comp_channel", table.create_comp_channel);
  find("ibv_destroy_comp_channel", table.destroy_comp_channel);
  find("ibv_get_cq_event", table.get_cq_event);
  find("ibv_ack_cq_events", table.ack_cq_events);
  find("ibv_create_cq", table.create_cq);
  find("ibv_destroy_cq", table.destroy_cq);
  find("ibv_create_qp", table.create_qp);
  find("ibv_modify_qp", table.modify_qp);
  find("ibv_destroy_qp", table.destroy_qp);
  find("ibv_get_async_event", table.get_async_event);
  find("ibv_ack_async_event", table.ack_async_event);
  find("ibv_event_type_str", table.event_type_str);
  decltype(&::ibv_fork_init) fork_init = nullptr;
  find("ibv_fork_init", fork_init);
  if (missing != nullptr)
    return make_error(Code::kNotSupported,
                      fmt::format("{} lacks {}; check that it is libibverbs", kName, missing));
  // Before anything is registered: programs may fork. Refused where others have begun; kernels from
  // 5.12 on need it no more.
  static_cast<void>(fork_init());
  return table;
}

}  // namespace

const Result<Ibverbs>& ibverbs() {
  static const Result<Ibverbs> loaded = load();
  return loaded;
}

}  // namespace tutti::verbs
