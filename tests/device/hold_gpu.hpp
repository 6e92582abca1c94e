// SPDX-License-Identifier: Apache-2.0
// Kernels of a program that uses a GPU beside the library.
#pragma once

#include <cuda_runtime_api.h>

namespace tutti::test {

// Takes every multiprocessor of the current GPU, with the most threads of each, for some
// milliseconds by the GPU's clock.
cudaError_t hold_all_multiprocessors(int milliseconds, cudaStream_t stream);
// Writes a value to a word of the GPU's memory. Its code is in a kernel of its own, which the
// driver loads when it is first launched.
cudaError_t write_word(unsigned* word, unsigned value, cudaStream_t stream);

}  // namespace tutti::test
