// SPDX-License-Identifier: Apache-2.0
// Devices of threads: memory is the host's, a stream is a thread that does what is enqueued in
// order, a kernel is threads for blocks. What Job and Executor do on CUDA, they do on this.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "device/driver.hpp"
#include "device/interpreter.hpp"
#include "device/platform.hpp"
#include "emulation.hpp"
#include "guarded_pages.hpp"
#include "kernels/device/folds.hpp"

namespace tutti::test {

class EmulatedStream {
 public:
  using Passed = std::shared_ptr<std::atomic<bool>>;  // has an event been reached?
  // Does something, or waits for an event.
  struct Item {
    std::function<void()> run = {};
    Passed until = {};
    bool kernel = false;
  };
  // What has been put on the streams of a capture, in the order in which it came.
  struct Graph {
    explicit Graph(std::uint64_t number) : id(number) {}
    const std::uint64_t id;
    std::vector<Item> items;
  };

  explicit EmulatedStream(std::uint64_t capture = 0) : capture_(capture) { remake(); }
  void enqueue(std::function<void()> item) { put({.run = std::move(item)}); }
  void launch(std::function<void()> kernel) { put({.run = std::move(kernel), .kernel = true}); }
  void record(Passed passed) {
    put({.run = [passed = std::move(passed)] {
      passed->store(true);
      passed->notify_all();
    }});
  }
  void wait(Passed passed) { put({.until = std::move(passed)}); }
  // What comes from here on is kept in the graph; null: it runs again.
  void record_into(Graph* graph) { graph_ = graph; }
  void replay(const Graph& graph) {
    for (const Item& item : graph.items) last().enqueue(item);
  }
  [[nodiscard]] bool idle() { return last().idle(); }
  void synchronize() {
    for (const auto& queue : queues_) queue->synchronize();
  }
  // Does it wait for an event, rather than run a kernel or have nothing left?
  [[nodiscard]] bool waits_for_an_event() { return last().waits_for_an_event(); }
  // Another stream at the same handle; what is enqueued on the one before still runs.
  void remake() { queues_.push_back(std::make_unique<Queue>()); }
  [[nodiscard]] std::uint64_t id() const { return queues_.back()->id; }
  // Of the graph that records, or the one that a test has given: its work runs at once.
  [[nodiscard]] std::uint64_t capture() const { return graph_ != nullptr ? graph_->id : capture_; }

 private:
  void put(Item item) {
    if (graph_ != nullptr)
      graph_->items.push_back(std::move(item));
    else
      last().enqueue(std::move(item));
  }
  class Queue {
   public:
    Queue() : worker_([this](const std::stop_token& over) { work(over); }) {}
    void enqueue(Item item) {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
      changed_.notify_all();
    }
    void synchronize() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return items_.empty() && !busy_; });
    }
    [[nodiscard]] bool idle() {
      const std::lock_guard lock(mutex_);
      return items_.empty() && !busy_;
    }
    [[nodiscard]] bool waits_for_an_event() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return (items_.empty() && !busy_) || waiting_ || in_kernel_; });
      return waiting_;
    }
    const std::uint64_t id = ++made;

   private:
    static inline std::atomic<std::uint64_t> made{0};
    void work(const std::stop_token& over) {
      std::unique_lock lock(mutex_);
      while (changed_.wait(lock, over, [this] { return !items_.empty(); })) {
        const Item item = std::move(items_.front());
        items_.pop_front();
        busy_ = true;
        waiting_ = item.until != nullptr && !item.until->load();
        in_kernel_ = item.kernel;
        changed_.notify_all();
        lock.unlock();
        if (item.until != nullptr)
          item.until->wait(false);
        else
          item.run();
        lock.lock();
        busy_ = waiting_ = in_kernel_ = false;
        changed_.notify_all();
      }
    }
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Item> items_;
    bool busy_ = false, waiting_ = false, in_kernel_ = false;
    std::jthread worker_;  // the last: it ends before what it uses
  };
  [[nodiscard]] Queue& last() { return *queues_.back(); }

  const std::uint64_t capture_;
  Graph* graph_ = nullptr;
  std::vector<std::unique_ptr<Queue>> queues_;
};

