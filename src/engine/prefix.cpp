// Reuse of keys and values: what finished requests leave behind, who takes it up, and files of it.
// The index of each KV group compares tokens; a prefix counts as far as all groups have it. Models that carry
// states have one only where a state was kept.
#include <algorithm>

#include "ggml/base/checked.h"
#include "src/engine/state.h"

namespace nibble {

size_t Engine::State::pages_for(const KvGroup& group, size_t n_tokens) const {
    return ceil_div(n_tokens, static_cast<size_t>(group.pool->page_size()));
}

// Of keys and values any beginning counts, of a state the whole.
Engine::State::KnownPrefix Engine::State::known_prefix(std::span<const Token> tokens) {
    KnownPrefix known{static_cast<int32_t>(tokens.size()), std::vector<PrefixMatch>(groups.size())};
    for (const bool states : {false, true})
        for (size_t g = 0; g < groups.size(); ++g) {
            if (groups[g].states != states) continue;
            if (!config.prefix_cache) return {};
            PrefixMatch& match = known.groups[g];
            if (states) {
                const StateMatch state =
                    groups[g].known_states->match(tokens.first(static_cast<size_t>(known.n_tokens)));
                match = {{state.page}, state.n_tokens};
            } else {
                match = groups[g].index->match(tokens);
            }
            known.n_tokens = std::min(known.n_tokens, match.n_tokens);
        }
    // Several groups of states may know different ones: only what all have counts.
    for (size_t g = 0; g < groups.size(); ++g)
        if (known.n_tokens == 0 || (groups[g].states && known.groups[g].n_tokens != known.n_tokens))
            return {};
    for (size_t g = 0; g < groups.size(); ++g)
        known.groups[g].pages.resize(pages_for(groups[g], static_cast<size_t>(known.n_tokens)));
    return known;
}

void Engine::State::adopt_prefix(Sequence& s) {
    const std::span<const Token> prompt(s.tokens.data(), s.tokens.size() - 1);  // one token must be computed
    const KnownPrefix known = known_prefix(prompt);
    if (known.n_tokens == 0) return;
    for (size_t g = 0; g < groups.size(); ++g) s.tables[g].adopt(known.groups[g].pages, known.n_tokens);
    s.n_computed = s.reading.n_read = known.n_tokens;
    if (config.prompts_grow) s.kept_state = known.n_tokens;
}

// Makes the pages of a finished sequence findable for later requests.
void Engine::State::remember(Sequence& s) {
    const auto stored = std::span(s.tokens).first(static_cast<size_t>(s.n_computed));
    remember(stored, s.tables, true);
    // A prompt that grows goes on behind the one before, whatever was generated there.
    if (!config.prompts_grow) remember_states(stored, s.tables);
}

// The index knows full pages. The last one is filled up with tokens that no prompt has, so that it is found
// by those that are stored; whoever writes behind them writes into a copy. Not of a sequence that still runs.
void Engine::State::remember(std::span<const Token> stored, std::span<const BlockTable> tables,
                             bool last_page) {
    std::vector<Token> filled(stored.begin(), stored.end());
    const auto page_size = static_cast<size_t>(runner.config().page_size);
    if (last_page) filled.resize(ceil_div(filled.size(), page_size) * page_size, Token{-1});
    for (size_t g = 0; g < groups.size(); ++g)
        if (groups[g].index) groups[g].index->insert(filled, tables[g].pages());
}

// Whether it was not known. A step that was started may have taken a state further: then it is not these
// tokens'.
bool Engine::State::remember_states(std::span<const Token> stored, std::span<const BlockTable> tables) {
    bool fresh = false;
    for (size_t g = 0; g < groups.size(); ++g)
        if (groups[g].known_states && tables[g].length() == static_cast<int32_t>(stored.size()) &&
            !stored.empty())
            fresh |= groups[g].known_states->insert(stored, tables[g].pages().front());
    return fresh;
}

int32_t Engine::known(std::span<const Token> prompt) {
    return prompt.empty() ? 0 : state_->known_prefix(prompt.first(prompt.size() - 1)).n_tokens;
}

Result<CachedPrefix> Engine::export_prefix(std::span<const Token> tokens) {
    State& e = *state_;
    CachedPrefix p;
    const State::KnownPrefix known = e.known_prefix(tokens);
    p.tokens.assign(tokens.begin(), tokens.begin() + known.n_tokens);
    for (size_t g = 0; g < known.groups.size(); ++g) {
        const std::vector<PageId>& pages = known.groups[g].pages;
        const size_t size = e.runner.page_bytes(static_cast<int32_t>(g));
        p.pages.emplace_back(size * pages.size());
        for (size_t i = 0; i < pages.size(); ++i)
            NIBBLE_TRY(e.runner.read_page(static_cast<int32_t>(g), pages[i],
                                          std::span(p.pages[g]).subspan(i * size, size)));
    }
    return p;
}

Result<void> Engine::import_prefix(const PrefixView& p) {
    State& e = *state_;
    const size_t n = p.tokens.size();
    if (n == 0) return {};
    if (n >= static_cast<size_t>(ctx()))
        return Error{ErrorCode::invalid_argument, "session",
                     cat("holds ", n, " tokens, the context ", ctx(), " including the answer"),
                     "give a larger --ctx"};
    if (p.pages.size() != e.groups.size() || !idle())
        return Error{ErrorCode::corrupt, "session", "its parts do not fit this model", ""};
    std::vector<BlockTable> tables;
    for (size_t g = 0; g < e.groups.size(); ++g) {
        const size_t size = e.runner.page_bytes(static_cast<int32_t>(g)),
                     n_pages = e.pages_for(e.groups[g], n);
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
                                           p.pages[g].subspan(i * size, size)));
    }
    e.remember(p.tokens, tables, true);
    e.remember_states(p.tokens, tables);
    return {};
}

Result<size_t> Engine::import_beginning(const PrefixView& p, size_t n) {
    const State& e = *state_;
    if (n < p.tokens.size() && e.carries_states()) return 0;
    PrefixView beginning{p.tokens.first(n), p.pages};
    for (size_t g = 0; g < std::min(p.pages.size(), e.groups.size()); ++g) {
        const size_t bytes = e.runner.page_bytes(static_cast<int32_t>(g)) * e.pages_for(e.groups[g], n);
        beginning.pages[g] = p.pages[g].first(std::min(bytes, p.pages[g].size()));
    }
    NIBBLE_TRY(import_prefix(beginning));
    return n;
}

}  // namespace nibble
