// glu, activate, add, scale_by_position, take_rows: the ops that work element by element or row by row.
// Gated units: Shazeer 2020 (arXiv:2002.05202); GELU: Hendrycks & Gimpel 2016 (arXiv:1606.08415).
#include <cstring>
#include <numbers>

#include "ggml/ops/common.h"

namespace nibble {
namespace {

double activated(Activation act, double x) {
    switch (act) {
        case Activation::silu:
            return x / (1 + std::exp(-x));
        case Activation::gelu_tanh:
            return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        case Activation::gelu_erf:
            return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
        case Activation::relu:
            return x > 0 || std::isnan(x) ? x : 0;
        case Activation::tanh:
            return std::tanh(x);
        case Activation::none:
            return x;
        case Activation::gelu_quick:
            return x / (1 + std::exp(-1.702 * x));
        case Activation::sigmoid:
            return 1 / (1 + std::exp(-x));
        case Activation::relu_squared:
            return x > 0 || std::isnan(x) ? x * x : 0;
        case Activation::softplus:
            return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
        case Activation::xielu:  // see xielu()
            return x;
    }
    return x;
}

double xielu(const XieluParams& p, double x) {
    const double curve = x > 0 ? p.alpha_p * x * x : p.alpha_n * (std::expm1(x) - x);
    return curve + p.beta * x;
}

void glu_reference(const OpArgs& a) {
    const Tensor &x = a.in[0], &out = a.out[0];
    const auto& p = a.params->as<GluParams>();
    for (int64_t r = 0; r < out.rows; ++r)
        for (int64_t i = 0; i < out.cols; ++i) {
            double gate = x.row(r)[a.in[1] ? i / (out.cols / x.cols) : i],
                   up = a.in[1] ? a.in[1].row(r)[i] : x.row(r)[out.cols + i];
            if (p.limit > 0 && gate > p.limit) gate = p.limit;
            if (p.limit > 0 && std::fabs(up) > p.limit) up = std::copysign(p.limit, up);
            out.row(r)[i] = static_cast<float>(activated(p.act, gate) * (up + p.up_shift));
        }
}

void activate_reference(const OpArgs& a) {
    const auto& p = a.params->as<ActivateParams>();
    const Tensor &x = a.in[0], &out = a.out[0];
    for (int64_t r = 0; r < out.rows; ++r)
        for (int64_t i = 0; i < out.cols; ++i) {
            const double u = static_cast<double>(p.in_scale) * x.row(r)[i];
            out.row(r)[i] = static_cast<float>(
                p.out_scale * (p.act == Activation::xielu ? xielu(p.xielu, u) : activated(p.act, u)));
        }
}

void add_reference(const OpArgs& a) {
    const Tensor &x = a.in[0], &y = a.in[1], &out = a.out[0];
    const float scale = a.params->as<AddParams>().scale;
    for (int64_t r = 0; r < out.rows; ++r)
        for (int64_t i = 0; i < out.cols; ++i)
            out.row(r)[i] = x.row(r)[i] + scale * y.row(y.rows == 1 ? 0 : r)[i];
}

void scale_by_position_reference(const OpArgs& a) {
    const auto& p = a.params->as<PositionScaleParams>();
    const Tensor &x = a.in[0], &positions = a.in[1], &out = a.out[0];
    for (int64_t t = 0; t < out.rows; ++t) {
        const double periods = *positions.row<int32_t>(t) / p.period;
        const double scale = 1 + static_cast<double>(p.beta) * std::log(1 + periods);
        for (int64_t i = 0; i < out.cols; ++i) out.row(t)[i] = static_cast<float>(x.row(t)[i] * scale);
    }
}

void take_rows_reference(const OpArgs& a) {
    const Tensor &x = a.in[0], &rows = a.in[1], &out = a.out[0];
    for (int64_t r = 0; r < out.rows; ++r)
        std::memcpy(out.row(r), x.row(*rows.row<int32_t>(r)), static_cast<size_t>(out.cols) * sizeof(float));
}

Cost elementwise_cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = 2.0 * static_cast<double>(a.out[0].rows * a.out[0].cols);
    return c;
}

Cost take_rows_cost(const OpArgs& a) {
    const double bytes = 4.0 * static_cast<double>(a.out[0].rows * a.out[0].cols);
    return {0, bytes, bytes};
}

constexpr Activation all_activations[] = {
    Activation::silu,         Activation::gelu_tanh, Activation::gelu_erf,   Activation::relu,
    Activation::tanh,         Activation::none,      Activation::gelu_quick, Activation::sigmoid,
    Activation::relu_squared, Activation::softplus};

std::vector<OpCase> glu_cases() {
    std::vector<OpCase> list;
    for (const Activation act : all_activations)
        for (const int64_t rows : awkward_rows)
            for (const int64_t width : {1, 37, 768})
                list.push_back({cat("glu ", static_cast<int>(act), " ", rows, "x", width), token_shape(rows),
                                1e-11, [=](Builder& b, CaseSink& s) {
                                    glu(b, s.random_input(b, RowDim::tokens, 2 * width, 4), {act});
                                }});
    for (const int64_t rows : awkward_rows)
        for (const int64_t width : {1, 37, 768})
            list.push_back(
                {cat("glu limited ", rows, "x", width), token_shape(rows), 1e-11,
                 [=](Builder& b, CaseSink& s) {
                     glu(b, s.random_input(b, RowDim::tokens, 2 * width, 6), {Activation::gelu_quick, 7, 1});
                 }});
    for (const int64_t rows : awkward_rows)
        for (const int64_t group : {3, 128, 1500})
            list.push_back({cat("glu by heads ", rows, "x", group), token_shape(rows), 1e-11,
                            [=](Builder& b, CaseSink& s) {
                                const Ref gate = s.random_input(b, RowDim::tokens, 5, 4);
                                const Ref up = s.random_input(b, RowDim::tokens, 5 * group);
                                glu(b, gate, up, {Activation::sigmoid});
                            }});
    for (const int64_t rows : awkward_rows)
        for (const int64_t width : {5, 1031})
            list.push_back({cat("glu of two ", rows, "x", width), token_shape(rows), 1e-11,
                            [=](Builder& b, CaseSink& s) {
                                const Ref gate = s.random_input(b, RowDim::tokens, width, 4);
                                const Ref up = s.random_input(b, RowDim::tokens, width);
                                glu(b, gate, up, {Activation::sigmoid});
                            }});
    return list;
}

std::vector<OpCase> activate_cases() {
    std::vector<OpCase> list;
    for (const Activation act : all_activations)
        for (const int64_t rows : awkward_rows)
            for (const int64_t width : {1, 37, 2051})
                list.push_back(
                    {cat("activate ", static_cast<int>(act), " ", rows, "x", width), token_shape(rows), 1e-11,
                     [=](Builder& b, CaseSink& s) {
                         activate(b, s.random_input(b, RowDim::tokens, width, 4), {act, 0.75f, 1.5f});
                     }});
    for (const int64_t rows : awkward_rows)
        for (const float range : {0.01f, 8.0f, 200.0f})
            list.push_back({cat("activate xielu ", rows, " to ", range), token_shape(rows), 1e-11,
                            [=](Builder& b, CaseSink& s) {
                                activate(b, s.random_input(b, RowDim::tokens, 1037, range),
                                         {Activation::xielu, 1, 1, {0.8f, 40, 0.5f}});
                            }});
    return list;
}

std::vector<OpCase> add_cases() {
    std::vector<OpCase> list;
    for (const int64_t rows : awkward_rows)
        for (const int64_t cols : {1, 67})
            for (const bool vector : {false, true})
                list.push_back({cat("add ", rows, "x", cols, vector ? " + vector" : ""), token_shape(rows),
                                1e-13, [=](Builder& b, CaseSink& s) {
                                    const Ref x = s.random_input(b, RowDim::tokens, cols);
                                    add(b, x,
                                        vector ? s.random_weight(b, Type::f32, 1, cols)
                                               : s.random_input(b, RowDim::tokens, cols),
                                        {0.5f});
                                }});
    return list;
}

std::vector<OpCase> scale_by_position_cases() {
    return {
        {"scale_by_position", token_shape(5), 1e-12, [](Builder& b, CaseSink& s) {
             const Ref x = s.random_input(b, RowDim::tokens, 1037);
             scale_by_position(b, x, s.int_input(b, RowDim::tokens, 1, {0, 31, 32, 95, 262143}), {0.1f, 32});
         }}};
}

std::vector<OpCase> take_rows_cases() {
    return {{"take_rows",
             {6, 3, 1},
             0,
             [](Builder& b, CaseSink& s) {
                 const Ref x = s.random_input(b, RowDim::tokens, 19);
                 take_rows(b, x, s.int_input(b, RowDim::outputs, 1, {5, 0, 3}));
             }},
            {"take_rows of none", {6, 0, 1}, 0, [](Builder& b, CaseSink& s) {
                 const Ref x = s.random_input(b, RowDim::tokens, 19);
                 take_rows(b, x, s.int_input(b, RowDim::outputs, 1, {}));
             }}};
}

}  // namespace