class EmulatedPlatform : public device::Platform {
 public:
  // As cudaStreamPerThread: another stream in every thread.
  static inline const device::Stream kPerThread = reinterpret_cast<device::Stream>(2);
  struct Shape {
    int devices = 1;
    int blocks = 12;  // resident on a device
    int queues = 8;
    bool islands = false;  // no device reaches another
    std::uint32_t threads = 1;
  };
  explicit EmulatedPlatform(const Shape& shape) : shape_(shape) {}
  ~EmulatedPlatform() override { EXPECT_EQ(allocated_, 0) << "memory of devices was left behind"; }

  int devices() override { return shape_.devices; }
  Result<int> current_device() override { return 0; }
  Status load(int device) override {
    const std::lock_guard lock(mutex_);
    used_.insert(device);
    return {};
  }
  Result<int> resident_blocks(int) override { return shape_.blocks; }
  int hardware_queues(int) override { return shape_.queues; }
  Status reach(int device, int other) override {
    ++taken_;
    if (shape_.islands && device != other)
      return make_error(Code::kNotSupported, "devices do not reach each other");
    return {};
  }
  bool whole_lines(int, int) override { return true; }

  Result<std::byte*> allocate(int device, std::uint64_t bytes) override {
    TUTTI_TRY(use(device));
    ++allocated_;
    GuardedPages pages(bytes);
    std::byte* const memory = pages.data();
    const std::lock_guard lock(mutex_);
    pages_.emplace(memory, std::move(pages));
    return memory;
  }
  void release(int, std::byte* memory) override {
    if (memory == nullptr) return;
    --allocated_;
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(pages_.erase(memory), 1U) << "not memory of this platform";
  }
  Status upload(int device, void* to, const void* from, std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (const auto found = failing_.extract(device))
      return make_error(found.mapped(), "an upload that a test lets fail");
    std::memcpy(to, from, bytes);
    return {};
  }
  Result<Word*> allocate_words(int device, std::uint64_t count) override {
    TUTTI_TRY(use(device));
    ++allocated_;
    return new Word[count]();
  }
  void release_words(Word* words) override {
    --allocated_;
    delete[] words;
  }

  Result<device::Event> make_event(int device) override {
    TUTTI_TRY(use(device));
    ++allocated_;
    return new Mark;
  }
  void release_event(device::Event event) override {
    --allocated_;
    delete static_cast<Mark*>(event);
  }
  Status record(device::Event event, int, device::Stream stream) override {
    auto passed = std::make_shared<std::atomic<bool>>(false);
    static_cast<Mark*>(event)->set(passed);
    of(stream).record(std::move(passed));
    return {};
  }
  Status wait(int, device::Stream stream, device::Event event) override {
    if (auto passed = static_cast<Mark*>(event)->get()) of(stream).wait(std::move(passed));
    return {};
  }
  Status synchronize(device::Event event) override {
    if (const auto passed = static_cast<Mark*>(event)->get()) passed->wait(false);
    return {};
  }
  // CUDA refuses the same.
  Result<std::uint64_t> id_of(int, device::Stream stream) override {
    if (of(stream).capture() == 0) return of(stream).id();
    return make_error(Code::kUnhandledCudaError, "a stream that is captured has no id");
  }
  Result<std::uint64_t> capture_of(int, device::Stream stream) override {
    return of(stream).capture();
  }

