// SPDX-License-Identifier: Apache-2.0
// Tutti for C++20: a thin layer over the C API that adds ownership, element types and exceptions.
//
//   tutti::Communicator comm(id, nranks, rank);       // id from tutti::UniqueId::create()
//   std::vector<float> values = ...;
//   comm.all_reduce(values, tuttiSum);                // in place; returns when complete
//
// The rules at the top of tutti.h about units, memory, streams, threads, order, blocking and errors
// hold here. This header adds no state, thread or lock. A failed call throws tutti::Exception,
// which carries the result code. Destructors never throw: call finalize() or Group::end() where the
// outcome matters. Header-only; link libtutti.
#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "tutti.hpp needs C++20: compile with -std=c++20, or link tutti::cpp in CMake"
#else  // or a hundred errors of the compiler would follow this one

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#ifdef __STDCPP_BFLOAT16_T__
#include <stdfloat>
#endif

#include "tutti/explain.h"
#include "tutti/stream.h"
#include "tutti/tutti.h"

namespace tutti {
inline namespace v0 {

// Thrown by a failed call. code() says what to do next (see tuttiResult_t); what() is the library's
// message for the error.
class Exception : public std::runtime_error {
 public:
  Exception(tuttiResult_t code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  [[nodiscard]] tuttiResult_t code() const noexcept { return code_; }

 private:
  tuttiResult_t code_;
};

// Throws Exception unless `result` is tuttiSuccess. The message is that of `comm`, or with nullptr
// that of the calling thread.
inline void check(tuttiResult_t result, tuttiComm_t comm = nullptr) {
  if (result == tuttiSuccess) return;
  const char* message = tuttiGetLastError(comm);
  if (message == nullptr || *message == '\0') message = tuttiGetErrorString(result);
  throw Exception(result, message);
}

namespace detail {
// Of a call that may return before the communicators that it makes are ready.
inline void check_begun(tuttiResult_t result) {
  if (result != tuttiInProgress) check(result);
}
}  // namespace detail

// 16-bit floating types as storage: the bits, without arithmetic. The compiler's own _Float16
// (C++23's std::float16_t) and std::bfloat16_t have a data type where they exist. A program that
// has another half or bfloat16 type specializes DataTypeOf for it.
struct Half {
  std::uint16_t bits = 0;
  bool operator==(const Half&) const = default;
};
struct Bfloat16 {
  std::uint16_t bits = 0;
  bool operator==(const Bfloat16&) const = default;
};

// Maps a C++ type to its tuttiDataType_t. To add a type:
//   template <> struct tutti::DataTypeOf<MyHalf> {
//     static constexpr tuttiDataType_t value = tuttiFloat16;
//   };
template <typename T>
struct DataTypeOf;

namespace detail {
template <std::integral T>
constexpr tuttiDataType_t integer_type() {
  static_assert(sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8,
                "Tutti reduces integers of 1, 4 and 8 bytes");
  if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? tuttiInt8 : tuttiUint8;
  if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? tuttiInt32 : tuttiUint32;
  return std::is_signed_v<T> ? tuttiInt64 : tuttiUint64;
}
}  // namespace detail

template <std::integral T>
requires(!std::same_as<T, bool>) struct DataTypeOf<T> {
  static constexpr tuttiDataType_t value = detail::integer_type<T>();
};
template <>
struct DataTypeOf<float> {
  static constexpr tuttiDataType_t value = tuttiFloat32;
};
template <>
struct DataTypeOf<double> {
  static constexpr tuttiDataType_t value = tuttiFloat64;
};
template <>
struct DataTypeOf<Half> {
  static constexpr tuttiDataType_t value = tuttiFloat16;
};
template <>
struct DataTypeOf<Bfloat16> {
  static constexpr tuttiDataType_t value = tuttiBfloat16;
};
#ifdef __FLT16_MANT_DIG__
template <>
struct DataTypeOf<_Float16> {
  static constexpr tuttiDataType_t value = tuttiFloat16;
};
#endif
#ifdef __STDCPP_BFLOAT16_T__
template <>
struct DataTypeOf<std::bfloat16_t> {
  static constexpr tuttiDataType_t value = tuttiBfloat16;
};
#endif

template <typename T>
inline constexpr tuttiDataType_t data_type_of = DataTypeOf<std::remove_cv_t<T>>::value;

// A type for which DataTypeOf is defined, const or not.
template <typename T>
concept Element = requires {
  { DataTypeOf<std::remove_cv_t<T>>::value } -> std::convertible_to<tuttiDataType_t>;
};

// A contiguous range of elements: a vector, array, span and the like. Its memory stays the
// caller's. A WritableElementRange is one whose elements are not const and outlive the range that
// is passed: a span may be a temporary, a vector may not.
template <typename R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>>;
template <typename R>
concept WritableElementRange = ElementRange<R> && std::ranges::borrowed_range<R> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// An address and a secret, by which ranks find and trust each other. Plain bytes: send them to the
// ranks that may join, and to nobody else.
struct UniqueId {
  tuttiUniqueId value{};

  // Creates the id of one communicator (tuttiGetUniqueId). One rank calls it; never waits for a
  // peer.
  [[nodiscard]] static UniqueId create() {
    UniqueId id;
    check(tuttiGetUniqueId(&id.value));
    return id;
  }
  [[nodiscard]] static UniqueId from_bytes(
      std::span<const std::byte, TUTTI_UNIQUE_ID_BYTES> source) {
    UniqueId id;
    std::memcpy(id.value.internal, source.data(), source.size());
    return id;
  }
  [[nodiscard]] std::span<const std::byte, TUTTI_UNIQUE_ID_BYTES> bytes() const {
    return std::as_bytes(std::span(value.internal));
  }
};

// The launcher that started this process, with the rank of this process and the number of
// processes. Without a launcher: rank 0 of 1.
struct Launcher {
  tuttiLauncher_t value = TUTTI_LAUNCHER_INITIALIZER;

  [[nodiscard]] static Launcher find() {
    Launcher launcher;
    check(tuttiGetLauncher(&launcher.value));
    return launcher;
  }
  [[nodiscard]] int rank() const { return value.rank; }
  [[nodiscard]] int nranks() const { return value.nRanks; }
  // One id for all processes of the launcher (tuttiGetLauncherUniqueId). Collective; each process
  // calls it at most once. Blocks until all have called, at most for the initialization timeout.
  [[nodiscard]] static UniqueId unique_id() {
    UniqueId id;
    check(tuttiGetLauncherUniqueId(&id.value));
    return id;
  }
};

// Holds back the calls that its thread makes while it is open; end() runs them together. With a
// group one thread can drive several ranks. It belongs to the thread that opened it. A Communicator
// that is created in a group can be moved at once and used after end(). If end() throws, the
// communicators created in the group hold invalid handles. Destroying a communicator of the group
// before end() makes end() throw.
class Group {
 public:
  Group() { check(tuttiGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Ends the group if it is open, and drops the error.
  ~Group() {
    if (open_) static_cast<void>(tuttiGroupEnd());
  }
  // Runs the calls. Returns when all calls with host memory and no stream are complete.
  void end() {
    open_ = false;
    detail::check_begun(tuttiGroupEnd());
  }

 private:
  bool open_ = true;
};

// Page-aligned memory of tuttiMemAlloc, zero at first, which can become part of a window.
// Move-only. Destroy the windows in it first: memory that is still part of a window is not freed.
class Memory {
 public:
  Memory() noexcept = default;
  explicit Memory(std::size_t bytes) : bytes_(bytes) { check(tuttiMemAlloc(&data_, bytes)); }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { static_cast<void>(tuttiMemFree(data_)); }

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }
  // The memory as elements of T; a remainder that is smaller than a T is left out.
  template <Element T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A point in a Stream. Complete until it is recorded. Move-only.
class Event {
 public:
  Event() { check(tuttiEventCreate(&event_)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { static_cast<void>(tuttiEventDestroy(event_)); }

  // Has the work of the last record ended?
  [[nodiscard]] bool done() const {
    const tuttiResult_t result = tuttiEventQuery(event_);
    if (result != tuttiInProgress) check(result);
    return result == tuttiSuccess;
  }
  void synchronize() const { check(tuttiEventSynchronize(event_)); }
  [[nodiscard]] tuttiEvent_t get() const noexcept { return event_; }

 private:
  tuttiEvent_t event_ = nullptr;
};

// Asynchronous calls with host memory: comm.all_reduce(values, tuttiSum, stream.get()) returns at
// once, and `values` must stay until it has ended (tuttiStreamCreate). Move-only; the destructor
// waits for all work on the stream.
class Stream {
 public:
  Stream() { check(tuttiStreamCreate(&stream_)); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { static_cast<void>(tuttiStreamDestroy(stream_)); }

  // Has all work on the stream ended, well or not?
  [[nodiscard]] bool done() const {
    const tuttiResult_t result = tuttiStreamQuery(stream_);
    if (result != tuttiInProgress) check(result);
    return result == tuttiSuccess;
  }
  // Blocks until it has, and throws the error of the first call that failed since the last time.
  void synchronize() const { check(tuttiStreamSynchronize(stream_)); }
  // Records what is on the stream now.
  void record(const Event& event) const { check(tuttiEventRecord(event.get(), stream_)); }
  // What is put on the stream from now on begins after the work of the event's last record.
  void wait(const Event& event) const { check(tuttiStreamWaitEvent(stream_, event.get())); }
  // Calls a copy of `function` when all that is on the stream has ended, in a thread of the stream.
  // It must not throw.
  template <std::invocable Function>
  void launch(Function&& function) const {
    using Held = std::decay_t<Function>;
    auto held = std::make_unique<Held>(std::forward<Function>(function));
    const auto run = [](void* it) { (*std::unique_ptr<Held>(static_cast<Held*>(it)))(); };
    check(tuttiLaunchHostFunc(stream_, run, held.get()));
    static_cast<void>(held.release());
  }
  [[nodiscard]] tuttiStream_t get() const noexcept { return stream_; }

 private:
  tuttiStream_t stream_ = nullptr;
};

class Communicator;

// A range that every rank registered (tuttiCommWindowRegister): ranks on the same host use it in
// place. Collective to make; the destructor ends it for this rank alone, once no operation uses
// the range. It may outlive its communicator. Move-only.
class Window {
 public:
  Window() noexcept = default;
  inline Window(Communicator& comm, void* data, std::size_t bytes,
                int flags = TUTTI_WIN_COLL_SYMMETRIC);
  inline Window(Communicator& comm, const Memory& memory, int flags = TUTTI_WIN_COLL_SYMMETRIC);
  Window(Window&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)) {}
  Window& operator=(Window&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (handle_ != nullptr) static_cast<void>(tuttiCommWindowDeregister(comm_, handle_));
  }

  [[nodiscard]] tuttiWindow_t get() const noexcept { return handle_; }

 private:
  tuttiComm_t comm_ = nullptr;
  tuttiWindow_t handle_ = nullptr;
};

// A range that this rank alone registered (tuttiCommRegister): calls send it to other hosts by RDMA
// without a copy. Destroy it before the memory is freed. It may outlive its communicator.
// Move-only.
class Registration {
 public:
  Registration() noexcept = default;
  inline Registration(Communicator& comm, void* data, std::size_t bytes);
  Registration(Registration&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    if (handle_ != nullptr) static_cast<void>(tuttiCommDeregister(comm_, handle_));
  }

 private:
  tuttiComm_t comm_ = nullptr;
  void* handle_ = nullptr;
};

// One rank of a communicator. Move-only. The destructor calls tuttiCommDestroy, which is bounded.
// One thread at a time uses it. Any thread may call state() and revoke(), which
// ends the call of another thread; abort() changes the object, as a move does.
class Communicator {
 public:
  // An empty communicator: every call on it throws tuttiInvalidArgument.
  Communicator() noexcept = default;
  // Joins as `rank` of `nranks`. Collective: blocks until all ranks have joined, at most for the
  // initialization timeout. `config` starts from TUTTI_CONFIG_INITIALIZER. To drive several ranks
  // from one thread, use init_all or a Group.
  Communicator(const UniqueId& id, int nranks, int rank) {
    check(tuttiCommInitRank(&comm_, nranks, id.value, rank));
  }
  // With config.blocking == 0 it returns before that, and state() is tuttiInProgress until then.
  Communicator(const UniqueId& id, int nranks, int rank, tuttiConfig_t config) {
    detail::check_begun(tuttiCommInitRankConfig(&comm_, nranks, id.value, rank, &config));
  }
  // Takes ownership of a handle. NULL makes an empty communicator.
  explicit Communicator(tuttiComm_t comm) noexcept : comm_(comm) {}

  // The communicator of all processes that the launcher started. Collective; a process can call it
  // once, and creates further communicators with UniqueId.
  [[nodiscard]] static Communicator from_launcher(tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER) {
    const Launcher launcher = Launcher::find();
    return Communicator(Launcher::unique_id(), launcher.nranks(), launcher.rank(), config);
  }

  // A new communicator with all of its ranks in this process, returned in rank order.
  [[nodiscard]] static std::vector<Communicator> init_all(int nranks) {
    std::vector<tuttiComm_t> handles(nranks > 0 ? static_cast<std::size_t>(nranks) : 1);
    check(tuttiCommInitAll(handles.data(), nranks, nullptr));
    return {handles.begin(), handles.end()};
  }
  // The same, with the CUDA device of each rank.
  [[nodiscard]] static std::vector<Communicator> init_all(std::span<const int> devices) {
    std::vector<tuttiComm_t> handles(devices.empty() ? 1 : devices.size());
    check(tuttiCommInitAll(handles.data(), static_cast<int>(devices.size()), devices.data()));
    return {handles.begin(), handles.end()};
  }
  // The same on host memory, with a configuration for all of them. Not inside a Group.
  [[nodiscard]] static std::vector<Communicator> init_all(int nranks, const tuttiConfig_t& config) {
    const UniqueId id = UniqueId::create();
    std::vector<Communicator> ranks;
    Group group;
    for (int rank = 0; rank < nranks; ++rank) ranks.emplace_back(id, nranks, rank, config);
    group.end();
    return ranks;
  }

  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    if (this != &other) {
      static_cast<void>(tuttiCommDestroy(comm_));
      comm_ = std::exchange(other.comm_, nullptr);
    }
    return *this;
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { static_cast<void>(tuttiCommDestroy(comm_)); }

  // All-reduce: output[i] on every rank = op over all ranks of input[i]. Both ranges have the same
  // size, on all ranks.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void all_reduce(const In& input, Out&& output, tuttiRedOp_t op = tuttiSum,
                  tuttiStream_t stream = nullptr) {
    check_length("all_reduce", std::ranges::size(output), std::ranges::size(input));
    check(tuttiAllReduce(std::ranges::data(input), std::ranges::data(output),
                         std::ranges::size(input), data_type_of<std::ranges::range_value_t<In>>, op,
                         comm_, stream),
          comm_);
  }
  // All-reduce in place: values[i] on every rank = op over all ranks of values[i].
  template <WritableElementRange Values>
  void all_reduce(Values&& values, tuttiRedOp_t op = tuttiSum, tuttiStream_t stream = nullptr) {
    check(tuttiAllReduce(std::ranges::data(values), std::ranges::data(values),
                         std::ranges::size(values),
                         data_type_of<std::ranges::range_value_t<Values>>, op, comm_, stream),
          comm_);
  }

  // Reduce: output[i] on `root` = op over all ranks of input[i]. On root both ranges have the same
  // size; on the other ranks output is not used and may be empty.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void reduce(const In& input, Out&& output, int root, tuttiRedOp_t op = tuttiSum,
              tuttiStream_t stream = nullptr) {
    if (rank() == root) check_length("reduce", std::ranges::size(output), std::ranges::size(input));
    check(tuttiReduce(std::ranges::data(input), std::ranges::data(output), std::ranges::size(input),
                      data_type_of<std::ranges::range_value_t<In>>, op, root, comm_, stream),
          comm_);
  }
  // Broadcast in place: values on every rank = values on `root`. All ranges have the same size.
  template <WritableElementRange Values>
  void broadcast(Values&& values, int root, tuttiStream_t stream = nullptr) {
    check(tuttiBroadcast(std::ranges::data(values), std::ranges::data(values),
                         std::ranges::size(values),
                         data_type_of<std::ranges::range_value_t<Values>>, root, comm_, stream),
          comm_);
  }
  // Reduce-scatter: output on rank r = op over all ranks of block r of input. input has nranks
  // blocks of output's size.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void reduce_scatter(const In& input, Out&& output, tuttiRedOp_t op = tuttiSum,
                      tuttiStream_t stream = nullptr) {
    check_length("reduce_scatter", std::ranges::size(input), std::ranges::size(output) * count());
    check(tuttiReduceScatter(std::ranges::data(input), std::ranges::data(output),
                             std::ranges::size(output),
                             data_type_of<std::ranges::range_value_t<In>>, op, comm_, stream),
          comm_);
  }
  // All-gather: block r of output on every rank = input of rank r. output has nranks blocks of
  // input's size.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void all_gather(const In& input, Out&& output, tuttiStream_t stream = nullptr) {
    check_length("all_gather", std::ranges::size(output), std::ranges::size(input) * count());
    check(tuttiAllGather(std::ranges::data(input), std::ranges::data(output),
                         std::ranges::size(input), data_type_of<std::ranges::range_value_t<In>>,
                         comm_, stream),
          comm_);
  }

  // All-to-all: block s of output on rank r = block r of input of rank s. Both have nranks blocks
  // of one size; `output` may be `input`.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void all_to_all(const In& input, Out&& output, tuttiStream_t stream = nullptr) {
    check_length("all_to_all", std::ranges::size(input), std::ranges::size(output));
    check_length("all_to_all", std::ranges::size(input),
                 std::ranges::size(input) / count() * count());
    check(tuttiAlltoAll(std::ranges::data(input), std::ranges::data(output),
                        std::ranges::size(input) / count(),
                        data_type_of<std::ranges::range_value_t<In>>, comm_, stream),
          comm_);
  }
  // Gather: block r of output on `root` = input of rank r. There output has nranks blocks of
  // input's size; the other ranks may pass an empty range.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void gather(const In& input, Out&& output, int root, tuttiStream_t stream = nullptr) {
    if (rank() == root)
      check_length("gather", std::ranges::size(output), std::ranges::size(input) * count());
    check(tuttiGather(std::ranges::data(input), std::ranges::data(output), std::ranges::size(input),
                      data_type_of<std::ranges::range_value_t<In>>, root, comm_, stream),
          comm_);
  }
  // Scatter: output on rank r = block r of input of `root`. There input has nranks blocks of
  // output's size; the other ranks may pass an empty range.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void scatter(const In& input, Out&& output, int root, tuttiStream_t stream = nullptr) {
    if (rank() == root)
      check_length("scatter", std::ranges::size(input), std::ranges::size(output) * count());
    check(
        tuttiScatter(std::ranges::data(input), std::ranges::data(output), std::ranges::size(output),
                     data_type_of<std::ranges::range_value_t<In>>, root, comm_, stream),
        comm_);
  }

