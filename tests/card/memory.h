// Memory of the card in software: addresses of its own, each used once, and known bounds.
// What is read before it was written is all ones: a NaN or -1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace nibble::card {

// What a kernel or a copy did that a real card punishes or leaves undefined.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// One allocation: [from, to).
struct Bounds {
    uintptr_t from = 1, to = 0;
    bool holds(uintptr_t at, size_t bytes) const { return at >= from && at + bytes <= to; }
};

// 256-byte aligned. Never at an address that was in use before, so stale ones are found.
std::byte* allocate(size_t bytes);
// False where no allocation begins there.
bool release(const void* p);
// The allocation that holds these bytes; throws Fault where none does.
Bounds bounds_of(uintptr_t at, size_t bytes);
size_t allocated_bytes();

}  // namespace nibble::card
