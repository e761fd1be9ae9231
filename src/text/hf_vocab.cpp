// vocab_from_hf: byte-level BPE (GPT-2, Llama 3, Qwen, ...) and BPE with byte fallback (Llama 2, Mistral,
// Gemma). The second kind is SentencePiece BPE: its merges are turned back into scores.
#include "src/text/hf_vocab.h"

#include <algorithm>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "src/text/split.h"

namespace nibble {
namespace {

using Json = nlohmann::json;
constexpr size_t max_tokens = 1u << 24;
constexpr std::string_view gpt2_regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const Json& at(const Json& j, std::string_view key) {
    static const Json null;
    if (!j.is_object()) return null;
    const auto it = j.find(key);
    return it == j.end() ? null : *it;
}
std::string text(const Json& j) { return j.is_string() ? j.get<std::string>() : std::string(); }
bool flag(const Json& j, bool other = false) { return j.is_boolean() ? j.get<bool>() : other; }

class Reader {
  public:
    Reader(const HfFiles& files, const std::string& where) : files_(files), where_(where) {}

    Result<Vocab> read() {
        root_ = NIBBLE_TRY(parse(files_.tokenizer, where_));
        const Json& model = at(root_, "model");
        if (const std::string type = text(at(model, "type"));
            type != "BPE" && !(type.empty() && at(model, "merges").is_array()))
            return unsupported(cat("model type '", type, "'"));
        v_.model = flag(at(model, "byte_fallback")) ? Vocab::Model::spm : Vocab::Model::bpe;
        v_.ignore_merges = flag(at(model, "ignore_merges"));
        NIBBLE_TRY(read_tokens(model));
        NIBBLE_TRY(read_merges(model));
        NIBBLE_TRY(v_.model == Vocab::Model::bpe ? read_byte_level() : read_sentencepiece(model));
        NIBBLE_TRY(read_ids());
        return std::move(v_);
    }

  private:
    Error unsupported(std::string what) const {
        return {ErrorCode::unsupported, where_, what + " is not implemented",
                "convert the model to GGUF with a tool that knows it"};
    }
    Error corrupt(std::string what) const { return {ErrorCode::corrupt, where_, std::move(what), ""}; }

    static Result<Json> parse(const std::string& content, const std::string& where) {
        if (content.empty()) return Json(nullptr);
        Json j = Json::parse(content, nullptr, false);
        if (j.is_discarded()) return Error{ErrorCode::corrupt, where, "is not valid JSON", ""};
        return j;
    }

    Result<void> put(const Json& id, const std::string& token, TokenType type) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= max_tokens)
            return corrupt(cat("token '", token, "' has the impossible id ", id.dump()));
        const auto i = id.get<size_t>();
        if (i >= v_.tokens.size()) {
            v_.tokens.resize(i + 1);
            v_.types.resize(i + 1, static_cast<uint8_t>(TokenType::unused));
        }
        v_.tokens[i] = token;
        v_.types[i] = static_cast<uint8_t>(type);
        return {};
    }

    Result<void> read_tokens(const Json& model) {
        const Json& vocab = at(model, "vocab");
        if (!vocab.is_object()) return corrupt("model.vocab is not an object");
        for (const auto& [token, id] : vocab.items()) {
            const bool byte = v_.model == Vocab::Model::spm && token.size() == 6 && token.starts_with("<0x");
            NIBBLE_TRY(put(id, token, byte ? TokenType::byte : TokenType::normal));
        }
        for (const Json& t : at(root_, "added_tokens")) {
            const std::string content = text(at(t, "content"));
            NIBBLE_TRY(put(at(t, "id"), content,
                           flag(at(t, "special")) ? TokenType::control : TokenType::user_defined));
        }
        // Ids that nothing names keep a spelling that no text contains.
        for (size_t i = 0; i < v_.tokens.size(); ++i)
            if (v_.tokens[i].empty() && v_.types[i] == static_cast<uint8_t>(TokenType::unused))
                v_.tokens[i] = cat("[unused ", i, "]");
        return {};
    }

