// Rounding with feedback: the products it is made of, the factors, what it gains, and that nothing but the
// inputs changes its bytes.
#include "src/quant/feedback.h"

#include <cmath>
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/types/float16.h"
#include "ggml/types/search.h"
#include "src/quant/dense.h"

using namespace nibble;

namespace {

std::vector<float> normal(size_t n, uint32_t seed, float sigma = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution(0, sigma);
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

// Numbers that rounding to bf16 leaves as they are.
std::vector<float> of_bf16(std::vector<float> x) {
    for (float& v : x) v = bf16_to_f32(f32_to_bf16(v));
    return x;
}

// Inputs whose columns have much in common, some of them large.
std::vector<float> inputs(int64_t rows, int64_t cols, uint32_t seed, uint32_t row_seed = 77) {
    constexpr int64_t causes = 12;
    const auto mix = normal(static_cast<size_t>(causes * cols), seed);
    std::vector<float> x = normal(static_cast<size_t>(rows * cols), row_seed, 0.3f);
    const auto cause = normal(static_cast<size_t>(rows * causes), row_seed + 1);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) {
            float& v = x[static_cast<size_t>(r * cols + c)];
            for (int64_t k = 0; k < causes; ++k)
                v += cause[static_cast<size_t>(r * causes + k)] * mix[static_cast<size_t>(k * cols + c)];
            if (c % 37 == 5) v *= 8;
        }
    return x;
}

// Mean over rows and inputs of what a row's product with an input is off by, squared.
double loss(const std::vector<float>& lost, const std::vector<float>& x, int64_t cols) {
    double total = 0;
    const int64_t rows = static_cast<int64_t>(lost.size()) / cols, n = static_cast<int64_t>(x.size()) / cols;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) {
            double y = 0;
            for (int64_t c = 0; c < cols; ++c)
                y += static_cast<double>(lost[static_cast<size_t>(r * cols + c)]) *
                     static_cast<double>(x[static_cast<size_t>(i * cols + c)]);
            total += y * y;
        }
    return total / static_cast<double>(rows * n);
}

Feedback feedback_of(const std::vector<float>& x, int64_t cols, ThreadPool& pool) {
    Moments m(cols);
    const int64_t rows = static_cast<int64_t>(x.size()) / cols;
    m.add(x.data(), rows / 2, cols, pool);
    m.add(x.data() + rows / 2 * cols, rows - rows / 2, cols, pool);
    CHECK(m.rows() == rows);
    auto f = std::move(m).feedback("a matrix", pool, 0.01);
    REQUIRE(f);
    return std::move(*f);
}

}  // namespace

TEST_CASE("products are those of plain loops, whatever the sizes, steps and instruction sets") {
    struct Sizes {
        int64_t m, n, depth;
    };
    constexpr Sizes sizes[] = {{1, 1, 1}, {13, 33, 300}, {70, 65, 17}, {256, 256, 256}, {5, 64, 0}};
    for (const DenseKernels* kernels : usable_dense_kernels())
        for (const Sizes& size : sizes) {
            const auto [m, n, depth] = size;
            CAPTURE(kernels->name);
            CAPTURE(size.m);
            const int64_t a_width = 300, b_width = 310, stride = n + 3;
            const auto a = of_bf16(normal(300 * 300, 1)), b = of_bf16(normal(310 * 310, 2));
            const auto before = normal(static_cast<size_t>(m * stride), 3);
            for (const bool turned : {false, true}) {
                const Strided fa = turned ? Strided{a.data(), 1, a_width} : Strided{a.data(), a_width, 1};
                const Strided fb = turned ? Strided{b.data(), 1, b_width} : Strided{b.data(), b_width, 1};
                std::vector<float> c = before, scratch(static_cast<size_t>(kernels->scratch(m)));
                kernels->add_product(fa, fb, m, n, depth, -0.5f, c.data(), stride, scratch.data());
                for (int64_t i = 0; i < m; ++i)
                    for (int64_t j = 0; j < stride; ++j) {
                        const auto at = static_cast<size_t>(i * stride + j);
                        double expected = static_cast<double>(before[at]);
                        for (int64_t k = 0; j < n && k < depth; ++k)
                            expected -= 0.5 *
                                        static_cast<double>(fa.data[i * fa.row_step + k * fa.col_step]) *
                                        static_cast<double>(fb.data[k * fb.row_step + j * fb.col_step]);
                        CHECK(std::fabs(static_cast<double>(c[at]) - expected) < 1e-4);
                    }
            }
        }
}

