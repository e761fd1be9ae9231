// Every quantized format on hand-made blocks: a few bytes are set, the values they mean are stated.
// Then properties that hold for all of them: error on normal data, repeated encoding, extreme input.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/types/list.h"
#include "tests/nmse.h"

using namespace nibble;

namespace {

// Bytes not listed are zero; half 1.0 is 00 3c, 0.5 is 00 38, 2.0 is 00 40.
struct HandMade {
    Type type;
    std::vector<std::pair<size_t, int>> bytes;
    std::vector<std::pair<size_t, float>> values;
};

const std::vector<HandMade> hand_made = {
    {Type::q4_0, {{1, 0x3c}, {2, 0xf0}, {17, 0x18}}, {{0, -8}, {16, 7}, {15, 0}, {31, -7}}},
    {Type::q4_1, {{1, 0x40}, {3, 0x3c}, {4, 0xf0}, {19, 0x21}}, {{0, 1}, {16, 31}, {15, 3}, {31, 5}}},
    {Type::q5_0,
     {{1, 0x3c}, {2, 1}, {5, 0x80}, {6, 0x0f}, {21, 0xf3}},
     {{0, 15}, {16, -16}, {15, -13}, {31, 15}}},
    {Type::q5_1, {{1, 0x3c}, {3, 0x38}, {5, 0x80}, {8, 0x0f}, {9, 2}}, {{0, 15.5f}, {1, 2.5f}, {15, 16.5f}}},
    {Type::q8_0, {{1, 0x38}, {2, 0x80}, {33, 0x7f}}, {{0, -64}, {31, 63.5f}, {1, 0}}},
    {Type::q8_1, {{1, 0x38}, {3, 0x3c}, {4, 0xff}, {35, 2}}, {{0, -0.5f}, {31, 1}}},
    {Type::q8_k, {{2, 0x80}, {3, 0x3f}, {4, 3}, {259, 0xfe}, {260, 3}}, {{0, 3}, {255, -2}, {1, 0}}},
    // scales: sub-block 0 has scale 2 and minimum 3, 15 has 1 and 0; d = 1, dmin = 0.5
    {Type::q2_k,
     {{81, 0x3c}, {83, 0x38}, {0, 0x32}, {15, 0x01}, {16, 0x03}, {79, 0xc0}},
     {{0, 4.5f}, {1, -1.5f}, {32, 0}, {255, 3}, {128, 0}}},
    // all scales -32 but for sub-block 0 (-31 + low nibble 1 -> 1 - 32) and 15 (high bits 2 -> 0 + 32 - 32)
    {Type::q3_k,
     {{109, 0x3c}, {96, 1}, {107, 0xc0}, {0, 1}, {32, 2}, {31, 0x80}, {95, 0xc0}},
     {{0, -62}, {1, 124}, {255, 48}}},
    // pair 0: scale 3, minimum 2; pair 4: scale 0x15 (low 5, high 1), minimum 0x2a (low 10, high 2)
    {Type::q4_k,
     {{1, 0x3c}, {3, 0x38}, {4, 0x43}, {8, 0x82}, {12, 0xa5}, {16, 0x5a}, {80, 0x01}},
     {{0, 29}, {32, 0}, {128, 0}, {129, -21}, {160, 0}}},
    {Type::q5_k,
     {{1, 0x3c}, {3, 0x38}, {4, 0x43}, {8, 0x82}, {12, 0xa5}, {16, 0x11}, {48, 0x5a}, {112, 0x01}},
     {{0, 77}, {1, -1}, {128, 352 - 16 + 0}, {129, -21}}},
    {Type::q6_k,
     {{209, 0x3c}, {192, 2}, {196, 0xff}, {207, 1}, {0, 0xf1}, {128, 0x12}, {127, 0xf0}, {191, 0xc0}},
     {{0, 2}, {1, -64}, {64, 1}, {255, 31}, {239, -0.0f}}},
    {Type::iq4_nl, {{1, 0x3c}, {2, 0xf0}, {3, 0x87}}, {{0, -127}, {16, 113}, {1, -10}, {17, 1}}},
    // s[0] = 33 - 32, s[7] = 47 - 32
    {Type::iq4_xs,
     {{1, 0x3c}, {2, 0x02}, {3, 0x80}, {4, 1}, {7, 0xf0}, {8, 0xf0}, {135, 0x80}},
     {{0, -127}, {16, 113}, {224, -127 * 15}, {255, 15}}},
    {Type::mxfp4, {{0, 128}, {1, 0x71}, {16, 0xf8}}, {{0, 1}, {16, 12}, {15, 0}, {31, -12}, {2, 0}}},
    {Type::nvfp4,
     {{0, 0x38}, {3, 0x01}, {4, 0x71}, {35, 0xf2}},
     {{0, 0.5f}, {8, 6}, {55, 0x1p-9f}, {63, -12 * 0x1p-10f}}},
    // 0xff holds the digits 2 2 2 2 2; elements 0, 32, 64, 96, 128 live in byte 0, 240.. in bytes 48..
    {Type::tq1_0,
     {{53, 0x40}, {0, 0xff}, {48, 0xff}, {51, 0x80}},
     {{0, 2}, {128, 2}, {1, -2}, {240, 2}, {252, 2}, {243, 0}}},
    {Type::tq2_0,
     {{65, 0x40}, {0, 0x86}, {63, 0x40}},
     {{0, 2}, {32, 0}, {64, -2}, {96, 2}, {255, 0}, {1, -2}}},
    {Type::q1_0, {{1, 0x3c}, {2, 0x02}, {17, 0x80}}, {{0, -1}, {1, 1}, {127, 1}, {126, -1}}},
    {Type::q2_0, {{1, 0x3c}, {2, 0xe4}, {17, 0x40}}, {{0, -1}, {1, 0}, {2, 1}, {3, 2}, {63, 0}}},
    {Type::nf4,
     {{1, 0x40}, {2, 0xf0}, {3, 0x87}},
     {{0, -2}, {32, 2}, {1, 0}, {33, 2 * 0.07958029955625534f}}},
    // s[0] = 64 -> (1/2)^2, s[3] = -64
    {Type::nf4_dq,
     {{1, 0x40}, {2, 64}, {5, 0xc0}, {6, 0xf0}, {133, 0x80}},
     {{0, -0.5f}, {32, 0.5f}, {192, 0.5f}, {255, -0.5f * 0.07958029955625534f}}},
};

std::vector<float> normal(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

std::vector<float> round_trip(const TypeInfo& t, const std::vector<float>& x) {
    std::vector<std::byte> bytes(*row_bytes(t.type, static_cast<int64_t>(x.size())));
    std::vector<float> y(x.size());
    t.encode(x.data(), bytes.data(), x.size());
    t.decode(bytes.data(), y.data(), x.size());
    return y;
}

bool quantized(const TypeInfo& t) { return t.encode && t.block_len > 1; }

}  // namespace

TEST_CASE("hand-made blocks decode to the values their layout states") {
    std::set<Type> covered;
    for (const HandMade& h : hand_made) {
        const TypeInfo& t = info(h.type);
        CAPTURE(t.name);
        std::vector<std::byte> block(t.block_bytes);
        for (const auto& [at, byte] : h.bytes) block.at(at) = static_cast<std::byte>(byte);
        std::vector<float> y(t.block_len);
        t.decode(block.data(), y.data(), t.block_len);
        for (const auto& v : h.values) {
            CAPTURE(v.first);
            CHECK(y.at(v.first) == v.second);
        }
        covered.insert(h.type);
    }
    for (const TypeInfo& t : all_types())
        if (quantized(t)) CHECK_MESSAGE(covered.count(t.type) == 1, t.name);
}

TEST_CASE("q4_0 and nf4: exact bytes of hand-made blocks") {
    std::vector<float> x(64);
    std::vector<std::byte> q4(18), nf4(34);
    x[0] = -8;      // the largest magnitude: level -8, code 0; d = 1
    x[1] = 7.6f;    // above the highest level
    x[16] = -0.5f;  // a half goes up: floor(-0.5 + 8.5)
    x[17] = 2.49f;
    info(Type::q4_0).encode(x.data(), q4.data(), 32);
    CHECK(q4[0] == std::byte{0x00});
    CHECK(q4[1] == std::byte{0x3c});
    CHECK(q4[2] == std::byte{0x80});
    CHECK(q4[3] == std::byte{0xaf});
    CHECK(q4[17] == std::byte{0x88});
    x = std::vector<float>(64);
    x[0] = -2;
    x[32] = 2;
    x[1] = 2 * 0.3379f;
    x[33] = 2 * nf4_mid[9];  // on a midpoint: the lower level
    info(Type::nf4).encode(x.data(), nf4.data(), 64);
    CHECK(nf4[1] == std::byte{0x40});
    CHECK(nf4[2] == std::byte{0xf0});
    CHECK(nf4[3] == std::byte{0x9b});
    CHECK(nf4[33] == std::byte{0x77});
}

TEST_CASE("error on normal data is that of the format") {
    const struct {
        Type type;
        double nmse;
    } known[] = {
        {Type::q8_0, 2.86e-5},   {Type::q5_1, 1.44e-3},   {Type::q5_0, 1.82e-3}, {Type::q4_1, 6.11e-3},
        {Type::iq4_nl, 6.38e-3}, {Type::q4_0, 7.31e-3},   {Type::nf4, 8.44e-3},  {Type::nf4_dq, 8.44e-3},
        {Type::mxfp4, 1.33e-2},  {Type::iq4_xs, 6.38e-3}, {Type::q4_k, 6.2e-3},  {Type::q5_k, 1.5e-3},
        {Type::q6_k, 3.6e-4},    {Type::q3_k, 2.5e-2},    {Type::q2_k, 1.1e-1},  {Type::nvfp4, 9.2e-3},
        {Type::q8_1, 2.86e-5},   {Type::q8_k, 4.9e-5},    {Type::q1_0, 0.364},   {Type::q2_0, 0.52},
        {Type::tq1_0, 0.66},     {Type::tq2_0, 0.66},
    };
    const std::vector<float> x = normal(65536, 7);
    std::set<Type> covered;
    for (const auto& k : known) {
        CAPTURE(info(k.type).name);
        CHECK(nmse(x, round_trip(info(k.type), x)) < 1.05 * k.nmse);
        covered.insert(k.type);
    }
    for (const TypeInfo& t : all_types())
        if (quantized(t)) CHECK_MESSAGE(covered.count(t.type) == 1, t.name);
}

TEST_CASE("encoding what was decoded changes nothing, or little where factors are quantized as well") {
    const std::set<Type> approximate = {Type::q2_k,   Type::q3_k,  Type::q4_k,  Type::q5_k, Type::q6_k,
                                        Type::iq4_xs, Type::nvfp4, Type::mxfp4, Type::q1_0};
    const std::vector<float> x = normal(16384, 8);
    for (const TypeInfo& t : all_types()) {
        if (!quantized(t)) continue;
        CAPTURE(t.name);
        const std::vector<float> once = round_trip(t, x), twice = round_trip(t, once);
        if (approximate.count(t.type))
            CHECK(nmse(once, twice) < 0.3 * nmse(x, once));
        else
            CHECK(once == twice);
    }
}

TEST_CASE("extreme input: zeros stay zeros and every result is finite") {
    for (const TypeInfo& t : all_types()) {
        if (!quantized(t)) continue;
        CAPTURE(t.name);
        const size_t n = t.block_len;
        for (const float v : round_trip(t, std::vector<float>(n, 0.0f))) CHECK(v == 0);
        for (const float scale : {1e-45f, 1e-39f, 1e-30f, 1e-7f, 1.0f, 1e5f, 1e30f, 3e38f}) {
            std::vector<float> constant(n, scale), outlier(n, 0.0f), mixed = normal(n, 9);
            outlier[n / 2] = -scale;
            for (float& v : mixed) v *= scale / 8;
            for (const auto& x : {constant, outlier, mixed})
                for (const float v : round_trip(t, x)) CHECK(std::isfinite(v));
        }
        std::vector<float> hostile(n, std::numeric_limits<float>::infinity());
        hostile[1] = std::numeric_limits<float>::quiet_NaN();
        hostile[2] = -hostile[0];
        round_trip(t, hostile);  // refused further up; here only: no undefined behaviour
    }
}
