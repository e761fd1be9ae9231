// The searching encoders: never worse than the plain ones, clearly better on normal data, and well behaved
// with weights of zero and values out of range.
#include "ggml/types/search.h"

#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/types/list.h"

using namespace nibble;

namespace {

struct Row {
    std::vector<float> x, w;
};

double weighted_error(const Row& r, const std::vector<float>& y) {
    double e = 0;
    for (size_t i = 0; i < y.size(); ++i)
        e += static_cast<double>(r.w[i]) * (static_cast<double>(r.x[i]) - y[i]) *
             (static_cast<double>(r.x[i]) - y[i]);
    return e;
}

std::vector<float> decoded(const TypeInfo& t, const std::vector<std::byte>& bytes, size_t n) {
    std::vector<float> y(n);
    t.decode(bytes.data(), y.data(), n);
    return y;
}

struct Errors {
    double plain, searched;
};

Errors compare(const TypeInfo& t, const Row& r, bool null_importance = false) {
    const size_t n = r.x.size();
    std::vector<std::byte> plain(*row_bytes(t.type, static_cast<int64_t>(n))), searched(plain.size());
    t.encode(r.x.data(), plain.data(), n);
    encode_weighted(t.type, r.x.data(), null_importance ? nullptr : r.w.data(), searched.data(), n);
    return {weighted_error(r, decoded(t, plain, n)), weighted_error(r, decoded(t, searched, n))};
}

Row normal_row(size_t n, uint32_t seed, float sigma = 0.02f) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    Row r{std::vector<float>(n), std::vector<float>(n, 1.0f)};
    for (float& v : r.x) v = sigma * distribution(random);
    return r;
}

}  // namespace

TEST_CASE("the search lowers the error on normal data by what it is worth") {
    const struct {
        Type type;
        double at_most;  // share of the plain error that may remain
    } gains[] = {
        {Type::q4_0, 0.91}, {Type::q4_1, 0.82},   {Type::q5_0, 0.91},   {Type::q5_1, 0.85},
        {Type::q2_k, 0.65}, {Type::q3_k, 0.88},   {Type::q4_k, 0.83},   {Type::q5_k, 0.88},
        {Type::q6_k, 0.82}, {Type::iq4_nl, 0.87}, {Type::iq4_xs, 0.88}, {Type::mxfp4, 0.97},
        {Type::nf4, 0.84},  {Type::nf4_dq, 0.84},
    };
    const Row r = normal_row(32768, 11);
    for (const auto& g : gains) {
        CAPTURE(info(g.type).name);
        CHECK(has_search(g.type));
        const Errors e = compare(info(g.type), r);
        CHECK(e.searched < g.at_most * e.plain);
    }
}

TEST_CASE("the search is never worse than plain encoding, whatever the row and the weights") {
    std::mt19937 random(12);
    for (const TypeInfo& t : all_types()) {
        if (!t.encode) continue;
        CAPTURE(t.name);
        for (uint32_t kind = 0; kind < 10; ++kind) {
            CAPTURE(kind);
            Row r = normal_row(1024, 100 + kind);
            for (size_t i = 0; i < r.x.size(); ++i) {
                if (kind == 1) r.x[i] = 0;
                if (kind == 2) r.x[i] = 0.25f;
                if (kind == 3) r.x[i] = i % 97 == 5 ? -3.0f : r.x[i] * 1e-3f;  // outliers
                if (kind == 4) r.x[i] = std::fabs(r.x[i]) + 1;                 // far from zero
                if (kind == 5) r.w[i] = i % 3 == 0 ? 0.0f : 1.0f;
                if (kind == 6) r.w[i] = 0;
                if (kind == 7) r.w[i] = std::exp(static_cast<float>(random() % 20) - 10);
                if (kind == 8) r.x[i] *= 1e-38f;
                if (kind == 9) r.x[i] = i % 2 ? 2.5f : -2.5f;
            }
            const Errors e = compare(t, r);
            CHECK(e.searched <= e.plain);
        }
    }
}

TEST_CASE("no importance stands for the default weights") {
    Row r = normal_row(4096, 13);
    default_importance(r.x.data(), r.w.data(), r.x.size());
    for (const Type type : {Type::q4_0, Type::q4_k, Type::q6_k, Type::nf4}) {
        CAPTURE(info(type).name);
        CHECK(compare(info(type), r, true).searched == compare(info(type), r).searched);
        CHECK(compare(info(type), r, true).searched < 0.97 * compare(info(type), r, true).plain);
    }
}

TEST_CASE("values and weights out of range give finite blocks") {
    for (const TypeInfo& t : all_types()) {
        if (!t.encode || t.block_len == 1) continue;
        CAPTURE(t.name);
        for (const float scale : {1e-44f, 1e20f, 1e30f}) {
            Row r = normal_row(256, 14);
            for (float& v : r.x) v *= scale;
            std::vector<std::byte> bytes(*row_bytes(t.type, 256));
            encode_weighted(t.type, r.x.data(), nullptr, bytes.data(), 256);
            for (const float v : decoded(t, bytes, 256)) CHECK(std::isfinite(v));
        }
    }
}

TEST_CASE("small weights are kept, too, where the factor of a superblock is below the smallest f16") {
    const struct {
        Type type;
        float sigma;
    } small[] = {{Type::q6_k, 2e-5f},
                 {Type::q6_k, 2e-6f},
                 {Type::q5_k, 1e-5f},
                 {Type::q4_k, 5e-6f},
                 {Type::iq4_xs, 2e-5f}};
    for (const auto& c : small) {
        CAPTURE(info(c.type).name);
        CAPTURE(c.sigma);
        const Row r = normal_row(4096, 16, c.sigma);
        const double norm = weighted_error(r, std::vector<float>(r.x.size()));
        const Errors e = compare(info(c.type), r);
        CHECK(std::sqrt(e.plain / norm) < 0.1);
        CHECK(std::sqrt(e.searched / norm) < 0.1);
    }
}

TEST_CASE("types without a search are encoded plainly") {
    const Row r = normal_row(1024, 15);
    for (const Type type : {Type::f16, Type::bf16, Type::q8_0, Type::tq2_0}) {
        CHECK(!has_search(type));
        std::vector<std::byte> a(*row_bytes(type, 1024)), b(a.size());
        info(type).encode(r.x.data(), a.data(), 1024);
        encode_weighted(type, r.x.data(), r.w.data(), b.data(), 1024);
        CHECK(a == b);
    }
}
