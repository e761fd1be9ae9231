// The Backend interface over the op functions of exec.h.
// Memory comes from the C++ heap; large buffers are aligned for and advised to use huge pages.
#include "ggml/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"

namespace nibble {
namespace {

constexpr size_t huge_page = size_t{2} << 20;
#if defined(NIBBLE_SANITIZED)
constexpr size_t slab_bytes = 0;  // every weight by itself, so that its end is watched
#else
constexpr size_t slab_bytes = 32 * huge_page;
#endif
constexpr int max_threads = 1024;

// MemAvailable counts what the kernel can give without swapping; the page count is the fallback.
size_t available_bytes() {
    std::ifstream in("/proc/meminfo");
    for (std::string key; in >> key;) {
        size_t kib = 0;
        if (key == "MemAvailable:" && in >> kib) return kib * 1024;
        std::getline(in, key);
    }
    return 0;
}

size_t physical_bytes() {
    const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(size) : 0;
}

bool is_glu_read_by_next(const Instr& i) { return i.op == &glu_op && i.read_until == 1; }

// Whether what the gated unit before it gives is x of a product and nothing else in it.
bool begins_with(const BoundInstr& product, const BoundInstr& glu) {
    const Tensor& x = glu.out[0];
    return product.in[0].data == x.data && product.in[0].cols == x.cols && product.in[1].data != x.data;
}

// Whether all that a product gives is one gate and what that gates, and nothing but the unit reads it.
bool ends_in(const BoundInstr& product, const BoundInstr& glu) {
    const Tensor &x = glu.in[0], &both = product.out[0];
    return product.instr->read_until == 1 && x.data == both.data && x.cols == both.cols && !glu.in[1];
}

// Runs the first of these instructions if they are done together; returns how many that were.
size_t run_joined(const cpu::Exec& exec, std::span<const BoundInstr> i) {
    const auto is = [&](size_t at, const OpDef& op) { return i[at].instr->op == &op; };
    if (i.size() > 1 && is_glu_read_by_next(*i[0].instr) && is(1, matmul_op) && begins_with(i[1], i[0])) {
        cpu::run_glu_matmul(exec, i[0].args(), i[1].args(), i[1].scratch);
        return 2;
    }
    if (i.size() < 3 || !is_glu_read_by_next(*i[1].instr) || i[0].instr->op != i[2].instr->op) return 0;
    const auto run = is(0, matmul_op)       ? cpu::run_gated_product
                     : is(0, moe_matmul_op) ? cpu::run_gated_experts
                                            : nullptr;
    if (!run || !ends_in(i[0], i[1]) || !begins_with(i[2], i[1])) return 0;
    return run(exec, i[0].args(), i[0].scratch, i[1].args(), i[2].args(), i[2].scratch) ? 3 : 0;
}

// The weights of the second product from here on: the one behind that which runs now or is the next one.
std::span<const Tensor> weights_of_next(std::span<const BoundInstr> instrs) {
    constexpr size_t near = 8;
    bool first = true;
    for (const BoundInstr& i : instrs.subspan(0, std::min(near, instrs.size())))
        if (i.instr->op == &matmul_op && !std::exchange(first, false))
            return std::span(i.in).subspan(
                2, static_cast<size_t>(i.args().params->as<MatmulParams>().n_weights));
    return {};
}

}  // namespace

Result<std::unique_ptr<CpuBackend>> CpuBackend::create(const CpuOptions& options) {
    if (options.threads < 0 || options.threads > max_threads)
        return Error{ErrorCode::invalid_argument, cat("--threads ", options.threads),
                     cat("must be between 1 and ", max_threads), "leave it out to use every core"};
    const cpu::KernelTable* kernels = options.kernels;
    if (!kernels) kernels = NIBBLE_TRY(cpu::select_table(options.isa));
    return std::unique_ptr<CpuBackend>(
        new CpuBackend(kernels, std::make_unique<ThreadPool>(options.threads, options.nodes), options));
}

DeviceInfo CpuBackend::device() const {
    const std::string& brand = cpu::features().brand;
    const size_t total = physical_bytes(), available = available_bytes();
    return {"cpu",
            cat(brand.empty() ? "processor" : brand, ", ", kernels_->name, ", ", pool_->size(),
                pool_->size() == 1 ? " thread" : " threads"),
            true, total, available > 0 ? available : total};
}

Result<Buffer> CpuBackend::allocate(size_t bytes, std::string_view purpose) {
    const size_t alignment = bytes >= huge_page ? huge_page : 64;
    // More than the machine has is refused before asking: an overcommitting system would grant it and kill
    // later.
    const size_t total = physical_bytes();
    void* memory = nullptr;
    if (bytes <= (total > 0 ? total : std::numeric_limits<size_t>::max() / 2))
        memory = std::aligned_alloc(alignment, round_up(std::max<size_t>(bytes, 1), alignment));
    if (!memory)
        return Error{ErrorCode::out_of_memory, std::string(purpose),
                     cat("needs ", bytes, " bytes, ", available_bytes(), " are available"),
                     "use a smaller context or model"};
#if defined(MADV_HUGEPAGE)
    // Advice only: where the system declines, pages stay small and everything works.
    if (bytes >= huge_page) (void)::madvise(memory, round_up(bytes, alignment), MADV_HUGEPAGE);
#endif
    return Buffer{std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), std::free), bytes};
}

