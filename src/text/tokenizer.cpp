// Tokenizer: special tokens first, then words (bpe) or the whole fragment (spm), merged by merge_symbols().
// The merge table is a flat hash from token pairs; short words are remembered within one call.
#include "src/text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <unordered_map>

#include "ggml/base/cat.h"
#include "src/text/merge.h"
#include "src/text/special_tokens.h"
#include "src/text/split.h"
#include "src/text/utf8.h"

namespace nibble {
namespace {

constexpr std::string_view spm_space = "\xE2\x96\x81";  // U+2581
constexpr size_t max_cached_word = 48;

// (left, right) -> rank and merged id; open addressing, half full at most.
class MergeTable {
  public:
    explicit MergeTable(size_t n) : slots_(std::bit_ceil(std::max<size_t>(8, 2 * n))) {}

    void add(Token left, Token right, uint32_t rank, Token id) {
        Slot& s = *find_slot(key(left, right));
        if (s.id >= 0) return;  // the first of two equal merges has the better rank
        s = {key(left, right), rank, id};
    }
    std::optional<Merge> find(Token left, Token right) const {
        const Slot& s = *const_cast<MergeTable*>(this)->find_slot(key(left, right));
        if (s.id < 0) return {};
        return Merge{static_cast<double>(s.rank), s.id};
    }

  private:
    struct Slot {
        uint64_t key = 0;
        uint32_t rank = 0;
        Token id = -1;
    };
    static uint64_t key(Token l, Token r) {
        return uint64_t{static_cast<uint32_t>(l)} << 32 | static_cast<uint32_t>(r);
    }
    Slot* find_slot(uint64_t k) {
        size_t i = (k * 0x9E3779B97F4A7C15u) >> 20;
        for (;; ++i) {
            Slot& s = slots_[i & (slots_.size() - 1)];
            if (s.id < 0 || s.key == k) return &s;
        }
    }
    std::vector<Slot> slots_;
};

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    size_t at = 0;
    for (size_t hit; (hit = text.find(from, at)) != std::string_view::npos; at = hit + from.size()) {
        out += text.substr(at, hit - at);
        out += to;
    }
    return out += text.substr(at);
}

Error bad_vocab(std::string what) {
    return {ErrorCode::corrupt, "tokenizer", std::move(what),
            "the file is damaged; download or convert it again"};
}

}  // namespace

struct Tokenizer::State {
    Vocab vocab;
    std::unordered_map<std::string_view, Token> ids;  // views into vocab.tokens
    std::vector<std::string> pieces;                  // raw bytes by token
    std::vector<bool> ends;
    std::array<Token, 256> bytes;  // the token of a byte, -1 if there is none
    MergeTable merges{0};
    Splitter splitter;
    SpecialTokens special;

    using Words = std::unordered_map<std::string_view, std::vector<Token>>;

    TokenType type(Token t) const {
        return vocab.types.empty() ? TokenType::normal : TokenType{vocab.types[static_cast<size_t>(t)]};
    }
    Result<void> check() const;
    void index_tokens();
    void index_merges();
    void encode_word(std::string_view word, std::vector<Token>& out) const;
    void encode_bpe(std::string_view text, Words& words, std::vector<Token>& out) const;
    void encode_spm(std::string_view text, std::vector<Token>& out) const;
    void append_bytes(std::string_view bytes, std::vector<Token>& out) const;
};

Result<void> Tokenizer::State::check() const {
    const size_t n = vocab.tokens.size();
    if (n == 0 || n > (1u << 24)) return bad_vocab(cat("has ", n, " tokens"));
    if (!vocab.types.empty() && vocab.types.size() != n)
        return bad_vocab(cat("has ", n, " tokens but ", vocab.types.size(), " token types"));
    if (vocab.model == Vocab::Model::spm && vocab.scores.size() != n)
        return bad_vocab(cat("has ", n, " tokens but ", vocab.scores.size(), " scores"));
    for (const auto& id : {vocab.bos, vocab.eos, vocab.eot, vocab.eom, vocab.unk, vocab.pad})
        if (id && (*id < 0 || static_cast<size_t>(*id) >= n))
            return bad_vocab(cat("names token ", *id, " of ", n));
    return {};
}

void Tokenizer::State::index_tokens() {
    const bool spm = vocab.model == Vocab::Model::spm;
    ids.reserve(vocab.tokens.size());
    pieces.reserve(vocab.tokens.size());
    bytes.fill(-1);
    for (Token t = 0; t < static_cast<Token>(vocab.tokens.size()); ++t) {
        const std::string& text = vocab.tokens[static_cast<size_t>(t)];
        ids.emplace(text, t);
        unsigned byte = 0;
        const bool is_byte = type(t) == TokenType::byte && text.size() == 6 &&
                             std::sscanf(text.c_str(), "<0x%02X>", &byte) == 1;
        const bool literal = type(t) == TokenType::control || type(t) == TokenType::user_defined;
        if (is_byte) {
            pieces.emplace_back(1, static_cast<char>(byte));
            bytes[byte] = t;
        } else if (spm) {
            pieces.push_back(replace_all(text, spm_space, " "));
        } else {
            auto raw = literal ? std::nullopt : alphabet_to_bytes(text);
            pieces.push_back(raw ? std::move(*raw) : text);
        }
        if (literal) special.add(pieces.back(), t, type(t) == TokenType::control);
    }
    special.finish();
    if (!spm)
        for (size_t b = 0; b < 256; ++b)
            if (const auto it = ids.find(byte_alphabet()[b]); it != ids.end()) bytes[b] = it->second;
    ends.assign(vocab.tokens.size(), false);
    for (const Token t : vocab.end_of_generation)
        if (t >= 0 && static_cast<size_t>(t) < ends.size()) ends[static_cast<size_t>(t)] = true;
    if (vocab.eos) ends[static_cast<size_t>(*vocab.eos)] = true;
}

