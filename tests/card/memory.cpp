// Memory of the card: a large range of addresses that is handed out from its beginning.
// The system gives it pages when they are touched and takes those of released allocations back.
#include "tests/card/memory.h"

#include <cstring>
#include <map>
#include <new>

#include <sys/mman.h>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"

namespace nibble::card {
namespace {

constexpr size_t address_space = size_t{1} << 42, alignment = 256, page = 4096;

struct Memory {
    std::map<uintptr_t, size_t> sizes;  // by address
    std::byte* next = nullptr;
    size_t allocated = 0;
};

// Made by the first use: modules are registered before main().
Memory& memory() {
    static Memory* const m = [] {
        void* const range = ::mmap(nullptr, address_space, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) throw std::bad_alloc();
        auto* made = new Memory;
        made->next = static_cast<std::byte*>(range);
        return made;
    }();
    return *m;
}

}  // namespace

std::byte* allocate(size_t bytes) {
    Memory& m = memory();
    std::byte* const p = m.next;
    const size_t taken = round_up(bytes, alignment) + alignment;  // allocations do not touch
    m.next += taken;
    std::memset(p, 0xff, taken);
    m.sizes[reinterpret_cast<uintptr_t>(p)] = bytes;
    m.allocated += bytes;
    return p;
}

bool release(const void* p) {
    Memory& m = memory();
    const auto it = m.sizes.find(reinterpret_cast<uintptr_t>(p));
    if (it == m.sizes.end()) return false;
    const uintptr_t from = round_up(it->first, uintptr_t{page}), to = (it->first + it->second) / page * page;
    if (to > from) (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
    m.allocated -= it->second;
    m.sizes.erase(it);
    return true;
}

Bounds bounds_of(uintptr_t at, size_t bytes) {
    Memory& m = memory();
    auto it = m.sizes.upper_bound(at);
    if (it != m.sizes.begin()) {
        --it;
        const Bounds b{it->first, it->first + it->second};
        if (b.holds(at, bytes)) return b;
        if (at < b.to + alignment)
            throw Fault(cat(bytes, " bytes at ", at - b.from, " of an allocation of ", it->second));
    }
    throw Fault(cat(bytes, " bytes at an address that is not the card's"));
}

size_t allocated_bytes() { return memory().allocated; }

}  // namespace nibble::card