TEST_CASE("the factors multiply to the damped moments") {
    ThreadPool pool(2);
    for (const int64_t cols : {32, 160, 416}) {
        CAPTURE(cols);
        const auto x = of_bf16(inputs(700, cols, 5));
        const Feedback f = feedback_of(x, cols, pool);
        std::vector<double> h(static_cast<size_t>(cols * cols));
        double trace = 0;
        for (int64_t i = 0; i < cols; ++i)
            for (int64_t j = 0; j < cols; ++j) {
                double& sum = h[static_cast<size_t>(i * cols + j)];
                for (int64_t r = 0; r < 700; ++r)
                    sum += static_cast<double>(x[static_cast<size_t>(r * cols + i)]) *
                           static_cast<double>(x[static_cast<size_t>(r * cols + j)]);
                if (i == j) trace += sum;
            }
        const auto m = [&](int64_t i, int64_t k) {
            return i == k  ? 1.0
                   : i > k ? 0.0
                           : static_cast<double>(f.coefficients[static_cast<size_t>(i * cols + k)]);
        };
        const auto product = [&](int64_t i, int64_t j) {
            double sum = 0;
            for (int64_t k = 0; k < cols; ++k)
                sum += m(i, k) * static_cast<double>(f.importance[static_cast<size_t>(k)]) * m(j, k);
            return sum;
        };
        const auto damped = [&](int64_t i, int64_t j) {
            return h[static_cast<size_t>(i * cols + j)] +
                   (i == j ? 0.01 * trace / static_cast<double>(cols) : 0);
        };
        const double unit = product(3, 3) / damped(3, 3);  // importance has a mean of 1
        double mean = 0;
        for (const float d : f.importance) mean += static_cast<double>(d) / static_cast<double>(cols);
        CHECK(mean == doctest::Approx(1));
        for (int64_t i = 0; i < cols; i += 7)
            for (int64_t j = 0; j < cols; j += 5)
                CHECK(std::fabs(product(i, j) - unit * damped(i, j)) <
                      1e-4 * unit * std::sqrt(damped(i, i) * damped(j, j)));
    }
}

TEST_CASE("with feedback products lose less, for every type that has a search") {
    ThreadPool pool(2);
    for (const int64_t cols : {256, 512, 320}) {
        const auto x = inputs(1500, cols, 9), unseen = inputs(200, cols, 9, 99);
        const Feedback f = feedback_of(x, cols, pool);
        std::vector<float> importance(static_cast<size_t>(cols));
        for (size_t i = 0; i < x.size(); ++i) importance[i % importance.size()] += x[i] * x[i];
        constexpr int64_t rows = 48;
        const auto w = normal(static_cast<size_t>(rows * cols), 10, 0.02f);
        for (const TypeInfo& t : all_types()) {
            if (!t.encode || !has_search(t.type) || cols % t.block_len) continue;
            CAPTURE(t.name);
            const auto row_size = *row_bytes(t.type, cols);
            std::vector<std::byte> plain(rows * row_size), with(plain.size());
            std::vector<float> lost = w, with_lost = w, back(w.size());
            for (size_t r = 0; r < rows; ++r)
                encode_weighted(t.type, w.data() + r * importance.size(), importance.data(),
                                plain.data() + r * row_size, importance.size());
            t.decode(plain.data(), back.data(), back.size());
            for (size_t i = 0; i < w.size(); ++i) lost[i] -= back[i];
            encode_with_feedback(t.type, f, with_lost.data(), rows, with.data());
            t.decode(with.data(), back.data(), back.size());
            for (size_t i = 0; i < w.size(); ++i)
                CHECK(std::fabs(with_lost[i] - (w[i] - back[i])) <= 1e-6f * (1 + std::fabs(w[i])));
            CHECK(loss(with_lost, unseen, cols) < 0.5 * loss(lost, unseen, cols));

            // One row at a time gives the same bytes as many.
            for (const size_t r : {size_t{0}, size_t{17}, size_t{47}}) {
                std::vector<float> alone(w.begin() + static_cast<int64_t>(r) * cols,
                                         w.begin() + static_cast<int64_t>(r + 1) * cols);
                std::vector<std::byte> bytes(row_size);
                encode_with_feedback(t.type, f, alone.data(), 1, bytes.data());
                CHECK(std::equal(bytes.begin(), bytes.end(),
                                 with.begin() + static_cast<int64_t>(r * row_size)));
            }
        }
    }
}

