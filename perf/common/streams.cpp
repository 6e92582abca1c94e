// SPDX-License-Identifier: Apache-2.0
#include "common/streams.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tutti/stream.h"

namespace tutti::perf {

Streams::Streams(Gpus* gpus, ThreadRanks& ranks, const Options& options)
    : gpus_(gpus),
      ranks_(ranks),
      timeout_s_(options.timeout_s),
      default_streams_(options.default_stream) {
  for (int i = 0; on_gpus() && i < count(); ++i) {
    use(i);
    streams_.push_back(default_streams_ ? nullptr : gpus_->make_stream());
  }
  for (int i = 0; !on_gpus() && options.asynchronous && i < count(); ++i) {
    tuttiStream_t stream = nullptr;
    check(tuttiStreamCreate(&stream));
    host_streams_.push_back(stream);
  }
}

Streams::~Streams() {
  for (const Gpus::Stream stream : streams_)
    if (stream != nullptr) gpus_->free_stream(stream);
  for (const tuttiStream_t stream : host_streams_) static_cast<void>(tuttiStreamDestroy(stream));
}

void Streams::throw_reported() {
  for (int i = 0; i < count(); ++i) {
    tuttiResult_t reported = tuttiSuccess;
    check(tuttiCommGetAsyncError(ranks_.comm(i).get(), &reported), ranks_.comm(i).get());
    if (reported != tuttiInProgress) check(reported, ranks_.comm(i).get());
  }
}

void Streams::wait() {
  for (int i = 0; i < static_cast<int>(host_streams_.size()); ++i)
    check(tuttiStreamSynchronize(of(i)), ranks_.comm(i).get());
  if (!on_gpus()) return;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count(); ++i) {
    if (default_streams_) use(i);  // the default stream is that of the current GPU
    while (!gpus_->idle(of(i))) {
      throw_reported();
      if (timeout_s_ > 0 &&
          std::chrono::steady_clock::now() - start > std::chrono::seconds(timeout_s_))
        throw Exception(tuttiTimeout,
                        fmt::format("operations of rank {} have not ended on its GPU within {} s",
                                    ranks_.rank(i), timeout_s_));
      std::this_thread::yield();
    }
  }
  throw_reported();  // what ended a kernel early
}

void Graphs::begin() {
  for (int i = 0; i < streams_.count(); ++i) {
    const int gpu = streams_.gpus_->of_rank(streams_.ranks_.rank(i));
    auto found = std::ranges::find(graphs_, gpu, &OfGpu::gpu);
    if (found == graphs_.end()) found = graphs_.insert(found, OfGpu{.gpu = gpu});
    found->streams.push_back(streams_.of(i));
  }
  for (const OfGpu& one : graphs_) {
    streams_.gpus_->use(one.gpu);
    streams_.gpus_->begin_capture(one.streams);
  }
}

void Graphs::end() {
  for (OfGpu& one : graphs_) {
    streams_.gpus_->use(one.gpu);
    one.graph = streams_.gpus_->end_capture(one.streams);
  }
}

Graphs::~Graphs() {
  for (const OfGpu& one : graphs_)
    if (one.graph != nullptr) streams_.gpus_->free_graph(one.graph);
}

// The other streams of a GPU have nothing to do meanwhile.
void Graphs::launch() {
  for (const OfGpu& one : graphs_) streams_.gpus_->launch(one.graph, one.streams[0]);
}

Marks::Marks(Streams& streams, std::size_t most) : streams_(streams), most_(most) {
  try {
    for (int i = 0; most > 0 && i < streams.count(); ++i) {
      streams.use(i);
      for (std::size_t k = 0; k < most; ++k) events_.push_back(streams.gpus_->make_event());
    }
  } catch (...) {
    release();
    throw;
  }
}

Marks::~Marks() { release(); }

void Marks::release() noexcept {
  for (const Gpus::Event event : events_) streams_.gpus_->free_event(event);
}

void Marks::set() {
  for (int i = 0; i < streams_.count(); ++i) {
    if (streams_.default_streams_) streams_.use(i);
    streams_.gpus_->record(events_[static_cast<std::size_t>(i) * most_ + set_], streams_.of(i));
  }
  ++set_;
}

std::vector<double> Marks::intervals_us() const {
  std::vector<double> longest(set_ == 0 ? 0 : set_ - 1, 0.0);
  for (int i = 0; i < streams_.count(); ++i)
    for (std::size_t k = 0; k < longest.size(); ++k) {
      const auto* const event = &events_[static_cast<std::size_t>(i) * most_ + k];
      longest[k] = std::max(longest[k], streams_.gpus_->elapsed_us(event[0], event[1]));
    }
  return longest;
}

}  // namespace tutti::perf
