// What attention on the GPU is tested with: sequences, their contexts and a cache with these.
// What no sequence owns in the cache is filled with bytes that are NaNs of every type.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ggml/ops/ops.h"

namespace nibble {

// The tokens that a sequence has in the step, behind `context` earlier ones.
struct AttentionPart {
    int32_t context, tokens;
};

struct AttentionProblem {
    std::string label;
    AttentionParams p;
    Type k_type = Type::f16, v_type = Type::f16;
    std::vector<AttentionPart> parts;
    bool sinks = false;
    float q_scale = 2;
    bool shared = false;      // the values are the last columns of the keys
    int64_t spare_pages = 1;  // columns of the page table beyond the longest context
    bool stored = true;       // the step's own keys and values are in the cache, not only those before them
};

// The operands of a problem; pages are dealt out in an order that is not that of positions.
struct AttentionData {
    std::vector<float> q, sinks;
    std::vector<int32_t> seq_rows, positions, table;
    std::vector<std::byte> k, v;
    int64_t max_pages = 0, pages = 0;

    explicit AttentionData(const AttentionProblem& c) {
        std::mt19937 random(20261121);
        std::normal_distribution<float> normal(0, 1);
        std::vector<int32_t> order;
        for (const AttentionPart& s : c.parts) {
            const int64_t n = (s.context + s.tokens + c.p.page_size - 1) / c.p.page_size;
            max_pages = std::max(max_pages, n + c.spare_pages);
            pages += n;
        }
        pages += 3;
        for (int64_t i = 0; i < pages; ++i) order.push_back(static_cast<int32_t>(i));
        std::shuffle(order.begin(), order.end(), random);
        k.assign(bytes(c, c.k_type, c.p.head_dim), std::byte{0xff});
        v.assign(bytes(c, c.v_type, c.p.v_head_dim), std::byte{0xff});
        for (const AttentionPart& s : c.parts) {
            seq_rows.insert(seq_rows.end(), {static_cast<int32_t>(positions.size()), s.tokens});
            for (int32_t i = 0; i < s.tokens; ++i) positions.push_back(s.context + i);
            table.resize(table.size() + static_cast<size_t>(max_pages), -1);
            int32_t* const row = table.data() + table.size() - max_pages;
            const int32_t lowest = c.p.window ? std::max(0, s.context - c.p.window + 1) : 0;
            for (int32_t at = 0; at < s.context + s.tokens; ++at) {
                int32_t& page = row[at / c.p.page_size];
                if (at / c.p.page_size < lowest / c.p.page_size) continue;  // given back
                if (page < 0) {
                    page = order.back();
                    order.pop_back();
                }
                if (!c.stored && at >= s.context) continue;
                for (int32_t h = 0; h < c.p.n_kv_heads; ++h) {
                    const int64_t at_row =
                        (int64_t{page} * c.p.n_kv_heads + h) * c.p.page_size + at % c.p.page_size;
                    write_row(k, c.k_type, at_row, c.p.head_dim, [&] { return normal(random); });
                    write_row(v, c.v_type, at_row, c.p.v_head_dim, [&] { return normal(random); });
                }
            }
        }
        q.resize(positions.size() * static_cast<size_t>(c.p.n_heads * c.p.head_dim));
        for (float& x : q) x = c.q_scale * normal(random);
        sinks.resize(static_cast<size_t>(c.p.n_heads));
        for (float& x : sinks) x = normal(random);
    }
    int64_t tokens() const { return static_cast<int64_t>(positions.size()); }

  private:
    size_t bytes(const AttentionProblem& c, Type type, int32_t dim) const {
        return static_cast<size_t>(pages * c.p.n_kv_heads * c.p.page_size * *row_bytes(type, dim));
    }
    template <class Draw>
    static void write_row(std::vector<std::byte>& to, Type type, int64_t row, int32_t dim, const Draw& draw) {
        std::vector<float> values(static_cast<size_t>(dim));
        for (float& x : values) x = draw();
        info(type).encode(values.data(), to.data() + row * static_cast<int64_t>(*row_bytes(type, dim)),
                          values.size());
    }
};

inline AttentionParams heads(int32_t n, int32_t kv, int32_t dim, int32_t v_dim, int32_t window = 0,
                             int32_t page = 32, float softcap = 0) {
    return {n, kv, dim, v_dim, page, window, 1 / std::sqrt(static_cast<float>(dim)), softcap};
}

}  // namespace nibble
