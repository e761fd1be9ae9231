// Attention that shares its launch with the norms and the rotation of heads and with the storing of keys and
// values: the bits of launches of their own, in what it returns and in the cache.
#include <memory>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/program/runner.h"
#include "tests/cuda/attention_problem.h"
#include "tests/cuda/mirror.h"
#include "tests/ops/harness.h"

using namespace nibble;

namespace {

// A step of one token for each sequence, or more for some.
struct Step {
    AttentionProblem attention;
    RopeStyle style = RopeStyle::half;
    int32_t rot_dim = 0;
    bool norms = false;
    bool unstored = false;  // the first sequence's key and value, which the cache has already
    bool shares = true;     // a launch
};

struct Outcome {
    std::vector<float> out;
    std::vector<std::byte> k, v;
    int64_t joined = 0;
};

Buffer put(Backend& backend, std::span<const std::byte> bytes) {
    auto b = backend.allocate(bytes.size(), "a test");
    REQUIRE(b);
    REQUIRE(backend.upload(b->data.get(), bytes));
    return std::move(*b);
}

Outcome run(const Step& step, CudaBackend& card) {
    const AttentionProblem& c = step.attention;
    const AttentionParams& p = c.p;
    const AttentionData data(c);
    const int64_t tokens = data.tokens(), sequences = static_cast<int64_t>(c.parts.size());
    const Buffer k = put(card, data.k), v = put(card, data.v),
                 sinks = put(card, std::as_bytes(std::span(data.sinks)));
    std::vector<float> weights;
    for (int32_t i = 0; i < 2 * p.head_dim + step.rot_dim / 2; ++i)
        weights.push_back(i < 2 * p.head_dim ? 0.5f + 0.01f * static_cast<float>(i % 97)
                                             : 1 / static_cast<float>(1 + i - 2 * p.head_dim));
    const Buffer constants = put(card, std::as_bytes(std::span(weights)));
    const auto constant = [&](Builder& b, int64_t first, int64_t cols, std::string_view name) {
        return b.weight(Tensor{constants.data.get() + first * 4, 1, cols, cols * 4, Type::f32, Layout::rows},
                        std::string(name));
    };
    const auto cache = [&](Builder& b, const Buffer& of, Type type, int32_t dim, std::string_view name) {
        return b.cache(Tensor{of.data.get(), data.pages * p.n_kv_heads * p.page_size, dim,
                              static_cast<int64_t>(*row_bytes(type, dim)), type, Layout::rows},
                       std::string(name));
    };

    Builder b({tokens, tokens, sequences});
    const int64_t q_cols = int64_t{p.n_heads} * p.head_dim, k_cols = int64_t{p.n_kv_heads} * p.head_dim,
                  v_cols = int64_t{p.n_kv_heads} * p.v_head_dim, all = q_cols + k_cols + v_cols;
    const Ref x = b.input("x", Type::f32, RowDim::tokens, all);
    const AttentionBatch batch{b.input("seq_rows", Type::i32, RowDim::sequences, 2),
                               b.input("positions", Type::i32, RowDim::tokens, 1),
                               b.input("page_table", Type::i32, RowDim::sequences, data.max_pages)};
    const Ref slots = b.input("slots", Type::i32, RowDim::tokens, 1);
    const Ref table =
        step.rot_dim == 0
            ? Ref{}
            : rope_table(b, batch.positions, constant(b, 2 * p.head_dim, step.rot_dim / 2, "frequencies"));
    const Ref qkv = add(b, x, x);  // of a launch before
    Ref q = b.columns(qkv, 0, q_cols), key = b.columns(qkv, q_cols, k_cols);
    if (step.norms) {
        q = norm(b, q, constant(b, 0, p.head_dim, "q_norm"), {1e-6f, p.head_dim});
        key = norm(b, key, constant(b, p.head_dim, p.head_dim, "k_norm"), {1e-6f, p.head_dim});
    }
    const Ref keys = cache(b, k, c.k_type, p.head_dim, "k"),
              values = cache(b, v, c.v_type, p.v_head_dim, "v");
    const Ref rotated = rope_store(
        b, {q, key, b.columns(qkv, q_cols + k_cols, v_cols)}, table, slots, keys, values,
        {p.n_heads, p.n_kv_heads, p.head_dim, p.v_head_dim, step.rot_dim, p.page_size, step.style});
    const Tensor sink_row{sinks.data.get(), 1, p.n_heads, int64_t{p.n_heads} * 4, Type::f32, Layout::rows};
    b.mark_output(
        attention(b, rotated, keys, values, batch, p, c.sinks ? b.weight(sink_row, "sinks") : Ref{}), "out");
    Backend* const list[] = {&card};
    auto program = compile(std::move(b), {}, list);
    REQUIRE(program);
    auto runner = Runner::create(std::move(*program), list);
    REQUIRE(runner);

    const auto copy = [&](std::span<const int32_t> from, std::string_view name) {
        std::copy(from.begin(), from.end(), runner->input(name).begin());
    };
    std::vector<int32_t> of_slots;
    for (size_t s = 0; s < c.parts.size(); ++s)
        for (int32_t i = 0; i < c.parts[s].tokens; ++i) {
            const int32_t at = c.parts[s].context + i;
            const int32_t page =
                data.table[s * static_cast<size_t>(data.max_pages) + static_cast<size_t>(at / p.page_size)];
            of_slots.push_back(s == 0 && step.unstored ? -1 : page * p.page_size + at % p.page_size);
        }
    copy(data.seq_rows, "seq_rows");
    copy(data.positions, "positions");
    copy(data.table, "page_table");
    copy(of_slots, "slots");
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 1);
    const auto in = runner->input<float>("x");
    for (int64_t i = 0; i < tokens * all; ++i) in[static_cast<size_t>(i)] = normal(random);

