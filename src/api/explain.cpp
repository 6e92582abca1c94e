// SPDX-License-Identifier: Apache-2.0
// The C boundary of explanations.
#include "plan/explain.hpp"

#include <fmt/core.h>
#include <tutti/explain.h>

#include <algorithm>
#include <cstring>

#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"
#include "base/call.hpp"
#include "base/text.hpp"

using namespace tutti;

namespace {

struct Question {
  const char* function;
  tuttiComm_t comm;
  const char* collective;
  std::size_t count;
  tuttiDataType_t type;
};

Result<Call> call_of(const Question& question) {
  const auto refuse = [&](const std::string& what) {
    return make_error(Code::kInvalidArgument, fmt::format("{}: {}", question.function, what));
  };
  TUTTI_TRY_ASSIGN(const Communicator* const communicator,
                   open_handle(question.comm, question.function));
  if (question.collective == nullptr) return refuse("collective is NULL");
  const auto collective = find_collective(question.collective);
  if (!collective)
    return refuse(fmt::format("'{}' is not a collective; for example all_reduce",
                              printable(question.collective, 40)));
  const auto type = value_of(question.type);
  if (type < 0 || type >= kDataTypeCount)
    return refuse(fmt::format("{} is not a valid tuttiDataType_t", type));
  const std::size_t bytes_each = element_bytes(static_cast<DataType>(type));
  const std::size_t blocks = info_of(*collective).blocks_among(communicator->ranks());
  if (question.count == 0 || question.count > SIZE_MAX / 2 / bytes_each / blocks)
    return refuse(
        fmt::format("count is {}; it must be positive and fit into memory", question.count));
  return Call{
      .collective = *collective, .count = question.count, .type = static_cast<DataType>(type)};
}

tuttiCandidate_t exported(const ExplainedCandidate& one) {
  constexpr double kUs = 1e-3;
  tuttiCandidate_t out{};
  one.name.copy(out.name, sizeof out.name - 1);
  out.runs = one.runs ? 1 : 0;
  out.slices = one.slices;
  out.timeUs = one.cost.time_ns * kUs;
  out.messagesUs = one.cost.messages_ns * kUs;
  out.switchesUs = one.cost.switches_ns * kUs;
  out.stepsUs = one.cost.steps_ns * kUs;
  out.bytesUs = (one.cost.bytes_ns + one.cost.wire_ns) * kUs;
  out.remoteUs = one.cost.remote_ns * kUs;
  out.measuredUs = one.measured_ns < 0 ? -1 : one.measured_ns * kUs;
  return out;
}

}  // namespace

extern "C" {

tuttiResult_t tuttiGetCandidates(tuttiComm_t comm, const char* collective, size_t count,
                                 tuttiDataType_t datatype, int inWindows,
                                 tuttiCandidate_t* candidates, size_t size, size_t capacity,
                                 size_t* total) {
  constexpr const char* kName = "tuttiGetCandidates";
  return guarded(kName, comm, [&]() -> Status {
    if (total == nullptr || (candidates == nullptr && capacity > 0) ||
        size != sizeof(tuttiCandidate_t))
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{}: candidates or total is NULL, or size is not sizeof(tuttiCandidate_t)",
                      kName));
    TUTTI_TRY_ASSIGN(const Call call, call_of({kName, comm, collective, count, datatype}));
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    TUTTI_TRY_ASSIGN(const Explanation all, communicator->explain(call, inWindows != 0));
    *total = all.candidates.size();
    std::ranges::transform(
        all.candidates.begin(),
        all.candidates.begin() + static_cast<std::ptrdiff_t>(std::min(capacity, *total)),
        candidates, exported);
    return {};
  });
}

tuttiResult_t tuttiExplain(tuttiComm_t comm, const char* collective, size_t count,
                           tuttiDataType_t datatype, int inWindows, const char** text) {
  constexpr const char* kName = "tuttiExplain";
  return guarded(kName, comm, [&]() -> Status {
    if (text == nullptr)
      return make_error(Code::kInvalidArgument, fmt::format("{}: text is NULL", kName));
    TUTTI_TRY_ASSIGN(const Call call, call_of({kName, comm, collective, count, datatype}));
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    TUTTI_TRY_ASSIGN(const Explanation all, communicator->explain(call, inWindows != 0));
    TUTTI_TRY_ASSIGN(const std::string on_device, communicator->explain_on_device(call));
    *text = communicator->keep_text(to_text(all) + on_device);
    return {};
  });
}

}  // extern "C"