// A merge of something that is no token can never apply and is passed over.
void Tokenizer::State::index_merges() {
    merges = MergeTable(vocab.merges.size());
    std::string joined;
    for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
        const std::string_view m = vocab.merges[rank];
        const size_t space = m.find(' ', 1);
        if (space == std::string_view::npos) continue;
        const std::string_view left = m.substr(0, space), right = m.substr(space + 1);
        joined.assign(left).append(right);
        const auto l = ids.find(left), r = ids.find(right), both = ids.find(joined);
        if (l != ids.end() && r != ids.end() && both != ids.end())
            merges.add(l->second, r->second, static_cast<uint32_t>(rank), both->second);
    }
}

void Tokenizer::State::append_bytes(std::string_view raw, std::vector<Token>& out) const {
    for (const char c : raw) {
        const Token t = bytes[static_cast<unsigned char>(c)];
        if (t >= 0)
            out.push_back(t);
        else if (vocab.unk)
            out.push_back(*vocab.unk);
    }
}

void Tokenizer::State::encode_word(std::string_view word, std::vector<Token>& out) const {
    if (vocab.ignore_merges) {
        std::string spelled;
        for (const char c : word) spelled += byte_alphabet()[static_cast<unsigned char>(c)];
        if (const auto it = ids.find(spelled); it != ids.end()) return out.push_back(it->second);
    }
    std::vector<Symbol> symbols(word.size());
    for (size_t i = 0; i < word.size(); ++i)
        symbols[i] = {bytes[static_cast<unsigned char>(word[i])], static_cast<uint32_t>(i), 1};
    merge_symbols(symbols, [&](const Symbol& l, const Symbol& r) { return merges.find(l.id, r.id); });
    for (const Symbol& s : symbols) {
        if (s.size == 0) continue;
        if (s.id >= 0)
            out.push_back(s.id);
        else
            append_bytes(word.substr(s.begin, s.size), out);
    }
}

void Tokenizer::State::encode_bpe(std::string_view text, Words& words, std::vector<Token>& out) const {
    for (const std::string_view word : splitter.split(text)) {
        if (word.size() > max_cached_word) {
            encode_word(word, out);
            continue;
        }
        const auto [it, fresh] = words.try_emplace(word);
        if (fresh) encode_word(word, it->second);
        out.insert(out.end(), it->second.begin(), it->second.end());
    }
}

void Tokenizer::State::encode_spm(std::string_view raw, std::vector<Token>& out) const {
    const std::string text =
        replace_all(vocab.add_space_prefix ? cat(" ", raw) : std::string(raw), " ", spm_space);
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < text.size();) {
        const int n = std::max(1, valid_utf8_at(std::string_view(text).substr(i)));
        const auto size = static_cast<uint32_t>(n);
        const auto it = ids.find(std::string_view(text).substr(i, size));
        symbols.push_back({it == ids.end() ? -1 : it->second, static_cast<uint32_t>(i), size});
        i += size;
    }
    merge_symbols(symbols, [&](const Symbol& l, const Symbol& r) -> std::optional<Merge> {
        const auto it = ids.find(std::string_view(text).substr(l.begin, l.size + r.size));
        if (it == ids.end()) return {};
        return Merge{-static_cast<double>(vocab.scores[static_cast<size_t>(it->second)]), it->second};
    });
    for (const Symbol& s : symbols) {
        if (s.size == 0) continue;
        if (s.id >= 0)
            out.push_back(s.id);
        else
            append_bytes(std::string_view(text).substr(s.begin, s.size), out);
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
    s->index_tokens();
    if (s->vocab.model == Vocab::Model::bpe) s->index_merges();
    return Tokenizer(std::move(s));
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    const State& s = *state_;
    std::vector<Token> out;
    State::Words words;
    if (options.add_bos && s.vocab.add_bos && s.vocab.bos) out.push_back(*s.vocab.bos);
    const auto plain = [&](std::string_view fragment) {
        if (fragment.empty()) return;
        if (s.vocab.model == Vocab::Model::spm)
            s.encode_spm(fragment, out);
        else
            s.encode_bpe(fragment, words, out);
    };
    size_t at = 0;
    while (const auto match = s.special.find(text, at, options.parse_special)) {
        plain(text.substr(at, match->begin - at));
        out.push_back(match->id);
        at = match->begin + match->size;
    }
    plain(text.substr(at));
    if (options.add_bos && s.vocab.add_eos && s.vocab.eos) out.push_back(*s.vocab.eos);
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

bool Tokenizer::is_end_of_generation(Token t) const {
    return t >= 0 && static_cast<size_t>(t) < state_->ends.size() && state_->ends[static_cast<size_t>(t)];
}

std::optional<Token> Tokenizer::find(std::string_view token_text) const {
    const auto it = state_->ids.find(token_text);
    if (it == state_->ids.end()) return {};
    return it->second;
}

}  // namespace nibble
