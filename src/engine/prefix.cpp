// Reuse of keys and values: what finished requests leave behind, who takes it up, and files of it.
// The index of each KV group compares tokens; a prefix counts as far as all groups have it.
#include <algorithm>

#include "src/engine/state.h"

namespace nibble {

// Takes over the cached pages that every group has for the beginning of the prompt.
void Engine::State::adopt_prefix(Sequence& s) {
    const std::span<const Token> prompt(s.tokens.data(), s.tokens.size() - 1);  // one token must be computed
    int32_t n = static_cast<int32_t>(prompt.size());
    std::vector<PrefixMatch> matches;
    for (KvGroup& g : groups) {
        if (!g.index) return;
        matches.push_back(g.index->match(prompt));
        n = std::min(n, matches.back().n_tokens);
    }
    if (n == 0) return;
    const auto n_pages = static_cast<size_t>((n + runner.config().page_size - 1) / runner.config().page_size);
    for (size_t g = 0; g < groups.size(); ++g)
        s.tables[g].adopt(std::span(matches[g].pages).first(n_pages), n);
    s.n_computed = n;
}

// Makes the pages of a finished sequence findable for later requests.
void Engine::State::remember(Sequence& s) {
    remember(std::span(s.tokens).first(static_cast<size_t>(s.n_computed)), s.tables, true);
}

// The index knows full pages. The last one is filled up with tokens that no prompt has, so that it is found
// by those that are stored; whoever writes behind them writes into a copy. Not of a sequence that still runs.
void Engine::State::remember(std::span<const Token> stored, std::span<const BlockTable> tables,
                             bool last_page) {
    std::vector<Token> filled(stored.begin(), stored.end());
    const auto page_size = static_cast<size_t>(runner.config().page_size);
    if (last_page) filled.resize((filled.size() + page_size - 1) / page_size * page_size, Token{-1});
    for (size_t g = 0; g < groups.size(); ++g)
        if (groups[g].index) groups[g].index->insert(filled, tables[g].pages());
}

Result<CachedPrefix> Engine::export_prefix(std::span<const Token> tokens) {
    State& e = *state_;
    CachedPrefix p;
    auto n = static_cast<int32_t>(tokens.size());
    std::vector<PrefixMatch> matches;
    for (KvGroup& g : e.groups) {
        if (!g.index) return p;
        matches.push_back(g.index->match(tokens));
        n = std::min(n, matches.back().n_tokens);
    }
    p.tokens.assign(tokens.begin(), tokens.begin() + n);
    const auto n_pages =
        static_cast<size_t>((n + e.runner.config().page_size - 1) / e.runner.config().page_size);
    for (size_t g = 0; g < e.groups.size(); ++g) {
        const size_t size = e.runner.page_bytes(static_cast<int32_t>(g));
        p.pages.emplace_back(size * n_pages);
        for (size_t i = 0; i < n_pages; ++i)
            NIBBLE_TRY(e.runner.read_page(static_cast<int32_t>(g), matches[g].pages[i],
                                          std::span(p.pages[g]).subspan(i * size, size)));
    }
    return p;
}

Result<void> Engine::import_prefix(const CachedPrefix& p) {
    State& e = *state_;
    const size_t n = p.tokens.size();
    if (n == 0) return {};
    const auto page_size = static_cast<size_t>(e.runner.config().page_size);
    if (n >= static_cast<size_t>(ctx()))
        return Error{ErrorCode::invalid_argument, "session",
                     cat("holds ", n, " tokens, the context ", ctx(), " including the answer"),
                     "give a larger --ctx"};
    const size_t n_pages = (n + page_size - 1) / page_size;
    if (p.pages.size() != e.groups.size() || !idle())
        return Error{ErrorCode::corrupt, "session", "its parts do not fit this model", ""};
    std::vector<BlockTable> tables;
    for (size_t g = 0; g < e.groups.size(); ++g) {
        const size_t size = e.runner.page_bytes(static_cast<int32_t>(g));
        if (p.pages[g].size() != size * n_pages)
            return Error{
                ErrorCode::corrupt, "session",
                cat("has ", p.pages[g].size(), " bytes of keys and values, ", size * n_pages, " are needed"),
                ""};
        BlockTable& table = tables.emplace_back(*e.groups[g].pool);
        NIBBLE_TRY(table.reserve(static_cast<int32_t>(n)));
        table.advance(static_cast<int32_t>(n));
        for (size_t i = 0; i < n_pages; ++i)
            NIBBLE_TRY(e.runner.write_page(static_cast<int32_t>(g), table.pages()[i],
                                           std::span(p.pages[g]).subspan(i * size, size)));
    }
    e.remember(p.tokens, tables, true);
    return {};
}

}  // namespace nibble
