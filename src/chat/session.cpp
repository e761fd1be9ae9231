// The file of a session. What it says is checked against the engine before anything is taken over.
// Keys and values may be gigabytes: they are hashed with eight bytes at a time.
#include "src/chat/session.h"

#include <cstring>

#include "ggml/base/byte_reader.h"
#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"

namespace nibble {
namespace {

constexpr std::string_view magic = "NIBBLESN";
constexpr uint32_t version = 1;

// FNV-1a over words; the last one is filled up with zeros, which the lengths in the file tell apart.
uint64_t hash_of(std::span<const std::byte> bytes) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t at = 0; at < bytes.size(); at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
        hash = (hash ^ word) * 0x100000001b3;
        hash ^= hash >> 32;
    }
    return hash;
}

class Writer {
  public:
    template <class T>
    void number(T value) {
        bytes(std::as_bytes(std::span(&value, 1)));
    }
    void bytes(std::span<const std::byte> b) { data_.insert(data_.end(), b.begin(), b.end()); }
    void blob(std::span<const std::byte> b) {
        number<uint64_t>(b.size());
        bytes(b);
    }
    void tokens(std::span<const Token> t) {
        number<uint64_t>(t.size());
        bytes(std::as_bytes(t));
    }
    const std::vector<std::byte>& data() const { return data_; }

  private:
    std::vector<std::byte> data_;
};

Error unfit(const std::string& where, std::string what, std::string fix) {
    return {ErrorCode::unsupported, where, std::move(what), std::move(fix)};
}

Result<std::vector<Token>> read_tokens(ByteReader& in, std::string_view field, int32_t n_vocab) {
    const uint64_t n = NIBBLE_TRY(in.read<uint64_t>(field));
    if (n > in.remaining() / sizeof(Token))
        return Error{ErrorCode::corrupt, in.where(), cat(field, " count ", n, " exceeds the file"), ""};
    const auto bytes = NIBBLE_TRY(in.bytes(static_cast<size_t>(n) * sizeof(Token), field));
    std::vector<Token> tokens(static_cast<size_t>(n));
    if (n) std::memcpy(tokens.data(), bytes.data(), bytes.size());
    for (const Token t : tokens)
        if (t < 0 || t >= n_vocab)
            return Error{ErrorCode::corrupt, in.where(), cat(field, " holds the id ", t), ""};
    return tokens;
}

// The flags that give a cache of these types; numbers of a file may stand for none.
std::string cache_flags(uint32_t k, uint32_t v) {
    const auto name = [](uint32_t type) {
        for (const TypeInfo& t : all_types())
            if (static_cast<uint32_t>(t.type) == type) return t.name;
        return std::string_view("?");
    };
    return k == v ? cat("--kv-type ", name(k)) : cat("--k-type ", name(k), " --v-type ", name(v));
}

// Whether keys and values in the file are those of this engine.
Result<void> check_engine(ByteReader& in, Engine& engine) {
    const RunnerConfig& config = engine.runner().config();
    if (NIBBLE_TRY(in.read<uint64_t>("fingerprint")) != engine.runner().fingerprint())
        return unfit(in.where(), "was made with another model",
                     "give that model, and the --draft-model it had, or another --session file");
    const auto k = NIBBLE_TRY(in.read<uint32_t>("key type")), v = NIBBLE_TRY(in.read<uint32_t>("value type"));
    if (k != static_cast<uint32_t>(config.k_type) || v != static_cast<uint32_t>(config.v_type))
        return unfit(in.where(), "was made with other types of the KV cache",
                     cat("give ", cache_flags(k, v)));
    if (NIBBLE_TRY(in.read<uint32_t>("page size")) != static_cast<uint32_t>(config.page_size))
        return unfit(in.where(), "was made with another page size of the KV cache", "");
    return {};
}

