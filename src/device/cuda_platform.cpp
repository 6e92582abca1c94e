// SPDX-License-Identifier: Apache-2.0
// Devices by the CUDA runtime. Compiled by g++; the kernels are in interpreter_*.cu.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "device/driver.hpp"
#include "device/interpreter.hpp"
#include "device/platform.hpp"

namespace tutti::device {
namespace {

[[nodiscard]] Status checked(cudaError_t error, const char* what, int device) {
  if (error == cudaSuccess) return {};
  return make_error(Code::kUnhandledCudaError,
                    fmt::format("CUDA device {}: {}: {} ({}); run with compute-sanitizer or look "
                                "for an earlier error of the program",
                                device, what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

// While it lives, no thread's capture is disturbed by calls of this one that a capture forbids:
// they concern memory and events of our own.
class BesideCaptures {
 public:
  BesideCaptures() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  ~BesideCaptures() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// The calling thread's device while it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    static_cast<void>(cudaGetDevice(&before_));
    static_cast<void>(cudaSetDevice(device));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { static_cast<void>(cudaSetDevice(before_)); }

 private:
  int before_ = 0;
  const BesideCaptures beside_captures_;
};

// A null stream is the default one of the device that is current, which need not be the rank's: for
// the streams without a device of their own it is made current while this lives.
class DeviceOfStream {
 public:
  DeviceOfStream(int device, cudaStream_t stream) {
    if (stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread) return;
    changed_ = cudaGetDevice(&before_) == cudaSuccess && before_ != device &&
               cudaSetDevice(device) == cudaSuccess;
  }
  DeviceOfStream(const DeviceOfStream&) = delete;
  DeviceOfStream& operator=(const DeviceOfStream&) = delete;
  ~DeviceOfStream() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

// As the driver reads it when the program first uses CUDA: 8 unless set, 32 at most.
int queues_of_environment() {
  const char* const set = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int wanted = set == nullptr ? 0 : std::atoi(set);
  return wanted < 1 ? 8 : std::min(wanted, 32);
}

FoldKernels kernels_of(DataType type, ReduceOp op) {
  for (const auto lookup : {integer_interpreter, float_interpreter, float8_interpreter})
    if (const FoldKernels kernels = lookup(type, op); kernels.others.few != nullptr) return kernels;
  return {};
}

// All of them, on the current device: kernels are loaded one by one, for each device, when they are
// first asked for (CUDA_MODULE_LOADING).
cudaError_t load_kernels() {
  for (int type = 0; type < kDataTypeCount; ++type)
    for (int op = 0; op < kReduceOpCount; ++op) {
      const auto [packets, others] =
          kernels_of(static_cast<DataType>(type), static_cast<ReduceOp>(op));
      if (others.few == nullptr) continue;
      for (const void* const kernel : {packets.few, packets.many, others.few, others.many}) {
        cudaFuncAttributes attributes{};
        const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
        if (error != cudaSuccess) return error;
      }
    }
  return cudaSuccess;
}

class CudaPlatform final : public Platform {
 public:
  int devices() override {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
  }

  Result<int> current_device() override {
    int device = 0;
    TUTTI_TRY(checked(cudaGetDevice(&device), "no current device", -1));
    return device;
  }

  Status load(int device) override {
    const std::lock_guard lock(mutex_);
    if (own_streams_.contains(device)) return {};
    const OnDevice here(device);
    const cudaError_t error = load_kernels();
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion) {
      static_cast<void>(cudaGetLastError());
      return make_error(Code::kNotSupported,
                        fmt::format("this build's kernels do not run on CUDA device {}: {}; "
                                    "configure with its number in TUTTI_CUDA_ARCHITECTURES",
                                    device, cudaGetErrorString(error)));
    }
    TUTTI_TRY(checked(error, "cannot load the interpreter's kernels", device));
    // It does not wait for the default stream.
    cudaStream_t own = nullptr;
    TUTTI_TRY(checked(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking),
                      "cannot make a stream", device));
    own_streams_.emplace(device, own);
    return {};
  }

  Result<int> resident_blocks(int device) override {
    const OnDevice here(device);
    int processors = 0, each = 1;
    TUTTI_TRY(checked(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                      "cannot count its multiprocessors", device));
    // Of either kind, as an operation may have either.
    const auto [packets, others] = kernels_of(DataType::kFloat32, ReduceOp::kSum);
    for (const Kernels& kernels : {packets, others}) {
      int most = 0;
      TUTTI_TRY(checked(
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, kernels.many, kernels.threads, 0),
          "cannot ask how many blocks run at once", device));
      each = std::min(each, most);
    }
    return processors * each;
  }

  int hardware_queues(int) override { return queues_; }

  Status reach(int device, int other) override {
    if (device == other) return {};
    const std::lock_guard lock(mutex_);
    if (reached_.contains({device, other})) return {};
    const OnDevice here(device);
    int can = 0;
    TUTTI_TRY(checked(cudaDeviceCanAccessPeer(&can, device, other),
                      "cannot ask which peers it reaches", device));
    if (can == 0)
      return make_error(Code::kNotSupported,
                        fmt::format("CUDA device {} cannot reach the memory of device {}; use "
                                    "devices joined by NVLink or below one PCIe root",
                                    device, other));
    const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled)
      TUTTI_TRY(checked(error, "cannot enable access to a peer", device));
    static_cast<void>(cudaGetLastError());
    reached_.insert({device, other});
    return {};
  }

  // NVLink shows them so, PCIe promises nothing; what has atomics of its own is NVLink or as it.
  bool whole_lines(int device, int other) override {
    if (device == other) return true;
    int native = 0;
    if (cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, device, other) ==
        cudaSuccess)
      return native != 0;
    static_cast<void>(cudaGetLastError());
    return false;
  }

