// The runtime of a pretended card whose memory is the host's: work is done when it is enqueued.
// Captured work is kept as closures and done when the graph is launched.
#include "ggml/cuda/runtime.h"

#include <cstring>
#include <new>

#include "ggml/base/cat.h"
#include "ggml/cuda/emulation/block.h"

namespace nibble::cuda {

struct Stream::Recording {
    bool active = false;
    std::vector<std::function<void()>> work;
};

int device_count() { return 1; }

Result<Card> card(int device) {
    if (device != 0) return Error{ErrorCode::invalid_argument, cat("cuda:", device), "does not exist", ""};
    return Card{"emulated", 9, 0, 4, size_t{99} << 10, size_t{1} << 20, size_t{4} << 30, size_t{4} << 30};
}

Result<std::shared_ptr<std::byte>> allocate(int, size_t bytes, std::string_view purpose) {
    void* p =
        bytes <= size_t{4} << 30 ? ::operator new (bytes, std::align_val_t{256}, std::nothrow) : nullptr;
    if (!p) return Error{ErrorCode::out_of_memory, std::string(purpose), cat("needs ", bytes, " bytes"), ""};
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(p),
                                      [](std::byte* b) { ::operator delete (b, std::align_val_t{256}); });
}

Result<std::shared_ptr<std::byte>> allocate_pinned(size_t bytes) { return allocate(0, bytes, "staging"); }

Result<Stream> Stream::create(int device) {
    Stream s;
    s.device_ = device;
    s.recording_ = std::make_shared<Recording>();
    return s;
}

Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

namespace {
template <class R, class F>
void perform(R& recording, F work) {
    if (recording.active)
        recording.work.push_back(std::move(work));
    else
        work();
}
}  // namespace

void Stream::to_device(std::byte* dst, std::span<const std::byte> src) {
    perform(*recording_, [=] {
        if (!src.empty()) std::memcpy(dst, src.data(), src.size());
    });
}

void Stream::to_host(std::span<std::byte> dst, const std::byte* src) {
    perform(*recording_, [=] {
        if (!dst.empty()) std::memcpy(dst.data(), src, dst.size());
    });
}

void Stream::fill(std::byte* dst, uint8_t value, size_t bytes) {
    perform(*recording_, [=] {
        if (bytes) std::memset(dst, value, bytes);
    });
}

void Stream::emulate(const Dims& dims, std::function<void()> kernel) {
    perform(*recording_, [dims, kernel = std::move(kernel)] { emulation::run_grid(dims, kernel); });
}

Result<void> Stream::synchronize() {
    if (error_.empty()) return {};
    return Error{ErrorCode::internal, cat("cuda:", device_), std::exchange(error_, {}), ""};
}

void Stream::failed(std::string_view what) {
    if (error_.empty()) error_ = what;
}

void Stream::begin_capture() { recording_->active = true; }

Result<Graph> Stream::end_capture() {
    Graph g;
    g.state_ = std::exchange(recording_, std::make_shared<Recording>());
    return g;
}

void Graph::launch(Stream& stream) const {
    for (const auto& work : static_cast<const Stream::Recording*>(state_.get())->work) {
        (void)stream;
        work();
    }
}

}  // namespace nibble::cuda
