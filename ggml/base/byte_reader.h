// A bounds-checked little-endian cursor over bytes that are not trusted.
// Every read either succeeds whole or returns an Error that names the field and the offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ggml/base/cat.h"
#include "ggml/base/result.h"

namespace nibble {

class ByteReader {
  public:
    // `where` (usually the file's path) opens every error message. The bytes must outlive the reader.
    ByteReader(std::span<const std::byte> bytes, std::string where)
        : bytes_(bytes), where_(std::move(where)) {}

    size_t offset() const { return at_; }
    size_t remaining() const { return bytes_.size() - at_; }
    const std::string& where() const { return where_; }

    template <class T>
    requires std::is_arithmetic_v<T> Result<T> read(std::string_view field) {
        if (remaining() < sizeof(T)) return truncated(field, sizeof(T));
        T v;
        std::memcpy(&v, bytes_.data() + at_, sizeof v);
        at_ += sizeof v;
        return v;
    }

    Result<std::span<const std::byte>> bytes(size_t n, std::string_view field) {
        if (remaining() < n) return truncated(field, n);
        auto s = bytes_.subspan(at_, n);
        at_ += n;
        return s;
    }

    // A string with a u64 length in front, as GGUF stores it; a view into the underlying bytes.
    Result<std::string_view> string(std::string_view field) {
        const uint64_t n = NIBBLE_TRY(read<uint64_t>(field));
        const auto s = NIBBLE_TRY(bytes(n, field));
        return std::string_view(reinterpret_cast<const char*>(s.data()), s.size());
    }

    // n strings as above; n may be any number. One tight loop: vocabularies hold hundreds of thousands.
    Result<std::vector<std::string_view>> strings(uint64_t n, std::string_view field) {
        if (n > remaining() / sizeof(uint64_t)) return truncated(field, n);
        std::vector<std::string_view> out;
        out.reserve(n);
        for (uint64_t i = 0; i < n; ++i) {
            if (remaining() < sizeof(uint64_t)) return truncated(field, sizeof(uint64_t));
            uint64_t size;
            std::memcpy(&size, bytes_.data() + at_, sizeof size);
            if (remaining() - sizeof size < size) return truncated(field, size);
            out.emplace_back(reinterpret_cast<const char*>(bytes_.data() + at_ + sizeof size), size);
            at_ += sizeof size + size;
        }
        return out;
    }

    Error corrupt(std::string_view field, std::string what) const {
        return {ErrorCode::corrupt, where_, cat("field '", field, "': ", what),
                "the file is damaged; download or convert it again"};
    }

  private:
    Error truncated(std::string_view field, size_t need) const {
        return {ErrorCode::corrupt, where_,
                cat("the file ends inside field '", field, "': ", need, " bytes needed at offset ", at_, ", ",
                    remaining(), " left"),
                "the file is incomplete; download or convert it again"};
    }

    std::span<const std::byte> bytes_;
    size_t at_ = 0;
    std::string where_;
};

}  // namespace nibble
