// embed: looks token ids up in a table of any type.
// Contract in ops.h.
#include "ggml/ops/common.h"

namespace nibble {
namespace {

void reference(const OpArgs& a) {
    const Tensor &ids = a.in[0], &table = a.in[1], &drawn = a.in[2], &out = a.out[0];
    const float scale = a.params->as<EmbedParams>().scale;
    for (int64_t t = 0; t < out.rows; ++t) {
        const int64_t id = embedded_row(*ids.row<int32_t>(t), drawn.row(0), drawn.rows);
        float* y = out.row(t);
        if (id < 0 || id >= table.rows) {
            std::fill(y, y + out.cols, 0.0f);
            continue;
        }
        const auto x = decoded_row(table, id);
        for (int64_t i = 0; i < out.cols; ++i) y[i] = x[static_cast<size_t>(i)] * scale;
    }
}

Cost cost(const OpArgs& a) {
    const double row = static_cast<double>(*row_bytes(a.in[1].type, a.in[1].cols));
    const auto n = static_cast<double>(a.out[0].rows);
    return {n * static_cast<double>(a.out[0].cols), n * row, n * static_cast<double>(a.out[0].cols) * 4};
}

std::vector<OpCase> cases() {
    std::vector<OpCase> list;
    for (const TypeInfo& type : all_types()) {
        if (!type.decode || !type.encode) continue;
        list.push_back(
            {cat("embed ", type.name), token_shape(5), 0, [t = type.type](Builder& b, CaseSink& s) {
                 const Ref ids = s.int_input(b, RowDim::tokens, 1, {0, 6, 2, -1, 7});
                 embed(b, ids, s.random_weight(b, t, 7, 512), {1.5f});
             }});
    }
    list.push_back({"embed of what was drawn", token_shape(4), 0, [](Builder& b, CaseSink& s) {
                        const Ref ids = s.int_input(b, RowDim::tokens, 1, {-2, 3, -1, -7});
                        const Ref table = s.random_weight(b, Type::q8_0, 7, 512);
                        embed(b, ids, table, {1}, s.random_cache(b, Type::f32, 2, 1));
                    }});
    return list;
}

}  // namespace

const OpDef embed_op{static_cast<uint16_t>(Op::embed), "embed", reference, cost, nullptr, cases};

Ref embed(Builder& b, Ref ids, Ref table, EmbedParams p, Ref drawn) {
    if (!b.require(is_i32(b, ids) && info(b.value(table).type).decode &&
                       (!drawn || (is_f32(b, drawn) && b.value(drawn).cols == 1)),
                   "embed needs i32 ids and a decodable table"))
        return {};
    return b.emit(embed_op, {ids, table, drawn}, p, {{Type::f32, RowDim::tokens, 0, b.value(table).cols}})[0];
}

}  // namespace nibble
