// CpuBackend beyond the op sweep: prefill in chunks, NaN, hostile ids, selection of the instruction set.
// Everything loops over the instruction sets that this machine can run.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"
#include "ggml/types/list.h"
#include "tests/cpu/support.h"
#include "tests/nmse.h"

using namespace nibble;

namespace {

// Of those compiled in, which are listed plainest first.
const KernelTable& best_table() {
    const KernelTable* best = nullptr;
    for (const KernelTable* t : cpu::compiled_tables())
        if (t->available(cpu::features())) best = t;
    return *best;
}

}  // namespace

TEST_CASE("an instruction set is chosen by name, or the best one; others are refused with a reason") {
    CHECK((*cpu::select_table(""))->available(cpu::features()));
    CHECK(*cpu::select_table("auto") == &best_table());
    CHECK((*cpu::select_table("scalar"))->name == "scalar");
    CHECK(*cpu::select_table("", cpu::Features{}) == *cpu::select_table("scalar"));
    CHECK(cpu::select_table("mmx").error().code == ErrorCode::invalid_argument);
    if (cpu::compiled_tables().size() > 1) {
        const KernelTable& best = *cpu::compiled_tables().back();
        const auto refused = cpu::select_table(best.name, cpu::Features{});
        REQUIRE(!refused);
        CHECK(refused.error().code == ErrorCode::unsupported);
        CHECK(refused.error().message().find(best.needs) != std::string::npos);
    }
    CHECK(!CpuBackend::create({-1, ""}));
    CHECK(!CpuBackend::create({1 << 20, ""}));
    CHECK((*CpuBackend::create({2, "scalar"}))->device().description.find("scalar, 2 threads") !=
          std::string::npos);
}

TEST_CASE("packed weights that share memory: aligned, apart from each other, and one outlives the rest") {
    constexpr int64_t k = 64, rows = 40;
    std::vector<float> values(rows * k);
    std::iota(values.begin(), values.end(), 1.0f);
    const Tensor w{reinterpret_cast<std::byte*>(values.data()), rows, k, k * 4, Type::f32, Layout::rows};
    for (const KernelTable* table : tables()) {
        auto b = backend(*table, 1);
        std::vector<PlacedWeight> placed;
        for (int i = 0; i < 20; ++i) placed.push_back(*b->place(w, WeightUse::matmul));
        const auto bytes = [](const PlacedWeight& p) {
            return std::vector(p.storage.data.get(), p.storage.data.get() + p.storage.size);
        };
        for (const PlacedWeight& p : placed) {
            CHECK(reinterpret_cast<uintptr_t>(p.tensor.data) % 64 == 0);
            CHECK(p.storage.size == b->packed_bytes(w, WeightUse::matmul));
            CHECK(bytes(p) == bytes(placed[0]));
        }
        const auto expected = bytes(placed[0]);
        placed.erase(placed.begin(), placed.end() - 1);
        b.reset();
        CHECK(bytes(placed[0]) == expected);
    }
}

TEST_CASE("memory: aligned, refused when absurd") {
    auto b = backend(*tables()[0], 1);
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{3} << 20}) {
        auto buffer = b->allocate(bytes, "test");
        REQUIRE(buffer);
        CHECK(reinterpret_cast<uintptr_t>(buffer->data.get()) % 64 == 0);
        CHECK(buffer->size == bytes);
    }
    CHECK(!b->allocate(std::numeric_limits<size_t>::max() - 3, "test"));
    CHECK(!b->allocate(size_t{1} << 60, "test"));
    CHECK(b->device().total_bytes >= b->device().free_bytes);
    std::vector<float> v(4);
    Tensor t = tensor(v, 1, 4);
    CHECK(b->place(t, WeightUse::matmul));
    t.layout = Layout::packed;
    CHECK(!b->place(t, WeightUse::matmul));
}