  // Send and receive: `input` here = `output` at `peer`, of one size and type (tuttiSend). Those
  // that must progress together belong in one Group.
  template <ElementRange In>
  void send(const In& input, int peer, tuttiStream_t stream = nullptr) {
    check(tuttiSend(std::ranges::data(input), std::ranges::size(input),
                    data_type_of<std::ranges::range_value_t<In>>, peer, comm_, stream),
          comm_);
  }
  template <WritableElementRange Out>
  void recv(Out&& output, int peer, tuttiStream_t stream = nullptr) {
    check(tuttiRecv(std::ranges::data(output), std::ranges::size(output),
                    data_type_of<std::ranges::range_value_t<Out>>, peer, comm_, stream),
          comm_);
  }

  // Returns on no rank before all ranks have called it.
  void barrier(tuttiStream_t stream = nullptr) { check(tuttiBarrier(comm_, stream), comm_); }

  // Collective: a communicator of the ranks with the same color, ordered by key (tuttiCommSplit).
  // Empty on a rank whose color is TUTTI_SPLIT_NOCOLOR. Without `config`: this communicator's.
  [[nodiscard]] Communicator split(int color, int key = 0) {
    tuttiComm_t made = nullptr;
    check(tuttiCommSplit(comm_, color, key, &made, nullptr), comm_);
    return Communicator(made);
  }
  [[nodiscard]] Communicator split(int color, int key, tuttiConfig_t config) {
    tuttiComm_t made = nullptr;
    check(tuttiCommSplit(comm_, color, key, &made, &config), comm_);
    return Communicator(made);
  }
  // Collective over the ranks that live and are not excluded: a communicator of them
  // (tuttiCommShrink). With TUTTI_SHRINK_ABORT also after an error.
  [[nodiscard]] Communicator shrink(int flags = TUTTI_SHRINK_DEFAULT,
                                    std::span<const int> excluded = {}) {
    std::vector<int> list(excluded.begin(), excluded.end());
    tuttiComm_t made = nullptr;
    check(tuttiCommShrink(comm_, list.data(), static_cast<int>(list.size()), &made, nullptr, flags),
          comm_);
    return Communicator(made);
  }
  // Ends all operations on all ranks and keeps the communicator, for split() and shrink().
  void revoke() { check(tuttiCommRevoke(comm_, TUTTI_REVOKE_DEFAULT), comm_); }

