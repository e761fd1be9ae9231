// The runtime of pretended cards whose memory is the host's: work is done when it is enqueued.
// Captured work is kept as closures and done when the graph is launched. What a card would not do fails here
// too; what it would do later is noticed: copies to the host arrive when waited for, and the source of a copy
// must still be what it was.
#include "ggml/cuda/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string_view>

#include "ggml/base/cat.h"
#include "ggml/cuda/emulation/block.h"

namespace nibble::cuda {

struct Stream::Recording {
    struct Copy {
        std::byte* host;
        std::vector<std::byte> bytes;
    };
    bool active = false;
    std::vector<std::function<void()>> work;
    std::vector<Copy> sent, fetched;  // that were not waited for yet

    struct Count {
        size_t sent = 0, fetched = 0;
    };
    Count waited;  // for so many, ever
    Count begun() const { return {waited.sent + sent.size(), waited.fetched + fetched.size()}; }
    void wait(Count until);
};

// Two: a small one of generation 9.0, and one that has the least shared memory, as 7.5.
int device_count() { return 2; }
std::string why_no_device() { return ""; }
bool warpgroups_built() { return true; }
size_t free_bytes(int) { return size_t{4} << 30; }

Result<void> check_kernels(int device, const Card& card) {
    const char* const kernels = std::getenv("NIBBLE_CARD_KERNELS");  // 0: as in a program for other cards
    if (!kernels || std::string_view(kernels) != "0") return {};
    return Error{ErrorCode::unsupported, cat("cuda:", device),
                 cat("kernels that ", card.name, " runs are not in this program"), "use --device cpu"};
}

Result<Card> card(int device) {
    if (device < 0 || device >= device_count())
        return Error{ErrorCode::invalid_argument, cat("cuda:", device), "does not exist", ""};
    const size_t shared = size_t{device == 0 ? 227u : 64u} << 10, memory = size_t{4} << 30;
    return Card{"emulated", device == 0 ? 9 : 7, device == 0 ? 0 : 5, 4, shared, size_t{1} << 20, memory,
                memory};
}

Result<std::shared_ptr<std::byte>> allocate(int, size_t bytes, std::string_view purpose) {
    void* p =
        bytes <= size_t{4} << 30 ? ::operator new (bytes, std::align_val_t{256}, std::nothrow) : nullptr;
    if (!p) return Error{ErrorCode::out_of_memory, std::string(purpose), cat("needs ", bytes, " bytes"), ""};
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(p), [](std::byte* b) {
        emulation::wait_for_launches();
        ::operator delete (b, std::align_val_t{256});
    });
}

Result<std::shared_ptr<std::byte>> allocate_pinned(int device, size_t bytes) {
    return allocate(device, bytes, "staging");
}

Result<Stream> Stream::create(int device, bool overlapped) {
    Stream s;
    s.device_ = device;
    const Card c = NIBBLE_TRY(card(device));
    s.most_shared_ = static_cast<int>(c.shared_per_block);
    s.overlaps_ = overlapped && c.major >= 9;
    s.recording_ = std::make_shared<Recording>();
    return Result<Stream>(std::move(s));
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
    if (src.empty()) return;
    if (recording_->active) emulation::fail("a copy is recorded: it would read the same host memory again");
    emulation::wait_for_launches();
    recording_->sent.push_back({const_cast<std::byte*>(src.data()), {src.begin(), src.end()}});
    std::memcpy(dst, src.data(), src.size());
}

void Stream::to_host(std::span<std::byte> dst, const std::byte* src) {
    if (dst.empty()) return;
    if (recording_->active) emulation::fail("a copy is recorded: it would write the same host memory again");
    emulation::wait_for_launches();
    recording_->fetched.push_back({dst.data(), {src, src + dst.size()}});
}

void Stream::fill(std::byte* dst, uint8_t value, size_t bytes) {
    perform(*recording_, [=] {
        emulation::wait_for_launches();
        if (bytes) std::memset(dst, value, bytes);
    });
}

bool Stream::enter(const void*, size_t shared_bytes) {
    if (shared_bytes <= static_cast<size_t>(most_shared_)) return true;
    failed(cat(shared_bytes, " bytes of shared memory; a block can have ", most_shared_));
    return false;
}

void Stream::emulate(const Dims& dims, std::function<void()> kernel) {
    constexpr int32_t most_blocks = 65535;  // in the second and third direction
    if (dims.x == 0 || dims.y == 0 || dims.z == 0 || !enter(nullptr, dims.shared)) return;
    if (dims.x < 0 || dims.x > INT32_MAX || dims.y < 0 || dims.y > most_blocks || dims.z < 0 ||
        dims.z > most_blocks)
        return failed(cat("a grid of ", dims.x, " x ", dims.y, " x ", dims.z, " blocks"));
    auto kept = std::make_shared<const std::function<void()>>(std::move(kernel));
    perform(*recording_, [dims, kept, overlaps = overlaps_] { emulation::run_grid(dims, kept, overlaps); });
}

// Copies up to these counts are done.
void Stream::Recording::wait(Count until) {
    const auto take = [](std::vector<Copy>& copies, size_t& counted, size_t n) {
        n -= std::min(n, counted);
        counted += n;
        const auto last = copies.begin() + static_cast<std::ptrdiff_t>(n);
        std::vector<Copy> taken(std::move_iterator(copies.begin()), std::move_iterator(last));
        copies.erase(copies.begin(), last);
        return taken;
    };
    for (const Copy& c : take(sent, waited.sent, until.sent))
        if (std::memcmp(c.host, c.bytes.data(), c.bytes.size()) != 0)
            emulation::fail("host memory was changed before its copy was waited for");
    for (const Copy& c : take(fetched, waited.fetched, until.fetched))
        std::memcpy(c.host, c.bytes.data(), c.bytes.size());
}

Result<void> Stream::outcome() {
    if (error_.empty()) return {};
    return Error{ErrorCode::internal, cat("cuda:", device_), std::exchange(error_, {}), ""};
}

Result<void> Stream::synchronize() {
    emulation::wait_for_launches();
    recording_->wait(recording_->begun());
    return outcome();
}

// A mark knows how many copies are in front of it.
Result<Mark> Mark::create(int) {
    Mark mark;
    mark.state_ = std::make_shared<Stream::Recording::Count>();
    return Result<Mark>(std::move(mark));
}

void Stream::put(Mark& mark) { *static_cast<Recording::Count*>(mark.state_.get()) = recording_->begun(); }

Result<void> Stream::wait(const Mark& mark) {
    recording_->wait(*static_cast<const Recording::Count*>(mark.state_.get()));
    return outcome();
}

bool Stream::begin_capture() { return recording_->active = true; }

Result<Graph> Stream::end_capture() {
    recording_->active = false;
    auto work = std::exchange(recording_->work, {});
    const char* const graphs = std::getenv("NIBBLE_CARD_GRAPHS");  // 0: as on a card without memory for them
    if (graphs && std::string_view(graphs) == "0")
        return Error{ErrorCode::internal, cat("cuda:", device_), "no graphs", ""};
    Graph g;
    g.state_ = std::make_shared<std::vector<std::function<void()>>>(std::move(work));
    return g;
}

void Graph::launch(Stream&) const {
    for (const auto& work : *static_cast<const std::vector<std::function<void()>>*>(state_.get())) work();
}

}  // namespace nibble::cuda
