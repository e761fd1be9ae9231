// The part of the CUDA runtime library that the backend uses, over the card in software: takes its place when
// a program is linked. As late as the real one may be: work of a stream is done when it is waited for. As
// strict: what is forbidden while a stream is captured, wrong sizes and foreign memory are errors, and a
// fault of a kernel stays with the process.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <cuda_runtime_api.h>

#include "ggml/base/cat.h"
#include "tests/card/machine.h"

namespace {

using namespace nibble::card;

using Work = std::function<void()>;
using Works = std::vector<Work>;

struct Stream {
    std::deque<Work> waiting;
    bool captured = false;
    Works recorded;
};

struct Event {
    Stream* stream = nullptr;  // that it was recorded in last
    int recorded = 0, reached = 0;
};

int setting(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text ? std::atoi(text) : otherwise;
}

struct Runtime {
    std::map<std::string, Kernel> kernels;
    std::map<const void*, std::string> names;  // of kernels, by the address of their stub
    std::map<const void*, int> shared_limits;  // where one was granted
    std::map<uintptr_t, size_t> pinned;        // host memory: address and size
    std::set<Stream*> streams;
    const Stream* capturing = nullptr;
    int capability = 0;  // the PTX's, as 90
    cudaError_t last = cudaSuccess, broken = cudaSuccess;

    size_t total_bytes() const { return size_t(setting("NIBBLE_CARD_MIB", 8192)) << 20; }

