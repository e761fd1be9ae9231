// Mutation fuzzing of the parsers: every byte flipped, every truncation, random damage with a fixed seed.
// The outcome must be an Error or a consistent object, and no allocation may outgrow the file. Run it
// under AddressSanitizer: the bytes lie in heap blocks of exactly their size.
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include <doctest/doctest.h>

#include "ggml/file/gguf_reader.h"
#include "ggml/file/safetensors.h"
#include "ggml/file/tensor_file.h"
#include "tests/file/support.h"

namespace {
std::atomic<size_t> largest_allocation{0};

void* counted(size_t n) {
    size_t seen = largest_allocation.load(std::memory_order_relaxed);
    while (n > seen && !largest_allocation.compare_exchange_weak(seen, n, std::memory_order_relaxed)) {
    }
    if (void* p = std::malloc(n ? n : 1)) return p;
    throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t n) { return counted(n); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

using namespace nibble;
using namespace nibble::test;

namespace {

constexpr size_t allocation_floor = 4096, allocation_factor = 32;

// What every TensorInfo promises; reads the data so that a bad span faults.
uint64_t check_tensors(std::span<const TensorInfo> tensors) {
    uint64_t sum = 0;
    for (const TensorInfo& t : tensors) {
        REQUIRE(t.rows() >= 0);
        REQUIRE(t.data.size() == static_cast<size_t>(t.rows()) * *row_bytes(t.type, t.cols()));
        for (const std::byte b : t.data) sum += static_cast<uint64_t>(b);
    }
    return sum;
}

uint64_t check_metadata(const Metadata& m) {
    uint64_t sum = 0;
    for (const auto& [key, value] : m.entries()) {
        REQUIRE(m.find(key) == &value);
        sum += describe(value, 1000, 1000).size();
    }
    return sum;
}

// Returns whether it parsed; errors must have a text.
bool try_gguf(const std::string& bytes) {
    largest_allocation = 0;
    const auto f = parse_gguf(bytes);
    const size_t peak = largest_allocation;
    REQUIRE(peak <= allocation_floor + allocation_factor * bytes.size());
    if (!f) {
        REQUIRE(!f.error().what.empty());
        return false;
    }
    (void)check_metadata(f->metadata);
    (void)check_tensors(f->tensors.all());
    return true;
}

bool try_safetensors(const std::string& bytes) {
    const std::vector<char> block(bytes.begin(), bytes.end());
    largest_allocation = 0;
    const auto r = parse_safetensors(std::as_bytes(std::span(block)), "x");
    const size_t peak = largest_allocation;
    REQUIRE(peak <= allocation_floor + allocation_factor * bytes.size());
    if (!r) {
        REQUIRE(!r.error().what.empty());
        return false;
    }
    (void)check_tensors(*r);
    return true;
}

std::string small_gguf() {
    const TempDir dir;
    auto w = GgufWriter::create(dir / "s.gguf");
    Metadata& m = w->metadata();
    m.set("general.architecture", "llama");
    m.set("general.alignment", uint32_t{16});
    m.set("n", uint64_t{12});
    m.set("flag", true);
    m.set("tokens", std::vector<std::string>{"a", "", "bc"});
    m.set("scores", std::vector<float>{1, 2});
    m.set("flags", std::vector<bool>{true, false});
    m.set("nested", std::vector<MetaArray>{MetaArray(std::vector<int8_t>{1})});
    const int64_t q[] = {32, 2}, f[] = {3}, none[] = {4, 0};
    (void)w->declare("q", Type::q8_0, q);
    (void)w->declare("none", Type::f16, none);
    (void)w->declare("f", Type::f32, f);
    REQUIRE(w->begin().ok());
    REQUIRE(w->write("q", bytes_of(std::string(68, 'q'))).ok());
    REQUIRE(w->write("f", bytes_of(std::string(12, 'f'))).ok());
    REQUIRE(w->finish().ok());
    return *read_text_file(dir / "s.gguf");
}

std::string small_safetensors() {
    return safetensors(
        R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
        R"("b":{"dtype":"F4","shape":[1,4],"data_offsets":[12,14]},"c":{"dtype":"F32","shape":[],)"
        R"("data_offsets":[14,18]},"d":{"dtype":"U8","shape":[0,9],"data_offsets":[18,18]}} )",
        std::string(18, 'd'));
}

// Every single-byte change of a few kinds, every truncation, then `rounds` files with several changes.
template <class Try>
void mutate(const std::string& good, int rounds, Try&& attempt) {
    REQUIRE(attempt(good));
    int parsed = 0, refused = 0;
    const auto count = [&](const std::string& bytes) { ++(attempt(bytes) ? parsed : refused); };
    for (size_t i = 0; i < good.size(); ++i) {
        count(good.substr(0, i));
        for (const int x : {0x01, 0x02, 0x04, 0x10, 0x20, 0x40, 0x80, 0xff}) {
            std::string bad = good;
            bad[i] = static_cast<char>(bad[i] ^ x);
            count(bad);
        }
    }
    constexpr unsigned seed = 20240517;
    CAPTURE(seed);
    std::mt19937_64 rng(seed);
    const uint64_t nasty[] = {0,          1,        0x7f, 0xff, 0x7fffffff, 0xffffffff, uint64_t{1} << 60,
                              UINT64_MAX, INT64_MAX};
    for (int r = 0; r < rounds; ++r) {
        std::string bad = good;
        for (uint64_t n = 1 + rng() % 4; n > 0 && bad.size() > 8; --n) {
            const size_t at = rng() % (bad.size() - 8);
            switch (rng() % 5) {
                case 0:
                    bad[at] = static_cast<char>(rng());
                    break;
                case 1:
                    std::memcpy(&bad[at], &nasty[rng() % std::size(nasty)], 8);
                    break;
                case 2:
                    std::memcpy(&bad[at], &nasty[rng() % std::size(nasty)], 4);
                    break;
                case 3:
                    bad.erase(at, rng() % 9);
                    break;
                default: {
                    const size_t from = rng() % bad.size();
                    bad.insert(at, bad.substr(from, rng() % 24));
                    break;
                }
            }
        }
        count(bad);
    }
    CHECK(parsed > 0);  // damage in names and data goes unnoticed, as it must
    CHECK(refused > rounds / 4);
}

}  // namespace

TEST_CASE("fuzz: GGUF") { mutate(small_gguf(), 50000, try_gguf); }

TEST_CASE("fuzz: safetensors") { mutate(small_safetensors(), 50000, try_safetensors); }

TEST_CASE("fuzz: a folder whose index and config are damaged") {
    const TempDir dir;
    const std::string config = R"({"model_type":"llama","a":[1,2]})";
    const std::string index = R"({"weight_map":{"a":"s.safetensors","b":"s.safetensors"}})";
    write_file(dir / "s.safetensors", safetensors(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                                                  R"("b":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                                                  "dd"));
    for (const bool in_index : {true, false}) {
        write_file(dir / "config.json", config);
        write_file(dir / "model.safetensors.index.json", index);
        mutate(in_index ? index : config, 500, [&](const std::string& bytes) {
            write_file(dir / (in_index ? "model.safetensors.index.json" : "config.json"), bytes);
            const auto f = TensorFile::open(dir.path());
            if (f) (void)check_tensors(f->tensors());
            return f.ok();
        });
    }
}