// A sequence of `total` tokens, prefilled in chunks of `chunk`; returns the attention outputs of tokens from
// `from` on, and zeros before them.
std::vector<float> prefill(CpuBackend& b, Type type, AttentionParams p, int64_t total, int64_t chunk,
                           int64_t from = 0) {
    const int64_t per_seq = total / p.page_size + 1, cache_rows = per_seq * p.n_kv_heads * p.page_size;
    const auto width = [](int32_t heads, int32_t dim) { return int64_t{heads} * dim; };
    std::vector<float> q = normal(static_cast<size_t>(total * width(p.n_heads, p.head_dim)), 1);
    std::vector<float> k = normal(static_cast<size_t>(total * width(p.n_kv_heads, p.head_dim)), 2);
    std::vector<float> v = normal(static_cast<size_t>(total * width(p.n_kv_heads, p.v_head_dim)), 3);
    // What was never stored is NaN: it must not reach any result.
    const auto nan = [&](int32_t dim) {
        return std::vector<float>(static_cast<size_t>(cache_rows * dim), std::nanf(""));
    };
    Encoded k_cache = encoded(type, nan(p.head_dim), cache_rows, p.head_dim);
    Encoded v_cache = encoded(type, nan(p.v_head_dim), cache_rows, p.v_head_dim);
    k_cache.tensor.layout = b.key_layout(type, p.page_size);
    if (k_cache.tensor.layout == Layout::key_tiles) key_tiles_from_rows(k_cache.tensor, k_cache.bytes);
    std::vector<int32_t> pages;
    for (int64_t i = 0; i < per_seq; ++i) pages.push_back(static_cast<int32_t>(per_seq - 1 - i));
    std::vector<float> out(static_cast<size_t>(total * width(p.n_heads, p.v_head_dim)));
    std::vector<float> sinks = normal(static_cast<size_t>(p.n_heads), 4);
    const RopeStoreParams store{p.n_heads, p.n_kv_heads, p.head_dim,     p.v_head_dim,
                                0,         p.page_size,  RopeStyle::half};
    for (int64_t at = 0, n = 0; at < total; at += n) {
        n = at < from ? std::min<int64_t>(512, from - at) : std::min(chunk, total - at);
        std::vector<int32_t> positions, slots, seq{0, static_cast<int32_t>(n)};
        for (int64_t i = at; i < at + n; ++i) {
            positions.push_back(static_cast<int32_t>(i));
            slots.push_back(pages[static_cast<size_t>(i / p.page_size)] * p.page_size +
                            static_cast<int32_t>(i % p.page_size));
        }
        const auto part = [&](std::vector<float>& x, int64_t cols) {
            Tensor t = tensor(x, n, cols);
            t.data += at * t.stride;
            return t;
        };
        std::vector<float> rotated(static_cast<size_t>(n * width(p.n_heads, p.head_dim)));
        Tensor rq = tensor(rotated, n, width(p.n_heads, p.head_dim));
        run(b, rope_store_op, store,
            {part(q, width(p.n_heads, p.head_dim)),
             part(k, width(p.n_kv_heads, p.head_dim)),
             part(v, width(p.n_kv_heads, p.v_head_dim)),
             {},
             tensor(slots, n, 1),
             k_cache.tensor,
             v_cache.tensor},
            {rq});
        if (at < from) continue;
        run(b, attention_op, p,
            {rq, k_cache.tensor, v_cache.tensor, tensor(seq, 1, 2), tensor(positions, n, 1),
             tensor(pages, 1, per_seq), tensor(sinks, 1, p.n_heads)},
            {part(out, width(p.n_heads, p.v_head_dim))});
    }
    return out;
}

