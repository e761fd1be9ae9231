// Attention on the GPU in long contexts and mixed batches: against the reference, and row by row.
// What no sequence owns in the cache is filled with bytes that are NaNs of every type.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/ops/ops.h"
#include "ggml/ops/reference_backend.h"
#include "ggml/program/runner.h"
#include "tests/cuda/attention_problem.h"
#include "tests/cuda/mirror.h"
#include "tests/nmse.h"

using namespace nibble;

namespace {

using Part = AttentionPart;
using Problem = AttentionProblem;
using Data = AttentionData;

// One op on one backend, for any selection of the problem's tokens.
struct Subject {
    const Problem& c;
    const Data& data;
    Buffer k, v, sinks;
    std::unique_ptr<Runner> runner;

    Subject(const Problem& problem, const Data& d, Backend& backend) : c(problem), data(d) {
        const auto put = [&](std::span<const std::byte> bytes) {
            auto b = backend.allocate(bytes.size(), "a test");
            REQUIRE(b);
            REQUIRE(backend.upload(b->data.get(), bytes));
            return *b;
        };
        k = put(data.k);
        v = put(data.v);
        sinks = put(std::as_bytes(std::span(data.sinks)));
        const auto cache = [&](const Buffer& b, Type type, int32_t dim) {
            return Tensor{b.data.get(), data.pages * c.p.n_kv_heads * c.p.page_size,
                          dim,          static_cast<int64_t>(*row_bytes(type, dim)),
                          type,         Layout::rows};
        };
        const auto sequences = static_cast<int64_t>(c.parts.size());
        Builder b({data.tokens(), data.tokens(), sequences});
        const Ref q = b.input("q", Type::f32, RowDim::tokens, int64_t{c.p.n_heads} * c.p.head_dim);
        const AttentionBatch batch{b.input("seq_rows", Type::i32, RowDim::sequences, 2),
                                   b.input("positions", Type::i32, RowDim::tokens, 1),
                                   b.input("page_table", Type::i32, RowDim::sequences, data.max_pages)};
        const Tensor sink_row{sinks.data.get(),         1,         c.p.n_heads,
                              int64_t{c.p.n_heads} * 4, Type::f32, Layout::rows};
        const Ref keys = b.cache(cache(k, c.k_type, c.p.head_dim), "k"),
                  values = c.shared ? b.columns(keys, c.p.head_dim - c.p.v_head_dim, c.p.v_head_dim)
                                    : b.cache(cache(v, c.v_type, c.p.v_head_dim), "v");
        const Ref out =
            attention(b, q, keys, values, batch, c.p, c.sinks ? b.weight(sink_row, "sinks") : Ref{});
        b.mark_output(out, "out");
        Backend* const list[] = {&backend};
        auto program = compile(std::move(b), {}, list);
        REQUIRE(program);
        auto created = Runner::create(std::move(*program), list);
        REQUIRE(created);
        runner = std::make_unique<Runner>(std::move(*created));
    }

    // All tokens, or `count` of a sequence's from its i-th.
    std::vector<float> run() {
        return run(data.seq_rows, 0, data.tokens(), 0, static_cast<int64_t>(c.parts.size()));
    }
    std::vector<float> run(size_t sequence, int32_t i, int32_t count) {
        const int32_t rows[] = {0, count};
        return run(rows, data.seq_rows[2 * sequence] + i, count, static_cast<int64_t>(sequence), 1);
    }
    // Where the values of a sequence's i-th token begin.
    size_t at(size_t sequence, int32_t i) const {
        return static_cast<size_t>((data.seq_rows[2 * sequence] + i) * c.p.n_heads * c.p.v_head_dim);
    }

