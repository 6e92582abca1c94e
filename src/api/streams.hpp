// SPDX-License-Identifier: Apache-2.0
// Handles of streams and events. They are numbers that no address equals and that never come again,
// so one that was destroyed, and a cudaStream_t, is told from one that is there.
#pragma once

#include <tutti/stream.h>

#include <memory>

#include "base/call.hpp"
#include "base/result.hpp"
#include "stream/stream.hpp"

namespace tutti {

// The stream on which a call is put; null: none, as the call's thread runs it, or a device does.
// Errors: kInvalidArgument for device memory on a stream of this library, and the other way round.
[[nodiscard]] Result<std::shared_ptr<Stream>> stream_of(const char* function, tuttiStream_t stream,
                                                        const Call& call);

}  // namespace tutti
