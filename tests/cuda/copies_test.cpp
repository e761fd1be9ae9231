// Copies that nobody waits for: uploads whose source changes at once, of any size, letters beside later work.
#include <algorithm>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cuda/mirror.h"

using namespace nibble;

TEST_CASE("uploads arrive as they were sent, however many are under way") {
    const auto gpu = test_card();
    if (!gpu) return;
    constexpr size_t bytes = 700'001;
    constexpr uint8_t n = 20;  // more than page-locked memory holds at once
    const auto memory = gpu->allocate(n * bytes, "test");
    REQUIRE(memory);
    std::vector<std::byte> source(bytes);
    for (uint8_t i = 0; i < n; ++i) {
        std::memset(source.data(), i + 1, bytes);
        REQUIRE(gpu->upload(memory->data.get() + i * bytes, source));
    }
    std::vector<std::byte> back(n * bytes);
    REQUIRE(gpu->download(back, memory->data.get()));
    size_t wrong = 0;
    for (size_t i = 0; i < back.size(); ++i) wrong += back[i] != std::byte(i / bytes + 1);
    CHECK(wrong == 0);
}

TEST_CASE("an upload larger than page-locked memory arrives whole, and its source may change at once") {
    const auto gpu = test_card();
    if (!gpu) return;
    constexpr size_t bytes = 9'000'001, before = 70'000;  // what lies in that memory already
    const auto memory = gpu->allocate(before + bytes, "test");
    REQUIRE(memory);
    std::vector<std::byte> source(bytes);
    const auto value = [](size_t i) { return static_cast<std::byte>(i * 7 + i / 256 * 13 + i / 65536); };
    for (size_t i = 0; i < bytes; ++i) source[i] = value(i);
    REQUIRE(gpu->upload(memory->data.get(), std::span(source).first(before)));
    REQUIRE(gpu->upload(memory->data.get() + before, source));
    std::fill(source.begin(), source.end(), std::byte{0});
    std::vector<std::byte> back(before + bytes);
    REQUIRE(gpu->download(back, memory->data.get()));
    size_t wrong = 0;
    for (size_t i = 0; i < back.size(); ++i) wrong += back[i] != value(i < before ? i : i - before);
    CHECK(wrong == 0);
}

TEST_CASE("a letter holds what was there when it was sent") {
    const auto gpu = test_card();
    if (!gpu) return;
    const auto memory = gpu->allocate(64, "test");
    REQUIRE(memory);
    auto first = gpu->mailbox(64), second = gpu->mailbox(64);
    REQUIRE(first);
    REQUIRE(second);
    std::vector<std::byte> source(64);
    const auto send = [&](Mailbox& to, uint8_t value) {
        std::memset(source.data(), value, 64);
        REQUIRE(gpu->upload(memory->data.get(), source));
        REQUIRE(to.send(memory->data.get()));
    };
    const auto received = [](Mailbox& from) {
        const auto letter = from.receive();
        REQUIRE(letter);
        return std::vector<std::byte>(letter->begin(), letter->end());
    };
    const auto all = [](uint8_t value) { return std::vector<std::byte>(64, std::byte{value}); };
    send(**first, 1);
    send(**second, 2);
    send(**first, 3);  // the last one counts
    CHECK(received(**second) == all(2));
    send(**second, 4);
    CHECK(received(**first) == all(3));
    CHECK(received(**second) == all(4));
    CHECK(received(**second) == all(4));
    send(**first, 5);
    first->reset();  // nothing arrives in memory that is gone
    std::vector<std::byte> back(64);
    REQUIRE(gpu->download(back, memory->data.get()));
    CHECK(back == all(5));
}
