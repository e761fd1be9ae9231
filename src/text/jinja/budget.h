// What one rendering may cost: steps, bytes made, output, nesting. A template is hostile input.
// Every value that grows is made here, so no filter or operator can forget to pay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ggml/base/result.h"
#include "src/text/jinja/value.h"

namespace nibble::jinja {

struct Limits {
    uint64_t steps = 50'000'000;         // evaluated nodes and visited elements
    uint64_t bytes = uint64_t{1} << 30;  // allocated for values, over the whole rendering
    size_t output = size_t{64} << 20;    // bytes of the rendering
    uint32_t recursion = 400;            // nested statements, expressions, calls: 1 MiB of stack is enough
    uint32_t nesting = 100;              // of lists in lists
    uint32_t weight = 4'000'000;         // values in one list or dict, written out in full
};

class Budget {
  public:
    explicit Budget(const Limits& limits) : limits_(limits) {}
    const Limits& limits() const { return limits_; }

    // True while there is budget left; else the caller returns exhausted().
    bool spend(uint64_t steps) { return (steps_ += steps) <= limits_.steps; }
    // For one pass over `bytes` bytes of text.
    bool spend_scan(uint64_t bytes) { return spend(1 + bytes / 16); }
    // For looking a key of so many bytes up among so many: each of them may share most of a long one.
    bool spend_lookup(uint64_t entries, uint64_t key_bytes) {
        return spend(entries * (1 + key_bytes / 64) / 8 + key_bytes / 64);
    }
    bool spend_bytes(uint64_t bytes) { return (bytes_ += bytes) <= limits_.bytes; }
    Error exhausted() const;

    // One level deeper, and back; false beyond the limit: the caller returns too_deep(). After an error
    // nobody goes on, so nothing has to go back.
    bool enter() { return ++depth_ <= limits_.recursion; }
    void leave() { --depth_; }
    bool is_too_deep() const { return depth_ > limits_.recursion; }
    Error too_deep() const;

    Result<Value> text(Text t);
    Result<Value> text(std::string bytes, bool untrusted = false) {
        return text(Text(std::move(bytes), untrusted));
    }
    Result<Value> list(std::vector<Value> items, List::Flavor flavor = List::Flavor::list);
    // Later entries replace earlier ones of an equal key; keys that cannot be hashed are an error.
    Result<Value> dict(std::vector<std::pair<Value, Value>> entries);
    Result<void> append(List& list, Value item);
    Result<void> set(Dict& dict, Value key, Value value);
    // The extent that `whole` gets by holding `part`; an error beyond the limits.
    Result<Extent> grow(Extent whole, const Value& part) const;

  private:
    Limits limits_;
    uint64_t steps_ = 0, bytes_ = 0;
    uint32_t depth_ = 0;
};

// An error without a place: the interpreter adds the template's name and line.
Error failure(std::string what, ErrorCode code = ErrorCode::invalid_argument, std::string fix = "");

}  // namespace nibble::jinja