TEST_CASE(
    "attention: prefill in chunks of 1, 7 and 512 gives the same bits, and no NaN from unwritten slots") {
    struct Variant {
        Type type;
        AttentionParams p;
    };
    const Variant variants[] = {
        {Type::f16, {4, 2, 64, 64, 32, 0, 0.125f, 0}}, {Type::bf16, {6, 2, 32, 48, 16, 100, 0.2f, 20}},
        {Type::q8_0, {2, 2, 32, 64, 48, 0, 0.2f, 0}},  {Type::q8_0, {8, 2, 64, 96, 32, 0, 0.125f, 0}},
        {Type::q4_0, {4, 1, 96, 32, 32, 90, 0.1f, 0}}, {Type::q4_0, {3, 3, 64, 64, 8, 0, 0.125f, 0}},
        {Type::f16, {7, 1, 64, 64, 32, 0, 0.125f, 0}}, {Type::f16, {12, 1, 64, 32, 16, 0, 0.125f, 0}},
        {Type::f16, {3, 1, 18, 10, 2, 7, 0.3f, 0}},    {Type::bf16, {2, 1, 17, 5, 4, 0, 0.3f, 0}},
        {Type::f32, {3, 1, 10, 6, 8, 300, 0.3f, 0}},   {Type::f32, {2, 1, 16, 16, 512, 0, 0.25f, 0}},
    };
    for (const KernelTable* t : tables()) {
        auto one = backend(*t, 1), many = backend(*t, 3);
        for (const Variant& v : variants) {
            INFO(t->name << " " << info(v.type).name << " head " << v.p.head_dim);
            const auto whole = prefill(*one, v.type, v.p, 600, 512);
            REQUIRE(std::all_of(whole.begin(), whole.end(), [](float x) { return std::isfinite(x); }));
            for (const int64_t chunk : {1, 7, 512}) {
                const auto chunked = prefill(*many, v.type, v.p, 600, chunk);
                CHECK(std::memcmp(whole.data(), chunked.data(), whole.size() * 4) == 0);
            }
        }
    }
}

TEST_CASE("attention: behind long contexts, too, and every key that is seen counts once") {
    for (const KernelTable* t : tables()) {
        auto one = backend(*t, 1), many = backend(*t, 3);
        for (const int32_t window : {0, 2100})
            for (const int64_t from : {2040, 4600, 8185}) {
                INFO(t->name << " window " << window << " from " << from);
                const int64_t total = from + 12;
                AttentionParams p{4, 2, 32, 32, 16, window, 0.2f, 0};
                const auto whole = prefill(*one, Type::f16, p, total, 512, from);
                for (const int64_t chunk : {1, 5}) {
                    const auto chunked = prefill(*many, Type::f16, p, total, chunk, from);
                    CHECK(std::memcmp(whole.data(), chunked.data(), whole.size() * 4) == 0);
                }
                p.scale = 0;  // all keys count alike, beside the sink
                const auto mean = prefill(*many, Type::f16, p, total, 12, from);
                const auto v = normal(static_cast<size_t>(total * 64), 3), sinks = normal(4, 4);
                for (const int64_t row : {from, total - 1})
                    for (const int64_t column : {0, 31, 40, 127}) {
                        const int64_t head = column / 32,
                                      first = window > 0 ? std::max<int64_t>(0, row - window + 1) : 0;
                        double sum = 0;
                        for (int64_t j = first; j <= row; ++j)
                            sum += static_cast<double>(
                                v[static_cast<size_t>(j * 64 + head / 2 * 32 + column % 32)]);
                        const double keys = static_cast<double>(row - first + 1),
                                     sink = std::exp(static_cast<double>(sinks[static_cast<size_t>(head)])),
                                     got = static_cast<double>(mean[static_cast<size_t>(row * 128 + column)]);
                        CHECK(std::fabs(got - sum / (keys + sink)) < 2e-4);
                    }
            }
    }
}

TEST_CASE("every instruction set gives nearly the same attention") {
    const AttentionParams p{4, 2, 64, 64, 32, 0, 0.125f, 0};
    const auto plain = prefill(*backend(*tables()[0], 1), Type::f16, p, 300, 300);
    for (const KernelTable* t : tables()) {
        const double allowed = t->attention.bf16_products ? 1e-5 : 1e-11;  // products of 8 bits
        CHECK(nmse(plain, prefill(*backend(*t, 2), Type::f16, p, 300, 64)) < allowed);
    }
}

