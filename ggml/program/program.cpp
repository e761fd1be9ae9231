// Builder: records values and instructions and keeps the first failed check.
// Nothing here allocates tensor memory.
#include "ggml/program/program.h"

#include "ggml/base/checked.h"
#include "ggml/program/op.h"

namespace nibble {

int64_t Builder::limit(RowDim dim, int64_t fixed) const {
    return StepShape{limits_.tokens, limits_.outputs, limits_.sequences}.rows(dim, fixed);
}

Ref Builder::add(Value v) {
    if (failed()) return {};
    const auto stride = row_bytes(v.type, v.cols);
    size_t bytes = 0;
    if (!require(v.rows >= 0 && v.cols > 0 && stride, cat("value '", v.name, "' has the impossible shape ",
                                                          v.rows, " x ", v.cols, " of ", info(v.type).name)))
        return {};
    if (!require(checked_mul(*stride, static_cast<size_t>(v.rows), bytes), "a value's size overflows"))
        return {};
    values_.push_back(std::move(v));
    return {static_cast<int32_t>(values_.size() - 1)};
}

Ref Builder::input(std::string name, Type type, RowDim dim, int64_t cols, int64_t fixed_rows) {
    Value v;
    v.kind = ValueKind::input;
    v.type = type;
    v.dim = dim;
    v.rows = limit(dim, fixed_rows);
    v.cols = cols;
    v.name = std::move(name);
    return add(std::move(v));
}

Ref Builder::weight(const Tensor& tensor, std::string name) {
    return tensor ? bound(ValueKind::weight, tensor, std::move(name)) : Ref{};
}

Ref Builder::cache(const Tensor& tensor, std::string name) {
    return bound(ValueKind::cache, tensor, std::move(name));
}

Ref Builder::bound(ValueKind kind, const Tensor& tensor, std::string name) {
    Value v;
    v.kind = kind;
    v.type = tensor.type;
    v.rows = tensor.rows;
    v.cols = tensor.cols;
    v.name = std::move(name);
    v.bound = tensor;
    return add(std::move(v));
}

Ref Builder::columns(Ref x, int64_t first, int64_t count) {
    const Value& of = value(x);
    const bool whole = row_bytes(of.type, first) && row_bytes(of.type, count);
    const bool inside = first >= 0 && count > 0 && count <= of.cols && first <= of.cols - count;
    if (!require(x && whole && inside,
                 cat("columns ", first, " to ", first + count, " of a value with ", of.cols)))
        return {};
    if (!require(of.bound.layout == Layout::rows, "columns of packed rows")) return {};
    Value v = of;
    if (v.bound) v.bound.data += *row_bytes(v.type, first);
    v.bound.cols = count;
    v.cols = count;
    v.first_col = of.first_col + first;
    v.base = of.base >= 0 ? of.base : x.id;
    return add(std::move(v));
}

void Builder::mark_output(Ref x, std::string name) {
    if (!require(bool(x) && value(x).kind == ValueKind::temp && value(x).base < 0,
                 "only a computed value can be an output"))
        return;
    Value& v = values_[static_cast<size_t>(x.id)];
    v.kind = ValueKind::output;
    v.name = std::move(name);
}

std::vector<Ref> Builder::emit(const OpDef& op, std::vector<Ref> in, const Params& params,
                               std::initializer_list<OutShape> out) {
    std::vector<Ref> refs;
    for (const OutShape& o : out) {
        Value v;
        v.type = o.type;
        v.dim = o.dim;
        v.rows = limit(o.dim, o.rows);
        v.cols = o.cols;
        v.name = std::string(op.name);
        refs.push_back(add(std::move(v)));
    }
    emit_into(op, std::move(in), params, refs);
    return refs;
}

void Builder::emit_into(const OpDef& op, std::vector<Ref> in, const Params& params, std::vector<Ref> out) {
    if (failed()) return;
    instrs_.push_back({&op, std::move(in), std::move(out), params, layer_, label_, -1});
}

bool Builder::require(bool condition, std::string_view what) {
    if (condition || failed()) return condition && !failed();
    const std::string where = label_.empty() ? cat("layer ", layer_) : label_;
    error_ = {ErrorCode::corrupt, where, std::string(what),
              "the model's tensors do not fit together; its file is damaged or not supported"};
    return false;
}

const Value& Builder::value(Ref r) const {
    static const Value absent;
    return r ? values_[static_cast<size_t>(r.id)] : absent;
}

Cost operand_traffic(const OpArgs& args) {
    Cost c;
    const auto bytes = [](const Tensor& t) {
        return t ? static_cast<double>(t.rows) * static_cast<double>(*row_bytes(t.type, t.cols)) : 0.0;
    };
    for (const Tensor& t : args.in) c.bytes_read += bytes(t);
    for (const Tensor& t : args.out) c.bytes_written += bytes(t);
    return c;
}

}  // namespace nibble
