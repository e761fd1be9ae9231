// GGUF key-value metadata: typed values, an ordered map with hashed lookup, converting getters.
// Specification: the "GGUF" document of the ggml project (value types and their ids).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ggml/base/result.h"

namespace nibble {

// Ids as stored in files. They equal the index of the alternative in MetaValue and MetaArray::Items.
enum class MetaType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
inline constexpr uint32_t meta_type_count = 13;

std::string_view name(MetaType type);

// Many strings as views into one block of memory that they share the ownership of: the mapped file, or a
// copy of the caller's strings. A vocabulary of 150k tokens costs one allocation of 16 bytes per token.
class StringList {
  public:
    StringList() = default;
    explicit StringList(std::span<const std::string> strings);  // copies
    StringList(std::vector<std::string_view> views, std::shared_ptr<const void> owner)
        : views_(std::move(views)), owner_(std::move(owner)) {}

    std::span<const std::string_view> views() const { return views_; }
    size_t size() const { return views_.size(); }
    bool operator==(const StringList& other) const { return views_ == other.views_; }

  private:
    std::vector<std::string_view> views_;
    std::shared_ptr<const void> owner_;
};

// A typed array; an empty one still has an element type. Arrays of arrays are legal.
struct MetaArray {
    using Items = std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
                               std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
                               std::vector<float>, std::vector<bool>, StringList, std::vector<MetaArray>,
                               std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
    Items items;

    MetaArray() = default;
    // What compilers would generate is large: it is in metadata.cpp, once.
    MetaArray(const MetaArray& other);
    MetaArray(MetaArray&& other) noexcept;
    MetaArray& operator=(const MetaArray& other);
    MetaArray& operator=(MetaArray&& other) noexcept;
    ~MetaArray();
    template <class T>
    MetaArray(std::vector<T> v) : items(std::move(v)) {}
    MetaArray(StringList v) : items(std::move(v)) {}
    MetaArray(const std::vector<std::string>& v) : items(StringList(v)) {}

    MetaType type() const { return static_cast<MetaType>(items.index()); }
    size_t size() const;
    bool operator==(const MetaArray& other) const;
};

// One value. The C++ type chooses the stored type: uint32_t{3} is a u32, 3 is an i32, "x" a string.
using MetaValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string, MetaArray, uint64_t, int64_t, double>;

inline MetaType type_of(const MetaValue& v) { return static_cast<MetaType>(v.index()); }

// One line for people: scalars whole, strings quoted and cut, arrays as "string[32000] ['a', 'b', …]".
std::string describe(const MetaValue& value, size_t max_items = 4, size_t max_chars = 96);

// Keys in file order. Getters convert: an integer of any width is read as any other that can hold the value,
// f32 also takes integers and f64, boolean also takes the integers 0 and 1.
// Three ways to ask for a T, which is one of uint32_t, int32_t, uint64_t, int64_t, float, bool,
// std::string_view, std::vector<int32_t>, std::vector<int64_t>, std::vector<float> and
// std::span<const std::string_view>:
//   get<T>(key)            nothing when the key is absent or its value is no T
//   get_or<T>(key, other)  `other` when absent; an Error when present and no T (for optional hyperparameters)
//   require<T>(key)        an Error naming file and key when absent or no T
// Views stay valid while the entry is unchanged; string lists keep their memory alive themselves.
class Metadata {
  public:
    struct Entry {
        std::string key;
        MetaValue value;
    };

    Metadata() = default;
    explicit Metadata(std::string where) : where_(std::move(where)) {}  // `where` opens error messages

    std::span<const Entry> entries() const { return entries_; }
    size_t size() const { return entries_.size(); }
    const std::string& where() const { return where_; }
    const MetaValue* find(std::string_view key) const;
    bool contains(std::string_view key) const { return find(key) != nullptr; }

    void set(std::string_view key, MetaValue value);  // replaces in place or appends
    bool insert(std::string key, MetaValue value);    // appends; false when the key exists
    bool erase(std::string_view key);                 // false when absent

    template <class T>
    std::optional<T> get(std::string_view key) const;
    template <class T>
    Result<T> require(std::string_view key) const;
    template <class T>
    Result<T> get_or(std::string_view key, T other) const {
        if (!find(key)) return other;
        return require<T>(key);
    }

    using Strings = std::span<const std::string_view>;
    std::optional<uint32_t> u32(std::string_view key) const { return get<uint32_t>(key); }
    std::optional<uint64_t> u64(std::string_view key) const { return get<uint64_t>(key); }
    std::optional<float> f32(std::string_view key) const { return get<float>(key); }
    std::optional<bool> boolean(std::string_view key) const { return get<bool>(key); }
    std::optional<std::string_view> str(std::string_view key) const { return get<std::string_view>(key); }
    std::optional<Strings> strings(std::string_view key) const { return get<Strings>(key); }
    std::optional<std::vector<int64_t>> ints(std::string_view key) const {
        return get<std::vector<int64_t>>(key);
    }
    std::optional<std::vector<float>> floats(std::string_view key) const {
        return get<std::vector<float>>(key);
    }

    Result<uint32_t> require_u32(std::string_view key) const { return require<uint32_t>(key); }
    Result<float> require_f32(std::string_view key) const { return require<float>(key); }
    Result<bool> require_boolean(std::string_view key) const { return require<bool>(key); }
    Result<std::string_view> require_str(std::string_view key) const {
        return require<std::string_view>(key);
    }
    Result<Strings> require_strings(std::string_view key) const { return require<Strings>(key); }
    Result<std::vector<int64_t>> require_ints(std::string_view key) const {
        return require<std::vector<int64_t>>(key);
    }
    Result<std::vector<float>> require_floats(std::string_view key) const {
        return require<std::vector<float>>(key);
    }

  private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
    };
    std::vector<Entry> entries_;
    std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
    std::string where_;
};

}  // namespace nibble