  private:
    std::vector<float> run(std::span<const int32_t> seq_rows, int64_t first, int64_t tokens, int64_t sequence,
                           int64_t sequences) {
        const auto copy = [&](std::span<const int32_t> from, std::string_view name) {
            std::copy(from.begin(), from.end(), runner->input(name).begin());
        };
        copy(seq_rows, "seq_rows");
        copy(std::span(data.positions).subspan(static_cast<size_t>(first), static_cast<size_t>(tokens)),
             "positions");
        copy(std::span(data.table)
                 .subspan(static_cast<size_t>(sequence * data.max_pages),
                          static_cast<size_t>(sequences * data.max_pages)),
             "page_table");
        const auto width = static_cast<size_t>(c.p.n_heads * c.p.head_dim);
        const auto part = std::span(data.q).subspan(static_cast<size_t>(first) * width,
                                                    static_cast<size_t>(tokens) * width);
        std::copy(part.begin(), part.end(), runner->input<float>("q").begin());
        REQUIRE(runner->run({tokens, tokens, sequences}, nullptr));
        const auto out = runner->output("out");
        REQUIRE(out);
        const auto n = static_cast<size_t>(tokens * c.p.n_heads * c.p.v_head_dim);
        return {out->begin(), out->begin() + static_cast<std::ptrdiff_t>(n)};
    }
};

std::vector<Problem> problems() {
    const Type f16 = Type::f16;
    std::vector<Problem> list;
    const auto add = [&](AttentionParams p, Type k, Type v, std::vector<Part> parts, bool sinks = false) {
        std::string label =
            cat(info(k).name, "/", info(v).name, " heads ", p.n_heads, "/", p.n_kv_heads, " of ", p.head_dim,
                "/", p.v_head_dim, " window ", p.window, " pages of ", p.page_size, ":");
        for (const Part& s : parts) label += cat(" ", s.tokens, " after ", s.context);
        list.push_back({std::move(label), p, k, v, std::move(parts), sinks});
    };
    // One long context, several, and rows of few and many tokens side by side.
    for (const Type t : {f16, Type::bf16, Type::q8_0, Type::q4_0}) {
        add(heads(4, 1, 64, 64), t, t, {{1500, 1}});
        add(heads(4, 2, 128, 128, 0, 16), t, t, {{700, 1}, {3, 1}, {255, 1}, {256, 1}}, true);
        add(heads(8, 2, 64, 64, 300, 64), t, t, {{600, 1}, {10, 30}, {511, 6}, {900, 4}});
        add(heads(2, 1, 192, 128, 0, 8), t, t, {{270, 20}});
        add(heads(2, 2, 256, 256), t, t, {{300, 3}, {0, 40}}, true);
    }
    // Splits of each length, and windows that begin in one of another.
    for (const Type t : {f16, Type::q8_0}) {
        add(heads(4, 1, 64, 64), t, t, {{5000, 1}});
        add(heads(2, 1, 128, 128, 1000, 16), t, t, {{4500, 2}, {33100, 1}});
        add(heads(2, 2, 64, 64, 1500), t, t, {{33300, 1}, {100, 1}});
    }
    for (const Type t : {f16, Type::bf16, Type::q8_0}) add(heads(2, 1, 512, 512), t, t, {{140, 1}, {0, 9}});
    for (const Type t : {f16, Type::bf16, Type::q8_0, Type::q4_0}) {  // heads of latent attention
        add(heads(16, 1, 576, 512), t, t, {{300, 1}, {5, 3}});
        list.back().shared = true;
    }
    add(heads(10, 1, 576, 512, 0, 8), f16, f16, {{500, 1}});
    list.back().shared = true;
    add(heads(2, 1, 576, 512), f16, f16, {{40, 2}});  // values of their own
    add(heads(5, 1, 96, 96), f16, f16, {{500, 9}, {0, 1}, {30, 2}});
    add(heads(20, 1, 64, 64), f16, f16, {{300, 1}, {40, 1}});
    add(heads(20, 1, 64, 64), f16, f16, {{300, 1}, {40, 5}});
    add(heads(2, 1, 112, 112, 40, 128), f16, f16, {{513, 1}, {20, 70}});
    add(heads(2, 1, 16, 48), f16, f16, {{257, 1}, {20, 33}});
    add(heads(4, 1, 80, 80, 0, 32, 20), f16, f16, {{513, 2}, {20, 17}});
    add(heads(4, 1, 80, 80, 0, 32, 20), f16, f16, {{90, 34}});
    add(heads(4, 1, 64, 128), Type::q8_0, Type::q4_0, {{400, 2}, {20, 17}});
    add(heads(4, 1, 128, 64), f16, Type::q8_0, {{400, 2}, {20, 17}});
    add(heads(2, 1, 64, 64), Type::f32, Type::q8_0, {{300, 2}, {20, 7}});
    add(heads(2, 1, 40, 24, 7, 12), f16, f16, {{300, 2}, {20, 7}});
    add(heads(2, 1, 64, 64, 0, 4), f16, f16, {{300, 2}, {20, 7}});
    list.back().spare_pages = 5000;
    return list;
}

void check_against_reference(const Problem& c, Backend& backend) {
    INFO(c.label);
    ReferenceBackend reference;
    const Data data(c);
    const auto expected = Subject(c, data, reference).run(), actual = Subject(c, data, backend).run();
    const double error = nmse(expected, actual);
    CHECK_MESSAGE(error <= 1e-6, "error " << error);
}

// Heads of `k` and `v` values, and so many tokens behind 70.
void check_sizes_of_queries(int32_t k, int32_t v, int32_t tokens, Backend& backend) {
    for (const float q_scale : {0.0f, 1e-6f, 300.0f, 1e6f})
        for (const Type type : {Type::f16, Type::bf16}) {
            Problem c{cat("queries of ", q_scale), heads(4, 2, k, v), type, type, {{70, tokens}}};
            c.q_scale = q_scale;
            if (q_scale > 1) c.p.scale /= q_scale;
            check_against_reference(c, backend);
        }
}

}  // namespace

