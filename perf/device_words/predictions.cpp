// SPDX-License-Identifier: Apache-2.0
// What the words were predicted to be before the first run, for one H100 (132 processors at about
// 1.8 GHz, 3.35 TB/s): from data sheets, and from what the code does. A figure that is far from its
// prediction says which idea of the device was wrong, so these are not adjusted to measurements.
#include <algorithm>
#include <array>

#include "device_words/words.hpp"

namespace tutti::probe {
namespace {

struct Prediction {
  std::string_view name;
  double value;
};

// Nanoseconds.
constexpr std::array kTimes{
    // A round trip to the second-level cache: 270 cycles.
    Prediction{"l2_load", 150}, Prediction{"barrier", 25},
    // The system's scope waits for the write-backs of all; the device's for half as long.
    Prediction{"fence_gpu_idle", 250}, Prediction{"fence_gpu_stores", 400},
    Prediction{"fence_sys_idle", 500}, Prediction{"fence_sys_stores", 600},
    // A store to the cache, the poll that finds it, the pause between two polls. LL128 loads again.
    Prediction{"one_way_ll8_small", 1000}, Prediction{"one_way_ll16_small", 1000},
    Prediction{"one_way_ll128_small", 1150},
    // Three lines a thread, two of LL128.
    Prediction{"one_way_ll8_8K", 1800}, Prediction{"one_way_ll16_8K", 1800},
    Prediction{"one_way_ll128_8K", 1500},
    // And two barriers, a fence, a load of the payload.
    Prediction{"one_way_slots_gpu_small", 1600}, Prediction{"one_way_slots_gpu_8K", 1800},
    Prediction{"one_way_slots_sys_small", 1900}, Prediction{"one_way_slots_sys_8K", 2100},
    // The end of a kernel, its parameters, the begin of the next one.
    Prediction{"graph_node_64B_1", 2000}, Prediction{"graph_node_64B_16", 2000},
    Prediction{"graph_node_64B_132", 2200}, Prediction{"graph_node_512B_1", 2100},
    Prediction{"graph_node_512B_16", 2100}, Prediction{"graph_node_512B_132", 2300},
    Prediction{"graph_node_4096B_1", 2700}, Prediction{"graph_node_4096B_16", 2700},
    Prediction{"graph_node_4096B_132", 2900},
    // What the host takes for a launch.
    Prediction{"launch_64B_1", 2500}, Prediction{"launch_64B_16", 2500},
    Prediction{"launch_64B_132", 2500}, Prediction{"launch_512B_1", 2600},
    Prediction{"launch_512B_16", 2600}, Prediction{"launch_512B_132", 2600},
    Prediction{"launch_4096B_1", 3200}, Prediction{"launch_4096B_16", 3200},
    Prediction{"launch_4096B_132", 3200}};

// GB/s read and written, of copies and sums alike: a block has 48 KiB of loads under way for some
// 700 ns, and half of the time none; all blocks take 90 % of 3.0 TB/s.
constexpr std::array kRates{Prediction{"1", 80},    Prediction{"2", 160},   Prediction{"4", 320},
                            Prediction{"8", 640},   Prediction{"16", 1280}, Prediction{"32", 2200},
                            Prediction{"64", 2600}, Prediction{"all", 2700}};

double find(const auto& predictions, std::string_view name) {
  const auto found = std::ranges::find(predictions, name, &Prediction::name);
  return found == predictions.end() ? 0 : found->value;
}

}  // namespace

double predicted(std::string_view name) {
  if (name.starts_with("copy_") || name.starts_with("reduce"))
    return find(kRates, name.substr(name.rfind('_') + 1));
  return find(kTimes, name);
}

}  // namespace tutti::probe
