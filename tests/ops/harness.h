// Runs one op case on a backend with operands in guarded, strided memory.
// The same seed gives the same operands, so that two backends can be compared value by value.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "ggml/base/address_sanitizer.h"
#include "ggml/ops/ops.h"
#include "ggml/program/key_tiles.h"
#include "ggml/program/runner.h"
#include "ggml/types/arbitrary.h"
#include "tests/nmse.h"

namespace nibble {

inline constexpr std::byte sentinel{0xA5};

// Rows with a gap of sentinel bytes behind each of them and behind the last. Where addresses are watched,
// what lies behind the last may not be read either.
struct GuardedRows {
    std::vector<std::byte> memory;
    Tensor tensor;

    static GuardedRows make(Type type, int64_t rows, int64_t cols, int64_t gap) {
        GuardedRows g;
        const auto row = static_cast<int64_t>(*row_bytes(type, cols));
        const int64_t stride = row + gap;
        g.memory.assign(static_cast<size_t>(64 + rows * stride + 64), sentinel);
        const auto address = reinterpret_cast<uintptr_t>(g.memory.data());
        std::byte* data = g.memory.data() + (64 - address % 64) % 64;
        g.tensor = {data, rows, cols, stride, type, Layout::rows};
        forbid(data + rows * stride, g.end());
        return g;
    }
    const std::byte* end() const { return memory.data() + memory.size(); }
    // True when no byte outside the rows has been written.
    bool intact() const {
        const auto row = static_cast<int64_t>(*row_bytes(tensor.type, tensor.cols));
        const std::byte* const stop = addresses_watched ? tensor.data + tensor.rows * tensor.stride : end();
        for (const std::byte* p = memory.data(); p != stop; ++p) {
            const int64_t at = p - tensor.data;
            const bool inside = at >= 0 && at < tensor.rows * tensor.stride && at % tensor.stride < row;
            if (!inside && *p != sentinel) return false;
        }
        return true;
    }
    std::vector<float> floats() const {
        std::vector<float> v(static_cast<size_t>(tensor.rows * tensor.cols));
        std::vector<std::byte> row(static_cast<size_t>(tensor.stride));
        for (int64_t r = 0; r < tensor.rows; ++r) {
            if (tensor.layout == Layout::key_tiles)
                load_key_tile_row(tensor, r, row.data());
            else
                std::memcpy(row.data(), tensor.data + r * tensor.stride, row.size());
            info(tensor.type)
                .decode(row.data(), v.data() + r * tensor.cols, static_cast<size_t>(tensor.cols));
        }
        return v;
    }
};

class Operands : public CaseSink {
  public:
    Operands(const StepShape& shape, uint32_t seed, const Backend& backend)
        : shape_(shape), random_(seed), backend_(backend) {}

    Ref random_weight(Builder& b, Type type, int64_t rows, int64_t cols, float scale) override {
        return b.weight(filled(type, rows, cols, scale, 0), "w");
    }
    Ref random_cache(Builder& b, Type type, int64_t rows, int64_t cols) override {
        const Tensor t = filled(type, rows, cols, 1, 0);
        caches_.push_back(storage_.size() - 1);
        return b.cache(t, "cache");
    }
    Ref random_keys(Builder& b, Type type, int64_t rows, int64_t cols, int64_t page_size) override {
        filled(type, rows, cols, 1, 0);
        caches_.push_back(storage_.size() - 1);
        Tensor& t = storage_.back().tensor;
        t.layout = backend_.key_layout(type, page_size);
        if (t.layout == Layout::key_tiles)
            key_tiles_from_rows(t, {t.data, static_cast<size_t>(t.rows * t.stride)});
        return b.cache(t, "keys");
    }
    Ref random_input(Builder& b, RowDim dim, int64_t cols, float scale) override {
        const Tensor t = filled(Type::f32, shape_.rows(dim, 1), cols, scale, 64);
        return remember(b.input("x", Type::f32, dim, cols, 1), t);
    }
    Ref int_input(Builder& b, RowDim dim, int64_t cols, std::vector<int32_t> values) override {
        storage_.push_back(GuardedRows::make(Type::i32, shape_.rows(dim, 1), cols, 0));
        const Tensor t = storage_.back().tensor;
        if (!values.empty()) std::memcpy(t.data, values.data(), values.size() * sizeof(int32_t));
        return remember(b.input("i", Type::i32, dim, cols, 1), t);
    }

