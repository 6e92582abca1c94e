// SPDX-License-Identifier: Apache-2.0
#include "common/ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tutti::perf {

void ThreadRanks::fail(tuttiResult_t result) {
  // The rank whose communicator knows more than "a peer failed" speaks for the thread.
  for (Communicator& comm : comms_) {
    const char* detail = tuttiGetLastError(comm.get());
    if (detail != nullptr && *detail != '\0') check(result, comm.get());
  }
  check(result);
  throw Exception(tuttiInternalError, "the library reported no error");
}

ThreadRanks ThreadRanks::split(int color) {
  std::vector<tuttiComm_t> handles(comms_.size(), nullptr);
  for_each(false, [&](int i) {
    return tuttiCommSplit(comm(i).get(), color, rank(i), &handles[static_cast<std::size_t>(i)],
                          nullptr);
  });
  std::vector<Communicator> comms(handles.begin(), handles.end());
  const int first = comms.front().rank(), all = comms.front().nranks();
  return {std::move(comms), first, all};
}

void ThreadRanks::barrier() {
  std::vector<std::int32_t> tokens(comms_.size(), 1);
  for_each(false, [&](int i) {
    std::int32_t* token = &tokens[static_cast<std::size_t>(i)];
    return tuttiAllReduce(token, token, 1, tuttiInt32, tuttiMax, comm(i).get(), nullptr);
  });
}

std::vector<double> ThreadRanks::reduce(std::vector<double> values, std::size_t width,
                                        tuttiRedOp_t op) {
  for_each(false, [&](int i) {
    double* mine = values.data() + static_cast<std::size_t>(i) * width;
    return tuttiAllReduce(mine, mine, width, tuttiFloat64, op, comm(i).get(), nullptr);
  });
  values.resize(width);
  return values;
}

double ThreadRanks::reduce_one(double value, tuttiRedOp_t op) {
  return reduce(std::vector<double>(comms_.size(), value), 1, op)[0];
}

void ThreadRanks::abort() noexcept {
  for (Communicator& comm : comms_) static_cast<void>(tuttiCommAbort(comm.release()));
}

void ThreadRanks::finish() {
  tuttiResult_t first = tuttiSuccess;
  for (Communicator& comm : comms_) {
    const tuttiResult_t result = tuttiCommDestroy(comm.release());
    if (first == tuttiSuccess) first = result;
  }
  comms_.clear();
  check(first);
}

std::vector<ProcessPlace> gather_places(ThreadRanks& ranks, int process, int processes,
                                        const std::string& host) {
  struct Row {
    std::int32_t pid;
    char host[60];  // cut, ends with a zero byte
  };
  // Every rank contributes its process's row and zeros for the others; the greatest byte wins.
  std::vector<Row> mine(static_cast<std::size_t>(processes), Row{});
  Row& row = mine[static_cast<std::size_t>(process)];
  row.pid = ::getpid();
  std::memcpy(row.host, host.data(), std::min(host.size(), sizeof(row.host) - 1));
  std::vector<std::vector<Row>> rows(static_cast<std::size_t>(ranks.count()), mine);
  ranks.for_each(false, [&](int i) {
    Row* const values = rows[static_cast<std::size_t>(i)].data();
    return tuttiAllReduce(values, values, mine.size() * sizeof(Row), tuttiUint8, tuttiMax,
                          ranks.comm(i).get(), nullptr);
  });
  std::vector<ProcessPlace> places;
  for (const Row& found : rows[0]) places.push_back({found.pid, found.host});
  return places;
}

std::vector<Communicator> init_ranks(const tuttiUniqueId& id, int all_ranks, int first_rank,
                                     int count, const tuttiConfig_t& config, Gpus* gpus) {
  std::vector<tuttiComm_t> handles(static_cast<std::size_t>(count), nullptr);
  tuttiConfig_t shared = config;
  const auto init = [&](int i) {
    if (gpus != nullptr) gpus->use(gpus->of_rank(first_rank + i));
    return tuttiCommInitRankConfig(&handles[static_cast<std::size_t>(i)], all_ranks, id,
                                   first_rank + i, &shared);
  };
  tuttiResult_t result = tuttiSuccess;
  if (count == 1) {
    result = init(0);
  } else {
    check(tuttiGroupStart());
    for (int i = 0; i < count && result == tuttiSuccess; ++i) result = init(i);
    const tuttiResult_t end = tuttiGroupEnd();
    if (result == tuttiSuccess) result = end;
  }
  std::string message;
  if (result != tuttiSuccess) message = tuttiGetLastError(nullptr);
  std::vector<Communicator> comms(handles.begin(), handles.end());
  if (result != tuttiSuccess) {
    for (Communicator& comm : comms) static_cast<void>(tuttiCommAbort(comm.release()));
    throw Exception(result, message.empty() ? tuttiGetErrorString(result) : message);
  }
  return comms;
}

}  // namespace tutti::perf
