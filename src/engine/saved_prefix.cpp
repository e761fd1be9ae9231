// Keys and values may be gigabytes: they are hashed with eight bytes at a time, written from where they were
// exported to, and read from where the file is mapped.
#include "src/engine/saved_prefix.h"

#include <array>
#include <cstring>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

// FNV-1a over words; the last one is filled up with zeros, which the lengths in the file tell apart.
class WordHash {
  public:
    void add(std::span<const std::byte> bytes) {
        for (; n_ > 0 && !bytes.empty(); bytes = bytes.subspan(1)) push(bytes[0]);
        for (; bytes.size() >= word_.size(); bytes = bytes.subspan(word_.size())) mix(bytes.data());
        for (const std::byte b : bytes) push(b);
    }
    uint64_t value() {
        while (n_ > 0) push(std::byte{0});
        return hash_;
    }

  private:
    void push(std::byte b) {
        word_[n_++] = b;
        if (n_ == word_.size()) n_ = 0, mix(word_.data());
    }
    void mix(const std::byte* eight) {
        uint64_t word;
        std::memcpy(&word, eight, sizeof word);
        hash_ = (hash_ ^ word) * 0x100000001b3;
        hash_ ^= hash_ >> 32;
    }
    uint64_t hash_ = 0xcbf29ce484222325;
    std::array<std::byte, 8> word_{};
    size_t n_ = 0;
};

Error unfit(const std::string& where, std::string what, std::string fix) {
    return {ErrorCode::unsupported, where, std::move(what), std::move(fix)};
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

}  // namespace

void SavedFields::text(std::string_view s) {
    number<uint64_t>(s.size());
    bytes(std::as_bytes(std::span(s)));
}

void SavedFields::tokens(std::span<const Token> t) {
    number<uint64_t>(t.size());
    bytes(std::as_bytes(t));
}

Result<void> write_saved(const SavedKind& kind, Engine& engine, const SavedFields& fields,
                         const CachedPrefix& prefix, const std::filesystem::path& path) {
    AtomicFile file = NIBBLE_TRY(AtomicFile::create(path, AtomicFile::Readers::owner));
    WordHash hash;
    const auto write = [&](std::span<const std::byte> bytes) {
        hash.add(bytes);
        return file.write(bytes);
    };
    const RunnerConfig& config = engine.runner().config();
    SavedFields head;
    head.bytes(std::as_bytes(std::span(kind.magic)));
    head.number(kind.version);
    head.number(engine.runner().fingerprint());
    for (const Type t : {config.k_type, config.v_type}) head.number(static_cast<uint32_t>(t));
    head.number(static_cast<uint32_t>(config.page_size));
    head.bytes(fields.data());
    head.tokens(prefix.tokens);
    head.number(static_cast<uint32_t>(prefix.pages.size()));
    NIBBLE_TRY(write(head.data()));
    for (const auto& pages : prefix.pages) {
        SavedFields length;
        length.number<uint64_t>(pages.size());
        NIBBLE_TRY(write(length.data()));
        NIBBLE_TRY(write(pages));
    }
    SavedFields sum;
    sum.number(hash.value());
    NIBBLE_TRY(file.write(sum.data()));
    return file.commit();
}

Result<SavedFile> SavedFile::open(const SavedKind& kind, const std::filesystem::path& path) {
    SavedFile saved(kind, NIBBLE_TRY(MappedFile::open(path)), path.string());
    const auto head = NIBBLE_TRY(saved.in_.bytes(kind.magic.size(), "magic"));
    if (std::memcmp(head.data(), kind.magic.data(), kind.magic.size()) != 0)
        return Error{ErrorCode::corrupt, saved.in_.where(), cat("is not a ", kind.name),
                     cat("give the file of an earlier ", kind.flag)};
    return saved;
}

Result<void> SavedFile::check(Engine& engine) {
    if (const auto v = NIBBLE_TRY(in_.read<uint32_t>("version")); v != kind_->version)
        return unfit(in_.where(), cat("has version ", v, ", this program reads ", kind_->version), "");
    const std::span<const std::byte> all = file_.bytes();
    uint64_t stated = 0;
    if (in_.remaining() < sizeof stated) return Error{ErrorCode::corrupt, in_.where(), "is cut off", ""};
    std::memcpy(&stated, all.data() + all.size() - sizeof stated, sizeof stated);
    WordHash hash;
    hash.add(all.first(all.size() - sizeof stated));
    if (stated != hash.value())
        return Error{ErrorCode::corrupt, in_.where(), "is damaged: its check sum is wrong", ""};

    const RunnerConfig& config = engine.runner().config();
    if (NIBBLE_TRY(in_.read<uint64_t>("fingerprint")) != engine.runner().fingerprint())
        return unfit(in_.where(), "was made with another model",
                     cat("give that model, and the --draft-model it had, or another ", kind_->flag, " file"));
    const auto k = NIBBLE_TRY(in_.read<uint32_t>("key type")),
               v = NIBBLE_TRY(in_.read<uint32_t>("value type"));
    if (k != static_cast<uint32_t>(config.k_type) || v != static_cast<uint32_t>(config.v_type))
        return unfit(in_.where(), "was made with other types of the KV cache",
                     cat("give ", cache_flags(k, v)));
    if (NIBBLE_TRY(in_.read<uint32_t>("page size")) != static_cast<uint32_t>(config.page_size))
        return unfit(in_.where(), "was made with another page size of the KV cache", "");
    return {};
}

Result<std::vector<Token>> SavedFile::tokens(std::string_view field, const Engine& engine) {
    const uint64_t n = NIBBLE_TRY(in_.read<uint64_t>(field));
    if (n > in_.remaining() / sizeof(Token))
        return Error{ErrorCode::corrupt, in_.where(), cat(field, " count ", n, " exceeds the file"), ""};
    const auto bytes = NIBBLE_TRY(in_.bytes(static_cast<size_t>(n) * sizeof(Token), field));
    std::vector<Token> tokens(static_cast<size_t>(n));
    if (n) std::memcpy(tokens.data(), bytes.data(), bytes.size());
    const auto n_vocab = static_cast<int32_t>(engine.tokenizer().n_vocab());
    for (const Token t : tokens)
        if (t < 0 || t >= n_vocab)
            return Error{ErrorCode::corrupt, in_.where(), cat(field, " holds the id ", t), ""};
    return tokens;
}

Result<PrefixView> SavedFile::prefix(const Engine& engine) {
    PrefixView prefix;
    stored_ = NIBBLE_TRY(tokens("stored tokens", engine));
    prefix.tokens = stored_;
    const auto groups = NIBBLE_TRY(in_.read<uint32_t>("groups"));
    if (groups > engine.spec().kv_groups.size())
        return Error{ErrorCode::corrupt, in_.where(), cat("has ", groups, " groups of layers"), ""};
    for (uint32_t g = 0; g < groups; ++g) {
        const uint64_t size = NIBBLE_TRY(in_.read<uint64_t>("length of pages"));
        prefix.pages.push_back(NIBBLE_TRY(in_.bytes(size, "pages")));
    }
    return prefix;
}

}  // namespace nibble
