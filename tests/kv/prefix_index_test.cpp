// The prefix index: exact matching, partial pages, collisions of the hash, order of eviction.
// Sequences play the engine: they reserve, index their full pages, and leave.
#include "src/kv/prefix_index.h"

#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "src/kv/block_table.h"

using namespace nibble;

namespace {

using Tokens = std::vector<int32_t>;

Tokens iota(int32_t first, int32_t n) {
    Tokens t(static_cast<size_t>(n));
    std::iota(t.begin(), t.end(), first);
    return t;
}

Tokens join(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A sequence that holds `tokens` in fresh pages and has them indexed.
BlockTable indexed(PagePool& pool, PrefixIndex& index, const Tokens& tokens) {
    BlockTable t(pool);
    REQUIRE(t.reserve(static_cast<int32_t>(tokens.size())).ok());
    t.advance(static_cast<int32_t>(tokens.size()));
    index.insert(tokens, t.pages());
    return t;
}

uint64_t always_42(uint64_t, std::span<const int32_t>) { return 42; }

}  // namespace

TEST_CASE("a prefix is found in whole pages and by a part of the next page") {
    PagePool pool = *PagePool::create(16, 4);
    PrefixIndex index(pool);
    const Tokens tokens = iota(100, 11);
    BlockTable t = indexed(pool, index, tokens);
    CHECK(index.n_nodes() == 2);  // the page with three tokens is not full

    CHECK(index.match(iota(100, 8)).n_tokens == 8);
    CHECK(index.match(iota(100, 11)).n_tokens == 8);
    CHECK(index.match(iota(100, 3)).n_tokens == 3);
    CHECK(index.match(Tokens{}).n_tokens == 0);
    CHECK(index.match(iota(101, 8)).n_tokens == 0);
    const PrefixMatch m = index.match(join(iota(100, 6), iota(0, 20)));
    CHECK(m.n_tokens == 6);
    CHECK(m.pages == std::vector<PageId>{t.pages()[0], t.pages()[1]});
}

TEST_CASE("equal blocks after different beginnings are different nodes") {
    PagePool pool = *PagePool::create(16, 4);
    PrefixIndex index(pool);
    BlockTable a = indexed(pool, index, join(iota(0, 4), iota(50, 4)));
    BlockTable b = indexed(pool, index, join(iota(8, 4), iota(50, 4)));
    CHECK(index.n_nodes() == 4);
    CHECK(index.match(join(iota(8, 4), iota(50, 4))).pages[1] == b.pages()[1]);
    CHECK(index.match(iota(50, 4)).n_tokens == 0);
}

TEST_CASE("tokens decide, even if every hash is the same") {
    PagePool pool = *PagePool::create(16, 4);
    PrefixIndex index(pool, always_42);
    BlockTable a = indexed(pool, index, join(iota(0, 4), iota(50, 4)));
    BlockTable b = indexed(pool, index, join(iota(8, 4), iota(50, 4)));
    CHECK(index.match(join(iota(0, 4), iota(50, 4))).pages[1] == a.pages()[1]);
    CHECK(index.match(join(iota(8, 4), iota(50, 4))).pages[1] == b.pages()[1]);
    CHECK(index.match(iota(4, 4)).n_tokens == 0);
    CHECK(index.match(join(iota(0, 4), iota(60, 4))).n_tokens == 4);
    index.clear();
    CHECK(index.n_nodes() == 0);
    CHECK(index.match(iota(0, 4)).n_tokens == 0);
}

TEST_CASE("the older of two equal pages stays indexed") {
    PagePool pool = *PagePool::create(16, 4);
    PrefixIndex index(pool);
    BlockTable a = indexed(pool, index, iota(0, 4));
    BlockTable b = indexed(pool, index, iota(0, 8));
    const PrefixMatch m = index.match(iota(0, 8));
    CHECK(m.pages == std::vector<PageId>{a.pages()[0], b.pages()[1]});
    CHECK(!pool.cached(b.pages()[0]));
}

TEST_CASE("pages stay reusable after their sequence has ended, and count as available") {
    PagePool pool = *PagePool::create(4, 4);
    PrefixIndex index(pool);
    { BlockTable t = indexed(pool, index, iota(0, 9)); }
    CHECK(pool.n_free() == 2);
    CHECK(pool.n_idle() == 2);
    CHECK(pool.n_available() == 4);

    BlockTable t(pool);
    const PrefixMatch m = index.match(iota(0, 9));
    t.adopt(m.pages, m.n_tokens);
    CHECK(t.length() == 8);
    CHECK(pool.n_idle() == 0);
    t.clear();
    CHECK(pool.n_idle() == 2);
    index.clear();
    CHECK(pool.n_free() == 4);
}

TEST_CASE("appending to a partly matched page copies it, the indexed content stays") {
    PagePool pool = *PagePool::create(8, 4);
    PrefixIndex index(pool);
    { BlockTable t = indexed(pool, index, iota(0, 8)); }
    BlockTable t(pool);
    const PrefixMatch m = index.match(iota(0, 6));
    t.adopt(m.pages, m.n_tokens);
    const auto copy = t.reserve(1);
    REQUIRE(copy.ok());
    REQUIRE(copy.value());
    CHECK(copy.value()->from == m.pages[1]);
    CHECK(copy.value()->n_tokens == 2);
    CHECK(index.match(iota(0, 8)).n_tokens == 8);
}

TEST_CASE("rolling back into an indexed page copies before writing, though nobody else uses it") {
    PagePool pool = *PagePool::create(8, 4);
    PrefixIndex index(pool);
    BlockTable t = indexed(pool, index, iota(0, 8));
    REQUIRE(t.truncate(5).ok());
    const auto copy = t.reserve(1);
    REQUIRE(copy.ok());
    CHECK(copy.value().has_value());
}

TEST_CASE("the least recently used leaf is evicted first, a prefix from its end") {
    PagePool pool = *PagePool::create(6, 4);
    PrefixIndex index(pool);
    { BlockTable a = indexed(pool, index, iota(0, 12)); }
    { BlockTable b = indexed(pool, index, iota(100, 12)); }
    CHECK(pool.n_free() == 0);
    index.match(iota(0, 12));  // a is now younger than b

    BlockTable t(pool);
    REQUIRE(t.reserve(8).ok());
    CHECK(index.match(iota(100, 12)).n_tokens == 4);
    CHECK(index.match(iota(0, 12)).n_tokens == 12);
    REQUIRE(t.reserve(16).ok());
    CHECK(index.match(iota(100, 12)).n_tokens == 0);
    CHECK(index.match(iota(0, 12)).n_tokens == 8);
    CHECK(!t.reserve(25));
    CHECK(index.match(iota(0, 12)).n_tokens == 8);  // a reservation that fails evicts nothing
}

TEST_CASE("pages in use are never evicted") {
    PagePool pool = *PagePool::create(3, 4);
    PrefixIndex index(pool);
    BlockTable a = indexed(pool, index, iota(0, 8));
    BlockTable t(pool);
    CHECK(!t.reserve(8));
    CHECK(t.reserve(4).ok());
    CHECK(index.match(iota(0, 8)).n_tokens == 8);
}

TEST_CASE("idle pages behind a sliding window can be reclaimed although their children are in use") {
    PagePool pool = *PagePool::create(4, 4);
    PrefixIndex index(pool);
    BlockTable a = indexed(pool, index, iota(0, 16));
    a.drop_before(8);
    CHECK(pool.n_idle() == 2);
    BlockTable t(pool);
    REQUIRE(t.reserve(4).ok());
    CHECK(index.match(iota(0, 16)).n_tokens == 0);  // the root page is gone, what hung below is unreachable
    CHECK(index.n_nodes() == 0);
    REQUIRE(t.reserve(8).ok());
    CHECK(pool.n_available() == 0);
    CHECK(a.slot(8) >= 0);
    // Inserting a sequence with dropped pages indexes nothing and says so.
    CHECK(index.insert(iota(0, 16), a.pages()) == 0);
}

TEST_CASE("pages survive their index") {
    PagePool pool = *PagePool::create(4, 4);
    BlockTable a(pool);
    {
        PrefixIndex index(pool);
        a = indexed(pool, index, iota(0, 8));
        { BlockTable b = indexed(pool, index, iota(50, 8)); }
        CHECK(pool.n_idle() == 2);
    }
    CHECK(pool.n_free() == 2);
    CHECK(pool.ref_count(a.pages()[0]) == 1);
    CHECK(!pool.shared(a.pages()[0]));
}
