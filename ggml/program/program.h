// Values, instructions and the Builder that records them: a flat list of coarse ops in SSA form.
// Shapes are checked while recording; the first error sticks and is returned by compile().
#pragma once

#include <array>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ggml/base/cat.h"
#include "ggml/base/result.h"
#include "ggml/program/tensor.h"

namespace nibble {

struct OpDef;
class Builder;

// A handle to a value of the program being recorded. A default Ref means "absent" (optional operands).
struct Ref {
    int32_t id = -1;
    explicit operator bool() const { return id >= 0; }
    bool operator==(const Ref&) const = default;
};

enum class ValueKind : uint8_t {
    input,   // written by the caller before each step, at a fixed address, on every device that reads it
    weight,  // bound when recorded; constant
    cache,   // bound when recorded; read and written by ops that say so
    temp,    // lives in the arena between its instruction and its last use
    output,  // a temp that stays readable after the step
};

struct Value {
    ValueKind kind = ValueKind::temp;
    Type type = Type::f32;
    RowDim dim = RowDim::fixed;
    int64_t rows = 0;  // the most rows it can have
    int64_t cols = 0;
    std::string name;
    Tensor bound;           // weights and caches only
    int32_t base = -1;      // a column view of this value
    int64_t first_col = 0;  // of the view
    int32_t device = -1;    // index into the backends; set by compile()
    int64_t offset = -1;    // temps: in the device's arena; inputs: in the input block

    size_t row_stride() const { return *row_bytes(type, cols); }
    size_t bytes() const { return static_cast<size_t>(rows) * row_stride(); }
};

// Parameters of an op: any trivially copyable struct of at most 64 bytes, stored inside the instruction.
class Params {
  public:
    Params() = default;
    template <class P>
    requires(std::is_trivially_copyable_v<P> && sizeof(P) <= 64)
        Params(const P& p) {  // NOLINT: implicit on purpose
        std::memcpy(bytes_.data(), &p, sizeof p);
    }
    template <class P>
    const P& as() const {
        static_assert(std::is_trivially_copyable_v<P> && sizeof(P) <= 64);
        return *reinterpret_cast<const P*>(bytes_.data());
    }
    std::span<const std::byte> bytes() const { return bytes_; }

  private:
    alignas(8) std::array<std::byte, 64> bytes_{};
};

struct Instr {
    const OpDef* op = nullptr;
    std::vector<Ref> in;   // absent optional operands are empty Refs
    std::vector<Ref> out;  // written whole, once; caches appear among `in`
    Params params;
    int32_t layer = -1;   // -1: before the first layer; the number of layers: after the last
    std::string label;    // e.g. "blk.3.attn_q": profile, NaN check, calibration, importance files
    int32_t device = -1;  // set by compile()
    // Set by compile(): so many instructions later somebody reads its outputs for the last time; 0: they are
    // wanted behind the program.
    int64_t read_until = 0;
};

// The shape of a value an op is about to produce.
struct OutShape {
    Type type = Type::f32;
    RowDim dim = RowDim::fixed;
    int64_t rows = 0;
    int64_t cols = 0;
};

// Largest sizes of a step that the program is recorded for.
struct BatchShape {
    int64_t tokens = 1;
    int64_t outputs = 1;
    int64_t sequences = 1;
};

class Builder {
  public:
    explicit Builder(const BatchShape& limits) : limits_(limits) {}

    Ref input(std::string name, Type type, RowDim dim, int64_t cols, int64_t fixed_rows = 0);
    Ref weight(const Tensor& tensor, std::string name);  // absent when the tensor is
    Ref cache(const Tensor& tensor, std::string name);   // without memory: for a footprint, not for running
    Ref columns(Ref x, int64_t first, int64_t count);    // a view; `first` and `count` whole blocks
    void mark_output(Ref x, std::string name);           // keeps a temp readable after the step

    // Layer and label that the following instructions carry.
    void at(int32_t layer, std::string label = {}) { layer_ = layer, label_ = std::move(label); }
    int32_t layer() const { return layer_; }
    void label(std::string text) { label_ = std::move(text); }

    // Used by the ops: append an instruction with fresh outputs, or into outputs that exist (expansions).
    std::vector<Ref> emit(const OpDef& op, std::vector<Ref> in, const Params& params,
                          std::initializer_list<OutShape> out);
    void emit_into(const OpDef& op, std::vector<Ref> in, const Params& params, std::vector<Ref> out);
    // Records the first failure (`what` with the numbers) and returns false; used as a check.
    bool require(bool condition, std::string_view what);

    const Value& value(Ref r) const;  // an absent Ref gives an empty value
    const BatchShape& limits() const { return limits_; }
    bool failed() const { return !error_.what.empty(); }

  private:
    friend class Compiler;
    Ref add(Value v);
    Ref bound(ValueKind kind, const Tensor& tensor, std::string name);
    int64_t limit(RowDim dim, int64_t fixed) const;

    BatchShape limits_;
    std::vector<Value> values_;
    std::vector<Instr> instrs_;
    Error error_;
    int32_t layer_ = -1;
    std::string label_;
};

}  // namespace nibble
