// SPDX-License-Identifier: Apache-2.0
// Calls on streams: each communicator's run in its progress thread, in the order of issue.
#pragma once

#include <memory>
#include <vector>

#include "base/call.hpp"
#include "base/result.hpp"
#include "stream/stream.hpp"

namespace tutti {

class Communicator;

// Calls of one communicator that run together, as those of a group do; never none.
struct Batch {
  Communicator* communicator = nullptr;
  std::vector<Call> calls;
  std::vector<std::shared_ptr<Stream>> streams;  // of the calls, each once
  const char* function;                          // the C function, for errors; a literal
};

// Puts each batch on its streams, after what is on them now, and returns. The batches come after
// each other nowhere, so those of several communicators progress at the same time. What goes wrong
// later the streams tell, and the communicator. Returns the first error of a batch that was not
// issued: kInvalidUsage where another thread is in a call of the communicator, what poisoned it,
// kSystemError; the others are issued.
[[nodiscard]] Status issue(std::vector<Batch> batches);

}  // namespace tutti