const OpDef glu_op{
    static_cast<uint16_t>(Op::glu), "glu", glu_reference, elementwise_cost, nullptr, glu_cases};
const OpDef activate_op{static_cast<uint16_t>(Op::activate),
                        "activate",
                        activate_reference,
                        elementwise_cost,
                        nullptr,
                        activate_cases};
const OpDef add_op{
    static_cast<uint16_t>(Op::add), "add", add_reference, elementwise_cost, nullptr, add_cases};
const OpDef scale_by_position_op{static_cast<uint16_t>(Op::scale_by_position),
                                 "scale_by_position",
                                 scale_by_position_reference,
                                 elementwise_cost,
                                 nullptr,
                                 scale_by_position_cases};
const OpDef take_rows_op{static_cast<uint16_t>(Op::take_rows),
                         "take_rows",
                         take_rows_reference,
                         take_rows_cost,
                         nullptr,
                         take_rows_cases};

Ref glu(Builder& b, Ref x, GluParams p) {
    const Value& v = b.value(x);
    if (!b.require(x && is_f32(b, x) && v.cols % 2 == 0 && p.act != Activation::xielu,
                   cat("glu of ", v.cols, " columns")))
        return {};
    return b.emit(glu_op, {x, Ref{}}, p, {{Type::f32, v.dim, v.rows, v.cols / 2}})[0];
}

