// Of a build without CUDA.
#include "runtime/device/platform.hpp"

namespace tutti::device {

Platform* cuda_platform(bool) { return nullptr; }

}  // namespace tutti::device
