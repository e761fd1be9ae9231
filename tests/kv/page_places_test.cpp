// PagePlaces: every page of every layer has a place of its own, and a slot is in its page's.
#include "src/kv/page_places.h"

#include <set>

#include <doctest/doctest.h>

using namespace nibble;

TEST_CASE("pages that layers share memory for: all places are taken once, a run of each layer in turn") {
    constexpr int32_t pages = 24, layers = 5, page_size = 8;
    for (const int32_t run : {1, 2, 4, 8}) {
        const PagePlaces places{page_size, run, run * layers};
        std::set<int32_t> taken;
        for (int32_t layer = 0; layer < layers; ++layer)
            for (int32_t page = 0; page < pages; ++page) taken.insert(layer * run + places.of_page(page));
        CHECK(taken.size() == pages * layers);
        CHECK(*taken.begin() == 0);
        CHECK(*taken.rbegin() == pages * layers - 1);
        CHECK(places.of_page(run - 1) == run - 1);
        CHECK(places.of_page(run) == run * layers);
    }
}

TEST_CASE("slots lie in the place of their page; what is no page and no slot stays so") {
    const PagePlaces places{8, 2, 6}, as_they_are{8};
    CHECK(places.of_slot(8 * 3 + 5) == 8 * places.of_page(3) + 5);
    CHECK(places.of_page(-1) == -1);
    CHECK(places.of_slot(-1) == -1);
    for (const int32_t n : {-1, 0, 7, 1000}) {
        CHECK(as_they_are.of_page(n) == n);
        CHECK(as_they_are.of_slot(n) == n);
    }
}
