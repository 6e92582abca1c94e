// SPDX-License-Identifier: Apache-2.0
#include "comm/issue.hpp"

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/run_operations.hpp"

namespace tutti {
namespace {

// In the progress thread.
Status carry_out(const Batch& batch) {
  try {
    return run_issued(*batch.communicator, batch.calls);
  } catch (const std::exception& error) {
    return make_error(Code::kSystemError, fmt::format("{}: {}", batch.function, error.what()));
  }
}

void tell(const Batch& batch, const Error& error) noexcept {
  for (const std::shared_ptr<Stream>& stream : batch.streams) try {
      stream->fail(error);
    } catch (const std::bad_alloc&) {
      stream->fail({error.code, std::string(), error.culprit});
    }
}

// A poisoned communicator takes no call, and no peer may wait for this rank's part in it: a death
// leaves calls of others running. Those in flight here may still end well, so it gives up after
// them.
void give_up_after_issued(Communicator& communicator) {
  const auto give_up = [&communicator] { communicator.members().give_up(); };
  try {
    if (!communicator.progress().idle() && communicator.progress().enqueue({}, give_up)) return;
  } catch (const std::bad_alloc&) {  // then before them
  }
  give_up();
}

Status issue_one(Batch batch, const std::vector<CompletionRef>& after) {
  Communicator& communicator = *batch.communicator;
  const InFlightCall issuing = InFlightCall::issuing(communicator.call_slot(), batch.function);
  if (!issuing) return issuing.status();
  TUTTI_TRY(communicator.members().open_to_calls());
  if (const auto error = communicator.error()) {
    give_up_after_issued(communicator);
    return tl::unexpected(*error);
  }
  const std::vector<std::shared_ptr<Stream>> streams = batch.streams;
  for (const std::shared_ptr<Stream>& stream : streams) stream->make_room();
  Result<CompletionRef> completion =
      communicator.progress().enqueue(after, [batch = std::move(batch)] {
        if (const Status status = carry_out(batch); !status) tell(batch, status.error());
      });
  if (!completion) {
    communicator.cannot_come();
    return tl::unexpected(completion.error());
  }
  for (const std::shared_ptr<Stream>& stream : streams) stream->put(*completion, after);
  return {};
}

// What all work that is on the batch's streams now ends with.
std::vector<CompletionRef> end_of(const Batch& batch) {
  std::vector<CompletionRef> all;
  for (const std::shared_ptr<Stream>& stream : batch.streams)
    for (CompletionRef& one : stream->after()) all.push_back(std::move(one));
  return all;
}

}  // namespace

Status issue(std::vector<Batch> batches) {
  std::vector<std::vector<CompletionRef>> after;  // read before any batch is on a stream
  for (const Batch& batch : batches) after.push_back(end_of(batch));
  Status first;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Communicator& communicator = *batches[i].communicator;
    try {
      if (Status issued = issue_one(std::move(batches[i]), after[i]); first)
        first = std::move(issued);
    } catch (...) {
      communicator.cannot_come();  // the others must not wait for this rank
      throw;
    }
  }
  return first;
}

}  // namespace tutti