    cudaError_t fail(cudaError_t e, const std::string& why) {
        std::fprintf(stderr, "card: %s\n", why.c_str());
        last = e;
        return e;
    }
    cudaError_t not_while_capturing(const char* what) {
        return capturing
                   ? fail(cudaErrorStreamCaptureUnsupported, nibble::cat(what, " while a stream is captured"))
                   : broken;
    }
    bool is_pinned(const void* p, size_t bytes) const {
        auto it = pinned.upper_bound(reinterpret_cast<uintptr_t>(p));
        if (it == pinned.begin()) return false;
        --it;
        return reinterpret_cast<uintptr_t>(p) + bytes <= it->first + it->second;
    }
    cudaError_t add(Stream& s, Work work) {
        if (s.captured)
            s.recorded.push_back(std::move(work));
        else
            s.waiting.push_back(std::move(work));
        return broken;
    }
    cudaError_t advance(Stream& s) {
        const Work work = std::move(s.waiting.front());
        s.waiting.pop_front();
        try {
            work();
        } catch (const Fault& f) {
            broken = fail(cudaErrorIllegalAddress, f.what());
        }
        return broken;
    }
    cudaError_t finish(Stream& s) {
        while (!s.waiting.empty() && broken == cudaSuccess) (void)advance(s);
        return broken;
    }
    void finish_all() {
        for (Stream* s : streams) (void)finish(*s);
    }
};

// Made by the first use, which comes before main(): modules register themselves.
Runtime& rt() {
    static Runtime* const r = new Runtime;
    return *r;
}

Stream& stream(cudaStream_t s) { return *reinterpret_cast<Stream*>(s); }
Event& event(cudaEvent_t e) { return *reinterpret_cast<Event*>(e); }

bool on_card(const void* p, size_t bytes) {
    try {
        (void)bounds_of(reinterpret_cast<uintptr_t>(p), bytes);
        return true;
    } catch (const Fault& f) {
        std::fprintf(stderr, "card: %s\n", f.what());
        return false;
    }
}

cudaDeviceProp properties() {
    cudaDeviceProp p{};
    std::snprintf(p.name, sizeof p.name, "card in software");
    p.major = rt().capability / 10;
    p.minor = rt().capability % 10;
    p.multiProcessorCount = setting("NIBBLE_CARD_MULTIPROCESSORS", 4);
    p.sharedMemPerBlockOptin = p.major >= 9            ? 227 << 10
                               : rt().capability == 80 ? 163 << 10
                               : p.major == 8          ? 99 << 10
                                                       : 64 << 10;
    p.l2CacheSize = 4 << 20;
    p.totalGlobalMem = rt().total_bytes();
    return p;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) {
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? rt().broken : rt().fail(cudaErrorInvalidDevice, "there is one device");
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *total = rt().total_bytes();
    *free = *total - std::min(*total, allocated_bytes());
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    *p = properties();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* to, cudaDeviceAttr attribute, int) {
    const cudaDeviceProp p = properties();
    switch (attribute) {
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *to = static_cast<int>(p.sharedMemPerBlockOptin);
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *to = p.major;
            break;
        default:
            return rt().fail(cudaErrorInvalidValue, "an attribute that is not known");
    }
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(rt().last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t e) {
    switch (e) {
        case cudaSuccess:
            return "no error";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorNoKernelImageForDevice:
            return "no kernel image is available for execution on the device";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        default:
            return "an error that the card in software has told";
    }
}

cudaError_t cudaMalloc(void** p, size_t bytes) {
    if (const cudaError_t e = rt().not_while_capturing("cudaMalloc")) return e;
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    if (bytes > free) return rt().last = cudaErrorMemoryAllocation;
    *p = allocate(bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
    if (const cudaError_t e = rt().not_while_capturing("cudaFree")) return e;
    rt().finish_all();
    if (p && !release(p)) return rt().fail(cudaErrorInvalidValue, "cudaFree of what is not an allocation");
    return rt().broken;
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
    if (const cudaError_t e = rt().not_while_capturing("cudaMallocHost")) return e;
    *p = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*p) return rt().last = cudaErrorMemoryAllocation;
    rt().pinned[reinterpret_cast<uintptr_t>(*p)] = bytes;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
    if (const cudaError_t e = rt().not_while_capturing("cudaFreeHost")) return e;
    rt().finish_all();
    if (!rt().pinned.erase(reinterpret_cast<uintptr_t>(p)))
        return rt().fail(cudaErrorInvalidValue, "cudaFreeHost of what is not page-locked");
    std::free(p);
    return rt().broken;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
    if (const cudaError_t e = rt().not_while_capturing("cudaStreamCreate")) return e;
    auto* made = new Stream;
    rt().streams.insert(made);
    *s = reinterpret_cast<cudaStream_t>(made);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    const cudaError_t e = rt().finish(stream(s));
    rt().streams.erase(&stream(s));
    delete &stream(s);
    return e;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    if (const cudaError_t e = rt().not_while_capturing("cudaStreamSynchronize")) return e;
    return rt().finish(stream(s));
}
// An event is reached when the stream comes to it; waiting for it leaves what comes later undone.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
    if (const cudaError_t failed = rt().not_while_capturing("cudaEventCreate")) return failed;
    *e = reinterpret_cast<cudaEvent_t>(new Event);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    rt().finish_all();
    delete &event(e);
    return rt().broken;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    if (const cudaError_t failed = rt().not_while_capturing("cudaEventRecord")) return failed;
    event(e) = {&stream(s), event(e).recorded + 1, event(e).reached};
    return rt().add(stream(s), [to = &event(e), n = event(e).recorded] { to->reached = n; });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (const cudaError_t failed = rt().not_while_capturing("cudaEventSynchronize")) return failed;
    while (event(e).reached < event(e).recorded && rt().broken == cudaSuccess)
        (void)rt().advance(*event(e).stream);
    return rt().broken;
}
// Page-locked memory is read and written when the stream comes to it; other memory at once.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
    const bool up = kind == cudaMemcpyHostToDevice;
    if (!up && kind != cudaMemcpyDeviceToHost)
        return rt().fail(cudaErrorInvalidMemcpyDirection, "a copy in a direction that is not known");
    if (!on_card(up ? to : from, bytes)) return rt().last = cudaErrorInvalidValue;
    if (stream(s).captured || rt().is_pinned(up ? from : to, bytes))
        return rt().add(stream(s), [=] { std::memcpy(to, from, bytes); });
    if (!up) {
        const cudaError_t e = rt().finish(stream(s));
        if (e == cudaSuccess) std::memcpy(to, from, bytes);
        return e;
    }
    const auto* const begin = static_cast<const std::byte*>(from);
    return rt().add(stream(s), [to, copy = std::vector(begin, begin + bytes)] {
        std::memcpy(to, copy.data(), copy.size());
    });
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t s) {
    if (!on_card(p, bytes)) return rt().last = cudaErrorInvalidValue;
    return rt().add(stream(s), [=] { std::memset(p, value, bytes); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    if (rt().capturing) return rt().fail(cudaErrorIllegalState, "a stream is already captured");
    stream(s).captured = true;
    stream(s).recorded.clear();
    rt().capturing = &stream(s);
    return rt().broken;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
    if (rt().capturing != &stream(s)) return rt().fail(cudaErrorIllegalState, "the stream is not captured");
    stream(s).captured = false;
    rt().capturing = nullptr;
    *graph = reinterpret_cast<cudaGraph_t>(new Works(std::move(stream(s).recorded)));
    return rt().broken;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    if (setting("NIBBLE_CARD_GRAPHS", 1) == 0)
        return rt().fail(cudaErrorMemoryAllocation, "no graphs, as NIBBLE_CARD_GRAPHS says");
    *exec = reinterpret_cast<cudaGraphExec_t>(new Works(*reinterpret_cast<Works*>(graph)));
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete reinterpret_cast<Works*>(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    rt().finish_all();
    delete reinterpret_cast<Works*>(exec);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    for (const Work& work : *reinterpret_cast<Works*>(exec)) (void)rt().add(stream(s), work);
    return rt().broken;
}

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
    if (!rt().names.contains(stub)) return rt().fail(cudaErrorInvalidDeviceFunction, "not a kernel");
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout && value >= 0 && value <= 100)
        return cudaSuccess;  // a wish
    const auto kernel = rt().kernels.find(rt().names[stub]);
    const size_t fixed = kernel == rt().kernels.end() ? 0 : kernel->second.static_shared;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
        static_cast<size_t>(value) + fixed > properties().sharedMemPerBlockOptin)
        return rt().fail(cudaErrorInvalidValue, "an attribute, or more shared memory than a block can have");
    rt().shared_limits[stub] = value;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* to, const void* stub) {
    if (!rt().names.contains(stub)) return rt().fail(cudaErrorInvalidDeviceFunction, "not a kernel");
    const auto kernel = rt().kernels.find(rt().names[stub]);
    if (kernel == rt().kernels.end() || setting("NIBBLE_CARD_KERNELS", 1) == 0)
        return rt().last = cudaErrorNoKernelImageForDevice;
    *to = {};
    to->sharedSizeBytes = kernel->second.static_shared;
    to->maxThreadsPerBlock = kernel->second.most_threads;
    to->ptxVersion = rt().capability;
    return rt().broken;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* stub, void** arguments) {
    const auto name = rt().names.find(stub);
    if (name == rt().names.end()) return rt().fail(cudaErrorInvalidDeviceFunction, "not a kernel");
    const auto kernel = rt().kernels.find(name->second);
    if (kernel == rt().kernels.end()) return rt().fail(cudaErrorNoKernelImageForDevice, name->second);
    const Kernel& k = kernel->second;
    const dim3 grid = c->gridDim, block = c->blockDim;
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff)
        return rt().fail(cudaErrorInvalidConfiguration, k.name + ": the grid's size");
    if (!block.x || static_cast<int>(block.x) > k.most_threads || block.y != 1 || block.z != 1)
        return rt().fail(cudaErrorInvalidConfiguration, k.name + ": the block's size");
    const auto granted = rt().shared_limits.find(stub);
    const int limit = granted == rt().shared_limits.end() ? 48 << 10 : granted->second;
    if (c->dynamicSmemBytes + k.static_shared > static_cast<size_t>(limit))
        return rt().fail(cudaErrorInvalidValue, k.name + ": more shared memory than was granted");
    if (c->numAttrs && rt().capability < 90) return rt().fail(cudaErrorInvalidValue, "launches that overlap");
    Launch l{&k,
             {grid.x, grid.y, grid.z},
             block.x,
             c->dynamicSmemBytes,
             c->numAttrs > 0,
             std::vector<std::byte>(k.parameter_bytes)};
    for (size_t n = 0; n < k.parameters.size(); ++n)
        std::memcpy(l.parameters.data() + k.parameters[n].offset, arguments[n], k.parameters[n].bytes);
    return rt().add(stream(c->stream), [launch = std::move(l)] { run(launch); });
}
// What the stubs of nvcc 12 and 13 refer to; the backend launches through the function above.
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
    return cudaErrorInvalidConfiguration;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorInvalidConfiguration; }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaErrorInvalidConfiguration; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
    return cudaErrorInvalidConfiguration;
}