TEST_CASE("no other code of a single column costs less, given the scales and the other columns") {
    ThreadPool pool(2);
    constexpr int64_t cols = 256;  // one span, whose costs are all there are
    const Feedback f = feedback_of(inputs(900, cols, 31), cols, pool);
    const auto w = normal(cols, 32, 0.02f);
    std::vector<float> lost = w;
    std::vector<std::byte> bytes(*row_bytes(Type::q4_0, cols));
    encode_with_feedback(Type::q4_0, f, lost.data(), 1, bytes.data());
    std::vector<float> rounded(cols);
    info(Type::q4_0).decode(bytes.data(), rounded.data(), cols);
    const auto cost = [&](const std::vector<float>& e) {
        double total = 0;
        for (size_t k = 0; k < cols; ++k) {
            double off = static_cast<double>(e[k]);
            for (size_t j = 0; j < k; ++j)
                off += static_cast<double>(e[j]) * static_cast<double>(f.coefficients[j * cols + k]);
            total += static_cast<double>(f.importance[k]) * off * off;
        }
        return total;
    };
    const double least = cost(lost);
    const size_t block = info(Type::q4_0).block_len, block_bytes = bytes.size() / (cols / block);
    for (size_t i = 0; i < cols; ++i) {
        uint16_t half;
        std::memcpy(&half, bytes.data() + i / block * block_bytes, sizeof half);
        const float scale = f16_to_f32(half);
        const auto level = static_cast<int>(std::lround(rounded[i] / scale));
        for (const int step : {-1, 1}) {
            if (level + step < -8 || level + step > 7) continue;
            std::vector<float> other = lost;
            other[i] -= static_cast<float>(step) * scale;
            CAPTURE(i);
            CHECK(cost(other) > least * (1 - 1e-5));
        }
    }
}

TEST_CASE("threads do not change the factors") {
    ThreadPool one(1), three(3);
    const auto x = inputs(300, 600, 21);
    const Feedback a = feedback_of(x, 600, one), b = feedback_of(x, 600, three);
    CHECK(a.importance == b.importance);
    CHECK(a.coefficients == b.coefficients);
}

TEST_CASE("inputs that say nothing, or are no numbers") {
    ThreadPool pool(2);
    // Nothing seen: every column counts alike and nothing is carried over.
    auto none = Moments(64).feedback("a matrix", pool, 0.01);
    REQUIRE(none);
    CHECK(none->importance == std::vector<float>(64, 1.0f));
    CHECK(none->coefficients[1] == 0);
    // Fewer rows than columns, dead columns, one that is another's copy: finite all the same.
    auto x = inputs(10, 64, 3);
    for (size_t r = 0; r < 10; ++r) x[r * 64 + 7] = 0, x[r * 64 + 9] = x[r * 64 + 8];
    const Feedback few = feedback_of(x, 64, pool);
    for (const float v : few.coefficients) CHECK(std::isfinite(v));
    for (const float v : few.importance) CHECK(v > 0);
    for (const float bad : {NAN, INFINITY}) {
        x[100] = bad;
        Moments m(64);
        m.add(x.data(), 10, 64, pool);
        const auto f = std::move(m).feedback("blk.3.attn_q.weight", pool, 0.01);
        REQUIRE(!f);
        CHECK(f.error().where == "blk.3.attn_q.weight");
    }
    // Weights out of range still give finite blocks.
    const Feedback f = feedback_of(inputs(100, 256, 4), 256, pool);
    for (const TypeInfo& t : all_types()) {
        if (!t.encode || !has_search(t.type)) continue;
        CAPTURE(t.name);
        for (const float scale : {0.0f, 1e-44f, 1e20f, 1e37f}) {
            auto w = normal(256, 5, scale);
            std::vector<std::byte> bytes(*row_bytes(t.type, 256));
            encode_with_feedback(t.type, f, w.data(), 1, bytes.data());
            t.decode(bytes.data(), w.data(), 256);
            for (const float v : w) CHECK(std::isfinite(v));
        }
    }
}