  [[nodiscard]] int rank() const {
    int value = 0;
    check(tuttiCommUserRank(comm_, &value), comm_);
    return value;
  }
  [[nodiscard]] int nranks() const {
    int value = 0;
    check(tuttiCommCount(comm_, &value), comm_);
    return value;
  }
  // tuttiSuccess, tuttiInProgress (blocking = 0), or the code of the error that poisoned the
  // communicator. Any thread.
  [[nodiscard]] tuttiResult_t state() const {
    tuttiResult_t value = tuttiSuccess;
    check(tuttiCommGetAsyncError(comm_, &value), comm_);
    return value;
  }
  [[nodiscard]] tuttiCommInfo_t info() const {
    tuttiCommInfo_t value = TUTTI_COMM_INFO_INITIALIZER;
    check(tuttiCommInfo(comm_, &value), comm_);
    return value;
  }

  // A table of the candidates for a call of `collective` ("all_reduce") with `count` elements, with
  // their prices and the one that runs (tuttiExplain).
  [[nodiscard]] std::string explain(const char* collective, std::size_t count, tuttiDataType_t type,
                                    bool in_windows = false) const {
    const char* text = nullptr;
    check(tuttiExplain(comm_, collective, count, type, in_windows ? 1 : 0, &text), comm_);
    return text;
  }

