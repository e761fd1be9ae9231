// The Backend interface over the op functions of exec.h: memory, placing of weights, replay of graphs.
// Packing on the host and copying to the device overlap, a part of a weight at a time.
#include "ggml/cuda/cuda_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/cuda/exec.h"
#include "ggml/cuda/tiles.h"

namespace nibble {
namespace {

constexpr size_t staging_bytes = size_t{16} << 20;  // of a part of a weight; there are two

struct Implementation {
    cuda::OpFunction run;
    size_t (*scratch)(const cuda::Exec&, const OpArgs&);
};

// By op; null where the GPU has no implementation.
Implementation implementation(Op op) {
    switch (op) {
        case Op::embed:
            return {cuda::run_embed, nullptr};
        case Op::norm:
            return {cuda::run_norm, nullptr};
        case Op::matmul:
            return {cuda::run_matmul, cuda::matmul_scratch};
        case Op::rope_table:
            return {cuda::run_rope_table, nullptr};
        case Op::rope_store:
            return {cuda::run_rope_store, nullptr};
        case Op::attention:
            return {cuda::run_attention, cuda::attention_scratch};
        case Op::glu:
            return {cuda::run_glu, nullptr};
        case Op::activate:
            return {cuda::run_activate, nullptr};
        case Op::add:
            return {cuda::run_add, nullptr};
        case Op::take_rows:
            return {cuda::run_take_rows, nullptr};
        case Op::splice_heads:
            return {cuda::run_splice_heads, nullptr};
        case Op::scale_by_position:
            return {cuda::run_scale_by_position, nullptr};
        case Op::copy_pages:
            return {cuda::run_copy_pages, nullptr};
        case Op::moe_route:
            return {cuda::run_moe_route, nullptr};
        case Op::moe_matmul:
            return {cuda::run_moe_matmul, cuda::moe_matmul_scratch};
        case Op::moe_sum:
            return {cuda::run_moe_sum, nullptr};
        case Op::shortlist:
            return {cuda::run_shortlist, cuda::shortlist_scratch};
        case Op::draw:
            return {cuda::run_draw, nullptr};
        case Op::causal_conv:
            return {cuda::run_causal_conv, nullptr};
        case Op::delta_rule:
            return {cuda::run_delta_rule, nullptr};
        case Op::ssm_scan:
            return {cuda::run_ssm_scan, nullptr};
        case Op::count_:
            break;
    }
    return {nullptr, nullptr};
}

Op op_of(const OpDef& op) { return static_cast<Op>(op.id); }

// Weights of other layouts than the kernels': tiles for codes and 16-bit values, rows for f32.
bool readable(const Tensor& w) { return w.layout == Layout::packed || w.type == Type::f32; }

bool cache_type(Type t) {
    return t == Type::f32 || t == Type::f16 || t == Type::bf16 || t == Type::q8_0 || t == Type::q4_0;
}

uint64_t mixed(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

// Everything a launch is made from: a later program may lie at the addresses of an earlier one.
uint64_t fingerprint(std::span<const BoundInstr> instrs) {
    uint64_t h = instrs.size();
    const auto add = [&](const std::vector<Tensor>& list) {
        for (const Tensor& t : list) {
            h = mixed(h, reinterpret_cast<uintptr_t>(t.data));
            for (const int64_t v : {t.rows, t.cols, t.stride}) h = mixed(h, static_cast<uint64_t>(v));
            h = mixed(h, static_cast<uint64_t>(t.type) << 8 | static_cast<uint64_t>(t.layout));
        }
    };
    for (const BoundInstr& b : instrs) {
        h = mixed(h, static_cast<uint64_t>(b.instr->op->id));
        h = mixed(h, static_cast<uint64_t>(b.instr->read_until));
        h = mixed(h, reinterpret_cast<uintptr_t>(b.scratch.data()));
        h = mixed(h, b.scratch.size());
        for (size_t i = 0; i < b.instr->params.bytes().size(); i += sizeof(uint64_t)) {
            uint64_t word;
            std::memcpy(&word, b.instr->params.bytes().data() + i, sizeof word);
            h = mixed(h, word);
        }
        add(b.in);
        add(b.out);
    }
    return h;
}

}  // namespace

// What is still under way uses what goes away now.
CudaBackend::~CudaBackend() {
    (void)stream_.synchronize();
    (void)copies_.synchronize();
}

int CudaBackend::devices() { return cuda::device_count(); }
std::string CudaBackend::why_none() { return cuda::why_no_device(); }

Result<std::unique_ptr<CudaBackend>> CudaBackend::create(const CudaOptions& options) {
    const cuda::Card card = NIBBLE_TRY(cuda::card(options.device));
    if (card.major * 10 + card.minor < 75)
        return Error{
            ErrorCode::unsupported, cat("cuda:", options.device),
            cat(card.name, " has compute capability ", card.major, ".", card.minor, ", 7.5 is needed"),
            "use --device cpu"};
    NIBBLE_TRY(cuda::check_kernels(options.device, card));
    cuda::Stream stream = NIBBLE_TRY(cuda::Stream::create(options.device, options.overlapped));
    cuda::Stream copies = NIBBLE_TRY(cuda::Stream::create(options.device));
    cuda::SmallCopies small = NIBBLE_TRY(cuda::SmallCopies::create(options.device));
    std::unique_ptr<CudaBackend> backend(
        new CudaBackend(options, card, std::move(stream), std::move(copies), std::move(small)));
    NIBBLE_TRY(backend->prepare_device());
    return backend;
}

Result<void> CudaBackend::prepare_device() {
    constexpr size_t bytes = cuda::attention_counters * sizeof(int);
    counters_ =
        std::reinterpret_pointer_cast<int>(NIBBLE_TRY(cuda::allocate(options_.device, bytes, "counters")));
    auto* const counters = reinterpret_cast<std::byte*>(counters_.get());
    stream_.fill(counters, 0, bytes);
    const bool wanted =
        options_.warpgroups && cuda::warpgroups_built() && card_.major == 9 && card_.minor == 0;
    int right = 0;
    if (wanted) {
        cuda::check_warpgroups(stream_, counters_.get());
        stream_.to_host(std::as_writable_bytes(std::span(&right, 1)), counters);
        stream_.fill(counters, 0, bytes);
    }
    NIBBLE_TRY(stream_.synchronize());
    warpgroups_ = right == cuda::warpgroup_check_threads;
    if (wanted && !warpgroups_) fault_ = "; its warpgroups do not multiply as they should and are not used";
    if (options_.graphs) graphs_ = std::make_unique<cuda::StepGraphs>();
    return {};
}

DeviceInfo CudaBackend::device() const {
    // At 512 rows of x a product has few blocks for each multiprocessor of a large card, and leaves many of
    // them idle in the last turn; at 2048 hardly any.
    const int32_t step_rows = card_.multiprocessors >= 100 ? 2048 : 512;
    return {cat("cuda:", options_.device),
            cat(card_.name, ", compute capability ", card_.major, ".", card_.minor, fault_),
            false,
            card_.total_bytes,
            cuda::free_bytes(options_.device),
            step_rows};
}

double CudaBackend::read_bandwidth() {
    using Clock = std::chrono::steady_clock;
    // Far larger than the L2 cache, and long enough that starting does not count.
    const size_t bytes = std::max(size_t{64} << 20, 16 * card_.l2_bytes);
    constexpr int passes = 8;
    const auto memory = cuda::allocate(options_.device, bytes + 256, "measuring");
    if (!memory) return 0;
    std::byte* const data = memory->get();
    stream_.fill(data, 1, bytes);
    double best = 0;
    for (int turn = 0; turn < 3; ++turn) {
        if (!stream_.synchronize()) return 0;
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < passes; ++i) cuda::read_through(stream_, data, bytes, data + bytes);
        if (!stream_.synchronize()) return 0;
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        best = std::max(best, passes * static_cast<double>(bytes) / seconds);
    }
    return best;
}

Result<Buffer> CudaBackend::allocate(size_t bytes, std::string_view purpose) {
    return Buffer{NIBBLE_TRY(cuda::allocate(options_.device, std::max<size_t>(bytes, 1), purpose)), bytes};
}

size_t CudaBackend::packed_bytes(const Tensor& host, WeightUse use) const {
    if (use != WeightUse::matmul && use != WeightUse::lookup) return 0;
    if (host.layout != Layout::rows || !cuda::has_tiles(host.type)) return 0;
    return static_cast<size_t>(ceil_div(host.rows, int64_t{16}) *
                               cuda::tiles_of(host.type).block_bytes(host.cols));
}

Result<void> CudaBackend::place_tiles(const Tensor& host, std::byte* to) {
    const int64_t blocks = ceil_div(host.rows, int64_t{16});
    const auto block_bytes = static_cast<size_t>(cuda::tiles_of(host.type).block_bytes(host.cols));
    const auto at_once = static_cast<int64_t>(std::max<size_t>(1, staging_bytes / block_bytes));
    // Kept: to lock pages takes longer than to copy what lies in them.
    const size_t part_bytes = std::max(staging_bytes, block_bytes);
    if (staging_each_ < part_bytes) {
        for (auto& s : staging_) s = NIBBLE_TRY(cuda::allocate_pinned(options_.device, part_bytes));
        staging_each_ = part_bytes;
    }
    cuda::Stream* const streams[2] = {&stream_, &copies_};
    int turn = 0;
    for (int64_t first = 0; first < blocks; first += at_once, turn ^= 1) {
        const int64_t count = std::min(at_once, blocks - first);
        NIBBLE_TRY(streams[turn]->synchronize());  // the copy from this half, two parts ago
        std::byte* const part = staging_[turn].get();
        pool_->run(count, [&](int64_t i, int) {
            cuda::pack_tiles(host, first + i, part + static_cast<size_t>(i) * block_bytes);
        });
        streams[turn]->to_device(to + static_cast<size_t>(first) * block_bytes,
                                 {part, static_cast<size_t>(count) * block_bytes});
    }
    for (cuda::Stream* s : streams) NIBBLE_TRY(s->synchronize());
    return {};
}

Result<PlacedWeight> CudaBackend::place(const Tensor& host, WeightUse use) {
    const TypeInfo& type = info(host.type);
    if (host.layout != Layout::rows || !type.decode)
        return Error{ErrorCode::unsupported, "weight", cat("no GPU kernel reads the type ", type.name),
                     "convert the model to a supported type"};
    PlacedWeight placed{host, {}};
    const size_t bytes = packed_bytes(host, use);
    if (bytes > 0) {
        placed.storage = NIBBLE_TRY(allocate(bytes, "weights"));
        NIBBLE_TRY(place_tiles(host, placed.storage.data.get()));
        placed.tensor.layout = Layout::packed;
        placed.tensor.stride = static_cast<int64_t>(bytes) / std::max<int64_t>(host.rows, 1);
    } else {
        // Rows as they are; what kernels read in rows is f32.
        std::vector<float> rows;
        std::span<const std::byte> source(host.data, static_cast<size_t>(host.rows * host.stride));
        if (use == WeightUse::apart && host.type != Type::f32) {
            rows.resize(static_cast<size_t>(host.rows * host.cols));
            for (int64_t r = 0; r < host.rows; ++r)
                type.decode(host.row<std::byte>(r), rows.data() + r * host.cols,
                            static_cast<size_t>(host.cols));
            source = std::as_bytes(std::span(rows));
            placed.tensor.type = Type::f32;
            placed.tensor.stride = host.cols * static_cast<int64_t>(sizeof(float));
        }
        placed.storage = NIBBLE_TRY(allocate(source.size(), "weights"));
        NIBBLE_TRY(upload(placed.storage.data.get(), source));
    }
    placed.tensor.data = placed.storage.data.get();
    return placed;
}

Result<void> CudaBackend::upload(std::byte* device_dst, std::span<const std::byte> host_src) {
    return small_copies_.upload(stream_, device_dst, host_src);
}

Result<void> CudaBackend::download(std::span<std::byte> host_dst, const std::byte* device_src) {
    if (small_copies_.takes(host_dst.size())) return small_copies_.download(stream_, host_dst, device_src);
    stream_.to_host(host_dst, device_src);
    return stream_.synchronize();
}

namespace {

class PinnedMailbox final : public Mailbox {
  public:
    PinnedMailbox(cuda::Stream& stream, std::shared_ptr<std::byte> memory, size_t bytes, cuda::Mark mark)
        : stream_(stream), memory_(std::move(memory)), bytes_(bytes), mark_(std::move(mark)) {}
    ~PinnedMailbox() override { (void)stream_.wait(mark_); }

