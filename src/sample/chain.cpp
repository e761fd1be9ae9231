// Building the chain, running it, and drawing from what it leaves.
// The links themselves are in files of their own.
#include "src/sample/chain.h"

#include <algorithm>
#include <limits>

#include "ggml/base/cat.h"

namespace nibble {

namespace {

// Which links of the order take part. Greedy decoding needs the edits only: truncations keep the best token
// anyway (or, XTC, would contradict it). Mirostat chooses the truncation itself.
bool takes_part(const Link& link, bool greedy, bool mirostat) {
    if (greedy) return link.kind == LinkKind::edit;
    return !(mirostat && link.kind == LinkKind::truncate);
}

bool contains(std::span<const Link* const> order, std::string_view name) {
    return std::ranges::any_of(order, [name](const Link* l) { return l->name == name; });
}

}  // namespace

Result<Chain> Chain::create(const SamplerParams& params, size_t n_vocab) {
    if (n_vocab < 1 || n_vocab > static_cast<size_t>(max_vocab)) {
        return Error{ErrorCode::invalid_argument, "vocabulary",
                     cat(n_vocab, " tokens; the sampler takes 1 to ", max_vocab), ""};
    }
    NIBBLE_TRY(validate(params));
    for (const LogitBias& b : params.logit_bias) {
        if (static_cast<size_t>(b.token) >= n_vocab) {
            return Error{ErrorCode::invalid_argument, "logit_bias",
                         cat("token ", b.token, " is not in the vocabulary"),
                         cat("allowed: 0 to ", n_vocab - 1)};
        }
    }
    const auto order = NIBBLE_TRY(chain_order(params.samplers));
    Chain chain;
    chain.params_ = params;
    chain.n_vocab_ = n_vocab;
    chain.greedy_ = params.temperature == 0 && contains(order, "temperature");
    const bool mirostat = params.mirostat == 2 && contains(order, "mirostat");
    for (const Link* link : order) {
        if (!takes_part(*link, chain.greedy_, mirostat)) continue;
        if (auto sampler = link->make(params)) chain.links_.push_back({link, std::move(sampler)});
    }
    return chain;
}

// Leaves the candidates after all links. The logits carry edits until candidates_.restore().
Result<void> Chain::run(std::span<float> logits, const Rng& rng) {
    if (logits.size() != n_vocab_) {
        return Error{ErrorCode::internal, "logits",
                     cat(logits.size(), " values for a vocabulary of ", n_vocab_), ""};
    }
    NIBBLE_TRY(candidates_.begin(logits));
    return run_links(rng);
}

Result<void> Chain::run_links(const Rng& rng) {
    for (const Active& active : links_) {
        active.sampler->apply(candidates_, {history_, rng});
        if (candidates_.undecided()) return {};
        if (candidates_.best() > -std::numeric_limits<float>::infinity()) continue;
        candidates_.restore();
        return Error{ErrorCode::invalid_argument, std::string(active.link->name),
                     "excludes every token that is left", "allow more tokens"};
    }
    return {};
}

Result<std::span<float>> Chain::masked(std::span<const float> logits, TokenFilter& filter) {
    masked_.assign(logits.begin(), logits.end());
    filter.mask(masked_);
    const auto possible = [](float l) { return l > -std::numeric_limits<float>::infinity(); };
    if (std::ranges::none_of(masked_, possible)) {
        return Error{ErrorCode::invalid_argument, "constraint", "allows no token here",
                     "the grammar cannot be met with this vocabulary"};
    }
    return std::span<float>(masked_);
}

Token Chain::draw(uint64_t random) {
    if (greedy_) return candidates_.first().id;
    const uint64_t total = candidates_.weigh();
    const auto share = static_cast<uint64_t>(static_cast<unsigned __int128>(random) * total >> 64);
    return candidates_.reach(share + 1).id;  // share < total
}

Result<Token> Chain::pick(std::span<float> logits, Rng& rng, TokenFilter* filter) {
    NIBBLE_TRY(run(logits, rng));
    Token token = draw(rng.bits(RngLane::pick));
    candidates_.restore();
    if (filter && !filter->allows(token)) {
        NIBBLE_TRY(run(NIBBLE_TRY(masked(logits, *filter)), rng));
        token = draw(rng.bits(RngLane::retry));
    }
    rng.next_step();
    return token;
}

double Chain::weighed_at() const {
    double temperature = greedy_ ? 0 : 1;
    for (const Active& active : links_) {
        if (active.link->kind == LinkKind::edit) continue;
        if (active.link->name == "top_p" || active.link->name == "mirostat") break;
        // Other truncations do with the best, or need more than a sum.
        if (active.link->name != "temperature" || params_.dynatemp_range > 0) return 0;
        temperature *= params_.temperature;
    }
    return temperature;
}

Result<std::optional<Token>> Chain::pick(const FirstTokens& first, Rng& rng, TokenFilter* filter) {
    if (first.list.empty()) return std::optional<Token>();
    candidates_.begin_with_first(first);
    NIBBLE_TRY(run_links(rng));
    if (candidates_.undecided()) return std::optional<Token>();
    const Token token = draw(rng.bits(RngLane::pick));
    if (candidates_.undecided() || (filter && !filter->allows(token))) return std::optional<Token>();
    rng.next_step();
    return std::optional(token);
}

std::optional<DrawRow> Chain::draw_row(const Rng& rng, bool ahead) const {
    DrawRow row;
    row.random = rng.bits(RngLane::pick);
    for (const Active& active : links_)
        if (!active.sampler->describe(row, history_, ahead)) return {};
    if (greedy_) row.steps.push_back({DrawKind::best, {}});
    if (row.steps.size() > most_draw_steps) return {};
    return row;
}

Result<std::vector<TokenProbability>> Chain::probabilities(std::span<float> logits, const Rng& rng, size_t n,
                                                           TokenFilter* filter) {
    if (filter) logits = NIBBLE_TRY(masked(logits, *filter));
    NIBBLE_TRY(run(logits, rng));
    std::vector<TokenProbability> result;
    if (greedy_) {
        result.push_back({candidates_.first().id, 1.0});
    } else {
        const double best = candidates_.best();
        const auto total = static_cast<double>(candidates_.total_weight());
        const auto list = candidates_.sorted(n);
        for (const Candidate& c : list.first(std::min(n, list.size())))
            result.push_back({c.id, static_cast<double>(weight_of(c.logit - best)) / total});
    }
    candidates_.restore();
    return result;
}

void Chain::accept(Token token) {
    if (token < 0 || static_cast<size_t>(token) >= n_vocab_) return;
    history_.push_back(token);
    for (const Active& active : links_) active.sampler->accept(history_);
}

void Chain::rewind(size_t n_tokens) {
    if (n_tokens < history_.size()) history_.resize(n_tokens);
    for (const Active& active : links_) {
        active.sampler->reset();
        for (size_t n = 1; n <= history_.size(); ++n) active.sampler->accept(std::span(history_).first(n));
    }
}

Chain Chain::clone() const {
    Chain copy;
    copy.params_ = params_;
    copy.n_vocab_ = n_vocab_;
    copy.greedy_ = greedy_;
    for (const Active& active : links_) copy.links_.push_back({active.link, active.sampler->clone()});
    copy.history_ = history_;
    return copy;
}

std::string Chain::describe() const {
    std::string text;
    for (const Active& active : links_) {
        std::string values;
        for (const Param& p : chain_table::params) {
            if (p.link != active.link->name) continue;
            const bool alone = p.key == p.link;  // top_k(40) rather than top_k(top_k=40)
            values += cat(values.empty() ? "" : ", ", alone ? "" : p.key, alone ? "" : "=", get(params_, p));
        }
        text += cat(text.empty() ? "" : " > ", active.link->name, '(', values, ')');
    }
    if (greedy_) text += text.empty() ? "greedy" : " > greedy";
    return text;
}

}  // namespace nibble
