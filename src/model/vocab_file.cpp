// Vocab from GGUF metadata or a Hugging Face folder, and back into metadata.
// A key that is there and cannot be used is an Error: without it the same text would become other tokens.
#include "src/model/vocab_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "src/text/hf_vocab.h"
#include "src/text/merge_scores.h"

namespace nibble {
namespace {

constexpr std::string_view prefix = "tokenizer.ggml.";

struct IdKey {
    std::string_view key;
    std::optional<Token> Vocab::*field;
};
constexpr IdKey id_keys[] = {{"bos_token_id", &Vocab::bos},     {"eos_token_id", &Vocab::eos},
                             {"eot_token_id", &Vocab::eot},     {"eom_token_id", &Vocab::eom},
                             {"unknown_token_id", &Vocab::unk}, {"padding_token_id", &Vocab::pad}};

struct FlagKey {
    std::string_view key;
    bool Vocab::*field;
};
constexpr FlagKey flag_keys[] = {{"add_bos_token", &Vocab::add_bos},
                                 {"add_eos_token", &Vocab::add_eos},
                                 {"add_space_prefix", &Vocab::add_space_prefix},
                                 {"remove_extra_whitespaces", &Vocab::remove_extra_whitespaces}};

// What tokenizer.json can say and GGUF has no key for. Written only where it matters.
constexpr std::string_view own = "nibble.tokenizer.";
struct ListKey {
    std::string_view key;
    std::vector<Token> Vocab::*field;
};
constexpr ListKey list_keys[] = {{"strip_left", &Vocab::strip_left}, {"strip_right", &Vocab::strip_right}};

// Kinds whose words are looked up whole before any merge, unless the file says otherwise.
bool kind_ignores_merges(std::string_view pre) {
    constexpr std::string_view kinds[] = {"llama-bpe", "llama3", "llama-v3", "falcon3",
                                          "pixtral",   "lfm2",   "tekken"};
    return std::ranges::find(kinds, pre) != std::end(kinds);
}

// Kinds whose tokenizers compose text first (NFC).
bool kind_composes(std::string_view pre) { return pre == "qwen2" || pre == "qwen35" || pre == "hunyuan"; }

std::vector<std::string> strings(std::span<const std::string_view> views) {
    return {views.begin(), views.end()};
}

Result<Vocab::Model> model_kind(std::string_view name, const std::string& where) {
    if (name == "gpt2") return Vocab::Model::bpe;
    if (name == "llama" || name == "gemma4") return Vocab::Model::spm;
    return Error{
        ErrorCode::unsupported, where, cat("tokenizer model '", name, "' is not implemented"),
        "known are gpt2 (byte-level BPE), llama (SentencePiece BPE) and gemma4 (the same by merges)"};
}

// Nothing when the key is absent, an Error when its value is no T.
template <class T>
Result<std::optional<T>> optional(const Metadata& m, std::string_view key) {
    if (!m.contains(key)) return std::optional<T>();
    return std::optional<T>(NIBBLE_TRY(m.require<T>(key)));
}

Error unusable(const Metadata& m, std::string_view key, std::string what) {
    return {ErrorCode::corrupt, m.where(), cat("metadata key '", key, "' ", what),
            "the file is damaged; download or convert it again"};
}

// The token that an id of this key names; nothing for -1, stored signed or not: how some files say "none".
Result<std::optional<Token>> token_id(const Metadata& m, std::string_view key, int64_t id, size_t n_tokens) {
    if (id == -1 || id == std::numeric_limits<uint32_t>::max()) return std::optional<Token>();
    if (id < 0 || std::cmp_greater_equal(id, n_tokens))
        return unusable(m, key, cat("names token ", id, " of ", n_tokens));
    return std::optional<Token>(static_cast<Token>(id));
}

Result<void> append_ids(const Metadata& m, std::string_view key, size_t n_tokens, std::vector<Token>& out) {
    for (const int64_t id : NIBBLE_TRY(m.get_or<std::vector<int64_t>>(key, {})))
        if (const auto t = NIBBLE_TRY(token_id(m, key, id, n_tokens))) out.push_back(*t);
    return {};
}

// Tokens that end an answer, as far as the file names them; Tokenizer adds the usual names.
Result<void> collect_ends(Vocab& v, const Metadata& m) {
    for (const auto& id : {v.eos, v.eot, v.eom})
        if (id) v.end_of_generation.push_back(*id);
    return append_ids(m, cat(prefix, "eos_token_ids"), v.tokens.size(), v.end_of_generation);
}

Result<void> read_types(Vocab& v, const Metadata& m) {
    const std::string key = cat(prefix, "token_type");
    const auto types = NIBBLE_TRY(optional<std::vector<int64_t>>(m, key));
    if (!types) return {};
    if (types->size() != v.tokens.size())
        return unusable(m, key, cat("has ", types->size(), " types for ", v.tokens.size(), " tokens"));
    for (size_t i = 0; i < types->size(); ++i) {
        const int64_t type = (*types)[i];
        if (type < 0 || type > static_cast<int64_t>(TokenType::byte))  // 0 is "undefined"
            return unusable(m, key, cat("gives token ", i, " the unknown type ", type));
        v.types.push_back(static_cast<uint8_t>(type));
    }
    return {};
}

// Which special tokens swallow the white space behind them has no key in GGUF; of Phi-3, where all but a few
// do, readers know it by the model's name.
bool is_phi3(const Metadata& m) {
    const auto text = [&](std::string_view key) -> std::string {
        const auto found = m.get_or<std::string_view>(key, "");
        std::string lower(found ? *found : "");
        for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
        return lower;
    };
    const std::string name = text("general.name");
    return text("general.architecture") == "phi3" && text(cat(prefix, "model")) == "llama" &&
           (name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos);
}
void strip_as_phi3(Vocab& v) {
    constexpr std::string_view keeps[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t t = 0; t < v.types.size() && t < v.tokens.size(); ++t) {
        const auto type = static_cast<TokenType>(v.types[t]);
        const bool special = type == TokenType::control || type == TokenType::user_defined;
        if ((special && std::ranges::find(keeps, v.tokens[t]) == std::end(keeps)) || v.tokens[t] == "</s>")
            v.strip_right.push_back(static_cast<Token>(t));
    }
}

Result<Vocab> from_gguf(const TensorFile& file) {
    const Metadata& m = file.metadata();
    const auto key = [](std::string_view k) { return cat(prefix, k); };
    Vocab v;
    const std::string_view model = NIBBLE_TRY(m.require_str(key("model")));
    v.model = NIBBLE_TRY(model_kind(model, file.path().string()));
    const bool spm = v.model == Vocab::Model::spm, by_merges = model == "gemma4";
    v.tokens = strings(NIBBLE_TRY(m.require_strings(key("tokens"))));
    if (spm && !by_merges)
        v.scores = NIBBLE_TRY(m.require_floats(key("scores")));
    else
        v.merges = strings(NIBBLE_TRY(m.require_strings(key("merges"))));
    v.pre = std::string(NIBBLE_TRY(m.get_or<std::string_view>(key("pre"), spm ? "" : "gpt-2")));
    if (by_merges)
        if (const auto scored = score_by_merges(v, TokenIndex::of_first(v.tokens)); !scored)
            return unusable(m, key("merges"), scored.error().what);
    NIBBLE_TRY(read_types(v, m));
    // Rows of the embedding that no text has: they must not be drawn.
    while (!v.tokens.empty() && v.types.size() == v.tokens.size() && v.tokens.back().starts_with("[PAD") &&
           v.types.back() == static_cast<uint8_t>(TokenType::unused)) {
        v.tokens.pop_back();
        v.types.pop_back();
        if (v.scores.size() > v.tokens.size()) v.scores.pop_back();
    }
    for (const IdKey& k : id_keys)
        if (const auto id = NIBBLE_TRY(optional<int64_t>(m, key(k.key))))
            v.*k.field = NIBBLE_TRY(token_id(m, key(k.key), *id, v.tokens.size()));
    v.ignore_merges = NIBBLE_TRY(m.get_or<bool>(cat(own, "ignore_merges"), kind_ignores_merges(v.pre)));
    v.nfc = NIBBLE_TRY(m.get_or<bool>(cat(own, "nfc"), kind_composes(v.pre)));
    v.prefix_first_only = NIBBLE_TRY(m.get_or<bool>(cat(own, "prefix_first_only"), false));
    v.split_regexes = strings(NIBBLE_TRY(m.get_or<Metadata::Strings>(cat(own, "split_regexes"), {})));
    for (const ListKey& k : list_keys)
        NIBBLE_TRY(append_ids(m, cat(own, k.key), v.tokens.size(), v.*k.field));
    if (v.strip_right.empty() && is_phi3(m)) strip_as_phi3(v);
    v.add_bos = spm || kind_ignores_merges(v.pre);
    v.add_space_prefix = spm && !by_merges;
    for (const FlagKey& k : flag_keys) v.*k.field = NIBBLE_TRY(m.get_or<bool>(key(k.key), v.*k.field));
    if (const auto t = NIBBLE_TRY(optional<std::string_view>(m, "tokenizer.chat_template")))
        v.chat_template = std::string(*t);
    NIBBLE_TRY(collect_ends(v, m));
    return v;
}

Result<Vocab> from_hf(const TensorFile& file) {
    const auto text = [&](std::string_view name) -> Result<std::string> {
        const auto found = NIBBLE_TRY(file.text(name));
        if (found && found->empty() && name.ends_with(".json"))
            return Error{ErrorCode::corrupt, (file.path() / name).string(), "is empty", "download it again"};
        return found.value_or("");
    };
    HfFiles files;
    files.tokenizer = NIBBLE_TRY(text("tokenizer.json"));
    if (files.tokenizer.empty())
        return Error{ErrorCode::not_found, (file.path() / "tokenizer.json").string(), "is missing",
                     "the folder needs a tokenizer.json"};
    files.tokenizer_config = NIBBLE_TRY(text("tokenizer_config.json"));
    files.generation_config = NIBBLE_TRY(text("generation_config.json"));
    if (file.config().is_object()) files.config = file.config().dump();
    Vocab v = NIBBLE_TRY(vocab_from_hf(files, (file.path() / "tokenizer.json").string()));
    const std::string jinja = NIBBLE_TRY(text("chat_template.jinja"));
    if (!jinja.empty()) v.chat_template = jinja;
    return v;
}

}  // namespace

Result<Vocab> read_vocab(const TensorFile& file) {
    auto vocab = file.kind() == TensorFile::Kind::hf ? from_hf(file) : from_gguf(file);
    if (!vocab) return of_file(vocab.error(), file.path().string());
    return vocab;
}

Result<Tokenizer> read_tokenizer(const TensorFile& file) {
    return make_tokenizer(NIBBLE_TRY(read_vocab(file)), file.path());
}

Result<Tokenizer> make_tokenizer(Vocab vocab, const std::filesystem::path& file) {
    auto tokenizer = Tokenizer::create(std::move(vocab));
    if (!tokenizer) return of_file(tokenizer.error(), file.string());
    return tokenizer;
}

Result<void> check_vocab_size(size_t n_tokens, int64_t n_rows, const std::filesystem::path& path) {
    if (static_cast<int64_t>(n_tokens) <= n_rows) return {};
    return Error{ErrorCode::corrupt, path.string(),
                 cat("the tokenizer has ", n_tokens, " tokens, the embedding ", n_rows, " rows"),
                 "they do not belong together"};
}

void write_vocab(const Vocab& v, Metadata& out) {
    const auto set = [&](std::string_view key, MetaValue value) {
        out.set(cat(prefix, key), std::move(value));
    };
    const bool spm = v.model == Vocab::Model::spm;
    set("model", std::string(spm ? "llama" : "gpt2"));
    if (!v.pre.empty()) set("pre", v.pre);
    set("tokens", MetaArray(v.tokens));
    if (!v.scores.empty()) set("scores", MetaArray(v.scores));
    if (!v.types.empty()) set("token_type", MetaArray(std::vector<int32_t>(v.types.begin(), v.types.end())));
    if (!spm) set("merges", MetaArray(v.merges));
    for (const IdKey& k : id_keys)
        if (v.*k.field) set(k.key, static_cast<uint32_t>(*(v.*k.field)));
    for (const FlagKey& k : flag_keys) set(k.key, v.*k.field);
    if (v.ignore_merges != kind_ignores_merges(v.pre)) out.set(cat(own, "ignore_merges"), v.ignore_merges);
    if (v.nfc != kind_composes(v.pre)) out.set(cat(own, "nfc"), v.nfc);
    if (v.prefix_first_only) out.set(cat(own, "prefix_first_only"), true);
    if (v.pre.empty() && !v.split_regexes.empty())
        out.set(cat(own, "split_regexes"), MetaArray(v.split_regexes));
    for (const ListKey& k : list_keys)
        if (!(v.*k.field).empty()) out.set(cat(own, k.key), MetaArray(v.*k.field));
    if (v.end_of_generation.size() > 1)
        set("eos_token_ids",
            MetaArray(std::vector<int32_t>(v.end_of_generation.begin(), v.end_of_generation.end())));
    if (v.chat_template) out.set("tokenizer.chat_template", *v.chat_template);
}

}  // namespace nibble
