// Files with keys and values (sessions, prompt caches): a frame with a check sum, which engine they are of,
// and a prefix. Nothing in them is believed before it is checked.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/byte_reader.h"
#include "ggml/base/mapped_file.h"
#include "src/engine/engine.h"

namespace nibble {

// What tells the files of one purpose from others.
struct SavedKind {
    std::string_view magic;  // eight bytes
    uint32_t version;
    std::string_view name, flag;  // in messages: "session", "--session"
};

// Little-endian:
//   magic, u32 version
//   u64 fingerprint of the model, u32 type of the keys, u32 of the values, u32 page size
//   what the purpose has of its own: the fields
//   u64 stored, i32 tokens[stored]: the prefix whose keys and values follow
//   u32 groups; of each group: u64 length, its pages
//   u64 check sum of everything before it: FNV-1a of its 64-bit words, the last one filled up with zeros,
//   each followed by h ^= h >> 32

// Fields one after the other. A string is its length as u64, then its bytes; tokens are their count as u64,
// then each as i32.
class SavedFields {
  public:
    template <class T>
    requires std::is_arithmetic_v<T>
    void number(T value) { bytes(std::as_bytes(std::span(&value, 1))); }
    void text(std::string_view s);
    void tokens(std::span<const Token> t);
    void bytes(std::span<const std::byte> b) { data_.insert(data_.end(), b.begin(), b.end()); }
    std::span<const std::byte> data() const { return data_; }

  private:
    std::vector<std::byte> data_;
};

// The file appears only when it is complete, mode 0600.
Result<void> write_saved(const SavedKind& kind, Engine& engine, const SavedFields& fields,
                         const CachedPrefix& prefix, const std::filesystem::path& path);

class SavedFile {
  public:
    // Errors: not readable; corrupt: not of this kind.
    static Result<SavedFile> open(const SavedKind& kind, const std::filesystem::path& path);

    // Then, first of all: whether it is whole and of a model and cache like this engine's. Errors: corrupt,
    // unsupported.
    Result<void> check(Engine& engine);

    // Next, in their order, the fields; at last the prefix, which refers to this object.
    ByteReader& fields() { return in_; }
    Result<std::vector<Token>> tokens(std::string_view field, const Engine& engine);
    Result<PrefixView> prefix(const Engine& engine);

  private:
    SavedFile(const SavedKind& kind, MappedFile file, std::string where)
        : kind_(&kind), file_(std::move(file)), in_(file_.bytes(), std::move(where)) {}

    const SavedKind* kind_;
    MappedFile file_;
    ByteReader in_;
    std::vector<Token> stored_;
};

}  // namespace nibble
