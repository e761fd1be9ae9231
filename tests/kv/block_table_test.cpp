// Page pool and block tables: counting, slots, forks, copy on write, rollback, sliding windows.
// Small pools, so that every page can be accounted for.
#include "src/kv/block_table.h"

#include <vector>

#include <doctest/doctest.h>

using namespace nibble;

namespace {

PagePool pool_of(int32_t n_pages, int32_t page_size) { return *PagePool::create(n_pages, page_size); }

// Reserves and advances in one go; the copy, if one was needed.
std::optional<PageCopy> grow(BlockTable& t, int32_t n) {
    auto reserved = t.reserve(n);
    REQUIRE(reserved.ok());
    t.advance(n);
    return *reserved;
}

}  // namespace

TEST_CASE("a pool refuses sizes without meaning") {
    CHECK(!PagePool::create(4, 0));
    CHECK(!PagePool::create(4, 24));
    CHECK(!PagePool::create(4, -32));
    CHECK(!PagePool::create(0, 32));
    CHECK(!PagePool::create(1 << 26, 64));  // 2^32 tokens
    CHECK(PagePool::create(4, 1).ok());
    CHECK(PagePool::create(10)->page_size() == 32);
}

TEST_CASE("pages are handed out once, counted, and reused when the last user leaves") {
    PagePool pool = pool_of(3, 4);
    CHECK(*pool.allocate() == 0);
    CHECK(*pool.allocate() == 1);
    CHECK(*pool.allocate() == 2);
    CHECK(!pool.allocate());
    pool.retain(1);
    pool.release(1);
    CHECK(pool.ref_count(1) == 1);
    CHECK(pool.n_free() == 0);
    pool.release(1);
    CHECK(pool.n_free() == 1);
    CHECK(*pool.allocate() == 1);
}

TEST_CASE("slots are page * page_size + offset, and -1 outside") {
    PagePool pool = pool_of(8, 4);
    const PageId taken = *pool.allocate();  // so that pages and indices differ
    BlockTable t(pool);
    grow(t, 6);
    CHECK(t.capacity() == 8);
    CHECK(t.slot(0) == 4);
    CHECK(t.slot(3) == 7);
    CHECK(t.slot(5) == 9);
    CHECK(t.slot(8) == -1);
    CHECK(t.slot(-1) == -1);
    CHECK(t.pages_needed(2) == 0);
    CHECK(t.pages_needed(3) == 1);
    pool.release(taken);
}

TEST_CASE("a reservation that does not fit changes nothing and names both numbers") {
    PagePool pool = pool_of(2, 4);
    BlockTable t(pool);
    grow(t, 3);
    auto r = t.reserve(6);
    REQUIRE(!r);
    CHECK(r.error().code == ErrorCode::out_of_memory);
    CHECK(r.error().what == "2 pages of 4 tokens needed, 1 of 2 available");
    CHECK(t.length() == 3);
    CHECK(t.pages().size() == 1);
    CHECK(pool.n_free() == 1);
    CHECK(!t.reserve(-1));
    CHECK(!t.reserve(INT32_MAX));
}

TEST_CASE("a fork shares pages; whoever writes first copies, the other then owns the original") {
    PagePool pool = pool_of(8, 4);
    BlockTable a(pool);
    grow(a, 6);
    BlockTable b = a.fork();
    CHECK(pool.n_free() == 6);
    CHECK(pool.ref_count(a.pages()[0]) == 2);
    const PageId original = a.pages()[1];

    CHECK(b.pages_needed(1) == 1);
    const auto copy = grow(b, 1);
    REQUIRE(copy);
    CHECK(copy->from == original);
    CHECK(copy->to == b.pages()[1]);
    CHECK(copy->n_tokens == 2);
    CHECK(b.pages()[0] == a.pages()[0]);
    CHECK(pool.ref_count(original) == 1);
    CHECK(!grow(a, 1));
    CHECK(a.pages()[1] == original);
}

TEST_CASE("a fork at a page boundary needs no copy") {
    PagePool pool = pool_of(8, 4);
    BlockTable a(pool);
    grow(a, 8);
    BlockTable b = a.fork();
    CHECK(!grow(b, 1));
    CHECK(!grow(a, 1));
    CHECK(a.pages()[2] != b.pages()[2]);
}

TEST_CASE("a copy on write without a page left is refused, not done in place") {
    PagePool pool = pool_of(1, 4);
    BlockTable a(pool);
    grow(a, 2);
    BlockTable b = a.fork();
    CHECK(!b.reserve(1));
    CHECK(b.reserve(0).ok());
    a.clear();
    CHECK(b.reserve(1).ok());
}

TEST_CASE("a fork does not share pages that are only reserved") {
    PagePool pool = pool_of(8, 4);
    BlockTable a(pool);
    grow(a, 4);
    REQUIRE(a.reserve(9).ok());
    CHECK(pool.n_free() == 4);
    BlockTable b = a.fork();
    CHECK(b.pages().size() == 1);
    CHECK(pool.ref_count(a.pages()[1]) == 1);
}

TEST_CASE("truncate gives back whole pages and refuses what is not held") {
    PagePool pool = pool_of(8, 4);
    BlockTable t(pool);
    grow(t, 15);
    CHECK(t.truncate(9).ok());
    CHECK(t.pages().size() == 3);
    CHECK(t.truncate(8).ok());
    CHECK(t.pages().size() == 2);
    CHECK(!t.truncate(9));
    CHECK(!t.truncate(-1));
    CHECK(t.length() == 8);
    CHECK(t.truncate(0).ok());
    CHECK(pool.n_free() == 8);
}

TEST_CASE("a sliding window frees the pages behind it and keeps the indices") {
    PagePool pool = pool_of(8, 4);
    BlockTable t(pool);
    grow(t, 14);
    const int32_t slot_of_9 = t.slot(9);
    t.drop_before(3);
    CHECK(t.begin() == 0);
    t.drop_before(9);
    CHECK(t.begin() == 8);
    CHECK(pool.n_free() == 6);
    CHECK(t.pages()[0] == no_page);
    CHECK(t.slot(7) == -1);
    CHECK(t.slot(9) == slot_of_9);
    t.drop_before(9);  // again: nothing more to do
    CHECK(pool.n_free() == 6);
    BlockTable twin = t.fork();
    CHECK(twin.begin() == 8);
    CHECK(!t.truncate(7));
    CHECK(t.truncate(8).ok());
    CHECK(pool.n_free() == 6);  // the twin still holds them
    t.drop_before(1000);        // clamped to the length
    CHECK(t.begin() == 8);
    grow(t, 1);
    CHECK(t.slot(8) >= 0);
}

TEST_CASE("moving hands the pages over; destruction gives them back") {
    PagePool pool = pool_of(4, 4);
    {
        BlockTable a(pool);
        grow(a, 10);
        BlockTable b(std::move(a));
        CHECK(b.length() == 10);
        BlockTable c(pool);
        grow(c, 1);
        CHECK(pool.n_free() == 0);
        c = std::move(b);
        CHECK(c.length() == 10);
        CHECK(pool.n_free() == 1);
    }
    CHECK(pool.n_free() == 4);
}
