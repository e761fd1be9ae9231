// compile(): from recorded instructions to a placed program with arena offsets.
// Four passes: expand what a backend lacks, insert transfers, find lifetimes, plan the arenas.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "ggml/base/checked.h"
#include "ggml/program/runner.h"

namespace nibble {

namespace {
constexpr size_t arena_alignment = 64;  // a cache line and the widest vector
}

int32_t Placement::device(int32_t layer) const {
    if (layer < 0) return first;
    const auto i = static_cast<size_t>(layer);
    return i < layers.size() ? layers[i] : last;
}

const OpDef& transfer_op() {
    static const OpDef op{
        std::numeric_limits<uint16_t>::max(), "transfer", nullptr, operand_traffic, nullptr, nullptr};
    return op;
}

class Compiler {
  public:
    Compiler(Builder&& b, const Placement& placement, std::span<Backend* const> backends)
        : b_(std::move(b)), placement_(placement), backends_(backends) {}

    Result<Program> run() {
        if (b_.failed()) return b_.error_;
        NIBBLE_TRY(expand_all());
        insert_transfers();
        plan_inputs();
        plan_arenas();
        p_.values = std::move(b_.values_);
        p_.instrs = std::move(b_.instrs_);
        p_.limits = b_.limits_;
        return std::move(p_);
    }

  private:
    struct Life {
        int64_t first = -1, last = -1;
    };

    Value& at(Ref r) { return b_.values_[static_cast<size_t>(r.id)]; }
    Ref root(Ref r) { return at(r).base >= 0 ? Ref{at(r).base} : r; }
    bool is_temp(Ref r) { return at(r).kind == ValueKind::temp || at(r).kind == ValueKind::output; }

    // The operand as a kernel would see it at the largest size, without an address for temps.
    Tensor shape_of(Ref r) {
        if (!r) return {};
        const Value& v = at(r);
        Tensor t = v.bound;
        t.rows = v.rows, t.cols = v.cols, t.type = v.type;
        if (!t.stride) t.stride = static_cast<int64_t>(v.row_stride());
        return t;
    }

    struct Shapes {
        std::vector<Tensor> in, out;
        const Params* params;
        OpArgs args() const { return {in, out, params}; }
    };
    Shapes shapes(const Instr& i) {
        Shapes s{{}, {}, &i.params};
        for (const Ref r : i.in) s.in.push_back(shape_of(r));
        for (const Ref r : i.out) s.out.push_back(shape_of(r));
        return s;
    }

    Result<void> expand_all() {
        std::vector<Instr> todo = std::exchange(b_.instrs_, {});
        std::reverse(todo.begin(), todo.end());
        std::vector<Instr> done;
        while (!todo.empty()) {
            Instr i = std::move(todo.back());
            todo.pop_back();
            i.device = placement_.device(i.layer);
            Backend& backend = *backends_[static_cast<size_t>(i.device)];
            if (backend.supports(*i.op, shapes(i).args())) {
                done.push_back(std::move(i));
                continue;
            }
            if (!i.op->expand)
                return Error{ErrorCode::unsupported, i.label,
                             cat("op '", i.op->name, "' has no kernel on ", backend.device().name), ""};
            b_.at(i.layer, i.label);
            i.op->expand(b_, i);
            if (b_.failed()) return b_.error_;
            for (; !b_.instrs_.empty(); b_.instrs_.pop_back()) todo.push_back(std::move(b_.instrs_.back()));
        }
        b_.instrs_ = std::move(done);
        return {};
    }

    void insert_transfers() {
        std::map<std::pair<int32_t, int32_t>, Ref> copies;  // (value, device) -> its copy there
        std::vector<Instr> out;
        for (Instr& i : b_.instrs_) {
            for (Ref& r : i.in)
                if (r && is_temp(r) && at(root(r)).device != i.device)
                    r = copy_to(r, i.device, i.layer, copies, out);
            for (const Ref r : i.out) at(r).device = i.device;
            out.push_back(std::move(i));
        }
        b_.instrs_ = std::move(out);
    }

    Ref copy_to(Ref r, int32_t device, int32_t layer, std::map<std::pair<int32_t, int32_t>, Ref>& copies,
                std::vector<Instr>& out) {
        const Ref from = root(r);
        Ref& copy = copies[{from.id, device}];
        if (!copy) {
            Value v = at(from);
            v.kind = ValueKind::temp;
            v.device = device;
            b_.values_.push_back(std::move(v));
            copy = {static_cast<int32_t>(b_.values_.size() - 1)};
            out.push_back({&transfer_op(), {from}, {copy}, {}, layer, "transfer", device});
        }
        if (from == r) return copy;
        Value view = at(r);
        view.base = copy.id;
        b_.values_.push_back(std::move(view));
        return {static_cast<int32_t>(b_.values_.size() - 1)};
    }

    void plan_inputs() {
        for (Value& v : b_.values_) {
            if (v.kind != ValueKind::input || v.base >= 0) continue;
            v.offset = static_cast<int64_t>(p_.input_bytes);
            p_.input_bytes += round_up(v.bytes(), arena_alignment);
        }
    }

    std::vector<Life> lifetimes() {
        std::vector<Life> lives(b_.values_.size());
        const auto n = static_cast<int64_t>(b_.instrs_.size());
        for (int64_t i = 0; i < n; ++i) {
            const Instr& instr = b_.instrs_[static_cast<size_t>(i)];
            for (const auto* list : {&instr.in, &instr.out})
                for (const Ref r : *list) {
                    if (!r || !is_temp(r)) continue;
                    Life& life = lives[static_cast<size_t>(root(r).id)];
                    if (life.first < 0) life.first = i;
                    life.last = at(root(r)).kind == ValueKind::output ? n : i;
                }
        }
        return lives;
    }

