// The runtime over the CUDA runtime library, which is linked statically and looks for the driver when first
// used: without one, device_count() is 0.
#include <algorithm>
#include <utility>

#include <cuda_runtime.h>

#include "ggml/base/cat.h"
#include "ggml/cuda/runtime.h"

namespace nibble::cuda {
namespace {

constexpr int overlap_in_graphs = 12030;  // the CUDA that records it: in graphs of driver and library

// Percent of a multiprocessor's memory that is shared memory, the rest its L1 cache, and kernels that ask for
// no more than so much get just that: a launch can begin while another ends only where both have it cut
// alike. Measured on an H200, generation of an 8B model in int4: 372 tokens/s as each kernel would have it,
// 399 with 28 or 44, 389 with 72.
constexpr int common_carveout = 44;
constexpr size_t common_shared = size_t{80} << 10;

cudaStream_t native(void* handle) { return static_cast<cudaStream_t>(handle); }

Error error_of(int device, cudaError_t e) {
    return {ErrorCode::internal, cat("cuda:", device), cudaGetErrorString(e), ""};
}

// Never launched: the kernels' files are all compiled for the same cards, and this one's PTX, where that is
// what the card needs, is translated at once.
__global__ void no_kernel() {}

// The error is about what the program brings for the card, not about the card.
bool lacks_kernels(cudaError_t e) {
    switch (e) {
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidDeviceFunction:
        case cudaErrorInvalidKernelImage:
        case cudaErrorInvalidPtx:
        case cudaErrorUnsupportedPtxVersion:
        case cudaErrorJitCompilerNotFound:
        case cudaErrorJitCompilationDisabled:
            return true;
        default:
            return false;
    }
}

std::string capability(int number) { return cat(number / 10, ".", number % 10); }

// The compute capabilities that nvcc was told, of machine code and of PTX.
std::string built_for() {
    std::string list;
    for (const int architecture : {__CUDA_ARCH_LIST__})
        list += cat(list.empty() ? "" : ", ", capability(architecture / 10));
    return list;
}

}  // namespace

struct Stream::Recording {};

int device_count() {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return n;
}

std::string why_no_device() {
    const auto version = [](int v) { return cat(v / 1000, ".", v % 1000 / 10); };
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no GPU was found (no driver)";
    (void)cudaRuntimeGetVersion(&runtime);
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    (void)cudaGetLastError();
    if (e == cudaErrorInsufficientDriver)
        return cat("the driver is for CUDA ", version(driver), ", this program for ", version(runtime));
    return e == cudaSuccess || e == cudaErrorNoDevice ? std::string("no GPU was found")
                                                      : cat("no GPU can be used: ", cudaGetErrorString(e));
}

bool warpgroups_built() {
#ifdef NIBBLE_CUDA_WARPGROUPS
    return true;
#else
    return false;
#endif
}

size_t free_bytes(int device) {
    size_t free = 0, total = 0;
    if (cudaSetDevice(device) == cudaSuccess) (void)cudaMemGetInfo(&free, &total);
    return free;
}

Result<Card> card(int device) {
    const int n = device_count();
    if (device < 0 || device >= n)
        return Error{ErrorCode::invalid_argument, cat("cuda:", device),
                     n ? cat("does not exist; the last is cuda:", n - 1) : why_no_device(),
                     "use --device cpu"};
    cudaDeviceProp p{};
    if (const cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess)
        return error_of(device, e);
    Card c{p.name,
           p.major,
           p.minor,
           p.multiProcessorCount,
           p.sharedMemPerBlockOptin,
           static_cast<size_t>(p.l2CacheSize),
           p.totalGlobalMem,
           free_bytes(device)};
    return c;
}

Result<void> check_kernels(int device, const Card& card) {
    cudaFuncAttributes found{};
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess) e = cudaFuncGetAttributes(&found, no_kernel);
    if (e == cudaSuccess) return {};
    (void)cudaGetLastError();
    if (!lacks_kernels(e)) return error_of(device, e);
    return Error{ErrorCode::unsupported, cat("cuda:", device),
                 cat("kernels that ", card.name, " runs (compute capability ",
                     capability(card.major * 10 + card.minor), ") are not in this program (built for ",
                     built_for(), "): ", cudaGetErrorString(e)),
                 "build it with -DCMAKE_CUDA_ARCHITECTURES=native, or use --device cpu"};
}

Result<std::shared_ptr<std::byte>> allocate(int device, size_t bytes, std::string_view purpose) {
    void* p = nullptr;
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess) e = cudaMalloc(&p, bytes);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        size_t free = 0, total = 0;
        (void)cudaMemGetInfo(&free, &total);
        return Error{
            ErrorCode::out_of_memory, cat("cuda:", device),
            cat(purpose, " of ", bytes >> 20, " MiB could not be allocated, ", free >> 20, " MiB are free"),
            "use a smaller --ctx, a smaller model, or fewer --gpu-layers"};
    }
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(p), [](std::byte* b) { (void)cudaFree(b); });
}

Result<std::shared_ptr<std::byte>> allocate_pinned(int device, size_t bytes) {
    void* p = nullptr;
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess) e = cudaMallocHost(&p, bytes);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return Error{ErrorCode::out_of_memory, "staging",
                     cat(bytes >> 20, " MiB of page-locked memory: ", cudaGetErrorString(e)), ""};
    }
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(p),
                                      [](std::byte* b) { (void)cudaFreeHost(b); });
}

