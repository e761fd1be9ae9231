// Random operations on tables, pool and index against a model that is too simple to be wrong.
// The memory behind the pages is simulated: each row holds the token written there, so that a page used
// twice, a missed copy on write or a wrong match shows as a wrong token.
#include <map>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "src/kv/block_table.h"
#include "src/kv/prefix_index.h"

using namespace nibble;

namespace {

struct Sequence {
    BlockTable table;
    std::vector<int32_t> tokens;  // the model: what every held position must read
};

class World {
  public:
    World(uint32_t seed, PrefixIndex::Hash hash)
        : pool_(*PagePool::create(n_pages, page_size)),
          index_(pool_, hash),
          memory_(n_pages * page_size, -1),
          state_(seed) {}

    void step() {
        if (sequences_.empty() || random(8) == 0) return start();
        Sequence& s = sequences_[random(static_cast<uint32_t>(sequences_.size()))];
        switch (random(7)) {
            case 0:
                return fork(s);
            case 1:
                return truncate(s);
            case 2:
                return end(s);
            case 3:
                return drop(s);
            case 4:
                index_.insert(s.tokens, s.table.pages());
                return;
            default:
                return append(s, 1 + random(9));
        }
    }

    void check() {
        std::vector<int32_t> users(n_pages, 0);
        for (const Sequence& s : sequences_) {
            REQUIRE(s.table.length() == static_cast<int32_t>(s.tokens.size()));
            std::set<PageId> own;
            for (PageId page : s.table.pages()) {
                if (page == no_page) continue;
                ++users[static_cast<size_t>(page)];
                REQUIRE(own.insert(page).second);
            }
            for (int32_t p = s.table.begin(); p < s.table.length(); ++p)
                REQUIRE(memory_[static_cast<size_t>(s.table.slot(p))] == s.tokens[static_cast<size_t>(p)]);
        }
        int32_t idle = 0, unused = 0, cached = 0;
        for (PageId page = 0; page < n_pages; ++page) {
            REQUIRE(pool_.ref_count(page) == users[static_cast<size_t>(page)]);
            cached += pool_.cached(page);
            if (users[static_cast<size_t>(page)] == 0) ++(pool_.cached(page) ? idle : unused);
        }
        REQUIRE(pool_.n_idle() == idle);
        REQUIRE(pool_.n_free() == unused);
        REQUIRE(index_.n_nodes() == cached);
    }

    void finish() {
        sequences_.clear();
        check();
        REQUIRE(pool_.n_available() == n_pages);
        // Everything idle can be had at once.
        BlockTable all(pool_);
        REQUIRE(all.reserve(n_pages * page_size).ok());
        REQUIRE(index_.n_nodes() == 0);
    }

    int64_t matched = 0, copies = 0, refused = 0;

  private:
    static constexpr int32_t n_pages = 24, page_size = 4;

    uint32_t random(uint32_t n) {
        state_ = state_ * 1664525u + 1013904223u;
        return (state_ >> 8) % n;
    }

    // Few distinct tokens, so that prefixes repeat often.
    int32_t token() { return static_cast<int32_t>(random(2)); }

    bool write(Sequence& s, std::span<const int32_t> tokens) {
        const auto n = static_cast<int32_t>(tokens.size());
        const int32_t needed = s.table.pages_needed(n), available = pool_.n_available();
        auto reserved = s.table.reserve(n);
        REQUIRE(reserved.ok() == (needed <= available));
        if (!reserved.ok()) {
            ++refused;
            return false;
        }
        REQUIRE(pool_.n_available() <= available - needed + 1);  // a copy may free its source
        if (const auto& copy = reserved.value()) {
            ++copies;
            for (int32_t i = 0; i < copy->n_tokens; ++i)
                memory_[at(copy->to, i)] = memory_[at(copy->from, i)];
        }
        for (int32_t token : tokens) {
            memory_[static_cast<size_t>(s.table.slot(s.table.length()))] = token;
            s.table.advance(1);
            s.tokens.push_back(token);
        }
        return true;
    }

    static size_t at(PageId page, int32_t row) { return static_cast<size_t>(page * page_size + row); }

    void start() {
        if (sequences_.size() >= 5) return;
        std::vector<int32_t> prompt(1 + random(20));
        for (int32_t& t : prompt) t = token();
        const PrefixMatch m = index_.match(prompt);
        matched += m.n_tokens;
        REQUIRE(m.n_tokens <= static_cast<int32_t>(prompt.size()));
        for (int32_t p = 0; p < m.n_tokens; ++p)
            REQUIRE(memory_[at(m.pages[static_cast<size_t>(p / page_size)], p % page_size)] ==
                    prompt[static_cast<size_t>(p)]);
        Sequence s{BlockTable(pool_), {}};
        s.table.adopt(m.pages, m.n_tokens);
        s.tokens.assign(prompt.begin(), prompt.begin() + m.n_tokens);
        if (write(s, std::span(prompt).subspan(static_cast<size_t>(m.n_tokens))))
            sequences_.push_back(std::move(s));
    }

    void append(Sequence& s, uint32_t n) {
        std::vector<int32_t> more(n);
        for (int32_t& t : more) t = token();
        write(s, more);
    }

    void fork(Sequence& s) {
        if (sequences_.size() < 5) sequences_.push_back({s.table.fork(), s.tokens});
    }

    void truncate(Sequence& s) {
        const auto n = static_cast<int32_t>(random(static_cast<uint32_t>(s.tokens.size()) + 1));
        const bool possible = n == 0 || n >= s.table.begin();
        REQUIRE(s.table.truncate(n).ok() == possible);
        if (possible) s.tokens.resize(static_cast<size_t>(n));
    }

    void end(Sequence& s) {
        std::swap(s, sequences_.back());
        sequences_.pop_back();
    }

    void drop(Sequence& s) {
        if (random(3) == 0) s.table.drop_before(s.table.length() - 6);
    }

    PagePool pool_;
    PrefixIndex index_;
    std::vector<int32_t> memory_;
    std::vector<Sequence> sequences_;
    uint32_t state_;
};

uint64_t two_buckets(uint64_t, std::span<const int32_t> block) { return block[0] & 1; }

void play(PrefixIndex::Hash hash) {
    int64_t matched = 0, copies = 0, refused = 0;
    for (uint32_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        World world(seed, hash);
        for (int i = 0; i < 500; ++i) {
            world.step();
            world.check();
        }
        world.finish();
        matched += world.matched;
        copies += world.copies;
        refused += world.refused;
    }
    // The play must have reached the interesting situations, else it proves nothing.
    CHECK(matched > 1000);
    CHECK(copies > 1000);
    CHECK(refused > 100);
}

}  // namespace

TEST_CASE("random play keeps counts, contents and matches right") { play(PrefixIndex::chain_hash); }

TEST_CASE("random play with a hash that collides") { play(two_buckets); }