  Status launch(const device::LaunchCall& call) override {
    ++launches_;
    std::function<void()> kernel;
    const auto arguments = device::launch_arguments<device::kMaxTasks>(call.common, call.tasks);
    std::vector<Launched> tasks;
    for (std::size_t i = 0; i < call.tasks.size(); ++i) {
      tasks.push_back({arguments.common, arguments.tasks[i]});
      EXPECT_EQ(call.messages, arguments.tasks[i].bound->messages) << "another kernel's task";
    }
    const Launch shape{.blocks = call.blocks_each,
                       .threads = shape_.threads,
                       .warp = 2,
                       .device = &residency_of(call.device)};
    const auto found = [&]<class Fold>() {
      kernel = [shape, tasks] { tutti::test::launch<Fold>(shape, tasks); };
    };
    // A few types: each is an interpreter of its own to compile.
    bool known = call.op == ReduceOp::kSum;
    if (known && call.type == DataType::kInt32)
      found.operator()<device::Fold<device::Integer<std::int32_t>, device::Sum>>();
    else if (known && call.type == DataType::kFloat32)
      found.operator()<device::Fold<device::Real<float>, device::Sum>>();
    else if (known && call.type == DataType::kInt8)
      found.operator()<device::Fold<device::Integer<std::int8_t>, device::Sum>>();
    else
      known = false;
    if (!known) return make_error(Code::kNotSupported, "not emulated");
    of(call.stream).launch(std::move(kernel));
    return {};
  }
  Status copy(int, device::Stream stream, void* to, const void* from,
              std::uint64_t bytes) override {
    of(stream).enqueue([=] { std::memmove(to, from, bytes); });
    return {};
  }
  int device_of(const void*) override { return 0; }
  std::string out_of_reach(int device, const void* memory) override {
    const auto found = kept.find(memory);
    if (found == kept.end() || found->second.access.contains(device)) return {};
    return device::describe_unreachable(found->second.allocation, found->second.owner, device);
  }
  // Memory that only some devices reach.
  struct Kept {
    device::Allocation allocation;
    int owner;
    std::set<int> access;
  };
  std::map<const void*, Kept> kept;  // by where a buffer begins; not while ranks call

  [[nodiscard]] int launches() const { return launches_; }
  // Allocations, accesses to peers and events so far: what may wait for kernels.
  [[nodiscard]] int taken() const { return taken_; }
  // The devices that have been used: each has a context from then on.
  [[nodiscard]] std::set<int> used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  // The next one to a device.
  void fail_upload(int device, Code code) {
    const std::lock_guard lock(mutex_);
    failing_[device] = code;
  }
  // Of those that a device runs at once, another program's.
  void hold_blocks(int device, int blocks) {
    for (int i = 0; i < blocks; ++i) residency_of(device).enter();
  }
  void let_go_of_blocks(int device, int blocks) {
    for (int i = 0; i < blocks; ++i) residency_of(device).leave();
  }
  EmulatedStream& of(device::Stream stream) {
    if (stream != kPerThread) return *static_cast<EmulatedStream*>(stream);
    const std::lock_guard lock(mutex_);
    return per_thread_[std::this_thread::get_id()];
  }

 private:
  // What an event last marked.
  class Mark {
   public:
    using Passed = EmulatedStream::Passed;
    void set(Passed passed) {
      const std::lock_guard lock(mutex_);
      passed_ = std::move(passed);
    }
    [[nodiscard]] Passed get() const {
      const std::lock_guard lock(mutex_);
      return passed_;
    }

   private:
    mutable std::mutex mutex_;
    Passed passed_;
  };
  Residency& residency_of(int device) {
    const std::lock_guard lock(mutex_);
    return residency_.try_emplace(device, shape_.blocks).first->second;
  }
  Status use(int device) {
    ++taken_;
    const std::lock_guard lock(mutex_);
    used_.insert(device);
    return {};
  }

  const Shape shape_;
  std::mutex mutex_;
  std::map<const void*, GuardedPages> pages_;             // by where they begin; guarded by mutex_
  std::map<int, Residency> residency_;                    // by device; guarded by mutex_
  std::map<std::thread::id, EmulatedStream> per_thread_;  // guarded by mutex_
  std::set<int> used_;                                    // guarded by mutex_
  std::map<int, Code> failing_;                           // guarded by mutex_
  std::atomic<int> allocated_{0}, launches_{0}, taken_{0};
};

}  // namespace tutti::test
