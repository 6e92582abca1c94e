// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/kernels/device/device_memory.hpp"

namespace tutti::device {
namespace {

void check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

}  // namespace

DeviceMemory::DeviceMemory(const std::vector<std::byte>& contents) : bytes_(contents.size()) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes_));
  data_ = static_cast<std::byte*>(memory);
  check(cudaMemcpy(data_, contents.data(), bytes_, cudaMemcpyHostToDevice));
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

std::vector<std::byte> DeviceMemory::contents() const {
  std::vector<std::byte> bytes(bytes_);
  check(cudaMemcpy(bytes.data(), data_, bytes_, cudaMemcpyDeviceToHost));
  return bytes;
}

}  // namespace tutti::device
