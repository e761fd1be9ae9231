// Runner: gives a program memory, binds operands to addresses once, and steps it.
// A transfer between devices goes through host memory.
#include "ggml/program/runner.h"

#include <algorithm>
#include <cstring>

namespace nibble {

Result<Runner> Runner::create(Program program, std::span<Backend* const> backends) {
    Runner r;
    r.program_ = std::make_unique<Program>(std::move(program));
    r.backends_.assign(backends.begin(), backends.end());
    const Program& p = *r.program_;
    std::shared_ptr<std::byte> host(
        static_cast<std::byte*>(::operator new (p.input_bytes, std::align_val_t{64})),
        [](std::byte* b) { ::operator delete (b, std::align_val_t{64}); });
    if (p.input_bytes) std::memset(host.get(), 0, p.input_bytes);
    r.host_inputs_ = {host, p.input_bytes};
    for (size_t d = 0; d < backends.size(); ++d) {
        Buffer arena, inputs;
        if (p.arena_bytes[d]) arena = NIBBLE_TRY(backends[d]->allocate(p.arena_bytes[d], "activations"));
        r.host_memory_.push_back(backends[d]->device().host_memory);
        if (r.host_memory_.back())
            inputs = r.host_inputs_;
        else if (p.input_bytes)
            inputs = NIBBLE_TRY(backends[d]->allocate(p.input_bytes, "inputs"));
        r.arenas_.push_back(std::move(arena));
        r.inputs_.push_back(std::move(inputs));
    }
    NIBBLE_TRY(r.bind());
    return r;
}

Tensor Runner::resolve(Ref ref, int32_t device) const {
    if (!ref) return {};
    const Value& v = program_->values[static_cast<size_t>(ref.id)];
    if (v.kind == ValueKind::weight || v.kind == ValueKind::cache) return v.bound;
    const Value& root = v.base >= 0 ? program_->values[static_cast<size_t>(v.base)] : v;
    const bool input = v.kind == ValueKind::input;
    const Buffer& block =
        input ? inputs_[static_cast<size_t>(device)] : arenas_[static_cast<size_t>(root.device)];
    Tensor t;
    t.rows = v.rows;
    t.cols = v.cols;
    t.type = v.type;
    t.stride = static_cast<int64_t>(root.row_stride());
    t.data = block.data.get() + root.offset + *row_bytes(v.type, v.first_col);
    return t;
}

Result<void> Runner::bind() {
    const Program& p = *program_;
    const auto dim = [&](Ref r) { return r ? p.values[static_cast<size_t>(r.id)].dim : RowDim::fixed; };
    for (size_t i = 0; i < p.instrs.size(); ++i) {
        const Instr& instr = p.instrs[i];
        BoundInstr b;
        b.instr = &instr;
        for (const Ref r : instr.in) {
            b.in.push_back(resolve(r, instr.device));
            b.in_dims.push_back(dim(r));
        }
        for (const Ref r : instr.out) {
            b.out.push_back(resolve(r, instr.device));
            b.out_dims.push_back(dim(r));
        }
        if (p.scratch[i])
            b.scratch = {arenas_[static_cast<size_t>(instr.device)].data.get() + p.scratch_at[i],
                         p.scratch[i]};
        bound_.push_back(std::move(b));

        const auto is_transfer = [](const Instr& x) { return x.op == &transfer_op(); };
        const bool fresh = segments_.empty() || segments_.back().device != instr.device ||
                           is_transfer(instr) || is_transfer(p.instrs[i - 1]);
        if (fresh) segments_.push_back({instr.device, i, 0});
        ++segments_.back().count;
    }
    return {};
}

Result<void> Runner::transfer(BoundInstr& instr, int32_t device) {
    const Tensor &src = instr.in[0], &dst = instr.out[0];
    const Value& from = program_->values[static_cast<size_t>(instr.instr->in[0].id)];
    const auto bytes = static_cast<size_t>(src.rows * src.stride);  // roots: contiguous
    staging_.resize(std::max(staging_.size(), bytes));
    const std::span<std::byte> host(staging_.data(), bytes);
    NIBBLE_TRY(backends_[static_cast<size_t>(from.device)]->download(host, src.data));
    return backends_[static_cast<size_t>(device)]->upload(dst.data, host);
}

Result<void> Runner::run(const StepShape& shape, Observer* observer) {
    const BatchShape& most = program_->limits;
    if (shape.tokens > most.tokens || shape.outputs > most.outputs || shape.sequences > most.sequences)
        return Error{ErrorCode::internal, "runner", "a step is larger than its program was recorded for", ""};
    last_ = shape;
    for (size_t d = 0; d < backends_.size(); ++d)
        if (inputs_[d].data && inputs_[d].data != host_inputs_.data)
            NIBBLE_TRY(backends_[d]->upload(inputs_[d].data.get(), {host_inputs_.data.get(), used(shape)}));
    for (BoundInstr& b : bound_) {
        for (size_t i = 0; i < b.in.size(); ++i) b.in[i].rows = shape.rows(b.in_dims[i], b.in[i].rows);
        for (size_t i = 0; i < b.out.size(); ++i) b.out[i].rows = shape.rows(b.out_dims[i], b.out[i].rows);
    }
    for (const Segment& s : segments_) {
        if (bound_[s.first].instr->op == &transfer_op())
            NIBBLE_TRY(transfer(bound_[s.first], s.device));
        else
            NIBBLE_TRY(backends_[static_cast<size_t>(s.device)]->run(
                std::span(bound_).subspan(s.first, s.count), observer));
    }
    return {};
}

// Up to the last row that a step of this shape reads.
size_t Runner::used(const StepShape& shape) const {
    size_t end = 0;
    for (const Value& v : program_->values)
        if (v.kind == ValueKind::input && v.base < 0)
            end = std::max(end, static_cast<size_t>(v.offset) +
                                    static_cast<size_t>(shape.rows(v.dim, v.rows)) * v.row_stride());
    return end;
}

std::span<std::byte> Runner::input_bytes(std::string_view name) {
    for (const Value& v : program_->values)
        if (v.kind == ValueKind::input && v.base < 0 && v.name == name)
            return {host_inputs_.data.get() + v.offset, v.bytes()};
    return {};
}

namespace {

const Value* find_output(const Program& program, std::string_view name) {
    for (const Value& v : program.values)
        if (v.kind == ValueKind::output && v.name == name) return &v;
    return nullptr;
}

}  // namespace

bool Runner::has_output(std::string_view name) const { return find_output(*program_, name); }

Result<std::span<float>> Runner::output(std::string_view name) {
    const Value* const v = find_output(*program_, name);
    if (!v) return Error{ErrorCode::internal, std::string(name), "is not an output of the program", ""};
    std::byte* data = arenas_[static_cast<size_t>(v->device)].data.get() + v->offset;
    const size_t bytes = static_cast<size_t>(last_.rows(v->dim, v->rows)) * v->row_stride();
    if (!host_memory_[static_cast<size_t>(v->device)]) {
        std::vector<std::byte>& copy = copies_[v];
        copy.resize(std::max(copy.size(), bytes));
        NIBBLE_TRY(backends_[static_cast<size_t>(v->device)]->download({copy.data(), bytes}, data));
        data = copy.data();
    }
    return std::span(reinterpret_cast<float*>(data), bytes / sizeof(float));
}

size_t Runner::allocated_bytes(size_t device) const { return arenas_[device].size + inputs_[device].size; }

}  // namespace nibble