// Values of ones: a row that sees a key gives ones. Scores that overflow where all have one are an error to
// be seen.
TEST_CASE("attention: positions without a page are no keys, and a row without any gives zeros") {
    const AttentionParams p{2, 1, 32, 32, 16, 40, 1.0f, 0};
    const int64_t total = 320;
    for (const KernelTable* t : tables())
        for (const Type type : {Type::f16, Type::f32, Type::q8_0})
            for (const bool overflow : {false, true})
                for (const int64_t n : {int64_t{1}, total}) {
                    INFO(t->name << " " << info(type).name << " overflow " << overflow << " tokens " << n);
                    const auto b = backend(*t, 2);
                    const int64_t used = overflow ? total / 16 : total / 32;  // pages
                    Encoded k = encoded(type, std::vector<float>(used * 16 * 32, -1), used * 16, 32);
                    const Encoded v = encoded(type, std::vector<float>(used * 16 * 32, 1), used * 16, 32);
                    k.tensor.layout = b->key_layout(type, p.page_size);
                    if (k.tensor.layout == Layout::key_tiles) key_tiles_from_rows(k.tensor, k.bytes);
                    std::vector<int32_t> pages(total / 16);
                    for (int32_t i = 0; i < total / 16; ++i)
                        pages[static_cast<size_t>(i)] = i < used ? i : i % 2 ? -1 : 1 << 20;
                    std::vector<float> q(static_cast<size_t>(n * 64), overflow ? 3e38f : 1), out(q.size(), 7);
                    std::vector<int32_t> seq{0, static_cast<int32_t>(n)}, positions(static_cast<size_t>(n));
                    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(total - n));
                    run(*b, attention_op, p,
                        {tensor(q, n, 64),
                         k.tensor,
                         v.tensor,
                         tensor(seq, 1, 2),
                         tensor(positions, n, 1),
                         tensor(pages, 1, total / 16),
                         {}},
                        {tensor(out, n, 64)});
                    for (int64_t i = 0; i < n; ++i) {
                        const bool sees = positions[static_cast<size_t>(i)] - p.window + 1 < used * 16;
                        const float got = out[static_cast<size_t>(i * 64 + 5)];
                        if (sees && overflow)
                            CHECK(std::isnan(got));
                        else
                            CHECK(got == doctest::Approx(sees ? 1 : 0).epsilon(1e-3));  // int8: 127 x an f16
                    }
                }
}

TEST_CASE("elementwise functions: accuracy over their range, limits, NaN") {
    std::vector<float> x;
    for (float v = -110; v <= 110; v += 0.0137f) x.push_back(v);
    for (const float v : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e30f, 88.72f, -87.4f, std::nanf("")}) x.push_back(v);
    const std::vector<float> ones(x.size(), 1.0f);
    std::vector<float> y(x.size());
    for (const KernelTable* t : tables())
        for (const Activation act :
             {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
            INFO(t->name << " activation " << static_cast<int>(act));
            t->rows.glu({act}, x.data(), ones.data(), y.data(), static_cast<int64_t>(x.size()));
            for (size_t i = 0; i < x.size(); ++i) {
                const double v = x[i];
                if (std::isnan(v)) {
                    CHECK(std::isnan(y[i]));
                    continue;
                }
                const double u = std::sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v);
                const double expected = act == Activation::silu        ? v / (1 + std::exp(-v))
                                        : act == Activation::gelu_tanh ? v / (1 + std::exp(-2 * u))
                                        : act == Activation::gelu_erf
                                            ? 0.5 * v * std::erfc(-v / std::sqrt(2.0))
                                            : std::max(v, 0.0);
                // A few roundings of the result, plus what vanishes beside the largest negative value.
                CHECK(std::fabs(y[i] - expected) <= 6e-7 * std::fabs(expected) + 2e-8);
            }
        }
}

