// Codecs against other implementations: hashes made by make_golden.py with the gguf and bitsandbytes
// packages. Inputs are pseudo-random and made here again, see make_golden.py for the format of the file.
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/types/list.h"

using namespace nibble;

namespace {

constexpr uint64_t seed = 2024;
constexpr size_t blocks = 512;

std::vector<uint64_t> splitmix(uint64_t state, size_t n) {
    std::vector<uint64_t> out(n);
    for (uint64_t& z : out) {
        z = state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        z ^= z >> 31;
    }
    return out;
}

template <class T>
std::string fnv(const std::vector<T>& words) {
    uint64_t h = 0xcbf29ce484222325;
    for (const T w : words) h = (h ^ w) * 0x100000001b3;
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
    return text;
}

std::vector<float> values() {
    const std::vector<uint64_t> random = splitmix(seed + 1, blocks * 256);
    std::vector<float> x(blocks * 256);
    for (size_t i = 256; i < x.size(); ++i) {
        int sum = -131070;
        for (int k = 0; k < 64; k += 16) sum += static_cast<int>(random[i] >> k & 0xffff);
        x[i] = std::ldexp(static_cast<float>(sum) / 32768, -static_cast<int>(i / 256 % 8));
    }
    return x;
}

std::string decode_hash(const TypeInfo& t, const std::string& f16_high_bytes) {
    const size_t bytes = blocks * t.block_bytes;
    const std::vector<uint64_t> random = splitmix(seed, (bytes + 7) / 8);
    std::vector<std::byte> raw(random.size() * 8);
    std::memcpy(raw.data(), random.data(), raw.size());
    std::istringstream list(f16_high_bytes);
    for (std::string at; f16_high_bytes != "-" && std::getline(list, at, ',');)
        for (size_t b = 0; b < blocks; ++b) raw[b * t.block_bytes + std::stoul(at)] &= std::byte{0xbf};
    std::vector<float> y(blocks * t.block_len);
    t.decode(raw.data(), y.data(), y.size());
    std::vector<uint32_t> bits(y.size());
    for (size_t i = 0; i < y.size(); ++i) bits[i] = y[i] == 0 ? 0 : std::bit_cast<uint32_t>(y[i]);
    return fnv(bits);
}

std::string encode_hash(const TypeInfo& t) {
    const std::vector<float> x = values();
    std::vector<std::byte> out(*row_bytes(t.type, static_cast<int64_t>(x.size())));
    t.encode(x.data(), out.data(), x.size());
    std::vector<uint8_t> bytes(out.size());
    std::memcpy(bytes.data(), out.data(), out.size());
    return fnv(bytes);
}

// One code per element, in element order.
template <class F>
std::string code_hash(const std::vector<float>& x) {
    std::vector<uint8_t> codes(x.size());
    for (size_t i = 0; i < x.size(); i += F::block_len) {
        typename F::Block b;
        F::encode(&x[i], b);
        float scale[F::block_len / F::group];
        F::unpack(b, reinterpret_cast<int8_t*>(&codes[i]), scale);
    }
    return fnv(codes);
}

std::vector<float> nf4_edges() {
    std::vector<float> x(15 * 64);
    for (size_t k = 0; k < 15; ++k) {
        x[64 * k] = 1;
        x[64 * k + 1] = nf4_mid[k];
        x[64 * k + 2] = std::nextafter(nf4_mid[k], -2.0f);
        x[64 * k + 3] = std::nextafter(nf4_mid[k], 2.0f);
    }
    return x;
}

}  // namespace

TEST_CASE("codecs agree with other implementations bit for bit") {
    std::ifstream file(NIBBLE_SOURCE_DIR "/tests/data/types/golden.txt");
    REQUIRE(file.good());
    int checked = 0;
    for (std::string kind, name, hash; file >> kind >> name; ++checked) {
        CAPTURE(kind);
        CAPTURE(name);
        if (kind == "codes") {
            file >> hash;
            CHECK((name == "nf4" ? code_hash<NF4>(values()) : code_hash<NF4>(nf4_edges())) == hash);
            if (name == "nf4") CHECK(code_hash<NF4_DQ>(values()) == hash);
            continue;
        }
        const std::optional<Type> type = find_type(name);
        REQUIRE(type);
        std::string f16_high_bytes;
        if (kind == "decode") {
            file >> f16_high_bytes >> hash;
            CHECK(decode_hash(info(*type), f16_high_bytes) == hash);
        } else {
            file >> hash;
            CHECK(encode_hash(info(*type)) == hash);
        }
    }
    CHECK(checked >= 30);
}