    // First fit: the lowest gap between the blocks that are alive. Operands of one instruction never overlap.
    struct Block {
        size_t begin, end;
        int64_t last;
        bool operator<(const Block& o) const { return begin < o.begin; }
    };
    size_t place(std::set<Block>& alive, size_t bytes, int64_t last, size_t& high) {
        size_t begin = 0;
        bytes = round_up(std::max<size_t>(bytes, 1), arena_alignment);
        for (const Block& b : alive) {
            if (b.begin >= begin + bytes) break;
            begin = std::max(begin, b.end);
        }
        alive.insert({begin, begin + bytes, last});
        high = std::max(high, begin + bytes);
        return begin;
    }

    // Until which instruction after number i its results are read; 0: beyond the step.
    int64_t read_until(int64_t i, const std::vector<Life>& lives) {
        int64_t until = 0;
        for (const Ref r : b_.instrs_[static_cast<size_t>(i)].out) {
            if (at(root(r)).kind != ValueKind::temp) return 0;
            until = std::max(until, lives[static_cast<size_t>(root(r).id)].last - i);
        }
        return until;
    }

    // Operands of what may share a launch with the instruction behind it stay until that has run.
    void prolong(std::vector<Life>& lives) {
        int64_t end = 0;  // the last of those that may share a launch
        for (auto i = static_cast<int64_t>(b_.instrs_.size()) - 1; i >= 0; --i) {
            const Instr& instr = b_.instrs_[static_cast<size_t>(i)];
            if (instr.op == &transfer_op() ||
                !backends_[static_cast<size_t>(instr.device)]->joins_next(instr)) {
                end = i;
                continue;
            }
            for (const Ref r : instr.in) {
                if (!r || !is_temp(r)) continue;
                Life& life = lives[static_cast<size_t>(root(r).id)];
                life.last = std::max(life.last, end);
            }
        }
    }

    void plan_arenas() {
        std::vector<Life> lives = lifetimes();
        for (size_t i = 0; i < b_.instrs_.size(); ++i)
            b_.instrs_[i].read_until = read_until(static_cast<int64_t>(i), lives);
        prolong(lives);
        p_.arena_bytes.assign(backends_.size(), 0);
        std::vector<std::set<Block>> alive(backends_.size());
        for (int64_t i = 0; i < static_cast<int64_t>(b_.instrs_.size()); ++i) {
            Instr& instr = b_.instrs_[static_cast<size_t>(i)];
            const auto d = static_cast<size_t>(instr.device);
            for (const Ref r : instr.out) {
                Value& v = at(r);
                if (v.offset >= 0) continue;  // an expansion writes it in several steps
                v.offset = static_cast<int64_t>(
                    place(alive[d], v.bytes(), lives[static_cast<size_t>(r.id)].last, p_.arena_bytes[d]));
            }
            const bool is_transfer = instr.op == &transfer_op();
            const size_t scratch =
                is_transfer ? 0 : backends_[d]->scratch_bytes(*instr.op, shapes(instr).args());
            p_.scratch.push_back(scratch);
            p_.scratch_at.push_back(
                scratch ? static_cast<int64_t>(place(alive[d], scratch, i, p_.arena_bytes[d])) : -1);
            for (auto& blocks : alive) std::erase_if(blocks, [&](const Block& b) { return b.last <= i; });
        }
    }

    Builder b_;
    const Placement& placement_;
    std::span<Backend* const> backends_;
    Program p_;
};

Result<Program> compile(Builder&& builder, const Placement& placement, std::span<Backend* const> backends) {
    return Compiler(std::move(builder), placement, backends).run();
}

std::vector<DeviceFootprint> footprint(std::span<const Program* const> programs) {
    std::vector<DeviceFootprint> f(programs[0]->arena_bytes.size());
    // Tied weights and shared caches count once; a cache without memory is known by its name.
    std::set<std::tuple<int32_t, const void*, std::string_view, Layout>> counted;
    const auto count = [&](const Program& p, int32_t device, Ref r) {
        const Value& view = p.values[static_cast<size_t>(r.id)];
        const Value& v = view.base >= 0 ? p.values[static_cast<size_t>(view.base)] : view;
        const bool cache = v.kind == ValueKind::cache;
        if (!cache && v.kind != ValueKind::weight) return;
        const std::string_view name = cache && !v.bound ? std::string_view(v.name) : std::string_view();
        const void* const identity = cache || v.bound ? static_cast<const void*>(v.bound.data) : &v;
        if (!counted.insert({device, identity, name, v.bound.layout}).second) return;
        DeviceFootprint& d = f[static_cast<size_t>(device)];
        const auto bytes = static_cast<size_t>(v.bound.rows * v.bound.stride);
        (cache ? d.cache : d.weights) += bytes;
        if (v.bound.layout == Layout::packed) d.packed += bytes;
    };
    for (const Program* p : programs) {
        for (const Instr& i : p->instrs)
            for (const Ref r : i.in)
                if (r) count(*p, i.device, r);
        for (size_t d = 0; d < f.size(); ++d) {
            f[d].arena += p->arena_bytes[d];
            f[d].inputs += p->input_bytes;
        }
    }
    return f;
}

std::vector<DeviceFootprint> Program::footprint() const {
    const Program* const self = this;
    return nibble::footprint({&self, 1});
}

}  // namespace nibble
