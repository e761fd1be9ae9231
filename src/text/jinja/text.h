// A string that remembers which of its bytes came from outside the template (messages, tools, arguments).
// Every operation of the interpreter keeps these spans, so that user text never becomes a control token.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::jinja {

// Half-open byte range.
struct ByteSpan {
    size_t begin = 0, end = 0;
    bool operator==(const ByteSpan&) const = default;
};

// Invariant: the untrusted spans are sorted, not empty, disjoint, and do not touch one another.
class Text {
  public:
    Text() = default;
    explicit Text(std::string bytes, bool untrusted = false);

    const std::string& str() const { return bytes_; }
    std::string_view view() const { return bytes_; }
    size_t size() const { return bytes_.size(); }
    bool empty() const { return bytes_.empty(); }
    std::span<const ByteSpan> untrusted() const { return untrusted_; }
    bool any_untrusted() const { return !untrusted_.empty(); }
    bool untrusted_at(size_t byte) const;

    void append(std::string_view bytes, bool untrusted);
    void append(const Text& other) { append(other, 0, other.size()); }
    void append(const Text& other, size_t begin, size_t end);  // the bytes [begin, end) of other
    Text slice(size_t begin, size_t end) const;
    void reserve(size_t bytes) { bytes_.reserve(bytes); }

    // Moves the bytes out; the object is empty afterwards.
    std::string take();

  private:
    void mark(size_t begin, size_t end);

    std::string bytes_;
    std::vector<ByteSpan> untrusted_;
};

}  // namespace nibble::jinja