size_t CpuBackend::packed_bytes(const Tensor& host, WeightUse use) const {
    if (!pack_ || use != WeightUse::matmul || host.layout != Layout::rows) return 0;
    const size_t groups = static_cast<size_t>(ceil_div(host.rows, int64_t{kernels_->pack.lanes}));
    return groups * kernels_->pack.group_bytes(info(host.type), host.cols);
}

// Large pages are taken whole: with memory of its own a weight would take up to one more than it fills.
Result<Buffer> CpuBackend::allocate_packed(size_t bytes) {
    constexpr size_t alignment = 64;
    if (bytes > slab_bytes / 4) return allocate(bytes, "packed weights");
    if (!slab_.data || bytes > slab_.size - slab_taken_) {
        slab_ = NIBBLE_TRY(allocate(slab_bytes, "packed weights"));
        slab_taken_ = 0;
    }
    const Buffer part{{slab_.data, slab_.data.get() + slab_taken_}, bytes};
    slab_taken_ = std::min(slab_.size, round_up(slab_taken_ + bytes, alignment));
    return part;
}

Result<PlacedWeight> CpuBackend::place(const Tensor& host, WeightUse use) {
    const TypeInfo& type = info(host.type);
    if (host.layout != Layout::rows || !type.decode)
        return Error{ErrorCode::unsupported, "weight", cat("no CPU kernel reads the type ", type.name),
                     "convert the model to a supported type"};
    const size_t bytes = packed_bytes(host, use);
    if (bytes == 0) return PlacedWeight{host, {}};
    Buffer storage = NIBBLE_TRY(allocate_packed(bytes));
    const int64_t lanes = kernels_->pack.lanes;
    Tensor packed = host;
    packed.data = storage.data.get();
    packed.layout = Layout::packed;
    packed.stride = static_cast<int64_t>(kernels_->pack.group_bytes(type, host.cols)) / lanes;
    // Neighbours go to one thread, which asks for the next group ahead: to the one that will stream them.
    pool_->run_stretches(ceil_div(host.rows, lanes), [&](int64_t first, int64_t last, int) {
        const int64_t end = std::min(host.rows, last * lanes);
        for (int64_t row = first * lanes; row < end; row += lanes)
            kernels_->pack.pack_group(type, host.row<std::byte>(row), host.stride,
                                      std::min(lanes, host.rows - row), host.cols,
                                      packed.row<std::byte>(row));
    });
    return PlacedWeight{packed, std::move(storage)};
}

Result<void> CpuBackend::upload(std::byte* device_dst, std::span<const std::byte> host_src) {
    if (!host_src.empty()) std::memcpy(device_dst, host_src.data(), host_src.size());
    return {};
}

Result<void> CpuBackend::download(std::span<std::byte> host_dst, const std::byte* device_src) {
    if (!host_dst.empty()) std::memcpy(host_dst.data(), device_src, host_dst.size());
    return {};
}

bool CpuBackend::supports(const OpDef& op, const OpArgs& shapes) const {
    if (static_cast<Op>(op.id) == Op::rope_store &&
        shapes.params->as<RopeStoreParams>().head_dim > cpu::largest_head)
        return false;
    return cpu::op_function(op) != nullptr;
}

size_t CpuBackend::scratch_bytes(const OpDef& op, const OpArgs& shapes) const {
    return cpu::op_scratch_bytes(exec(), op, shapes);
}

bool CpuBackend::joins_next(const Instr& instr) const { return is_glu_read_by_next(instr); }

Result<void> CpuBackend::run(std::span<BoundInstr> instrs, Observer* observer) {
    cpu::Exec e = exec();
    while (!instrs.empty()) {
        if (stop_ && stop_()) return Error{ErrorCode::cancelled, "cpu", "was stopped", ""};
        e.next_weights = weights_of_next(instrs);
        // Who watches sees every instruction.
        const size_t joined = observer ? 0 : run_joined(e, instrs);
        if (joined == 0) {
            const BoundInstr& i = instrs[0];
            const cpu::OpFunction function = cpu::op_function(*i.instr->op);
            if (!function)
                return Error{ErrorCode::internal, i.instr->label,
                             cat("the CPU has no kernel for ", i.instr->op->name), ""};
            if (observer) observer->before(i);
            function(e, i.args(), i.scratch);
            if (observer) observer->after(i);
        }
        instrs = instrs.subspan(std::max<size_t>(joined, 1));
    }
    return {};
}

}  // namespace nibble
