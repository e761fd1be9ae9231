// vocab_from_hf: byte-level BPE (GPT-2, Llama 3, Qwen, ...) and BPE with byte fallback (Llama 2, Mistral,
// Gemma). The second kind is SentencePiece BPE: its merges are turned back into scores.
// Nesting is bounded before anything walks or copies the documents.
#include "src/text/hf_vocab.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "src/text/bounded_json.h"
#include "src/text/merge_scores.h"
#include "src/text/split.h"
#include "src/text/tokenizer_json.h"

namespace nibble {
namespace {

using Json = nlohmann::json;
constexpr int max_depth = 64;
constexpr size_t max_processors = 64;
constexpr std::string_view spm_space = "\xE2\x96\x81";  // U+2581
constexpr std::string_view gpt2_regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const Json& at(const Json& j, std::string_view key) {
    static const Json null;
    if (!j.is_object()) return null;
    const auto it = j.find(key);
    return it == j.end() ? null : *it;
}
std::string text(const Json& j) { return j.is_string() ? j.get<std::string>() : std::string(); }

// The members of a Sequence, or the one thing itself; nothing for null.
std::vector<const Json*> sequence(const Json& j, std::string_view list) {
    if (j.is_null()) return {};
    if (text(at(j, "type")) != "Sequence") return {&j};
    std::vector<const Json*> members;
    for (const Json& inner : at(j, list)) members.push_back(&inner);
    return members;
}

class Reader {
  public:
    Reader(const HfFiles& files, const std::string& where) : files_(files), where_(where) {}

    Result<Vocab> read() {
        file_ = NIBBLE_TRY(parse_tokenizer_json(files_.tokenizer, where_, max_depth));
        const Json& model = at(file_.root, "model");
        if (const std::string type = text(at(model, "type"));
            type != "BPE" && !(type.empty() && at(model, "merges").is_array()))
            return unsupported(cat("model type '", type, "'"));
        for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
            if (!text(at(model, affix)).empty()) return unsupported(cat("model.", affix));
        if (at(model, "dropout").is_number() && at(model, "dropout") != 0)
            return unsupported("model.dropout");
        v_.ignore_merges = flag(model, "ignore_merges");
        NIBBLE_TRY(choose_model(model));
        NIBBLE_TRY(read_tokens(model));
        v_.merges = std::move(file_.merges);
        NIBBLE_TRY(v_.model == Vocab::Model::bpe ? read_byte_level() : read_sentencepiece(model));
        NIBBLE_TRY(check_flags(where_));
        NIBBLE_TRY(read_ids());
        NIBBLE_TRY(check_flags("tokenizer_config.json"));
        return std::move(v_);
    }

  private:
    Error unsupported(std::string what) const {
        return {ErrorCode::unsupported, where_, what + " is not implemented",
                "convert the model to GGUF with a tool that knows it"};
    }
    // One that is neither true nor false is told by check_flags(): read as if it were not there, it would
    // change tokens silently.
    bool flag(const Json& of, std::string_view key, bool other = false) {
        const Json& j = at(of, key);
        if (!j.is_null() && !j.is_boolean()) bad_flag_ = key;
        return j.is_boolean() ? j.get<bool>() : other;
    }
    Result<void> check_flags(const std::string& where) const {
        if (bad_flag_.empty()) return {};
        return Error{ErrorCode::corrupt, where, cat("'", bad_flag_, "' is neither true nor false"), ""};
    }
    Error corrupt(std::string what) const { return {ErrorCode::corrupt, where_, std::move(what), ""}; }

    static Result<Json> parse(const std::string& content, const std::string& where) {
        if (content.empty()) return Json(nullptr);
        return parse_bounded(content, where, max_depth, ErrorCode::corrupt);
    }

    // Byte-level if some pre-tokenizer is ByteLevel; otherwise characters, which need the byte fallback.
    Result<void> choose_model(const Json& model) {
        for (const Json* p : sequence(at(file_.root, "pre_tokenizer"), "pretokenizers"))
            if (text(at(*p, "type")) == "ByteLevel") return {};
        if (!flag(model, "byte_fallback"))
            return unsupported("a BPE model with neither a ByteLevel pre-tokenizer nor byte_fallback");
        if (v_.ignore_merges) return unsupported("ignore_merges together with byte_fallback");
        v_.model = Vocab::Model::spm;
        return {};
    }

    Result<void> put(uint64_t id, std::string token, TokenType type) {
        if (id >= max_tokens_) return corrupt(cat("token '", token, "' has the impossible id ", id));
        if (id >= v_.tokens.size()) {
            v_.tokens.resize(id + 1);
            v_.types.resize(id + 1, static_cast<uint8_t>(TokenType::unused));
        }
        v_.tokens[id] = std::move(token);
        v_.types[id] = static_cast<uint8_t>(type);
        return {};
    }