TEST_CASE("attention on the GPU equals the reference in long contexts and mixed batches") {
    const auto backend = test_card();
    if (!backend) return;
    for (const Problem& c : problems()) check_against_reference(c, *backend);
}

// On cards of generation 9.0; the queries are rounded to f16 there.
TEST_CASE("attention by warpgroups equals the reference in long contexts and mixed batches") {
    const auto backend = test_card({.most_streamed = 0});
    if (!backend) return;
    for (const Problem& c : problems()) {
        int32_t tokens = 0;
        for (const Part& p : c.parts) tokens += p.tokens;
        if (tokens > 32 && c.p.head_dim <= 128) check_against_reference(c, *backend);
    }
    check_sizes_of_queries(128, 64, 33, *backend);
}

namespace {

// Pieces of so many tokens, cut as a scheduler might, against all at once; few, for the emulation is slow.
void check_company(const Problem& c, std::span<const int32_t> pieces, Backend& backend) {
    INFO(c.label);
    const Data data(c);
    Subject subject(c, data, backend);
    const auto all = subject.run();
    const auto width = static_cast<size_t>(c.p.n_heads * c.p.v_head_dim);
    for (size_t s = 0; s < c.parts.size(); ++s) {
        const int32_t tokens = c.parts[s].tokens;
        for (const int32_t piece : pieces)
            for (const int32_t i : {0, tokens / 2, tokens - piece}) {
                if (i < 0 || i + piece > tokens) continue;
                const auto some = subject.run(s, i, piece);
                const size_t bytes = static_cast<size_t>(piece) * width * sizeof(float);
                const bool same = std::memcmp(some.data(), all.data() + subject.at(s, i), bytes) == 0;
                CHECK_MESSAGE(same, piece << " tokens of sequence " << s << " from " << i);
            }
    }
}

}  // namespace

TEST_CASE("a row of attention on the GPU does not depend on its company, to the last bit") {
    const auto backend = test_card({.gemv = false});
    if (!backend) return;
    const int32_t pieces[] = {1, 7};
    for (const Problem& c : problems()) check_company(c, pieces, *backend);
}

// Up to eight rows, which have a kernel of their own: some tokens of a sequence against each by itself, and
// what is few altogether against its parts.
TEST_CASE("nor does one of few rows") {
    const auto backend = test_card();
    if (!backend) return;
    const int32_t one[] = {1};
    for (const Problem& c : problems()) {
        int32_t tokens = 0;
        for (const Part& p : c.parts) tokens += p.tokens;
        if (tokens <= 8) check_company(c, one, *backend);
        for (size_t s = 0; s < c.parts.size(); ++s) {
            Problem few = c;
            few.parts = {c.parts[s]};
            few.parts[0].tokens = std::min(few.parts[0].tokens, 8);
            if (tokens > 8) check_company(few, one, *backend);
        }
    }
}

TEST_CASE("nor does a row of attention by warpgroups") {
    const auto backend = test_card({.most_streamed = 0});
    if (!backend) return;
    const int32_t pieces[] = {33, 61};
    for (const Type t : {Type::f16, Type::bf16, Type::q8_0}) {
        check_company({"whole pages", heads(4, 1, 128, 128), t, t, {{100, 150}}}, pieces, *backend);
        check_company({"a window", heads(4, 2, 64, 64, 70), t, t, {{30, 90}, {300, 70}}}, pieces, *backend);
    }
    check_company({"small pages", heads(2, 1, 64, 64, 0, 16, 20), Type::f16, Type::f16, {{200, 140}}, true},
                  pieces, *backend);
}

TEST_CASE("attention on the GPU takes queries and keys of any size") {
    if (const auto backend = test_card()) check_sizes_of_queries(64, 64, 3, *backend);
}