// A fat binary holds its PTX as text if nvcc was told --no-compress.
void** __cudaRegisterFatBinary(void* fat_binary) {
    struct Wrapper {
        int magic, version;
        const char* data;
    };
    struct Header {
        uint32_t magic;
        uint16_t version, bytes;
        uint64_t payload;
    };
    const char* const data = static_cast<const Wrapper*>(fat_binary)->data;
    Header header;
    std::memcpy(&header, data, sizeof header);
    std::string_view text(data, header.bytes + header.payload);
    const size_t at = text.find("\n.version");
    const size_t target = text.find(".target sm_", at == std::string_view::npos ? 0 : at);
    static void* handle = nullptr;
    if (at == std::string_view::npos || target == std::string_view::npos) {
        std::fputs(
            "card: no PTX as text in this program: compile with --no-compress, for an architecture with "
            "PTX\n",
            stderr);
        std::exit(1);
    }
    text = text.substr(at);
    rt().capability = std::atoi(text.data() + text.find(".target sm_") + 11);
    try {
        for (Kernel& k : parse_module(text.substr(0, text.find('\0')))) {
            std::string name = k.name;
            rt().kernels.emplace(std::move(name), std::move(k));
        }
    } catch (const Fault& f) {
        std::fprintf(stderr, "card: %s\n", f.what());
        std::exit(1);
    }
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, void*, void*, void*,
                            void*, int*) {
    rt().names[stub] = name;
}

}  // extern "C"