    Result<void> read_tokens(const Json& model) {
        const Json& added = at(file_.root, "added_tokens");
        if (!at(model, "vocab").is_object()) return corrupt("model.vocab is not an object");
        if (!file_.wrong.empty()) return corrupt(file_.wrong);
        max_tokens_ = 2 * (file_.ids.size() + added.size()) + 65536;  // ids may have gaps, but no chasms
        for (auto& [token, id] : file_.ids) {
            const bool byte = v_.model == Vocab::Model::spm && token.size() == 6 &&
                              token.starts_with("<0x") && token.ends_with('>');
            NIBBLE_TRY(put(id, std::move(token), byte ? TokenType::byte : TokenType::normal));
        }
        for (const Json& t : added) NIBBLE_TRY(read_added(t));
        // Ids that nothing names keep a spelling that no text contains.
        for (size_t i = 0; i < v_.tokens.size(); ++i)
            if (v_.tokens[i].empty() && v_.types[i] == static_cast<uint8_t>(TokenType::unused))
                v_.tokens[i] = cat("[unused ", i, "]");
        ids_ = TokenIndex::of_first(v_.tokens);
        ends_.resize(v_.tokens.size());
        return {};
    }

    Result<void> read_added(const Json& added) {
        std::string content = text(at(added, "content"));
        const Json& id = at(added, "id");
        if (!id.is_number_unsigned())
            return corrupt(cat("token '", content, "' has the impossible id ", id.dump()));
        if (flag(added, "single_word"))
            return unsupported(cat("added token '", content, "' with single_word"));
        NIBBLE_TRY(put(id.get<uint64_t>(), std::move(content),
                       flag(added, "special") ? TokenType::control : TokenType::user_defined));
        if (flag(added, "lstrip")) v_.strip_left.push_back(id.get<Token>());
        if (flag(added, "rstrip")) v_.strip_right.push_back(id.get<Token>());
        return {};
    }

    // The pass of one pre-tokenizer.
    Result<void> read_pass(const Json& p) {
        const std::string type = text(at(p, "type"));
        if (type == "Split") {
            const std::string regex = text(at(at(p, "pattern"), "Regex")), behavior = text(at(p, "behavior"));
            // Removing what does not match is isolating the matches, for a regex that matches everything.
            const bool isolated = behavior == "Isolated" && !flag(p, "invert");
            const bool kept = behavior == "Removed" && flag(p, "invert");
            if (regex.empty() || !(isolated || kept))
                return unsupported(cat("pre-tokenizer Split with behavior '", behavior, "'"));
            v_.split_regexes.push_back(regex);
        } else if (type == "Digits") {
            v_.split_regexes.emplace_back(flag(p, "individual_digits") ? "\\p{N}" : "\\p{N}+");
        } else if (type == "ByteLevel") {
            if (flag(p, "add_prefix_space")) return unsupported("ByteLevel with add_prefix_space");
            if (flag(p, "use_regex", true)) v_.split_regexes.emplace_back(gpt2_regex);
        } else {
            return unsupported(cat("pre-tokenizer '", type, "'"));
        }
        return {};
    }

    Result<void> read_byte_level() {
        for (const Json* n : sequence(at(file_.root, "normalizer"), "normalizers")) {
            if (const std::string type = text(at(*n, "type")); type != "NFC")
                return unsupported(cat("normalizer '", type, "'"));
            v_.nfc = true;
        }
        bool byte_level = false;
        for (const Json* p : sequence(at(file_.root, "pre_tokenizer"), "pretokenizers")) {
            if (byte_level) return unsupported("a pre-tokenizer behind ByteLevel");
            NIBBLE_TRY(read_pass(*p));
            byte_level = text(at(*p, "type")) == "ByteLevel";
        }
        if (v_.split_regexes.empty()) return unsupported("a byte-level tokenizer without a split regex");
        v_.pre = known_kind();
        return {};
    }

    // The GGUF name of these passes, so that a converted file can name them.
    std::string known_kind() const {
        for (const std::string_view kind :
             {"gpt-2", "llama-bpe", "qwen2", "qwen35", "smollm", "tekken", "gpt-4o", "deepseek-coder",
              "deepseek-llm", "deepseek-v3", "seed-coder", "laguna", "tiny_aya", "afmoe"})
            if (const auto r = split_regexes(kind); r && *r == v_.split_regexes) return std::string(kind);
        return {};
    }

