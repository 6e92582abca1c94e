// SPDX-License-Identifier: Apache-2.0
// The C boundary of memory: tuttiMemAlloc, registration and windows.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"
#include "exec/allocation.hpp"

using namespace tutti;

namespace {

// A tuttiWindow_t is a number that never comes again, so a window that is gone can be told.
tuttiWindow_t handle_of(std::uint64_t window) { return reinterpret_cast<tuttiWindow_t>(window); }
std::uint64_t id_of(tuttiWindow_t handle) { return reinterpret_cast<std::uintptr_t>(handle); }

Status register_window(tuttiComm_t comm, void* memory, std::size_t bytes, tuttiWindow_t* window,
                       int flags) {
  constexpr const char* kName = "tuttiCommWindowRegister";
  if (window == nullptr)
    return make_error(Code::kInvalidArgument, fmt::format("{}: win is NULL", kName));
  *window = nullptr;
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, kName));
  if (flags != TUTTI_WIN_DEFAULT && flags != TUTTI_WIN_COLL_SYMMETRIC)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: winFlags is {}; use TUTTI_WIN_DEFAULT or "
                                  "TUTTI_WIN_COLL_SYMMETRIC",
                                  kName, flags));
  const WindowRequest request{.id = new_window_id(),
                              .memory = memory,
                              .bytes = bytes,
                              .symmetric = flags == TUTTI_WIN_COLL_SYMMETRIC};
  const Group::Task add = [request](Communicator& own) -> Status {
    const InFlightCall in_flight(own.call_slot(), kName);
    return in_flight ? own.add_window(request) : in_flight.status();
  };
  Group& group = Group::current();
  if (Group::active()) {
    TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(comm, kName));
    group.add_task(handle, add);
  } else {
    TUTTI_TRY(
        add(*communicator).map_error([](Error error) { return in_call(kName, std::move(error)); }));
  }
  *window = handle_of(request.id);
  return {};
}

}  // namespace

extern "C" {

tuttiResult_t tuttiMemAlloc(void** ptr, size_t size) {
  return guarded("tuttiMemAlloc", nullptr, [&]() -> Status {
    constexpr const char* kName = "tuttiMemAlloc";
    if (ptr == nullptr)
      return make_error(Code::kInvalidArgument, fmt::format("{}: ptr is NULL", kName));
    *ptr = nullptr;
    if (size == 0) return {};
    const Result<void*> memory = allocate(size);
    if (!memory) return tl::unexpected(in_call(kName, memory.error()));
    *ptr = *memory;
    return {};
  });
}

tuttiResult_t tuttiMemFree(void* ptr) {
  return guarded("tuttiMemFree", nullptr, [&]() -> Status {
    if (ptr == nullptr) return {};
    return free_allocation(ptr).map_error(
        [](Error error) { return in_call("tuttiMemFree", std::move(error)); });
  });
}

tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void* buff, size_t size, void** handle) {
  return guarded("tuttiCommRegister", comm, [&]() -> Status {
    constexpr const char* kName = "tuttiCommRegister";
    if (handle == nullptr)
      return make_error(Code::kInvalidArgument, fmt::format("{}: handle is NULL", kName));
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    if (buff == nullptr || size == 0 || size > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(buff))
      return make_error(Code::kInvalidArgument,
                        fmt::format("{}: there is no memory to register: buff is {}, size is {}",
                                    kName, buff, size));
    const Result<std::uint64_t> id =
        communicator->register_memory({static_cast<std::byte*>(buff), size});
    if (!id) return tl::unexpected(in_call(kName, id.error()));
    *handle = reinterpret_cast<void*>(*id);
    return {};
  });
}

tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void* handle) {
  return guarded("tuttiCommDeregister", comm, [&]() -> Status {
    constexpr const char* kName = "tuttiCommDeregister";
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    return communicator->deregister_memory(reinterpret_cast<std::uintptr_t>(handle))
        .map_error([](Error error) { return in_call(kName, std::move(error)); });
  });
}

tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buff, size_t size, tuttiWindow_t* win,
                                      int winFlags) {
  return guarded("tuttiCommWindowRegister", comm, [&] {
    Status status = register_window(comm, buff, size, win, winFlags);
    if (!status && Group::active()) Group::current().fail(status.error());
    return status;
  });
}

tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win) {
  return guarded("tuttiCommWindowDeregister", comm, [&]() -> Status {
    constexpr const char* kName = "tuttiCommWindowDeregister";
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    return communicator->remove_window(id_of(win)).map_error([](Error error) {
      return in_call(kName, std::move(error));
    });
  });
}

}  // extern "C"