    Tensor input(Ref r) const { return inputs_.at(r.id); }
    const std::vector<size_t>& caches() const { return caches_; }
    const GuardedRows& storage(size_t i) const { return storage_[i]; }
    bool intact() const {
        for (const GuardedRows& g : storage_)
            if (!g.intact()) return false;
        return true;
    }

  private:
    Tensor filled(Type type, int64_t rows, int64_t cols, float scale, int64_t gap) {
        storage_.push_back(GuardedRows::make(type, rows, cols, gap));
        const Tensor t = storage_.back().tensor;
        if (!info(type).encode) return fill_with_any_codes(t, scale), t;
        std::normal_distribution<float> normal(0, scale);
        std::vector<float> row(static_cast<size_t>(cols));
        for (int64_t r = 0; r < rows; ++r) {
            for (float& x : row) x = normal(random_);
            info(type).encode(row.data(), t.data + r * t.stride, row.size());
        }
        return t;
    }
    void fill_with_any_codes(const Tensor& t, float scale) {
        visit_format(t.type, [&]<class Fmt>() {
            if constexpr (HasFactor<Fmt>)
                for (int64_t r = 0; r < t.rows; ++r)
                    for (int64_t i = 0; i < t.cols / Fmt::block_len; ++i) {
                        const auto b = arbitrary_block<Fmt>(random_, scale / 100, scale / 100);
                        std::memcpy(t.row<std::byte>(r) + i * static_cast<int64_t>(sizeof b), &b, sizeof b);
                    }
        });
    }
    Ref remember(Ref r, const Tensor& t) {
        inputs_[r.id] = t;
        return r;
    }

    StepShape shape_;
    std::mt19937 random_;
    const Backend& backend_;
    std::deque<GuardedRows> storage_;
    std::map<int32_t, Tensor> inputs_;
    std::vector<size_t> caches_;
};

// One op case, bound to memory, ready to run on one backend.
class CaseRun {
  public:
    CaseRun(const OpCase& c, Backend& backend, uint32_t seed)
        : operands_(c.shape, seed, backend), backend_(backend) {
        Builder b({std::max<int64_t>(1, c.shape.tokens), std::max<int64_t>(1, c.shape.outputs),
                   std::max<int64_t>(1, c.shape.sequences)});
        c.record(b, operands_);
        Backend* const list[] = {&backend};
        auto p = compile(std::move(b), {}, list);
        if (!p) {
            error = p.error().message();
            return;
        }
        program_ = std::move(*p);
        for (size_t i = 0; i < program_.instrs.size(); ++i) bind(i, c.shape);
    }

    // Runs every instruction (more than one after an expansion). Empty on success.
    std::string run() {
        if (!error.empty()) return error;
        auto r = backend_.run(bound_, nullptr);
        return r ? "" : r.error().message();
    }
    // Everything the case may write: outputs of the last instruction, and caches.
    std::vector<std::vector<float>> written() const {
        std::vector<std::vector<float>> all;
        for (const Ref r : program_.instrs.back().out) all.push_back(temps_.at(r.id).floats());
        for (const size_t i : operands_.caches()) all.push_back(operands_.storage(i).floats());
        return all;
    }
    std::vector<float> results() const {
        std::vector<float> all;
        for (const std::vector<float>& v : written()) all.insert(all.end(), v.begin(), v.end());
        return all;
    }
    // The largest nmse of one output or cache: a large cache does not hide the error of a small output.
    static double error_between(const CaseRun& expected, const CaseRun& actual) {
        const auto a = expected.written(), b = actual.written();
        if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
        double worst = 0;
        for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, nmse(a[i], b[i]));
        return worst;
    }
    bool intact() const {
        for (const auto& [id, g] : temps_)
            if (!g.intact()) return false;
        return operands_.intact();
    }
    std::vector<BoundInstr>& bound() { return bound_; }
    // Whether the first instruction's operand comes anew with each step.
    bool is_input(size_t operand) const {
        const Ref r = program_.instrs.front().in[operand];
        return r && value(r).kind == ValueKind::input;
    }
    size_t instructions() const { return program_.instrs.size(); }
    std::string error;