  Result<std::byte*> allocate(int device, std::uint64_t bytes) override {
    const OnDevice here(device);
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return make_error(
          Code::kSystemError,
          fmt::format(
              "CUDA device {} has no {} bytes left for connections; free memory on the device",
              device, bytes));
    }
    if (memory == nullptr)
      return tl::unexpected(checked(cudaGetLastError(), "cannot allocate", device).error());
    auto* const place = static_cast<std::byte*>(memory);
    const Status cleared = run_now(device, "cannot clear memory", [&](cudaStream_t stream) {
      return cudaMemsetAsync(memory, 0, bytes, stream);
    });
    if (cleared) return place;
    release(device, place);
    return tl::unexpected(cleared.error());
  }
  void release(int device, std::byte* memory) override {
    const OnDevice here(device);
    static_cast<void>(cudaFree(memory));
  }
  Status upload(int device, void* to, const void* from, std::uint64_t bytes) override {
    return run_now(device, "cannot copy to its memory", [&](cudaStream_t stream) {
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
    });
  }
  Result<Word*> allocate_words(int device, std::uint64_t count) override {
    const OnDevice here(device);
    void* memory = nullptr;
    TUTTI_TRY(checked(
        cudaHostAlloc(&memory, count * sizeof(Word), cudaHostAllocPortable | cudaHostAllocMapped),
        "cannot allocate pinned host memory", device));
    auto* const words = static_cast<Word*>(memory);
    for (std::uint64_t i = 0; i < count; ++i) new (&words[i]) Word;
    return words;
  }
  void release_words(Word* words) override {
    const BesideCaptures guard;
    static_cast<void>(cudaFreeHost(words));
  }

