// matmul: activations times up to three weight matrices, with bias and residual.
// The reference multiplies the same dequantized weights in double precision.
#include "ggml/ops/common.h"

namespace nibble {
namespace {

void reference(const OpArgs& a) {
    const auto n = static_cast<size_t>(a.params->as<MatmulParams>().n_weights);
    const Tensor &x = a.in[0], &residual = a.in[1], &out = a.out[0];
    int64_t first = 0;
    for (size_t i = 0; i < n; ++i) {
        const Tensor &w = a.in[2 + i], &bias = a.in[2 + n + i];
        for (int64_t o = 0; o < w.rows; ++o) {
            const auto row = decoded_row(w, o);
            for (int64_t r = 0; r < x.rows; ++r) {
                double sum = 0;
                for (int64_t k = 0; k < x.cols; ++k)
                    sum +=
                        static_cast<double>(row[static_cast<size_t>(k)]) * static_cast<double>(x.row(r)[k]);
                if (bias) sum += bias.row(0)[o];
                if (residual) sum += residual.row(r)[first + o];
                out.row(r)[first + o] = static_cast<float>(sum);
            }
        }
        first += w.rows;
    }
}

Cost cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = 2.0 * static_cast<double>(a.out[0].rows * a.out[0].cols * a.in[0].cols);
    return c;
}

// Without bias and residual in the kernel: the bare product, then additions.
void expand(Builder& b, const Instr& instr) {
    const auto n = static_cast<size_t>(instr.params.as<MatmulParams>().n_weights);
    const std::span<const Ref> weights(instr.in.data() + 2, n), bias(instr.in.data() + 2 + n, n);
    const Ref residual = instr.in[1];
    bool plain = !residual;
    for (const Ref r : bias) plain = plain && !r;
    if (!b.require(!plain, "matmul is not supported by the backend")) return;
    if (n > 1) {
        b.require(false, "a backend without bias must take one weight at a time");
        return;
    }
    Ref y = matmul(b, weights[0], instr.in[0]);
    if (bias[0]) {
        if (!residual) return b.emit_into(add_op, {y, bias[0]}, AddParams{}, instr.out);
        y = add(b, y, bias[0]);
    }
    b.emit_into(add_op, {y, residual}, AddParams{}, instr.out);
}

// Tolerances of the arithmetic, on the same dequantized weights: f32 accumulation, or int8 activations. The
// terms of a lone output may nearly cancel.
double tolerance(const TypeInfo& type, int64_t outputs) {
    return type.dot == DotClass::real ? 1e-9 : outputs == 1 ? 1e-3 : 1e-4;
}

OpCase single(Type type, int64_t rows, int64_t n, int64_t k, bool bias, bool residual) {
    return {cat("matmul ", info(type).name, " ", rows, " rows, ", n, "x", k, bias ? " +bias" : "",
                residual ? " +residual" : ""),
            token_shape(rows), tolerance(info(type), rows * n), [=](Builder& b, CaseSink& s) {
                const Ref w = s.random_weight(b, type, n, k);
                const Ref x = s.random_input(b, RowDim::tokens, k);
                const Ref biases[] = {bias ? s.random_weight(b, Type::f32, 1, n) : Ref{}};
                matmul(b, w, x, {residual ? s.random_input(b, RowDim::tokens, n) : Ref{}, biases});
            }};
}

std::vector<OpCase> cases() {
    std::vector<OpCase> list;
    for (const TypeInfo& t : all_types()) {
        if (!t.decode) continue;
        const auto block = static_cast<int64_t>(t.block_len);
        for (const int64_t rows : awkward_rows)
            if (t.encode)
                list.push_back(
                    single(t.type, rows, 37, std::max<int64_t>(block, 96 / block * block), false, false));
        list.push_back(single(t.type, 1, 1, block, true, true));
        list.push_back(single(t.type, 4, 130, block * 5, true, true));
        list.push_back(single(t.type, 79, 19, std::max<int64_t>(block, 768 / block * block), true, false));
        if (block == 1)
            for (const int64_t k : {1, 7, 15, 17, 63}) list.push_back(single(t.type, 6, 21, k, true, true));
    }
    // Longer than the part of a weight that stays in the cache at once.
    for (const Type type : {Type::f32, Type::f16, Type::bf16, Type::q8_0, Type::nf4})
        list.push_back(single(type, 40, 70, 2112, true, false));
    // As wide as the feed-forward of a 70B model: more than a kernel keeps of a row.
    for (const int64_t rows : {1, 2, 40}) list.push_back(single(Type::q8_0, rows, 16, 28672, true, false));
    list.push_back(
        {"matmul three weights of different types", token_shape(9), 1e-4, [](Builder& b, CaseSink& s) {
             const Ref w[] = {s.random_weight(b, Type::q8_0, 64, 128), s.random_weight(b, Type::f16, 32, 128),
                              s.random_weight(b, Type::bf16, 31, 128)};
             const Ref bias[] = {s.random_weight(b, Type::f32, 1, 64), Ref{},
                                 s.random_weight(b, Type::f32, 1, 31)};
             matmul(b, w, s.random_input(b, RowDim::tokens, 128), {{}, bias});
         }});
    return list;
}

}  // namespace

const OpDef matmul_op{static_cast<uint16_t>(Op::matmul), "matmul", reference, cost, expand, cases};

Ref matmul(Builder& b, std::span<const Ref> weights, Ref x, const MatmulOpts& opts) {
    const Value& v = b.value(x);
    if (!b.require(!weights.empty() && weights.size() <= max_matmul_weights &&
                       (opts.bias.empty() || opts.bias.size() == weights.size()),
                   "matmul takes one to three weights and as many biases"))
        return {};
    int64_t total = 0;
    std::vector<Ref> in{x, opts.residual};
    for (const Ref w : weights) {
        const Value& m = b.value(w);
        if (!b.require(w && x && is_f32(b, x) && m.cols == v.cols && info(m.type).decode,
                       cat("matmul of weight '", m.name, "' [", m.rows, " x ", m.cols, "] with ", v.cols,
                           " columns")))
            return {};
        total += m.rows;
        in.push_back(w);
    }
    for (size_t i = 0; i < weights.size(); ++i) {
        const Ref bias = opts.bias.empty() ? Ref{} : opts.bias[i];
        const Value& m = b.value(bias);
        if (!b.require(
                !bias || (is_f32(b, bias) && m.rows == 1 && m.cols == b.value(weights[i]).rows),
                cat("bias '", m.name, "' of ", m.cols, " values for ", b.value(weights[i]).rows, " rows")))
            return {};
        in.push_back(bias);
    }
    if (!b.require(!opts.residual || (is_f32(b, opts.residual) && b.value(opts.residual).cols == total),
                   cat("residual of ", b.value(opts.residual).cols, " columns for a product of ", total)))
        return {};
    const MatmulParams p{static_cast<int32_t>(weights.size())};
    return b.emit(matmul_op, std::move(in), p, {{Type::f32, v.dim, v.rows, total}})[0];
}

Ref matmul(Builder& b, Ref weight, Ref x, const MatmulOpts& opts) {
    return matmul(b, std::span<const Ref>(&weight, 1), x, opts);
}

}  // namespace nibble