TEST_CASE("conversions equal the codecs bit by bit, on all values and at every length") {
    std::vector<float> x = normal(520, 7, 100);  // two of the longest blocks
    for (const float v : {1e-7f, 6e-8f, 3e-8f, 65504.0f, 65520.0f, 1e6f, -0.0f, 1e-40f,
                          std::numeric_limits<float>::infinity(), std::nanf("")})
        x.insert(x.begin() + 3, v);
    for (const KernelTable* t : tables())
        for (const TypeInfo& type : all_types()) {
            if (!type.decode || !type.encode) continue;
            const auto block = static_cast<int64_t>(type.block_len);
            const auto longest = std::max<int64_t>(200, 2 * block);
            for (int64_t n = block; n <= longest; n += block == 1 ? 7 : block) {
                const size_t bytes = *row_bytes(type.type, n);
                std::vector<std::byte> expected(bytes), actual(bytes);
                type.encode(x.data(), expected.data(), static_cast<size_t>(n));
                t->rows.encode(type, x.data(), actual.data(), n);
                CHECK(expected == actual);
                std::vector<float> a(static_cast<size_t>(n)), b(static_cast<size_t>(n));
                type.decode(expected.data(), a.data(), a.size());
                t->rows.decode(type, expected.data(), b.data(), n);
                CHECK(std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
            }
        }
}

TEST_CASE("ids, slots, rows and pages outside their tables touch nothing") {
    constexpr int32_t far = std::numeric_limits<int32_t>::max(),
                      negative = std::numeric_limits<int32_t>::min();
    for (const KernelTable* t : tables()) {
        auto b = backend(*t, 2);
        std::vector<float> table = normal(3 * 8, 8), out(4 * 8, 9);
        std::vector<int32_t> ids{far, negative, 3, 1};
        run(*b, embed_op, EmbedParams{}, {tensor(ids, 4, 1), tensor(table, 3, 8), {}}, {tensor(out, 4, 8)});
        for (size_t i = 0; i < 24; ++i) CHECK(out[i] == 0);
        CHECK(std::memcmp(&out[24], &table[8], 32) == 0);
        std::vector<float> drawn{5, -1, 2};
        std::vector<int32_t> of_drawn{-1, -2, -4, -3};
        run(*b, embed_op, EmbedParams{}, {tensor(of_drawn, 4, 1), tensor(table, 3, 8), tensor(drawn, 3, 1)},
            {tensor(out, 4, 8)});
        for (size_t i = 0; i < 24; ++i) CHECK(out[i] == 0);
        CHECK(std::memcmp(&out[24], &table[16], 32) == 0);
        run(*b, take_rows_op, {}, {tensor(table, 3, 8), tensor(ids, 4, 1)}, {tensor(out, 4, 8)});
        for (size_t i = 0; i < 24; ++i) CHECK(out[i] == 0);

        const RopeStoreParams p{1, 1, 8, 8, 0, 4, RopeStyle::half};
        std::vector<float> kv = normal(4 * 8, 9), cache(8 * 8, 5.0f), before = cache;
        std::vector<int32_t> slots{far, negative, -1, 8};
        run(*b, rope_store_op, p,
            {tensor(kv, 4, 8),
             tensor(kv, 4, 8),
             tensor(kv, 4, 8),
             {},
             tensor(slots, 4, 1),
             tensor(cache, 8, 8),
             tensor(cache, 8, 8)},
            {tensor(out, 4, 8)});
        CHECK(cache == before);
        CHECK(std::memcmp(out.data(), kv.data(), 4 * 8 * 4) == 0);

        std::vector<int32_t> pairs{far, 0, 0, far, -1, 1, 1, 1};
        run(*b, copy_pages_op, CopyPagesParams{4}, {tensor(cache, 8, 8), tensor(pairs, 4, 2)}, {});
        CHECK(cache == before);

        std::vector<int32_t> seq{0, far}, positions{0, 1, 2, 3}, pages{far};
        const AttentionParams a{1, 1, 8, 8, 4, 0, 1, 0};
        run(*b, attention_op, a,
            {tensor(kv, 4, 8),
             tensor(cache, 8, 8),
             tensor(cache, 8, 8),
             tensor(seq, 1, 2),
             tensor(positions, 4, 1),
             tensor(pages, 1, 1),
             {}},
            {tensor(out, 4, 8)});
        for (const float x : out) CHECK(x == 0);
    }
}