    Outcome o;
    REQUIRE(runner->run({tokens, tokens, sequences}, nullptr));
    const auto out = runner->output("out");
    REQUIRE(out);
    o.out.assign(out->begin(), out->begin() + tokens * p.n_heads * p.v_head_dim);
    o.joined = card.joined_instructions();
    o.k.resize(k.size), o.v.resize(v.size);
    REQUIRE(card.download(o.k, k.data.get()));
    REQUIRE(card.download(o.v, v.data.get()));
    return o;
}

void check(const Step& step) {
    const AttentionParams& p = step.attention.p;
    INFO(step.attention.parts.size() << " sequences, the first behind " << step.attention.parts[0].context
                                     << ", heads " << p.n_heads << "/" << p.n_kv_heads << " of "
                                     << p.head_dim);
    const auto joined = test_card({.graphs = false}), apart = test_card({.graphs = false, .joined = false});
    if (!joined) return;
    const Outcome expected = run(step, *apart), actual = run(step, *joined);
    CHECK(same_bits(actual.out, expected.out));
    CHECK(actual.k == expected.k);
    CHECK(actual.v == expected.v);
    CHECK(actual.joined == (step.norms ? 2 : 0) + (step.shares ? 1 : 0));
    CHECK(std::ranges::all_of(actual.out, [](float x) { return std::isfinite(x); }));
}

AttentionProblem problem(AttentionParams p, Type type, std::vector<AttentionPart> parts) {
    AttentionProblem c{"", p, type, type, std::move(parts)};
    c.stored = false;
    return c;
}

}  // namespace

TEST_CASE("a token's key and value are attended to on their way into the cache") {
    for (const Type type : {Type::f16, Type::bf16}) {
        check({problem(heads(4, 1, 64, 64), type, {{1500, 1}}), RopeStyle::half, 64});
        check({problem(heads(8, 2, 64, 64), type,
                       {{0, 1}, {3, 1}, {15, 1}, {16, 1}, {127, 1}, {128, 1}, {129, 1}, {255, 1}}),
               RopeStyle::half, 64, true});
        check({problem(heads(4, 4, 128, 128, 0, 16), type, {{31, 1}, {32, 1}}), RopeStyle::adjacent, 64});
    }
    const Type f16 = Type::f16;
    check(
        {problem(heads(8, 1, 128, 128), f16, {{4095, 1}, {4096, 1}, {5000, 1}}), RopeStyle::half, 128, true});
    check({problem(heads(12, 1, 96, 96), f16, {{40, 1}, {300, 1}}), RopeStyle::half, 96, true});
    check({problem(heads(32, 2, 80, 64), f16, {{20, 1}}), RopeStyle::adjacent, 80});
    check({problem(heads(6, 2, 64, 64), f16, {{47, 1}}), RopeStyle::half, 0});  // without a rotation
    Step windowed{problem(heads(4, 2, 64, 64, 300, 32, 30), f16, {{511, 1}, {600, 1}, {2, 1}}),
                  RopeStyle::half, 32, true};
    windowed.attention.sinks = true;
    check(windowed);
}

TEST_CASE("attention takes what is brought by itself alone") {
    const Type f16 = Type::f16;
    Step known{problem(heads(4, 1, 64, 64), f16, {{70, 1}, {80, 1}}), RopeStyle::half, 64};
    known.attention.stored = known.unstored = true;
    check(known);
    // Several tokens of a sequence, more heads to a key than a tile has rows, other caches.
    check({problem(heads(4, 1, 64, 64), f16, {{70, 2}, {80, 1}}), RopeStyle::half, 64, true, false, false});
    check({problem(heads(24, 1, 64, 64), f16, {{70, 1}}), RopeStyle::half, 64, true, false, false});
    check({problem(heads(4, 1, 64, 64), Type::q8_0, {{70, 1}}), RopeStyle::half, 64, false, false, false});
}