Result<void> check_frame(std::span<const std::byte> all, ByteReader& in) {
    const auto head = NIBBLE_TRY(in.bytes(magic.size(), "magic"));
    if (std::memcmp(head.data(), magic.data(), magic.size()) != 0)
        return Error{ErrorCode::corrupt, in.where(), "is not a session",
                     "give the file of an earlier --session"};
    if (const auto v = NIBBLE_TRY(in.read<uint32_t>("version")); v != version)
        return unfit(in.where(), cat("has version ", v, ", this program reads ", version), "");
    uint64_t stated = 0;
    if (in.remaining() < sizeof stated) return Error{ErrorCode::corrupt, in.where(), "is cut off", ""};
    std::memcpy(&stated, all.data() + all.size() - sizeof stated, sizeof stated);
    if (stated != hash_of(all.first(all.size() - sizeof stated)))
        return Error{ErrorCode::corrupt, in.where(), "is damaged: its check sum is wrong", ""};
    return {};
}

}  // namespace

Result<void> save_session(Chat& chat, const std::filesystem::path& path) {
    Engine& engine = chat.engine();
    const ChatState state = chat.state();
    const CachedPrefix prefix = NIBBLE_TRY(engine.export_prefix(state.tokens));
    const RunnerConfig& config = engine.runner().config();
    Writer out;
    out.bytes(std::as_bytes(std::span(magic)));
    out.number(version);
    out.number(engine.runner().fingerprint());
    for (const Type t : {config.k_type, config.v_type}) out.number(static_cast<uint32_t>(t));
    out.number(static_cast<uint32_t>(config.page_size));
    const std::string conversation = conversation_text(state.conversation);
    out.blob(std::as_bytes(std::span(conversation)));
    out.number(state.first);
    out.number(state.stream);
    out.blob(std::as_bytes(std::span(state.text)));
    out.tokens(state.tokens);
    out.tokens(prefix.tokens);
    out.number(static_cast<uint32_t>(prefix.pages.size()));
    for (const auto& pages : prefix.pages) out.blob(pages);
    out.number(hash_of(out.data()));
    AtomicFile file = NIBBLE_TRY(AtomicFile::create(path, AtomicFile::Readers::owner));
    NIBBLE_TRY(file.write(out.data()));
    return file.commit();
}

Result<int32_t> load_session(Chat& chat, const std::filesystem::path& path) {
    const MappedFile file = NIBBLE_TRY(MappedFile::open(path));
    ByteReader in(file.bytes(), path.string());
    NIBBLE_TRY(check_frame(file.bytes(), in));
    Engine& engine = chat.engine();
    NIBBLE_TRY(check_engine(in, engine));
    ChatState state;
    state.conversation = NIBBLE_TRY(parse_conversation(NIBBLE_TRY(in.string("conversation")), path.string()));
    state.first = NIBBLE_TRY(in.read<uint64_t>("first"));
    state.stream = NIBBLE_TRY(in.read<uint64_t>("stream"));
    state.text = NIBBLE_TRY(in.string("text"));
    const int32_t n_vocab = static_cast<int32_t>(engine.tokenizer().n_vocab());
    state.tokens = NIBBLE_TRY(read_tokens(in, "tokens", n_vocab));
    CachedPrefix prefix;
    prefix.tokens = NIBBLE_TRY(read_tokens(in, "stored tokens", n_vocab));
    const auto groups = NIBBLE_TRY(in.read<uint32_t>("groups"));
    if (groups > engine.spec().kv_groups.size())
        return Error{ErrorCode::corrupt, path.string(), cat("has ", groups, " groups of layers"), ""};
    for (uint32_t g = 0; g < groups; ++g) {
        const std::string_view pages = NIBBLE_TRY(in.string("pages"));
        const auto bytes = std::as_bytes(std::span(pages));
        prefix.pages.emplace_back(bytes.begin(), bytes.end());
    }
    if (const auto imported = engine.import_prefix(prefix); !imported) {
        Error e = imported.error();
        if (e.where == "session") e.where = path.string();  // the engine knows no files
        return e;
    }
    chat.restore(std::move(state));
    return static_cast<int32_t>(prefix.tokens.size());
}

}  // namespace nibble