    Result<void> read_merges(const Json& model) {
        for (const Json& m : at(model, "merges")) {
            if (m.is_string())
                v_.merges.push_back(m.get<std::string>());
            else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string())
                v_.merges.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
            else
                return corrupt("model.merges holds something that is no pair");
        }
        return {};
    }

    // The passes of one pre-tokenizer, in order.
    Result<void> read_pass(const Json& p) {
        const std::string type = text(at(p, "type"));
        if (type == "Sequence") {
            for (const Json& inner : at(p, "pretokenizers")) NIBBLE_TRY(read_pass(inner));
        } else if (type == "Split") {
            const std::string regex = text(at(at(p, "pattern"), "Regex"));
            if (regex.empty() || text(at(p, "behavior")) != "Isolated" || flag(at(p, "invert")))
                return unsupported(cat("pre-tokenizer ", p.dump().substr(0, 80)));
            v_.split_regexes.push_back(regex);
        } else if (type == "Digits") {
            v_.split_regexes.emplace_back(flag(at(p, "individual_digits")) ? "\\p{N}" : "\\p{N}+");
        } else if (type == "ByteLevel") {
            if (flag(at(p, "add_prefix_space"))) return unsupported("ByteLevel with add_prefix_space");
            if (flag(at(p, "use_regex"), true)) v_.split_regexes.emplace_back(gpt2_regex);
        } else {
            return unsupported(cat("pre-tokenizer '", type, "'"));
        }
        return {};
    }

    Result<void> read_byte_level() {
        const std::string normalizer = text(at(at(root_, "normalizer"), "type"));
        // NFC changes only text that is not in composed form; models that ask for it were trained on both.
        if (!normalizer.empty() && normalizer != "NFC")
            return unsupported(cat("normalizer '", normalizer, "'"));
        if (at(root_, "pre_tokenizer").is_object()) NIBBLE_TRY(read_pass(at(root_, "pre_tokenizer")));
        if (v_.split_regexes.empty()) return unsupported("a byte-level tokenizer without a split regex");
        v_.pre = known_kind();
        return {};
    }

    // The GGUF name of these passes, so that a converted file can name them.
    std::string known_kind() const {
        for (const std::string_view kind :
             {"gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "deepseek-coder"})
            if (const auto r = split_regexes(kind); r && *r == v_.split_regexes) return std::string(kind);
        return {};
    }

    // Prepend and Replace as normalizers, or Metaspace as a pre-tokenizer; merges become scores.
    Result<void> read_sentencepiece(const Json& model) {
        const Json& n = at(root_, "normalizer");
        const Json& list = text(at(n, "type")) == "Sequence" ? at(n, "normalizers") : n;
        const auto accept = [&](const Json& one) -> Result<void> {
            const std::string type = text(at(one, "type"));
            if (type == "Prepend")
                v_.add_space_prefix = true;
            else if (type != "Replace" && !type.empty())
                return unsupported(cat("normalizer '", type, "'"));
            return {};
        };
        if (list.is_array())
            for (const Json& one : list) NIBBLE_TRY(accept(one));
        else
            NIBBLE_TRY(accept(list));
        const Json& pre = at(root_, "pre_tokenizer");
        if (const std::string type = text(at(pre, "type")); type == "Metaspace")
            v_.add_space_prefix =
                text(at(pre, "prepend_scheme")) != "never" && flag(at(pre, "add_prefix_space"), true);
        else if (!type.empty() && type != "Split")
            return unsupported(cat("pre-tokenizer '", type, "'"));

        std::unordered_map<std::string, size_t> ids;
        for (size_t i = 0; i < v_.tokens.size(); ++i) ids.emplace(v_.tokens[i], i);
        v_.scores.assign(v_.tokens.size(), -static_cast<float>(v_.merges.size()) - 1);
        for (size_t rank = v_.merges.size(); rank-- > 0;) {  // backwards: the best rank stays
            std::string joined = v_.merges[rank];
            if (const size_t space = joined.find(' ', 1); space != std::string::npos) joined.erase(space, 1);
            if (const auto it = ids.find(joined); it != ids.end())
                v_.scores[it->second] = -static_cast<float>(rank);
        }
        v_.merges.clear();
        if (const auto it = ids.find(text(at(model, "unk_token"))); it != ids.end())
            v_.unk = static_cast<Token>(it->second);
        return {};
    }

    std::optional<Token> find_token(const Json& name) const {
        const std::string content = name.is_object() ? text(at(name, "content")) : text(name);
        if (content.empty()) return {};
        const auto it = std::ranges::find(v_.tokens, content);
        if (it == v_.tokens.end()) return {};
        return static_cast<Token>(it - v_.tokens.begin());
    }

    void add_ends(const Json& ids) {
        for (const Json& id : ids.is_array() ? ids : Json::array({ids}))
            if (id.is_number_unsigned() && id.get<uint64_t>() < v_.tokens.size()) {
                const auto t = id.get<Token>();
                if (std::ranges::find(v_.end_of_generation, t) == v_.end_of_generation.end())
                    v_.end_of_generation.push_back(t);
            }
    }

    // BOS is added if tokenizer_config says so, or the post-processor's template begins with it.
    bool template_adds_bos() const {
        if (!v_.bos) return false;
        const Json& p = at(root_, "post_processor");
        const Json& list = text(at(p, "type")) == "Sequence" ? at(p, "processors") : p;
        const auto begins = [&](const Json& one) {
            const Json& single = at(one, "single");
            if (!single.is_array() || single.empty()) return false;
            return text(at(at(single[0], "SpecialToken"), "id")) == v_.tokens[static_cast<size_t>(*v_.bos)];
        };
        if (list.is_array()) return std::ranges::any_of(list, begins);
        return begins(list);
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
        if (v_.eos) add_ends(Json(*v_.eos));
        if (!v_.eos && !v_.end_of_generation.empty()) v_.eos = v_.end_of_generation.front();
        v_.add_bos = flag(at(tokenizer, "add_bos_token"), template_adds_bos());
        v_.add_eos = flag(at(tokenizer, "add_eos_token"));
        const Json& chat = at(tokenizer, "chat_template");
        if (chat.is_string()) v_.chat_template = chat.get<std::string>();
        for (const Json& named : chat.is_array() ? chat : Json::array())
            if (text(at(named, "name")) == "default") v_.chat_template = text(at(named, "template"));
        return {};
    }

    const HfFiles& files_;
    const std::string& where_;
    Json root_;
    Vocab v_;
};

}  // namespace

Result<Vocab> vocab_from_hf(const HfFiles& files, const std::string& where) {
    return Reader(files, where).read();
}

}  // namespace nibble
