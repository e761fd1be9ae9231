// Shared by the tests of ggml/file: a temporary folder and small files made by hand or by the writer.
// Bytes are built explicitly, so that a damaged file is one changed line.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/gguf_reader.h"
#include "ggml/file/gguf_writer.h"

namespace nibble::test {

namespace fs = std::filesystem;

// A folder that disappears with the object.
class TempDir {
  public:
    TempDir() {
        std::string name = (fs::temp_directory_path() / "nibble-file-XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    TempDir(const TempDir&) = delete;
    ~TempDir() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    fs::path operator/(std::string_view name) const { return path_ / name; }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

inline void write_file(const fs::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::span<const std::byte> bytes_of(std::string_view s) { return std::as_bytes(std::span(s)); }

inline std::string text_of(std::span<const std::byte> b) {
    return b.empty() ? std::string() : std::string(reinterpret_cast<const char*>(b.data()), b.size());
}

// Little-endian bytes: Bytes().u32(3).str("key").s
struct Bytes {
    std::string s;
    template <class T>
    Bytes& raw(T v) {
        s.append(reinterpret_cast<const char*>(&v), sizeof v);
        return *this;
    }
    Bytes& u8(uint8_t v) { return raw(v); }
    Bytes& u32(uint32_t v) { return raw(v); }
    Bytes& u64(uint64_t v) { return raw(v); }
    Bytes& str(std::string_view v) { return u64(v.size()).text(v); }
    Bytes& text(std::string_view v) {
        s += v;
        return *this;
    }
    Bytes& pad(size_t to) {
        s.resize((s.size() + to - 1) / to * to, '\0');
        return *this;
    }
};

inline Bytes gguf_head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return Bytes().text("GGUF").u32(version).u64(tensors).u64(keys);
}

// Parses a copy in a heap block of exactly this size, so that AddressSanitizer sees a read past the end.
inline Result<GgufFile> parse_gguf(std::string_view bytes) {
    auto block = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
    return GgufFile::parse(std::as_bytes(std::span(*block)), block, "x.gguf");
}

// u64 length + header + data.
inline std::string safetensors(std::string_view header, std::string_view data) {
    return Bytes().str(header).text(data).s;
}

}  // namespace nibble::test
