// The index of states: the whole of a known prefix or nothing, copies for those who go on, order of eviction.
// Sequences play the engine: one page each, as long as any text.
#include "src/kv/state_index.h"

#include <vector>

#include <doctest/doctest.h>

#include "src/kv/block_table.h"

using namespace nibble;

namespace {

using Tokens = std::vector<int32_t>;

BlockTable computed(PagePool& pool, int32_t n) {
    BlockTable t(pool);
    REQUIRE(t.reserve(n).ok());
    t.advance(n);
    return t;
}

}  // namespace

TEST_CASE("a state serves the texts that begin with all of its tokens, the longest of them") {
    PagePool pool = *PagePool::create(4, 64);
    StateIndex index(pool);
    BlockTable two = computed(pool, 2), four = computed(pool, 4);
    index.insert(Tokens{1, 2}, two.pages()[0]);
    index.insert(Tokens{1, 2, 3, 4}, four.pages()[0]);
    CHECK(index.match(Tokens{1, 2, 3, 4, 5}).page == four.pages()[0]);
    CHECK(index.match(Tokens{1, 2, 3, 4}).n_tokens == 4);
    CHECK(index.match(Tokens{1, 2, 3, 9}).page == two.pages()[0]);
    CHECK(index.match(Tokens{1, 2, 3, 9}).n_tokens == 2);
    CHECK(index.match(Tokens{1}).n_tokens == 0);
    CHECK(index.match(Tokens{2, 2, 3}).page == no_page);
    CHECK(index.match(Tokens{}).n_tokens == 0);
}

TEST_CASE("whoever goes on from a known state writes into a copy") {
    PagePool pool = *PagePool::create(3, 64);
    StateIndex index(pool);
    BlockTable t = computed(pool, 2);
    const PageId kept = t.pages()[0];
    index.insert(Tokens{1, 2}, kept);
    const auto copy = t.reserve(1);
    REQUIRE(copy);
    REQUIRE(*copy);
    CHECK((*copy)->from == kept);
    CHECK((*copy)->to == t.pages()[0]);
    t.advance(1);
    CHECK(index.match(Tokens{1, 2, 3}).page == kept);
    CHECK(!*t.reserve(1));  // its own by now

    // What is known already stays; a page that is known under other tokens cannot hold these.
    index.insert(Tokens{1, 2}, t.pages()[0]);
    CHECK(index.match(Tokens{1, 2}).page == kept);
    BlockTable again(pool);
    again.adopt(std::vector{kept}, 2);
    index.insert(Tokens{7}, kept);
    CHECK(index.match(Tokens{7}).n_tokens == 0);
}

TEST_CASE("the state used longest ago makes room") {
    PagePool pool = *PagePool::create(3, 64);
    StateIndex index(pool);
    for (const int32_t first : {1, 2, 3}) {
        BlockTable t = computed(pool, 1);
        index.insert(Tokens{first}, t.pages()[0]);
    }
    CHECK(pool.n_idle() == 3);
    CHECK(index.match(Tokens{1, 5}).n_tokens == 1);  // used again
    BlockTable t = computed(pool, 1);
    CHECK(index.match(Tokens{2}).n_tokens == 0);
    CHECK(index.match(Tokens{1}).n_tokens == 1);
    CHECK(index.match(Tokens{3}).n_tokens == 1);
    // One in use is not given away, and when none is left there is no page.
    BlockTable one(pool), three(pool);
    one.adopt(std::vector{index.match(Tokens{1}).page}, 1);
    three.adopt(std::vector{index.match(Tokens{3}).page}, 1);
    CHECK(!BlockTable(pool).reserve(1).ok());
    index.forget(Tokens{1, 2});  // which is not known
    CHECK(index.match(Tokens{1}).n_tokens == 1);
    index.forget(Tokens{3});  // in use, and no longer found
    CHECK(index.match(Tokens{3}).n_tokens == 0);
    index.clear();
    CHECK(index.match(Tokens{1}).n_tokens == 0);
}