  Result<Event> make_event(int device) override {
    const OnDevice here(device);
    cudaEvent_t event = nullptr;
    TUTTI_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                      "cannot make an event", device));
    return event;
  }
  void release_event(Event event) override {
    const BesideCaptures guard;
    static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
  }
  Status record(Event event, int device, Stream stream) override {
    const DeviceOfStream here(device, stream_of(stream));
    return checked(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_of(stream)),
                   "cannot record an event", device);
  }
  Status wait(int device, Stream stream, Event event) override {
    const DeviceOfStream here(device, stream_of(stream));
    return checked(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event), 0),
                   "a stream cannot wait for an event", device);
  }
  Status synchronize(Event event) override {
    const BesideCaptures guard;
    return checked(cudaEventSynchronize(static_cast<cudaEvent_t>(event)),
                   "work before an event failed", -1);
  }
  Result<std::uint64_t> id_of(int device, Stream stream) override {
    const DeviceOfStream here(device, stream_of(stream));
    unsigned long long id = 0;
    TUTTI_TRY(checked(cudaStreamGetId(stream_of(stream), &id), "a stream has no id", device));
    return id;
  }
  Result<std::uint64_t> capture_of(int device, Stream stream) override {
    const DeviceOfStream here(device, stream_of(stream));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    // The legacy default stream cannot be asked while another is captured, and is none itself.
    if (cudaStreamGetCaptureInfo(stream_of(stream), &status, &id) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    return status == cudaStreamCaptureStatusActive ? id + 1 : 0;
  }

  Status launch(const LaunchCall& call) override {
    const Kernels kernels = kernels_of(call.type, call.op).of(call.messages);
    if (kernels.few == nullptr || call.tasks.size() > kMaxTasks)
      return make_error(Code::kInternalError,
                        fmt::format("no kernel for {} tasks of {} {}", call.tasks.size(),
                                    name_of(call.type), name_of(call.op)));
    int before = 0;
    TUTTI_TRY(checked(cudaGetDevice(&before), "no current device", call.device));
    if (before != call.device)
      TUTTI_TRY(checked(cudaSetDevice(call.device), "cannot be made current", call.device));
    const cudaError_t error = call.tasks.size() <= kFewTasks
                                  ? launch_kernel<kFewTasks>(kernels.few, kernels.threads, call)
                                  : launch_kernel<kMaxTasks>(kernels.many, kernels.threads, call);
    if (before != call.device) static_cast<void>(cudaSetDevice(before));
    return checked(error, "cannot launch the interpreter", call.device);
  }

  Status copy(int device, Stream stream, void* to, const void* from, std::uint64_t bytes) override {
    int before = 0;
    TUTTI_TRY(checked(cudaGetDevice(&before), "no current device", device));
    if (before != device)
      TUTTI_TRY(checked(cudaSetDevice(device), "cannot be made current", device));
    const cudaError_t error =
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
    if (before != device) static_cast<void>(cudaSetDevice(before));
    return checked(error, "cannot enqueue a copy", device);
  }

  int device_of(const void* memory) override {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return -1;
    }
    if (attributes.type == cudaMemoryTypeManaged) return std::max(attributes.device, 0);
    return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
  }

  // A kernel that uses what it does not reach ends its context.
  std::string out_of_reach(int device, const void* memory) override {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return "host memory";
    }
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != device) {
      const Access access = driver_access(device, memory);
      if (access.allocation == Allocation::kUsual ? has_reached(device, attributes.device)
                                                  : access.granted)
        return {};
      return describe_unreachable(access.allocation, attributes.device, device);
    }
    if (attributes.type != cudaMemoryTypeManaged) return {};
    int concurrent = 0;
    const cudaError_t asked =
        cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device);
    return asked == cudaSuccess && concurrent != 0
               ? ""
               : "managed memory that the device cannot use while the host does";
  }

 private:
  bool has_reached(int device, int other) {
    const std::lock_guard lock(mutex_);
    return reached_.contains({device, other});
  }
  // A grid of the blocks of each task.
  template <std::uint32_t kTasks>
  static cudaError_t launch_kernel(const void* kernel, int threads, const LaunchCall& call) {
    LaunchArguments<kTasks> arguments = launch_arguments<kTasks>(call.common, call.tasks);
    void* parameters[] = {&arguments};
    const dim3 blocks(call.blocks_each, static_cast<unsigned>(call.tasks.size()));
    return cudaLaunchKernel(kernel, blocks, dim3(static_cast<unsigned>(threads)), parameters, 0,
                            stream_of(call.stream));
  }
  static cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream); }

  // The work that `enqueue` puts on the device's own stream has ended when this returns.
  template <class Enqueue>
  Status run_now(int device, const char* what, Enqueue&& enqueue) {
    TUTTI_TRY(load(device));
    cudaStream_t stream = nullptr;
    {
      const std::lock_guard lock(mutex_);
      stream = own_streams_.at(device);
    }
    const OnDevice here(device);
    cudaError_t error = enqueue(stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    return checked(error, what, device);
  }

  const int queues_ = queues_of_environment();
  std::mutex mutex_;
  std::set<std::pair<int, int>> reached_;    // guarded by mutex_
  std::map<int, cudaStream_t> own_streams_;  // of devices whose kernels are loaded; by mutex_
};

struct Found {
  Platform* platform = nullptr;
  const char* fault = "";
};
// Never destroyed: communicators may outlive main.
Found find_platform() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return {.platform = new CudaPlatform};
  static_cast<void>(cudaGetLastError());
  // Without a device there is no device memory.
  const bool none = error == cudaSuccess || error == cudaErrorNoDevice;
  return {.fault = none ? "" : cudaGetErrorString(error)};
}
const Found& found() {
  static const Found once = find_platform();
  return once;
}

}  // namespace

// Without a driver in the process nobody has device memory; a program without CUDA need not wait
// for a device to wake up.
Platform* cuda_platform(bool wake) {
  return driver_is_loaded() || wake ? found().platform : nullptr;
}

std::string_view cuda_fault() { return driver_is_loaded() ? found().fault : ""; }

}  // namespace tutti::device