    Result<void> send(const std::byte* device_src) override {
        NIBBLE_TRY(stream_.wait(mark_));  // two copies would meet in the same memory
        stream_.to_host({memory_.get(), bytes_}, device_src);
        stream_.put(mark_);
        return {};
    }
    Result<std::span<const std::byte>> receive() override {
        NIBBLE_TRY(stream_.wait(mark_));
        return std::span<const std::byte>(memory_.get(), bytes_);
    }

  private:
    cuda::Stream& stream_;
    std::shared_ptr<std::byte> memory_;
    size_t bytes_;
    cuda::Mark mark_;
};

}  // namespace

Result<std::unique_ptr<Mailbox>> CudaBackend::mailbox(size_t bytes) {
    auto memory = NIBBLE_TRY(cuda::allocate_pinned(options_.device, bytes));
    cuda::Mark mark = NIBBLE_TRY(cuda::Mark::create(options_.device));
    return std::unique_ptr<Mailbox>(
        std::make_unique<PinnedMailbox>(stream_, std::move(memory), bytes, std::move(mark)));
}

bool CudaBackend::supports(const OpDef& op, const OpArgs& a) const {
    switch (op_of(op)) {
        case Op::attention:
            return cuda::attention_supported(a.params->as<AttentionParams>(), a.in[1].type, a.in[2].type);
        case Op::rope_store:
            return cache_type(a.in[5].type) && cache_type(a.in[6].type);
        case Op::moe_route:
            return cuda::moe_route_supported(a);
        case Op::moe_matmul:
            return cuda::moe_matmul_supported(a);
        case Op::shortlist:
            return cuda::shortlist_supported(a);
        case Op::draw:
            return cuda::draw_supported(a);
        default:
            return op.id < static_cast<uint16_t>(Op::count_) && implementation(op_of(op)).run;
    }
}

size_t CudaBackend::scratch_bytes(const OpDef& op, const OpArgs& shapes) const {
    const auto scratch = implementation(op_of(op)).scratch;
    return scratch ? scratch(exec(nullptr), shapes) : 0;
}

// Others that are joined read what lives on anyway.
bool CudaBackend::joins_next(const Instr& instr) const {
    const Op op = op_of(*instr.op);
    const bool read_by_next = instr.read_until == 1;
    return options_.joined &&
           (op == Op::take_rows || (read_by_next && (op == Op::norm || op == Op::rope_store ||
                                                     op == Op::moe_matmul || op == Op::moe_sum)));
}

cuda::Exec CudaBackend::exec(cuda::Stream* stream) const {
    return {stream, &card_, counters_.get(), options_.most_streamed, warpgroups_, options_.gemv};
}

Result<void> CudaBackend::check_weights(std::span<const BoundInstr> instrs) const {
    for (const BoundInstr& b : instrs) {
        const bool matrix = op_of(*b.instr->op) == Op::matmul || op_of(*b.instr->op) == Op::moe_matmul;
        for (size_t w = 2; matrix && w < b.in.size(); ++w)
            if (b.in[w] && !readable(b.in[w]))
                return Error{ErrorCode::internal, b.instr->label, "a weight was not placed", ""};
    }
    return {};
}

void CudaBackend::launch_one(const BoundInstr& b) {
    implementation(op_of(*b.instr->op)).run(exec(&stream_), b.args(), b.scratch);
}

Result<void> CudaBackend::launch_all(std::span<BoundInstr> instrs) {
    NIBBLE_TRY(check_weights(instrs));
    for (size_t i = 0; i < instrs.size();) {
        stream_.at(instrs[i].instr->label);
        size_t joined = options_.joined ? cuda::run_joined(exec(&stream_), instrs.subspan(i)) : 0;
        if (joined == 0) {
            launch_one(instrs[i]);
            joined = 1;
        }
        joined_instructions_ += static_cast<int64_t>(joined) - 1;
        i += joined;
    }
    stream_.at({});
    return {};
}

Result<void> CudaBackend::observed(BoundInstr& b, Observer& observer) {
    BoundInstr copy = b;
    std::vector<std::vector<std::byte>> memory;
    const auto fetch = [&](std::vector<Tensor>& list) -> Result<void> {
        for (Tensor& t : list) {
            const bool plain = t.layout == Layout::rows && (t.type == Type::f32 || t.type == Type::i32);
            std::byte* const from = std::exchange(t.data, nullptr);
            if (!from || !plain) continue;
            memory.emplace_back(cuda::extent_bytes(t));
            NIBBLE_TRY(download(memory.back(), from));
            t.data = memory.back().data();
        }
        return {};
    };
    NIBBLE_TRY(fetch(copy.in));
    observer.before(copy);
    NIBBLE_TRY(check_weights({&b, 1}));
    stream_.at(b.instr->label);
    launch_one(b);
    stream_.at({});
    NIBBLE_TRY(stream_.synchronize());
    copy.out = b.out;
    NIBBLE_TRY(fetch(copy.out));
    observer.after(copy);
    return {};
}

// After a recording that failed or did not begin: no work is done yet, and steps differ from recorded ones in
// speed alone. What is wrong with the device itself, or with a launch, comes up again.
Result<void> CudaBackend::run_unrecorded(std::span<BoundInstr> instrs) {
    stream_.forget_error();
    NIBBLE_TRY(stream_.synchronize());
    graphs_.reset();
    return launch_all(instrs);
}

Result<void> CudaBackend::run(std::span<BoundInstr> instrs, Observer* observer) {
    if (observer) {
        for (BoundInstr& b : instrs) NIBBLE_TRY(observed(b, *observer));
        return {};
    }
    if (!graphs_ || instrs.empty()) return launch_all(instrs);
    const auto launch = [&] { return launch_all(instrs); };
    return NIBBLE_TRY(graphs_->run(stream_, fingerprint(instrs), launch)) ? Result<void>()
                                                                          : run_unrecorded(instrs);
}

}  // namespace nibble
