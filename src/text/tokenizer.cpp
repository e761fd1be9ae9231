// Tokenizer: special tokens first, then words, each merged by Merger; short words are remembered in one call.
// Words are what the split regexes give (bpe), or what begins with spaces (spm, where the vocabulary allows).
#include "src/text/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>

#include "ggml/base/cat.h"
#include "src/text/merge.h"
#include "src/text/nfc.h"
#include "src/text/special_tokens.h"
#include "src/text/split.h"
#include "src/text/token_index.h"
#include "src/text/utf8.h"
#include "src/text/word_cache.h"

namespace nibble {
namespace {

constexpr std::string_view spm_space = "\xE2\x96\x81";  // U+2581
constexpr size_t max_fragment = size_t{1} << 28;  // bytes merged at once: symbols are counted in 32 bits
constexpr size_t max_special = 512;               // bytes of a token that is searched for in raw text

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    size_t at = 0;
    for (size_t hit; (hit = text.find(from, at)) != std::string_view::npos; at = hit + from.size()) {
        out += text.substr(at, hit - at);
        out += to;
    }
    return out += text.substr(at);
}

// SentencePiece's option: no spaces at the ends, single ones inside.
std::string collapse_spaces(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
    if (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

// The byte named by "<0x41>".
std::optional<uint8_t> byte_name(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
    uint8_t byte = 0;
    const auto r = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    if (r.ec != std::errc() || r.ptr != token.data() + 5) return {};
    return byte;
}

// What Unicode calls White_Space.
constexpr std::string_view white_space[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
    "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
    "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F",
    "\xE3\x80\x80"};

// Bytes of the white space that a text begins or ends with.
size_t white_begin(std::string_view text) {
    size_t n = 0;
    const auto here = [&](std::string_view w) { return text.substr(n).starts_with(w); };
    for (const std::string_view* w; (w = std::ranges::find_if(white_space, here)) != std::end(white_space);)
        n += w->size();
    return n;
}
size_t white_end(std::string_view text) {
    const size_t size = text.size();
    const auto here = [&](std::string_view w) { return text.ends_with(w); };
    for (const std::string_view* w; (w = std::ranges::find_if(white_space, here)) != std::end(white_space);)
        text.remove_suffix(w->size());
    return size - text.size();
}

// Control tokens that end an answer even where a model file does not say so.
constexpr std::string_view usual_ends[] = {"<|im_end|>",    "<|eot_id|>", "<|eom_id|>",
                                           "<|endoftext|>", "<|end|>",    "<end_of_turn>",
                                           "<|return|>",    "<|call|>",   "<turn|>"};

Error bad_vocab(std::string what) {
    return {ErrorCode::corrupt, "tokenizer", std::move(what),
            "the file is damaged; download or convert it again"};
}

}  // namespace

struct Tokenizer::State {
    Vocab vocab;
    TokenIndex ids;
    std::vector<std::string> pieces;  // raw bytes by token
    std::vector<Token> ends;          // in order
    std::optional<ThoughtTokens> thoughts;
    std::array<Token, 256> bytes;     // the token of a byte, -1 if there is none
    MergeTable merges;                // bpe
    std::vector<uint32_t> ranks;      // spm: by token, from scores
    size_t longest = 0;               // spm: bytes of the longest token that text can become
    bool spaces_begin_words = false;  // spm: no token holds a space behind another character
    Splitter splitter;
    SpecialTokens special;

    // Buffers of one call of encode().
    struct Scratch {
        explicit Scratch(size_t text_size) : words(text_size), budget(text_size) {}
        WordCache words;
        Splitter::Budget budget;
        Merger merger;
        std::string spelled;
    };

    TokenType type(Token t) const {
        return vocab.types.empty() ? TokenType::normal : TokenType{vocab.types[static_cast<size_t>(t)]};
    }
    // Whether merging text can yield this token. Never a control token, whatever the text spells.
    bool mergeable(Token t) const {
        return type(t) == TokenType::normal || type(t) == TokenType::user_defined;
    }
    Token mergeable_id(std::string_view token) const {
        const Token t = ids.find(token);
        return t >= 0 && mergeable(t) ? t : -1;
    }
    Result<void> check();
    Result<void> index_tokens();
    Result<void> index_merges();
    void index_scores();
    void encode_fragment(std::string_view text, bool first, Scratch& scratch, std::vector<Token>& out) const;
    void encode_word(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;
    void encode_spm(std::string_view text, bool first, Scratch& scratch, std::vector<Token>& out) const;
    void encode_spm_word(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;
    void encode_text(std::string_view text, std::span<const SpecialTokens::Range> trusted,
                     std::vector<Token>& out) const;
    void append_symbols(std::string_view word, const Scratch& scratch, std::vector<Token>& out) const;
};

Result<void> Tokenizer::State::check() {
    const size_t n = vocab.tokens.size();
    if (n == 0 || n > (1u << 24)) return bad_vocab(cat("has ", n, " tokens"));
    if (!vocab.types.empty() && vocab.types.size() != n)
        return bad_vocab(cat("has ", n, " tokens but ", vocab.types.size(), " token types"));
    for (size_t i = 0; i < vocab.types.size(); ++i) {
        if (vocab.types[i] > static_cast<uint8_t>(TokenType::byte))
            return bad_vocab(cat("token ", i, " has the unknown type ", vocab.types[i]));
        if (vocab.types[i] == 0) vocab.types[i] = static_cast<uint8_t>(TokenType::normal);  // "undefined"
    }
    if (vocab.model == Vocab::Model::spm && vocab.scores.size() != n)
        return bad_vocab(cat("has ", n, " tokens but ", vocab.scores.size(), " scores"));
    for (size_t i = 0; i < vocab.scores.size(); ++i)
        if (std::isnan(vocab.scores[i])) return bad_vocab(cat("the score of token ", i, " is not a number"));
    for (auto* id : {&vocab.bos, &vocab.eos, &vocab.eot, &vocab.eom, &vocab.unk, &vocab.pad}) {
        if (*id == -1) id->reset();  // how some files say "none"
        if (*id && (**id < 0 || static_cast<size_t>(**id) >= n))
            return bad_vocab(cat("names token ", **id, " of ", n));
    }
    for (auto* list : {&vocab.strip_left, &vocab.strip_right}) std::ranges::sort(*list);
    return {};
}

Result<void> Tokenizer::State::index_tokens() {
    const bool spm = vocab.model == Vocab::Model::spm;
    // Of equal tokens one that text can become goes before one that it cannot.
    ids = TokenIndex(vocab.tokens,
                     [&](Token later, Token known) { return mergeable(later) && !mergeable(known); });
    pieces.reserve(vocab.tokens.size());
    bytes.fill(-1);
    for (Token t = 0; t < static_cast<Token>(vocab.tokens.size()); ++t) {
        const std::string& text = vocab.tokens[static_cast<size_t>(t)];
        const bool literal = type(t) == TokenType::control || type(t) == TokenType::user_defined;
        if (type(t) == TokenType::byte) {
            const auto byte = byte_name(text);
            if (!byte) return bad_vocab(cat("byte token ", t, " is not named like <0x41>"));
            pieces.emplace_back(1, static_cast<char>(*byte));
            if (bytes[*byte] < 0) bytes[*byte] = t;
        } else if (spm) {
            pieces.push_back(replace_all(text, spm_space, " "));
        } else {
            auto raw = literal ? std::nullopt : alphabet_to_bytes(text);
            pieces.push_back(raw ? std::move(*raw) : text);
        }
        // Every place of a text may be the beginning of any of them.
        if (literal && pieces.back().size() > max_special)
            return bad_vocab(cat("special token ", t, " has ", pieces.back().size(), " bytes, at most ",
                                 max_special, " are allowed"));
        if (literal) special.add(pieces.back(), t, type(t) == TokenType::control);
    }
    if (!spm)
        for (size_t b = 0; b < 256; ++b)
            if (const Token t = mergeable_id(byte_alphabet()[b]); t >= 0) bytes[b] = t;
    for (const Token t : vocab.end_of_generation)
        if (t >= 0 && static_cast<size_t>(t) < vocab.tokens.size()) ends.push_back(t);
    for (const std::string_view name : usual_ends)
        if (const Token t = ids.find(name); t >= 0 && type(t) == TokenType::control) ends.push_back(t);
    for (const auto& id : {vocab.eos, vocab.eot, vocab.eom})
        if (id) ends.push_back(*id);
    std::ranges::sort(ends);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    thoughts = find_thought_tokens([this](std::string_view name, bool control) {
        const Token t = ids.find(name);
        return t >= 0 && (!control || type(t) == TokenType::control) ? t : -1;
    });
    if (thoughts) std::erase(ends, thoughts->close);  // behind it the answer goes on
    return {};
}

Result<void> Tokenizer::State::index_merges() {
    merges = MergeTable(vocab.merges.size());
    constexpr size_t some = TokenIndex::batch / 2;
    std::string_view parts[2 * some], wholes[some];
    std::string joined[some];
    Token part_ids[2 * some], whole_ids[some];
    for (size_t first = 0; first < vocab.merges.size(); first += some) {
        const size_t n = std::min(some, vocab.merges.size() - first);
        for (size_t i = 0; i < n; ++i) {
            const std::string_view m = vocab.merges[first + i];
            const size_t space = m.find(' ', 1);
            if (space == std::string_view::npos)
                return bad_vocab(cat("merge ", first + i, " is no pair of tokens"));
            parts[2 * i] = m.substr(0, space), parts[2 * i + 1] = m.substr(space + 1);
            wholes[i] = joined[i].assign(parts[2 * i]).append(parts[2 * i + 1]);
        }
        ids.find(std::span(parts).first(2 * n), part_ids);
        ids.find(std::span(wholes).first(n), whole_ids);
        for (size_t i = 0; i < n; ++i) merges.ask_for(part_ids[2 * i], part_ids[2 * i + 1]);
        for (size_t i = 0; i < n; ++i) {
            const Token left = part_ids[2 * i], right = part_ids[2 * i + 1], both = whole_ids[i];
            if (left < 0 || right < 0 || both < 0)
                return bad_vocab(cat("merge ", first + i, " ('", vocab.merges[first + i],
                                     "') joins or makes something that is no token"));
            if (mergeable(both)) merges.add(left, right, {static_cast<uint32_t>(first + i), both});
        }
    }
    return {};
}

// Ranks by descending score, equal scores alike; and whether words can be encoded one by one.
void Tokenizer::State::index_scores() {
    std::vector<Token> order(vocab.tokens.size());
    std::iota(order.begin(), order.end(), 0);
    const auto score = [&](Token t) { return vocab.scores[static_cast<size_t>(t)]; };
    std::ranges::sort(order, [&](Token a, Token b) { return score(a) > score(b); });
    ranks.resize(order.size());
    for (size_t i = 0; i < order.size(); ++i)
        ranks[static_cast<size_t>(order[i])] = i > 0 && score(order[i]) == score(order[i - 1])
                                                   ? ranks[static_cast<size_t>(order[i - 1])]
                                                   : static_cast<uint32_t>(i);
    spaces_begin_words = true;
    for (Token t = 0; t < static_cast<Token>(vocab.tokens.size()); ++t) {
        if (!mergeable(t)) continue;
        std::string_view text = vocab.tokens[static_cast<size_t>(t)];
        longest = std::max(longest, text.size());
        while (text.starts_with(spm_space)) text.remove_prefix(spm_space.size());
        if (text.find(spm_space) != std::string_view::npos) spaces_begin_words = false;
    }
}

// What merging left behind: tokens, and for the rest byte tokens, or one unknown token per symbol.
void Tokenizer::State::append_symbols(std::string_view word, const Scratch& scratch,
                                      std::vector<Token>& out) const {
    for (const Symbol& s : scratch.merger.symbols) {
        if (s.size == 0) continue;
        const std::string_view raw = word.substr(s.begin, s.size);
        const auto byte_token = [&](char c) { return bytes[static_cast<unsigned char>(c)]; };
        if (s.id >= 0)
            out.push_back(s.id);
        else if (std::ranges::all_of(raw, [&](char c) { return byte_token(c) >= 0; }))
            std::ranges::transform(raw, std::back_inserter(out), byte_token);
        else if (vocab.unk)
            out.push_back(*vocab.unk);
    }
}

void Tokenizer::State::encode_word(std::string_view word, Scratch& scratch, std::vector<Token>& out) const {
    if (vocab.ignore_merges) {
        scratch.spelled.clear();
        for (const char c : word) scratch.spelled += byte_alphabet()[static_cast<unsigned char>(c)];
        if (const Token t = mergeable_id(scratch.spelled); t >= 0) return out.push_back(t);
    }
    auto& symbols = scratch.merger.symbols;
    symbols.resize(word.size());
    for (size_t i = 0; i < word.size(); ++i)
        symbols[i] = {bytes[static_cast<unsigned char>(word[i])], static_cast<uint32_t>(i), 1};
    scratch.merger.run([&](const Symbol& l, const Symbol& r) { return merges.find(l.id, r.id); });
    append_symbols(word, scratch, out);
}

void Tokenizer::State::encode_spm_word(std::string_view word, Scratch& scratch,
                                       std::vector<Token>& out) const {
    auto& symbols = scratch.merger.symbols;
    symbols.clear();
    for (size_t i = 0; i < word.size();) {
        const auto size = static_cast<size_t>(std::max(1, valid_utf8_at(word.substr(i))));
        symbols.push_back(
            {mergeable_id(word.substr(i, size)), static_cast<uint32_t>(i), static_cast<uint32_t>(size)});
        i += size;
    }
    scratch.merger.run([&](const Symbol& l, const Symbol& r) -> Merge {
        const size_t size = size_t{l.size} + r.size;
        const Token t = size <= longest ? mergeable_id(word.substr(l.begin, size)) : -1;
        return t < 0 ? Merge{} : Merge{ranks[static_cast<size_t>(t)], t};
    });
    append_symbols(word, scratch, out);
}

void Tokenizer::State::encode_spm(std::string_view raw, bool first, Scratch& scratch,
                                  std::vector<Token>& out) const {
    std::string spaced = vocab.remove_extra_whitespaces ? collapse_spaces(raw) : std::string(raw);
    if (vocab.add_space_prefix && (first || !vocab.prefix_first_only)) spaced.insert(0, 1, ' ');
    const std::string text = replace_all(spaced, " ", spm_space);
    std::string_view rest = text;
    while (!rest.empty()) {
        size_t end = std::string_view::npos;
        if (spaces_begin_words) {
            size_t letters = 0;
            while (rest.substr(letters).starts_with(spm_space)) letters += spm_space.size();
            end = rest.find(spm_space, letters);
        }
        scratch.words.append(rest.substr(0, end), out, [&](std::string_view word, std::vector<Token>& to) {
            encode_spm_word(word, scratch, to);
        });
        rest.remove_prefix(std::min(end, rest.size()));
    }
}

void Tokenizer::State::encode_fragment(std::string_view text, bool first, Scratch& scratch,
                                       std::vector<Token>& out) const {
    std::string normal;
    if (vocab.nfc && !is_nfc(text)) text = normal = to_nfc(text);
    while (!text.empty()) {
        size_t n = std::min(text.size(), max_fragment);
        while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;
        const std::string_view part = text.substr(0, n);
        if (vocab.model == Vocab::Model::spm)
            encode_spm(part, first, scratch, out);
        else
            for (const std::string_view piece : splitter.split(part, scratch.budget))
                scratch.words.append(piece, out, [&](std::string_view word, std::vector<Token>& to) {
                    encode_word(word, scratch, to);
                });
        text.remove_prefix(n);
    }
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(Vocab vocab) {
    auto s = std::make_unique<State>();
    s->vocab = std::move(vocab);
    NIBBLE_TRY(s->check());
    if (s->vocab.model == Vocab::Model::bpe) {
        const auto regexes =
            s->vocab.split_regexes.empty() ? NIBBLE_TRY(split_regexes(s->vocab.pre)) : s->vocab.split_regexes;
        s->splitter = NIBBLE_TRY(Splitter::create(regexes));
    }
    NIBBLE_TRY(s->index_tokens());
    if (s->vocab.model == Vocab::Model::bpe)
        NIBBLE_TRY(s->index_merges());
    else
        s->index_scores();
    return Tokenizer(std::move(s));
}

// Special tokens cut the text; `trusted`: where control tokens may be.
void Tokenizer::State::encode_text(std::string_view text, std::span<const SpecialTokens::Range> trusted,
                                   std::vector<Token>& out) const {
    Scratch scratch(text.size());
    const auto listed = [](const std::vector<Token>& list, Token t) {
        return std::ranges::binary_search(list, t);  // sorted by check()
    };
    size_t at = 0;
    bool first = true;
    while (const auto match = special.find(text, at, trusted)) {
        size_t end = match->begin;
        if (listed(vocab.strip_left, match->id)) end -= white_end(text.substr(at, end - at));
        encode_fragment(text.substr(at, end - at), first, scratch, out);
        first = false;
        out.push_back(match->id);
        at = match->begin + match->size;
        if (listed(vocab.strip_right, match->id)) at += white_begin(text.substr(at));
    }
    encode_fragment(text.substr(at), first, scratch, out);
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    const Vocab& v = state_->vocab;
    std::vector<Token> out;
    out.reserve(text.size() / 4 + 4);
    if (options.add_bos && v.add_bos && v.bos) out.push_back(*v.bos);
    const SpecialTokens::Range everything[] = {{0, text.size()}};
    state_->encode_text(text, std::span(everything).first(options.parse_special ? 1 : 0), out);
    if (options.add_bos && v.add_eos && v.eos) out.push_back(*v.eos);
    return out;
}

std::vector<Token> Tokenizer::encode(std::span<const TemplateSegment> segments) const {
    std::string text;
    std::vector<SpecialTokens::Range> trusted;
    for (const TemplateSegment& s : segments) {
        const size_t begin = text.size();
        text += s.text;
        if (!s.from_template || s.text.empty()) continue;
        if (!trusted.empty() && trusted.back().end == begin)
            trusted.back().end = text.size();
        else
            trusted.push_back({begin, text.size()});
    }
    std::vector<Token> out;
    out.reserve(text.size() / 4 + 4);
    state_->encode_text(text, trusted, out);
    return out;
}

const std::string& Tokenizer::piece(Token token) const {
    static const std::string none;
    const bool known = token >= 0 && static_cast<size_t>(token) < state_->pieces.size();
    return known ? state_->pieces[static_cast<size_t>(token)] : none;
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool keep_control) const {
    std::string text;
    bool strip = state_->vocab.model == Vocab::Model::spm && state_->vocab.add_space_prefix;
    for (const Token t : tokens) {
        if (is_control(t)) {
            if (keep_control) text += piece(t);
            continue;
        }
        std::string_view p = piece(t);
        if (strip && p.starts_with(' ')) p.remove_prefix(1);
        strip = false;
        text += p;
    }
    return text;
}

size_t Tokenizer::n_vocab() const { return state_->vocab.tokens.size(); }
const Vocab& Tokenizer::vocab() const { return state_->vocab; }

bool Tokenizer::is_control(Token t) const {
    return t >= 0 && static_cast<size_t>(t) < n_vocab() && state_->type(t) == TokenType::control;
}

bool Tokenizer::is_end_of_generation(Token t) const { return std::ranges::binary_search(state_->ends, t); }

const std::optional<ThoughtTokens>& Tokenizer::thought_tokens() const { return state_->thoughts; }

std::span<const Token> Tokenizer::ends() const { return state_->ends; }

std::optional<Token> Tokenizer::find(std::string_view token_text) const {
    const Token t = state_->ids.find(token_text);
    return t >= 0 ? std::optional(t) : std::nullopt;
}

}  // namespace nibble