Result<Stream> Stream::create(int device, bool overlapped) {
    Stream s;
    s.device_ = device;
    cudaStream_t handle = nullptr;
    int generation = 0, driver = 0;
    cudaFuncAttributes built{};
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&s.most_shared_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device);
    if (e == cudaSuccess) e = cudaDriverGetVersion(&driver);
    if (e == cudaSuccess) e = cudaFuncGetAttributes(&built, no_kernel);
    // Kernels of PTX for older cards do not wait for the launch before them (wait_for_previous()).
    const bool waits = generation >= 9 && built.ptxVersion >= 90;
    s.overlaps_ = overlapped && waits && std::min(driver, CUDART_VERSION) >= overlap_in_graphs;
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
    if (e != cudaSuccess) return error_of(device, e);
    s.handle_ = handle;
    return Result<Stream>(std::move(s));
}

Stream::Stream(Stream&& o) noexcept
    : device_(o.device_),
      most_shared_(o.most_shared_),
      handle_(std::exchange(o.handle_, nullptr)),
      overlaps_(o.overlaps_),
      place_(o.place_),
      error_(std::move(o.error_)) {}

Stream& Stream::operator=(Stream&& o) noexcept {
    std::swap(device_, o.device_);
    std::swap(most_shared_, o.most_shared_);
    std::swap(handle_, o.handle_);
    std::swap(overlaps_, o.overlaps_);
    std::swap(place_, o.place_);
    std::swap(error_, o.error_);
    return *this;
}

Stream::~Stream() {
    if (handle_) (void)cudaStreamDestroy(native(handle_));
}

void Stream::to_device(std::byte* dst, std::span<const std::byte> src) {
    if (src.empty()) return;
    const cudaError_t e =
        cudaMemcpyAsync(dst, src.data(), src.size(), cudaMemcpyHostToDevice, native(handle_));
    if (e != cudaSuccess) failed(cudaGetErrorString(e));
}

void Stream::to_host(std::span<std::byte> dst, const std::byte* src) {
    if (dst.empty()) return;
    const cudaError_t e =
        cudaMemcpyAsync(dst.data(), src, dst.size(), cudaMemcpyDeviceToHost, native(handle_));
    if (e != cudaSuccess) failed(cudaGetErrorString(e));
}

void Stream::fill(std::byte* dst, uint8_t value, size_t bytes) {
    if (!bytes || !enter(nullptr, 0)) return;
    if (const cudaError_t e = cudaMemsetAsync(dst, value, bytes, native(handle_)); e != cudaSuccess)
        failed(cudaGetErrorString(e));
}

Result<void> Stream::outcome() {
    if (error_.empty()) return {};
    (void)cudaGetLastError();
    return Error{ErrorCode::internal, cat("cuda:", device_), std::exchange(error_, {}), ""};
}

Result<void> Stream::synchronize() {
    if (const cudaError_t e = cudaStreamSynchronize(native(handle_)); e != cudaSuccess)
        failed(cudaGetErrorString(e));
    return outcome();
}

Result<Mark> Mark::create(int device) {
    cudaEvent_t event = nullptr;
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (e != cudaSuccess) return error_of(device, e);
    Mark mark;
    mark.state_ =
        std::shared_ptr<void>(event, [](void* p) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(p)); });
    return Result<Mark>(std::move(mark));
}

void Stream::put(Mark& mark) {
    if (const cudaError_t e = cudaEventRecord(static_cast<cudaEvent_t>(mark.state_.get()), native(handle_));
        e != cudaSuccess)
        failed(cudaGetErrorString(e));
}

Result<void> Stream::wait(const Mark& mark) {
    if (const cudaError_t e = cudaEventSynchronize(static_cast<cudaEvent_t>(mark.state_.get()));
        e != cudaSuccess)
        failed(cudaGetErrorString(e));
    return outcome();
}

// A thread that did not create the stream may have another device, or none yet; a launch there would fail.
// And a kernel gets all that a block can have, once and for all: a smaller grant later would be one too small
// for launches of it that a graph has recorded.
bool Stream::enter(const void* kernel, size_t shared_bytes) {
    constexpr size_t granted = size_t{48} << 10;
    cudaError_t e = cudaSetDevice(device_);
    if (e == cudaSuccess && shared_bytes > granted)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_);
    if (e == cudaSuccess && kernel && overlaps_ && shared_bytes <= common_shared)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, common_carveout);
    if (e == cudaSuccess) return true;
    failed(cudaGetErrorString(e));
    return false;
}

bool Stream::begin_capture() {
    const cudaError_t e = cudaStreamBeginCapture(native(handle_), cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess) failed(cudaGetErrorString(e));
    return e == cudaSuccess;
}

Result<Graph> Stream::end_capture() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaError_t e = cudaStreamEndCapture(native(handle_), &graph);
    if (e == cudaSuccess) e = cudaGraphInstantiate(&exec, graph, 0);
    if (graph) (void)cudaGraphDestroy(graph);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return error_of(device_, e);
    }
    Graph g;
    g.state_ = std::shared_ptr<void>(
        exec, [](void* p) { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(p)); });
    return Result<Graph>(std::move(g));
}

void Graph::launch(Stream& stream) const {
    if (!stream.enter(nullptr, 0)) return;
    const cudaError_t e =
        cudaGraphLaunch(static_cast<cudaGraphExec_t>(state_.get()), native(stream.handle()));
    if (e != cudaSuccess) stream.failed(cudaGetErrorString(e));
}

}  // namespace nibble::cuda