  // Forces the algorithm of later operations; nullptr or "auto" lets the library choose. Call it on
  // all ranks between the same two operations (tuttiCommSetAlgorithm).
  void set_algorithm(const char* name) { check(tuttiCommSetAlgorithm(comm_, name), comm_); }
  // Completes all operations that were issued. Throws errors that the destructor would drop.
  void finalize() { check(tuttiCommFinalize(comm_), comm_); }
  // Ends all operations on all ranks. The communicator is empty afterwards.
  void abort() { check(tuttiCommAbort(std::exchange(comm_, nullptr))); }

  // The handle, which the communicator keeps.
  [[nodiscard]] tuttiComm_t get() const noexcept { return comm_; }
  [[nodiscard]] explicit operator bool() const noexcept { return comm_ != nullptr; }
  // Gives up the handle: the caller destroys it, and the communicator is empty.
  [[nodiscard]] tuttiComm_t release() noexcept { return std::exchange(comm_, nullptr); }

 private:
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(nranks()); }
  static void check_length(const char* function, std::size_t elements, std::size_t expected) {
    if (elements == expected) return;
    throw Exception(tuttiInvalidArgument, std::string(function) + ": a range has " +
                                              std::to_string(elements) + " elements, not " +
                                              std::to_string(expected));
  }

  tuttiComm_t comm_ = nullptr;
};

inline Window::Window(Communicator& comm, void* data, std::size_t bytes, int flags)
    : comm_(comm.get()) {
  check(tuttiCommWindowRegister(comm_, data, bytes, &handle_, flags), comm_);
}
inline Window::Window(Communicator& comm, const Memory& memory, int flags)
    : Window(comm, memory.data(), memory.size_bytes(), flags) {}
inline Registration::Registration(Communicator& comm, void* data, std::size_t bytes)
    : comm_(comm.get()) {
  check(tuttiCommRegister(comm_, data, bytes, &handle_), comm_);
}

}  // namespace v0
}  // namespace tutti

#endif  // C++20
