// SPDX-License-Identifier: Apache-2.0
// What hwloc says of one object, in the terms of the graph: which PCI devices are GPUs and NICs,
// their addresses, and how fast a live NIC is. Any thread.
#pragma once

#include <hwloc.h>

#include <optional>
#include <string>

namespace tutti::topology {

// A text that the object carries, made printable; "" where it has none.
[[nodiscard]] std::string info_of(hwloc_obj_t object, const char* name);
// -1 where it is none.
[[nodiscard]] int number_of(const std::string& text);

// The first child of I/O that fits, or null.
template <typename Fits>
[[nodiscard]] hwloc_obj_t find_osdev(hwloc_obj_t pci, Fits fits) {
  for (hwloc_obj_t child = pci->io_first_child; child != nullptr; child = child->next_sibling)
    if (child->type == HWLOC_OBJ_OS_DEVICE && fits(child)) return child;
  return nullptr;
}

// GPUs that compute: 3D controllers and accelerators of the makers of such, and whatever a driver
// for computing shows. Graphics for a board's console is none.
[[nodiscard]] bool is_gpu(hwloc_obj_t pci);
[[nodiscard]] bool is_nic(hwloc_obj_t pci);
// Of any object.
[[nodiscard]] bool is_nvswitch(hwloc_obj_t object);

// "0000:3b:00.0"
[[nodiscard]] std::string bus_id_of(hwloc_obj_t pci);

// GB/s of a NIC of this machine by its device of the operating system, from sysfs, which says
// "100 Gb/sec (4X EDR)" and "25000" (Mb/s).
[[nodiscard]] std::optional<double> live_rate(hwloc_obj_t os);

}  // namespace tutti::topology
