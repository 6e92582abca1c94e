// SPDX-License-Identifier: Apache-2.0
// Launching from host code: g++ compiles it, with the CUDA runtime's C interface.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>

#include "kernels/device/reduce_copy_kernel.cuh"

namespace tutti::device {
namespace {

[[nodiscard]] Status checked(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  const bool absent = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
                      error == cudaErrorStubLibrary;
  return make_error(
      absent ? Code::kNotSupported : Code::kUnhandledCudaError,
      fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

const void* kernel_of(DataType type, ReduceOp op, const DeviceReduceCopy& call) {
  const void* kernel = nullptr;
  for (const auto lookup : {integer_kernel, float_kernel, float8_kernel})
    if (kernel == nullptr) kernel = lookup(type, op);
  const bool copies = call.source_count == 1 && call.average_over <= 1;
  return kernel != nullptr && copies ? copy_kernel() : kernel;
}

Result<int> blocks_for(const void* kernel, std::uint64_t total_bytes) {
  int device = 0, processors = 0, per_processor = 0;
  TUTTI_TRY(checked(cudaGetDevice(&device), "no current CUDA device"));
  TUTTI_TRY(checked(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                    "cannot read the device's multiprocessor count"));
  TUTTI_TRY(checked(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, kKernelThreads, 0),
      "cannot read how many blocks of the reduce-copy kernel run at once"));
  const std::uint64_t useful = total_bytes / (std::uint64_t{kKernelThreads} * 16) + 1;
  const auto resident = static_cast<std::uint64_t>(processors) *
                        static_cast<std::uint64_t>(std::max(per_processor, 1));
  return static_cast<int>(std::min(useful, resident));
}

Status check_call(const void* kernel, const DeviceReduceCopy& call) {
  if (kernel == nullptr)
    return make_error(Code::kInvalidArgument, "reduce-copy kernel: unknown type or operation");
  const auto bad = [](std::uint32_t count) { return count == 0 || count > kMaxKernelOperands; };
  if (bad(call.source_count) || bad(call.destination_count))
    return make_error(
        Code::kInvalidArgument,
        fmt::format("reduce-copy kernel: {} sources and {} destinations, each must be "
                    "1 to {}",
                    call.source_count, call.destination_count, kMaxKernelOperands));
  return {};
}

}  // namespace

Status kernels_usable() {
  int devices = 0;
  TUTTI_TRY(checked(cudaGetDeviceCount(&devices), "no CUDA device can be used"));
  cudaFuncAttributes attributes{};
  return checked(cudaFuncGetAttributes(&attributes, copy_kernel()),
                 "this build's kernels do not run on the current CUDA device");
}

Status launch_reduce_copy(DataType type, ReduceOp op, const DeviceReduceCopy& call,
                          CUstream_st* stream, int blocks) {
  const void* kernel = kernel_of(type, op, call);
  TUTTI_TRY(check_call(kernel, call));
  if (call.elements == 0) return {};
  KernelArguments arguments{};
  std::copy_n(call.sources, call.source_count, arguments.sources);
  std::copy_n(call.destinations, call.destination_count, arguments.destinations);
  arguments.elements = call.elements;
  arguments.source_count = call.source_count;
  arguments.destination_count = call.destination_count;
  arguments.average_over = call.average_over;
  arguments.element_bytes = static_cast<std::uint32_t>(element_bytes(type));
  if (blocks <= 0) {
    TUTTI_TRY_ASSIGN(blocks, blocks_for(kernel, call.elements * arguments.element_bytes));
  }
  void* parameters[] = {&arguments};
  return checked(cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kKernelThreads),
                                  parameters, 0, stream),
                 "cannot launch the reduce-copy kernel");
}

}  // namespace tutti::device
