// SPDX-License-Identifier: Apache-2.0
// The streams of one thread's ranks, the CUDA graphs that are captured from them, and marks by
// which a GPU's own clock is read. On host memory there are none, and a call has ended when it
// returns, unless the options ask for asynchronous calls.
//
// One thread per object. Throws Exception, or std::runtime_error with CUDA's words.
#pragma once

#include <vector>

#include "common/gpus.hpp"
#include "common/options.hpp"
#include "common/ranks.hpp"

namespace tutti::perf {

class Streams {
 public:
  // gpus null: host memory. All three outlive the object.
  Streams(Gpus* gpus, ThreadRanks& ranks, const Options& options);
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams();

  [[nodiscard]] bool on_gpus() const { return gpus_ != nullptr; }
  // Does a call return before its operation has ended?
  [[nodiscard]] bool asynchronous() const { return on_gpus() || !host_streams_.empty(); }
  [[nodiscard]] tuttiStream_t of(int i) const {
    const auto index = static_cast<std::size_t>(i);
    if (!on_gpus()) return host_streams_.empty() ? nullptr : host_streams_[index];
    return streams_[index];
  }
  // Returns when all operations have ended. As nccl-tests' wait: asks the streams and the
  // communicators in turn, and throws what these report, or a timeout after -T seconds.
  void wait();

 private:
  friend class Graphs;
  friend class Marks;
  [[nodiscard]] int count() const { return ranks_.count(); }
  void use(int i) { gpus_->use(gpus_->of_rank(ranks_.rank(i))); }
  void throw_reported();

  Gpus* gpus_;
  ThreadRanks& ranks_;
  int timeout_s_;
  bool default_streams_;
  std::vector<Gpus::Stream> streams_;
  std::vector<tuttiStream_t> host_streams_;  // --async
};

// Records the work that the constructor's `issue` puts on the streams: a graph for each GPU, in
// which an operation of all the thread's ranks on it is one launch.
class Graphs {
 public:
  template <class Issue>
  Graphs(Streams& streams, Issue&& issue) : streams_(streams) {
    begin();
    issue();
    end();
  }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs();
  void launch();

 private:
  void begin();
  void end();

  struct OfGpu {
    int gpu = 0;
    std::vector<Gpus::Stream> streams = {};  // of its ranks
    Gpus::Graph graph = nullptr;
  };
  Streams& streams_;
  std::vector<OfGpu> graphs_;
};

// Points in the streams of all of a thread's ranks.
class Marks {
 public:
  Marks(Streams& streams, std::size_t most);  // most 0: none, also on host memory
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;
  ~Marks();
  // At most `most` times.
  void set();
  // Between one mark and the next, the longest of the ranks; after Streams::wait().
  [[nodiscard]] std::vector<double> intervals_us() const;

 private:
  void release() noexcept;

  Streams& streams_;
  std::size_t most_, set_ = 0;
  std::vector<Gpus::Event> events_;  // of a rank, then of the next
};

}  // namespace tutti::perf
