// SPDX-License-Identifier: Apache-2.0
// What a build without CUDA knows of GPUs.
#include "common/gpus.hpp"

namespace tutti::perf {

FoundGpus find_gpus() {
  return {nullptr, "built without CUDA: configure with TUTTI_CUDA=ON where nvcc 12.3 or newer is"};
}

}  // namespace tutti::perf
