// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc_object.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <string_view>

#include "base/text.hpp"

namespace tutti::topology {
namespace {

constexpr std::uint32_t kNvidia = 0x10de;
constexpr std::uint32_t kAmd = 0x1002;
constexpr std::uint32_t kClassNvSwitch = 0x0680;

bool named(hwloc_obj_t object, std::string_view prefix) {
  return object->name != nullptr && std::string_view(object->name).starts_with(prefix);
}

std::optional<double> first_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value) || !(value > 0)) return std::nullopt;
  return value;
}

}  // namespace

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* const value = hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? std::string() : printable(value, 64);
}

int number_of(const std::string& text) {
  int value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool is_gpu(hwloc_obj_t pci) {
  constexpr unsigned kClass3d = 0x0302;
  constexpr unsigned kClassDisplay = 0x0380;
  constexpr unsigned kClassAccelerator = 0x1200;
  const auto& ids = pci->attr->pcidev;
  if ((ids.vendor_id == kNvidia || ids.vendor_id == kAmd) &&
      (ids.class_id == kClass3d || ids.class_id == kClassDisplay ||
       ids.class_id == kClassAccelerator))
    return true;
  return find_osdev(pci, [](hwloc_obj_t os) {
           const char* const opencl = hwloc_obj_get_info_by_name(os, "OpenCLDeviceType");
           return named(os, "cuda") || named(os, "nvml") || named(os, "rsmi") || named(os, "ze") ||
                  (opencl != nullptr && std::string_view(opencl) == "GPU");
         }) != nullptr;
}

bool is_nic(hwloc_obj_t pci) {
  if ((pci->attr->pcidev.class_id >> 8) == 0x02) return true;
  return find_osdev(pci, [](hwloc_obj_t os) {
           return os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
                  os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
         }) != nullptr;
}

bool is_nvswitch(hwloc_obj_t object) {
  if (object->type != HWLOC_OBJ_PCI_DEVICE) return false;
  if (object->subtype != nullptr && std::string_view(object->subtype) == "NVSwitch") return true;
  const auto& ids = object->attr->pcidev;
  return ids.vendor_id == kNvidia && ids.class_id == kClassNvSwitch;
}

std::string bus_id_of(hwloc_obj_t pci) {
  const auto& at = pci->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func);
}

std::optional<double> live_rate(hwloc_obj_t os) {
  const std::string name = os->name == nullptr ? std::string() : os->name;
  if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) {
    const auto gigabits = first_number("/sys/class/infiniband/" + name + "/ports/1/rate");
    return gigabits ? std::optional(*gigabits / 8) : std::nullopt;
  }
  const auto megabits = first_number("/sys/class/net/" + name + "/speed");
  return megabits ? std::optional(*megabits / 8000) : std::nullopt;
}

}  // namespace tutti::topology