  private:
    // As the backend wants a matrix.
    Tensor placed(const Tensor& host, WeightUse use) {
        auto p = backend_.place(host, use);
        if (!p) {
            error = p.error().message();
            return host;
        }
        placed_.push_back(std::move(p->storage));
        return p->tensor;
    }
    void bind(size_t i, const StepShape& shape) {
        const Instr& instr = program_.instrs[i];
        BoundInstr b;
        b.instr = &instr;
        const auto use = instr.op == &embed_op ? WeightUse::lookup : WeightUse::matmul;
        for (const Ref r : instr.in) {
            b.in.push_back(operand(r, shape));
            if (r && value(r).kind == ValueKind::weight &&
                (b.in.back().rows > 1 || b.in.back().type != Type::f32))
                b.in.back() = placed(b.in.back(), use);
        }
        for (const Ref r : instr.out) b.out.push_back(operand(r, shape));
        b.in_dims.resize(b.in.size());
        b.out_dims.resize(b.out.size());
        scratch_.emplace_back(program_.scratch[i] + 64);
        std::byte* p = scratch_.back().data();
        b.scratch = {p + (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64, program_.scratch[i]};
        bound_.push_back(std::move(b));
    }
    const Value& value(Ref r) const { return program_.values[static_cast<size_t>(r.id)]; }
    Tensor operand(Ref r, const StepShape& shape) {
        if (!r) return {};
        const Value& v = value(r);
        if (v.kind == ValueKind::input) return operands_.input(r);
        if (v.kind != ValueKind::temp) return v.bound;
        auto [at, fresh] = temps_.try_emplace(r.id);
        if (fresh) at->second = GuardedRows::make(v.type, shape.rows(v.dim, v.rows), v.cols, 64);
        return at->second.tensor;
    }

    Operands operands_;
    Backend& backend_;
    Program program_;
    std::map<int32_t, GuardedRows> temps_;
    std::deque<std::vector<std::byte>> scratch_;
    std::vector<Buffer> placed_;
    std::vector<BoundInstr> bound_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline void keep_row(Tensor& t, int64_t r) {
    t.data += r * t.stride;
    t.rows = 1;
}

// Cuts every per-token operand of a bound instruction down to row r.
inline BoundInstr only_row(const BoundInstr& b, const std::vector<Tensor>& whole_out, int64_t r,
                           int64_t rows) {
    BoundInstr one = b;
    for (size_t i = 0; i < one.in.size(); ++i) {
        Tensor& t = one.in[i];
        if (!t || t.rows != rows || b.in_dims[i] != RowDim::tokens) continue;
        keep_row(t, r);
    }
    for (size_t i = 0; i < one.out.size(); ++i) {
        one.out[i].data += r * whole_out[i].stride;
        one.out[i].rows = 1;
    }
    return one;
}

// Whether each row of a batch is bit-equal to the same row run by itself.
inline bool rows_are_independent(const OpCase& c, Backend& backend, uint32_t seed) {
    CaseRun batch(c, backend, seed), alone(c, backend, seed);
    if (!batch.run().empty()) return false;
    for (const BoundInstr& whole : alone.bound())
        for (int64_t r = 0; r < c.shape.tokens; ++r) {
            BoundInstr b = whole;
            const OpDef* const part = whole.instr->op;
            const bool all = part == &norm_op || part == &moe_sum_op;
            for (size_t i = 0; i < b.in.size(); ++i)
                b.in_dims[i] = i < 2 || all ? RowDim::tokens : RowDim::fixed;
            BoundInstr one = only_row(b, whole.out, r, c.shape.tokens);
            if (!backend.run({&one, 1}, nullptr).ok()) return false;
        }
    return same_bits(batch.results(), alone.results());
}

// The same for attention: every token as a sequence of one row, over the cache of its own.
inline bool tokens_are_independent(const OpCase& c, Backend& backend, uint32_t seed) {
    CaseRun batch(c, backend, seed), alone(c, backend, seed);
    if (!batch.run().empty()) return false;
    const BoundInstr& whole = alone.bound().front();
    enum { q = 0, seq_rows = 3, positions = 4, page_table = 5 };
    int32_t one_row[] = {0, 1};
    for (int64_t s = 0; s < whole.in[seq_rows].rows; ++s) {
        const auto* rows = whole.in[seq_rows].row<int32_t>(s);
        for (int32_t t = rows[0]; t < rows[0] + rows[1]; ++t) {
            BoundInstr one = whole;
            for (const int i : {q, positions}) keep_row(one.in[i], t);
            keep_row(one.in[page_table], s);
            keep_row(one.out[0], t);
            keep_row(one.in[seq_rows], 0);
            one.in[seq_rows].data = reinterpret_cast<std::byte*>(one_row);
            if (!backend.run({&one, 1}, nullptr).ok()) return false;
        }
    }
    return same_bits(batch.results(), alone.results());
}

// The same for ops over states: every token as a step of its own. `at`: the operands seq_rows, positions and
// page_table.
struct OpOverStates {
    const OpDef* op;
    size_t at;
};
inline constexpr OpOverStates ops_over_states[] = {
    {&causal_conv_op, 4}, {&delta_rule_op, 5}, {&ssm_scan_op, 6}};
inline bool steps_are_independent(const OpCase& c, Backend& backend, uint32_t seed, size_t at) {
    CaseRun batch(c, backend, seed), alone(c, backend, seed);
    if (!batch.run().empty()) return false;
    if (alone.bound().size() > 1) return true;  // inputs that another op prepares: for their values alone
    const BoundInstr& whole = alone.bound().front();
    int32_t one_row[] = {0, 1};
    for (int64_t s = 0; s < whole.in[at].rows; ++s) {
        const auto *rows = whole.in[at].row<int32_t>(s), *pages = whole.in[at + 2].row<int32_t>(s);
        for (int32_t t = rows[0]; t < rows[0] + rows[1]; ++t) {
            // In place until the state stays behind, then from there into the other page.
            const int32_t before = t - rows[0], kept = pages[2] == pages[0] ? rows[1] : pages[1];
            const bool ends = before + 1 == rows[1];
            int32_t row_pages[state_page_columns] = {pages[0], 1,
                                                     before < kept && !ends ? pages[0] : pages[2]};
            if (before == kept) row_pages[1] = 0;
            if (before > kept) row_pages[0] = pages[2];
            BoundInstr one = whole;
            for (size_t i = 0; i < at; ++i)
                if (alone.is_input(i)) keep_row(one.in[i], t);
            keep_row(one.in[at + 1], t);
            keep_row(one.in[at + 2], s);
            one.in[at + 2].data = reinterpret_cast<std::byte*>(row_pages);
            keep_row(one.out[0], t);
            keep_row(one.in[at], 0);
            one.in[at].data = reinterpret_cast<std::byte*>(one_row);
            if (!backend.run({&one, 1}, nullptr).ok()) return false;
        }
    }
    return same_bits(batch.results(), alone.results());
}

}  // namespace nibble
