// The C boundary of explanations.
#include <fmt/format.h>
#include <tutti/explain.h>

#include <algorithm>
#include <cstring>

#include "runtime/explain.hpp"
#include "runtime/group.hpp"
#include "runtime/handle.hpp"

using namespace tutti;

namespace {

struct Question {
  const char* function;
  tuttiComm_t comm;
  std::size_t count;
  tuttiDataType_t type;
  int in_windows;
};

Result<Explanation> answer(const Question& question) {
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(question.comm, question.function));
  const auto type = static_cast<int>(question.type);
  if (type < 0 || type >= kDataTypeCount)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: data type {} is none", question.function, type));
  const std::size_t bytes_each = element_bytes(static_cast<DataType>(type));
  if (question.count == 0 || question.count > SIZE_MAX / 2 / bytes_each)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: count {}; it must be positive and fit into memory",
                                  question.function, question.count));
  return communicator->explain(question.count * bytes_each, question.in_windows != 0);
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

tuttiResult_t tuttiGetCandidates(tuttiComm_t comm, size_t count, tuttiDataType_t datatype,
                                 int inWindows, tuttiCandidate_t* candidates, size_t size,
                                 size_t capacity, size_t* total) {
  constexpr const char* kName = "tuttiGetCandidates";
  return guarded(kName, comm, [&]() -> Status {
    if (total == nullptr || (candidates == nullptr && capacity > 0) ||
        size != sizeof(tuttiCandidate_t))
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{}: NULL, or a size that is not sizeof(tuttiCandidate_t)", kName));
    TUTTI_TRY_ASSIGN(const Explanation all, answer({kName, comm, count, datatype, inWindows}));
    *total = all.candidates.size();
    std::ranges::transform(
        all.candidates.begin(),
        all.candidates.begin() + static_cast<std::ptrdiff_t>(std::min(capacity, *total)),
        candidates, exported);
    return {};
  });
}

tuttiResult_t tuttiExplain(tuttiComm_t comm, size_t count, tuttiDataType_t datatype, int inWindows,
                           const char** text) {
  constexpr const char* kName = "tuttiExplain";
  return guarded(kName, comm, [&]() -> Status {
    if (text == nullptr)
      return make_error(Code::kInvalidArgument, fmt::format("{}: text is NULL", kName));
    TUTTI_TRY_ASSIGN(const Explanation all, answer({kName, comm, count, datatype, inWindows}));
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, kName));
    TUTTI_TRY_ASSIGN(const std::string on_device, communicator->explain_on_device(all.bytes));
    *text = communicator->keep_text(to_text(all) + on_device);
    return {};
  });
}

}  // extern "C"
