// How a row is drawn by the draw op (ops.h): the links of a sampler chain as numbers, in their order.
// Encoded as i32 columns, as a program's inputs are.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nibble {

// What src/sample/chain_table.h says of each, on a list that may be the beginning of a longer one.
enum class DrawKind : int32_t {
    best,         // keeps the first
    top_k,        // values: k
    top_p,        // p
    min_p,        // ln p
    temperature,  // T
    penalties,    // repeat, frequency, presence; over DrawRow::recent
    bias,         // a column, what is added to it
};
struct DrawStep {
    DrawKind kind = DrawKind::best;
    double values[3] = {};
};

inline constexpr int32_t most_draw_steps = 12, most_recent = 64;
inline constexpr int32_t draw_step_columns = 7, draw_header = 4;
inline constexpr int32_t draw_columns = draw_header + draw_step_columns * most_draw_steps + most_recent;
inline constexpr int32_t drawn_before = -1;  // among `recent`: what the op drew for this row the last time

struct DrawRow {
    uint64_t random = 0;
    std::vector<DrawStep> steps;  // most_draw_steps at most
    std::vector<int32_t> recent;  // columns, as often as they occurred; most_recent at most
};

// Columns: the random bits, lower half first; the number of steps, or -1 where nothing is to be drawn; that
// of recent ones; the steps, a kind and the halves of its values each; the recent ones.
using DrawColumns = std::array<int32_t, draw_columns>;

constexpr DrawColumns draws_nothing() {
    DrawColumns c{};
    c[2] = -1;
    return c;
}

inline DrawColumns encoded(const DrawRow& row) {
    DrawColumns c{};
    const auto put = [&c](size_t at, uint64_t bits) {
        c[at] = static_cast<int32_t>(bits);
        c[at + 1] = static_cast<int32_t>(bits >> 32);
    };
    put(0, row.random);
    c[2] = static_cast<int32_t>(row.steps.size());
    c[3] = static_cast<int32_t>(row.recent.size());
    size_t at = draw_header;
    for (const DrawStep& step : row.steps) {
        c[at] = static_cast<int32_t>(step.kind);
        for (size_t i = 0; i < 3; ++i) put(at + 1 + 2 * i, std::bit_cast<uint64_t>(step.values[i]));
        at += draw_step_columns;
    }
    at = draw_columns - most_recent;
    for (const int32_t column : row.recent) c[at++] = column;
    return c;
}

// The encoded row, read where it lies.
struct DrawView {
    const int32_t* c;

    constexpr uint64_t bits(int32_t at) const {
        return static_cast<uint64_t>(static_cast<uint32_t>(c[at + 1])) << 32 | static_cast<uint32_t>(c[at]);
    }
    constexpr uint64_t random() const { return bits(0); }
    constexpr bool draws() const { return c[2] >= 0; }
    constexpr int32_t n_steps() const { return c[2] < most_draw_steps ? c[2] : most_draw_steps; }
    constexpr int32_t n_recent() const { return c[3] < most_recent ? c[3] : most_recent; }
    constexpr DrawKind kind(int32_t step) const {
        return static_cast<DrawKind>(c[draw_header + draw_step_columns * step]);
    }
    constexpr double value(int32_t step, int32_t i = 0) const {
        return std::bit_cast<double>(bits(draw_header + draw_step_columns * step + 1 + 2 * i));
    }
    constexpr int32_t recent(int32_t i) const { return c[draw_columns - most_recent + i]; }
};

// A logit after the penalties of a token that occurred `count` times.
constexpr double penalized(double logit, int32_t count, double repeat, double frequency, double presence) {
    logit = logit > 0 ? logit / repeat : logit * repeat;
    return logit - count * frequency - presence;
}

}  // namespace nibble