Ref glu(Builder& b, Ref gate, Ref up, GluParams p) {
    const Value &v = b.value(gate), &w = b.value(up);
    if (!b.require(gate && up && is_f32(b, gate) && is_f32(b, up) && v.cols > 0 && w.cols % v.cols == 0 &&
                       v.dim == w.dim && v.rows == w.rows && p.act != Activation::xielu,
                   cat("glu of ", v.cols, " and ", w.cols, " columns")))
        return {};
    return b.emit(glu_op, {gate, up}, p, {{Type::f32, v.dim, v.rows, w.cols}})[0];
}

Ref activate(Builder& b, Ref x, ActivateParams p) {
    const Value& v = b.value(x);
    if (!b.require(x && is_f32(b, x), "activate needs f32")) return {};
    return b.emit(activate_op, {x}, p, {{Type::f32, v.dim, v.rows, v.cols}})[0];
}

Ref add(Builder& b, Ref x, Ref y, AddParams p) {
    const Value &v = b.value(x), &w = b.value(y);
    const bool rows = w.dim == v.dim ? w.rows == v.rows : w.dim == RowDim::fixed && w.rows == 1;
    if (!b.require(x && y && is_f32(b, x) && is_f32(b, y) && v.cols == w.cols && rows,
                   cat("adding ", w.cols, " columns to ", v.cols)))
        return {};
    return b.emit(add_op, {x, y}, p, {{Type::f32, v.dim, v.rows, v.cols}})[0];
}

Ref scale_by_position(Builder& b, Ref x, Ref positions, PositionScaleParams p) {
    const Value& v = b.value(x);
    if (!b.require(
            x && is_f32(b, x) && is_i32(b, positions) && b.value(positions).dim == v.dim && p.period > 0,
            cat("scaling by position with a period of ", p.period)))
        return {};
    return b.emit(scale_by_position_op, {x, positions}, p, {{Type::f32, v.dim, v.rows, v.cols}})[0];
}

Ref take_rows(Builder& b, Ref x, Ref rows) {
    if (!b.require(x && is_f32(b, x) && is_i32(b, rows), "take_rows needs f32 rows and i32 indices"))
        return {};
    return b.emit(take_rows_op, {x, rows}, {}, {{Type::f32, b.value(rows).dim, 0, b.value(x).cols}})[0];
}

}  // namespace nibble
