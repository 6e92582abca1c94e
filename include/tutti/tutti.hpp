// Tutti for C++20: ownership, types and exceptions over the C API, and nothing else.
//
//   tutti::Communicator comm(id, nranks, rank);       // id from tutti::UniqueId::create()
//   std::vector<float> values = ...;
//   comm.all_reduce(values, tuttiSum);                // in place; returns when complete
//
// Everything that tutti.h says of units, threads, order, blocking and errors holds here; this
// header adds no state, thread or lock of its own. A failed call throws tutti::Exception, which
// carries the result code. Destructors never throw: call finalize() or Group::end() where the
// outcome matters. Header-only; needs libtutti.
#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "tutti.hpp needs C++20: compile with -std=c++20, in CMake set(CMAKE_CXX_STANDARD 20)"
#endif

#include <concepts>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/explain.h"
#include "tutti/tutti.h"

namespace tutti {
inline namespace v0 {

// What a failed call throws. code() says what to do next (see tuttiResult_t); what() is the
// library's own message for this error.
class Exception : public std::runtime_error {
 public:
  Exception(tuttiResult_t code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  [[nodiscard]] tuttiResult_t code() const noexcept { return code_; }

 private:
  tuttiResult_t code_;
};

// Throws unless `result` is tuttiSuccess. `comm` is where the message is looked up.
inline void check(tuttiResult_t result, tuttiComm_t comm = nullptr) {
  if (result == tuttiSuccess) return;
  const char* message = tuttiGetLastError(comm);
  if (message == nullptr || *message == '\0') message = tuttiGetErrorString(result);
  throw Exception(result, message);
}

// 16-bit floating types as storage: the bits and nothing more. Programs that have a half or
// bfloat16 type of their own declare it with a specialization of DataTypeOf instead.
struct Half {
  std::uint16_t bits = 0;
  bool operator==(const Half&) const = default;
};
struct Bfloat16 {
  std::uint16_t bits = 0;
  bool operator==(const Bfloat16&) const = default;
};

// The data type of a C++ type. To add one:
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

template <typename T>
inline constexpr tuttiDataType_t data_type_of = DataTypeOf<std::remove_cv_t<T>>::value;

// A type that has a data type.
template <typename T>
concept Element = requires {
  { DataTypeOf<std::remove_cv_t<T>>::value } -> std::convertible_to<tuttiDataType_t>;
};

// A vector, array, span, ... of elements. Its memory stays the caller's.
template <typename R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>>;
template <typename R>
concept WritableElementRange =
    ElementRange<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// How ranks find and trust each other. Plain bytes: send them to the ranks that may join, and to
// nobody else.
struct UniqueId {
  tuttiUniqueId value{};

  // Once for each communicator, on one rank.
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

// The launcher that started this process, and this process's place in it. Without one: rank 0 of 1.
struct Launcher {
  tuttiLauncher_t value = TUTTI_LAUNCHER_INITIALIZER;

  [[nodiscard]] static Launcher find() {
    Launcher launcher;
    check(tuttiGetLauncher(&launcher.value));
    return launcher;
  }
  [[nodiscard]] int rank() const { return value.rank; }
  [[nodiscard]] int nranks() const { return value.nRanks; }
  // Collective, once in a process's life.
  [[nodiscard]] static UniqueId unique_id() {
    UniqueId id;
    check(tuttiGetLauncherUniqueId(&id.value));
    return id;
  }
};

// A group: calls made while it is open are held back and run together by end(). It is how one
// thread drives several ranks. Belongs to the thread that opened it. A Communicator that is made in
// a group is usable after end(); it may be moved before. If end() throws, those that were made in
// the group hold invalid handles. One that is destroyed before end() makes end() throw.
class Group {
 public:
  Group() { check(tuttiGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Runs the group too, but drops its error.
  ~Group() {
    if (open_) static_cast<void>(tuttiGroupEnd());
  }
  void end() {
    open_ = false;
    check(tuttiGroupEnd());
  }

 private:
  bool open_ = true;
};

// One rank's communicator. Move-only; the destructor destroys it (bounded, see tuttiCommDestroy).
class Communicator {
 public:
  // Collective over the ranks; blocks until all have joined. `config` from
  // TUTTI_CONFIG_INITIALIZER. Several ranks in one thread: see init_all, or use one thread a rank.
  Communicator(const UniqueId& id, int nranks, int rank) {
    check(tuttiCommInitRank(&comm_, nranks, id.value, rank));
  }
  Communicator(const UniqueId& id, int nranks, int rank, tuttiConfig_t config) {
    check(tuttiCommInitRankConfig(&comm_, nranks, id.value, rank, &config));
  }
  // Takes ownership of a handle; NULL is an empty communicator.
  explicit Communicator(tuttiComm_t comm) noexcept : comm_(comm) {}

  // The communicator of all processes that the launcher started; for the first one of a process.
  [[nodiscard]] static Communicator from_launcher() {
    const Launcher launcher = Launcher::find();
    return Communicator(Launcher::unique_id(), launcher.nranks(), launcher.rank());
  }

  // All ranks of a new communicator in this process, in rank order.
  [[nodiscard]] static std::vector<Communicator> init_all(int nranks) {
    std::vector<tuttiComm_t> handles(nranks > 0 ? static_cast<std::size_t>(nranks) : 1);
    check(tuttiCommInitAll(handles.data(), nranks, nullptr));
    return {handles.begin(), handles.end()};
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

  // output[i] = op over all ranks of input[i]. Both have the same number of elements, on all ranks.
  template <ElementRange In, WritableElementRange Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  void all_reduce(const In& input, Out&& output, tuttiRedOp_t op = tuttiSum,
                  tuttiStream_t stream = nullptr) {
    if (std::ranges::size(input) != std::ranges::size(output))
      throw Exception(tuttiInvalidArgument, "all_reduce: input and output differ in length");
    check(tuttiAllReduce(std::ranges::data(input), std::ranges::data(output),
                         std::ranges::size(input), data_type_of<std::ranges::range_value_t<In>>, op,
                         comm_, stream),
          comm_);
  }
  // The same in place.
  template <WritableElementRange Values>
  void all_reduce(Values&& values, tuttiRedOp_t op = tuttiSum, tuttiStream_t stream = nullptr) {
    check(tuttiAllReduce(std::ranges::data(values), std::ranges::data(values),
                         std::ranges::size(values),
                         data_type_of<std::ranges::range_value_t<Values>>, op, comm_, stream),
          comm_);
  }

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
  // tuttiSuccess, or the code that poisoned the communicator.
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

  // Every way to run an all-reduce of so many elements, and why the library takes the one it does.
  [[nodiscard]] std::string explain(std::size_t count, tuttiDataType_t type,
                                    bool in_windows = false) const {
    const char* text = nullptr;
    check(tuttiExplain(comm_, count, type, in_windows ? 1 : 0, &text), comm_);
    return text;
  }

  // nullptr or "auto": the library chooses. Call it on all ranks alike.
  void set_algorithm(const char* name) { check(tuttiCommSetAlgorithm(comm_, name), comm_); }
  // Completes what was issued; throws where the destructor would drop an error.
  void finalize() { check(tuttiCommFinalize(comm_), comm_); }
  // Ends all operations on all ranks; the communicator is empty afterwards.
  void abort() { check(tuttiCommAbort(std::exchange(comm_, nullptr))); }

  [[nodiscard]] tuttiComm_t get() const noexcept { return comm_; }
  [[nodiscard]] explicit operator bool() const noexcept { return comm_ != nullptr; }
  // Gives the handle away.
  [[nodiscard]] tuttiComm_t release() noexcept { return std::exchange(comm_, nullptr); }

 private:
  tuttiComm_t comm_ = nullptr;
};

}  // namespace v0
}  // namespace tutti