    // A space before the text and U+2581 for every space: by normalizers (Llama 2, Gemma) or by Metaspace.
    Result<void> read_spaces() {
        bool replaced = false;
        for (const Json* n : sequence(at(file_.root, "normalizer"), "normalizers")) {
            const std::string type = text(at(*n, "type"));
            if (type == "Prepend" && text(at(*n, "prepend")) == spm_space)
                v_.add_space_prefix = true;
            else if (type == "Replace" && text(at(at(*n, "pattern"), "String")) == " " &&
                     text(at(*n, "content")) == spm_space)
                replaced = true;
            else
                return unsupported(cat("normalizer '", type, "' with these settings"));
        }
        for (const Json* p : sequence(at(file_.root, "pre_tokenizer"), "pretokenizers")) {
            const std::string type = text(at(*p, "type"));
            // Gemma splits at spaces after all of them have been replaced: without effect.
            if (type == "Split" && replaced && text(at(at(*p, "pattern"), "String")) == " ") continue;
            if (type != "Metaspace" || text(at(*p, "replacement")) != spm_space || flag(*p, "split", true))
                return unsupported(cat("pre-tokenizer '", type, "' with these settings"));
            const std::string scheme = text(at(*p, "prepend_scheme"));
            v_.add_space_prefix = scheme.empty() ? flag(*p, "add_prefix_space", true) : scheme != "never";
            v_.prefix_first_only = scheme == "first";
            replaced = true;
        }
        if (!replaced) return unsupported("a tokenizer with byte_fallback that keeps spaces as they are");
        return {};
    }

    Result<void> read_sentencepiece(const Json& model) {
        NIBBLE_TRY(read_spaces());
        if (const auto scored = score_by_merges(v_, ids_); !scored) return corrupt(scored.error().what);
        if (const Token t = ids_.find(text(at(model, "unk_token"))); t >= 0) v_.unk = t;
        return {};
    }

    std::optional<Token> find_token(const Json& name) const {
        const std::string content = name.is_object() ? text(at(name, "content")) : text(name);
        if (content.empty()) return {};
        const Token t = ids_.find(content);
        return t >= 0 ? std::optional(t) : std::nullopt;
    }

    std::optional<Token> token_id(const Json& id) const {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= v_.tokens.size()) return {};
        return id.get<Token>();
    }

    // An id or a list of them.
    void add_ends(const Json& ids) {
        const auto add = [&](const Json& id) {
            const auto t = token_id(id);
            if (!t || ends_[static_cast<size_t>(*t)]) return;
            ends_[static_cast<size_t>(*t)] = true;
            v_.end_of_generation.push_back(*t);
        };
        if (!ids.is_array()) return add(ids);
        for (const Json& id : ids) add(id);
    }

    // What the post-processor's template puts before and after a text; tokenizer_config may say otherwise.
    Result<void> read_template() {
        const auto processors = sequence(at(file_.root, "post_processor"), "processors");
        if (processors.size() > max_processors)
            return corrupt(cat("post_processor has ", processors.size(), " members, at most ", max_processors,
                               " are allowed"));
        for (const Json* p : processors) {
            const Json& single = at(*p, "single");
            if (!single.is_array() || single.empty()) continue;
            const auto first = find_token(at(at(single.front(), "SpecialToken"), "id"));
            const auto last = find_token(at(at(single.back(), "SpecialToken"), "id"));
            if (first && !v_.bos) v_.bos = first;
            if (last && !v_.eos) v_.eos = last;
            v_.add_bos = first && first == v_.bos;
            v_.add_eos = last && last == v_.eos;
        }
        return {};
    }

    void read_chat_template(const Json& chat) {
        if (chat.is_string()) v_.chat_template = chat.get<std::string>();
        if (!chat.is_array()) return;
        for (const Json& named : chat)
            if (!v_.chat_template || text(at(named, "name")) == "default")
                v_.chat_template = text(at(named, "template"));
    }

    Result<void> read_ids() {
        const Json tokenizer = NIBBLE_TRY(parse(files_.tokenizer_config, "tokenizer_config.json"));
        const Json generation = NIBBLE_TRY(parse(files_.generation_config, "generation_config.json"));
        const Json config = NIBBLE_TRY(parse(files_.config, "config.json"));
        v_.bos = find_token(at(tokenizer, "bos_token"));
        v_.eos = find_token(at(tokenizer, "eos_token"));
        v_.pad = find_token(at(tokenizer, "pad_token"));
        if (!v_.unk) v_.unk = find_token(at(tokenizer, "unk_token"));
        add_ends(at(generation, "eos_token_id"));
        add_ends(at(config, "eos_token_id"));
        if (v_.eos) add_ends(Json(static_cast<uint64_t>(*v_.eos)));
        if (!v_.eos && !v_.end_of_generation.empty()) v_.eos = v_.end_of_generation.front();
        if (!v_.bos) v_.bos = token_id(at(config, "bos_token_id"));
        NIBBLE_TRY(read_template());
        v_.add_bos = flag(tokenizer, "add_bos_token", v_.add_bos);
        v_.add_eos = flag(tokenizer, "add_eos_token", v_.add_eos);
        read_chat_template(at(tokenizer, "chat_template"));
        return {};
    }

    const HfFiles& files_;
    const std::string& where_;
    TokenizerJson file_;
    size_t max_tokens_ = 0;
    std::string bad_flag_;
    Vocab v_;
    TokenIndex ids_;
    std::vector<bool> ends_;  // by token: in v_.end_of_generation
};

}  // namespace

Result<Vocab> vocab_from_hf(const HfFiles& files, const std::string& where) {
    return Reader(files, where).read();
}

}  // namespace nibble
