// The card in software, on PTX of a few lines: what instructions mean, and that faults are found.
// Values are those of the PTX ISA's definitions and figures.
#include <algorithm>
#include <bit>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/types/float16.h"
#include "tests/card/machine.h"

using namespace nibble;
using namespace nibble::card;

namespace {

constexpr const char* head = ".version 9.0\n.target sm_90\n.address_size 64\n";

// A kernel with one pointer, in %rd1 when `body` begins, %r1 being the thread.
Kernel kernel(const std::string& body) {
    auto kernels = parse_module(cat(head, R"(
.extern .shared .align 16 .b8 memory[];
.entry k(.param .u64 p) {
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<30>;
    .reg .f32 %f<30>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x; // the thread
)",
                                    body, "\n}\n"));
    REQUIRE(kernels.size() == 1);
    return kernels[0];
}

// What a block of `threads` leaves in `n` words of memory.
std::vector<uint32_t> words(const std::string& body, uint32_t threads, size_t n, size_t shared = 0,
                            bool overlaps = false) {
    const Kernel k = kernel(body);
    std::byte* const memory = allocate(4 * n);
    Launch l{&k, {1, 1, 1}, threads, shared, overlaps, std::vector<std::byte>(k.parameter_bytes)};
    std::memcpy(l.parameters.data(), &memory, sizeof memory);
    std::vector<uint32_t> result(n);
    const auto finish = [&] {
        std::memcpy(result.data(), memory, 4 * n);
        release(memory);
    };
    try {
        run(l);
    } catch (...) {
        finish();
        throw;
    }
    finish();
    return result;
}

// %r2 of each thread of a warp.
std::vector<uint32_t> each(const std::string& body) {
    return words(cat(body, R"(
    mul.wide.u32 %rd8, %r1, 4;
    add.s64 %rd8, %rd8, %rd1;
    st.global.u32 [%rd8], %r2;)"),
                 32, 32);
}

std::string fault(const std::string& body, uint32_t threads = 32, size_t shared = 0, bool overlaps = false) {
    try {
        (void)words(body, threads, 32, shared, overlaps);
    } catch (const Fault& f) {
        return f.what();
    }
    return "";
}

bool found(const std::string& in, const char* what) { return in.find(what) != std::string::npos; }

}  // namespace

TEST_CASE("instructions of one lane mean what the ISA says") {
    const struct {
        const char* body;
        uint32_t result;
    } cases[] = {
        {"add.s32 %r2, -1, 3;", 2},
        {"mul.lo.s32 %r2, -3, 5;", static_cast<uint32_t>(-15)},
        {"mul.hi.u32 %r2, -1, 16;", 15},
        {"mad.lo.s32 %r2, 3, 4, 5;", 17},
        {"shr.s32 %r2, -8, 1;", static_cast<uint32_t>(-4)},
        {"shr.u32 %r2, -8, 40;", 0},
        {"shl.b32 %r2, 1, 32;", 0},
        {"div.s32 %r2, -7, 2;", static_cast<uint32_t>(-3)},
        {"rem.s32 %r2, -7, 2;", static_cast<uint32_t>(-1)},
        {"clz.b32 %r2, 255;", 24},
        {"bfi.b32 %r2, 5, 240, 8, 4;", 0x5f0},
        {"lop3.b32 %r2, 12, 10, 1, 0xea;", 9},
        {"mov.u32 %r3, 0x33221100; prmt.b32 %r2, %r3, 0x77665544, 0x7351;", 0x77335511},
        {"mov.u32 %r3, 0x80; prmt.b32 %r2, %r3, 0, 0x0008;", 0x808080ff},
        {"mov.b32 {%h1, %h2}, 0x12345678; mov.b32 %r2, {%h2, %h1};", 0x56781234},
        {"cvt.rn.f32.s32 %f1, -7; mov.b32 %r2, %f1;", 0xc0e00000},
        {"cvt.rzi.s32.f32 %r2, 0fC0266666;", static_cast<uint32_t>(-2)},
        {"cvt.rni.s32.f32 %r2, 0f40200000;", 2},  // 2.5, to even
        {"cvt.rzi.u32.f32 %r2, 0fC0266666;", 0},
        {"cvt.rn.f16.f32 %h1, 0f3F801000; cvt.u32.u16 %r2, %h1;", 0x3c00},  // a tie, to even
        {"cvt.s16.s8 %h1, 200; cvt.s32.s16 %r2, %h1;", static_cast<uint32_t>(-56)},
        {"fma.rn.f32 %f1, 0f40000000, 0f40400000, 0f3F800000; mov.b32 %r2, %f1;", 0x40e00000},
        {"fma.rn.f16x2 %r2, 0x40003c00, 0x42004200, 0x3c003c00;", 0x47004400},  // 2*3+1, 1*3+1
        {"min.f32 %f1, 0f7FC00000, 0f3F800000; mov.b32 %r2, %f1;", 0x3f800000},
        {"mov.u32 %r3, -1; add.cc.u32 %r4, %r3, 1; addc.u32 %r2, 0, 0;", 1},
        {"setp.ltu.f32 %p1, 0f7FC00000, 0f00000000; selp.u32 %r2, 1, 0, %p1;", 1},
        {"setp.ne.f32 %p1, 0f7FC00000, 0f00000000; selp.u32 %r2, 1, 0, %p1;", 0},
        {"setp.lt.s32 %p1, -1, 0; setp.lt.u32 %p2, -1, 0; xor.pred %p3, %p1, %p2; selp.u32 %r2, 1, 0, %p3;",
         1},
    };
    for (const auto& c : cases) {
        INFO(c.body);
        CHECK(each(c.body)[7] == c.result);
    }
}

TEST_CASE("lanes part and meet again") {
    const auto r = each(R"(
    mov.u32 %r2, 0;
    and.b32 %r3, %r1, 3;
LOOP:
    setp.eq.s32 %p1, %r3, 0;
    @%p1 bra DONE;
    add.s32 %r2, %r2, 10;
    add.s32 %r3, %r3, -1;
    bra LOOP;
DONE:
    shfl.sync.idx.b32 %r4|%p2, %r2, 3, 31, -1;
    @!%p2 mov.u32 %r4, 0;
    add.s32 %r2, %r2, %r4;)");
    for (uint32_t lane = 0; lane < 32; ++lane) CHECK(r[lane] == lane % 4 * 10 + 30);
}

TEST_CASE("shuffles stay in the range of their clamp") {
    const auto by = [](const char* mode, int b, int c) {
        return each(cat("shfl.sync.", mode, ".b32 %r2, %r1, ", b, ", ", c, ", -1;"));
    };
    CHECK(by("bfly", 5, 31)[9] == (9 ^ 5));
    CHECK(by("up", 2, 0)[1] == 1);
    CHECK(by("up", 2, 0)[9] == 7);
    CHECK(by("down", 2, 31)[30] == 30);
    CHECK(by("idx", 1, 0x181f)[19] == 17);  // segments of eight lanes
}

TEST_CASE("lanes with the same value find each other") {
    const auto r = each("rem.u32 %r3, %r1, 5;\nmatch.any.sync.b32 %r2, %r3, -1;");
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t other = 0; other < 32; ++other)
            CHECK((r[lane] >> other & 1) == (lane % 5 == other % 5 ? 1u : 0u));
}

TEST_CASE("warps wait for each other at the block's barrier") {
    const auto r = words(R"(
    shl.b32 %r3, %r1, 2;
    mov.u32 %r4, memory;
    add.s32 %r4, %r4, %r3;
    st.shared.u32 [%r4], %r1;
    bar.sync 0;
    sub.s32 %r5, 508, %r3;
    mov.u32 %r6, memory;
    add.s32 %r6, %r6, %r5;
    ld.shared.u32 %r2, [%r6];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd2, %rd2, %rd1;
    st.global.u32 [%rd2], %r2;)",
                         128, 128, 512);
    for (uint32_t i = 0; i < 128; ++i) CHECK(r[i] == 127 - i);
}

TEST_CASE("an asynchronous copy happens when it is waited for") {
    const char* const copy = R"(
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd2, %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    bar.warp.sync -1;
    setp.ne.s32 %p1, %r1, 0;
    mov.u32 %r4, memory;
    @!%p1 cp.async.cg.shared.global [%r4], [%rd1], 16, 8;
    cp.async.commit_group;
    )";
    const char* const look = R"(
    bar.warp.sync -1;
    ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [memory];
    @!%p1 st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r2};)";
    const auto early = words(cat(copy, look), 32, 32, 16),
               in_time = words(cat(copy, "cp.async.wait_group 0;", look), 32, 32, 16);
    CHECK(early[0] == 0xffffffff);
    CHECK(in_time[0] == 1);  // the second word; only eight bytes were copied
    CHECK((in_time[1] == 0 && in_time[2] == 0 && in_time[3] == 0));
}

TEST_CASE("matrices are multiplied as the figures of their fragments show") {
    // A [16 x 16] has 1 at (row, row) and 2 at (0, 15); B [16 x 8] has k + 100 n, in f16, from its
    // definition.
    const auto half = [](int v) { return f32_to_f16(static_cast<float>(v)); };
    const auto a = [](int row, int col) { return row == col ? 1 : row == 0 && col == 15 ? 2 : 0; };
    for (const int lane : {0, 5, 22, 31}) {
        INFO(lane);
        const int g = lane / 4, t = lane % 4;
        // Registers of all lanes are loaded from memory that this test fills.
        std::vector<uint32_t> in;
        for (int l = 0; l < 32; ++l) {
            const auto pair = [&](int lo, int hi) { in.push_back(half(lo) | uint32_t{half(hi)} << 16); };
            const int row = l / 4, col = l % 4 * 2;
            pair(a(row, col), a(row, col + 1));
            pair(a(row + 8, col), a(row + 8, col + 1));
            pair(a(row, col + 8), a(row, col + 9));
            pair(a(row + 8, col + 8), a(row + 8, col + 9));
            pair(col + 100 * row, col + 1 + 100 * row);
            pair(col + 8 + 100 * row, col + 9 + 100 * row);
        }
        std::string body = "mul.wide.u32 %rd2, %r1, 24; add.s64 %rd2, %rd2, %rd1;\n";
        for (int r = 0; r < 6; ++r) body += cat("ld.global.u32 %r", 10 + r, ", [%rd2+", 4 * r, "];\n");
        body += R"(
    mov.f32 %f5, 0f3F800000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r10,%r11,%r12,%r13}, {%r14,%r15},
        {%f5,%f5,%f5,%f5};
    mul.wide.u32 %rd3, %r1, 16; add.s64 %rd3, %rd3, %rd1;
    st.global.v4.f32 [%rd3], {%f1, %f2, %f3, %f4};)";
        const Kernel k = kernel(body);
        std::byte* const memory = allocate(4 * in.size());
        std::memcpy(memory, in.data(), 4 * in.size());
        Launch launch{&k, {1, 1, 1}, 32, 0, false, std::vector<std::byte>(k.parameter_bytes)};
        std::memcpy(launch.parameters.data(), &memory, sizeof memory);
        run(launch);
        float d[4];
        std::memcpy(d, memory + 16 * lane, sizeof d);
        release(memory);
        for (int e = 0; e < 4; ++e) {
            const int row = g + 8 * (e / 2), col = 2 * t + e % 2;
            float expected = 1;
            for (int n = 0; n < 16; ++n) expected += static_cast<float>(a(row, n) * (n + 100 * col));
            CHECK(d[e] == expected);
        }
    }
}

namespace {

// A [64 x 16] has 1 at (row, row % 16); B [16 x 128] has k + 16 (n % 32), in shared memory as its descriptor
// says: 128 bytes a column, pieces of 16 bytes exchanged by the column's number. `before` and `after` stand
// around the product.
std::string warpgroup_product(const std::string& before, const std::string& after) {
    std::string sums, body = ".reg .f32 %s<64>;\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n";
    for (int r = 0; r < 64; ++r) {
        sums += cat(r ? "," : "", "%s", r);
        body += cat("mov.f32 %s", r, ", 0f3F800000;\n");
    }
    // Column: the thread. Its first 16 elements are two pieces.
    body +=
        "mov.u32 %r20, memory; shl.b32 %r3, %r1, 7; add.s32 %r20, %r20, %r3; and.b32 %r21, %r1, 7;\n"
        "and.b32 %r22, %r1, 31; shl.b32 %r22, %r22, 4;\n";
    for (int k = 0; k < 16; ++k)
        body += cat("xor.b32 %r23, %r21, ", k / 8, "; shl.b32 %r23, %r23, 4; add.s32 %r23, %r23, %r20;\n",
                    "add.s32 %r24, %r22, ", k, "; cvt.rn.f32.s32 %f1, %r24; cvt.rn.f16.f32 %h1, %f1;\n",
                    "st.shared.b16 [%r23+", k % 8 * 2, "], %h1;\n");
    // Row of the lane's fragment: 16 (warp) + g, and 8 more.
    for (int r = 0; r < 4; ++r) {
        body += cat("mov.u32 %r", 10 + r, ", 0;\n");
        for (int half = 0; half < 2; ++half)
            body += cat("shr.u32 %r3, %r1, 2; and.b32 %r3, %r3, 7; add.s32 %r3, %r3, ", 8 * (r % 2),
                        "; and.b32 %r4, %r1, 3; shl.b32 %r4, %r4, 1; add.s32 %r4, %r4, ", half + 8 * (r / 2),
                        "; setp.eq.s32 %p1, %r3, %r4; @%p1 or.b32 %r", 10 + r, ", %r", 10 + r, ", ",
                        half ? 0x3c000000 : 0x3c00, ";\n");
    }
    body +=
        "mov.u32 %r3, memory; shr.u32 %r3, %r3, 4; cvt.u64.u32 %rd3, %r3;\n"
        "or.b64 %rd3, %rd3, 4611686293305360384;\n";
    body += before;
    body += cat("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {", sums,
                "}, {%r10,%r11,%r12,%r13}, %rd3, add, 1, 1, 0;\nwgmma.commit_group.sync.aligned;\n");
    body += after;
    body += "mul.wide.u32 %rd2, %r1, 256; add.s64 %rd2, %rd2, %rd1;\n";
    for (int r = 0; r < 64; ++r) body += cat("st.global.f32 [%rd2+", 4 * r, "], %s", r, ";\n");
    return body;
}

constexpr size_t tile_bytes = 128 * 128;

}  // namespace

TEST_CASE("a warpgroup multiplies its registers by a matrix in shared memory") {
    const auto r = words(
        warpgroup_product("bar.sync 0;\nwgmma.fence.sync.aligned;\n", "wgmma.wait_group.sync.aligned 0;\n"),
        128, 128 * 64, tile_bytes);
    for (size_t thread = 0; thread < 128; ++thread)
        for (size_t s = 0; s < 64; ++s) {
            // Sums of a warp are its rows, those of group s / 4 the columns from 8 (s / 4) on.
            const size_t row = thread % 32 / 4 + s / 2 % 2 * 8, column = s / 4 * 8 + thread % 4 * 2 + s % 2;
            CHECK(std::bit_cast<float>(r[thread * 64 + s]) ==
                  static_cast<float>(1 + row + 16 * (column % 32)));
        }
}

TEST_CASE("faults of warpgroups are found") {
    const auto fails = [](const std::string& before, const std::string& after, const char* what) {
        try {
            (void)words(warpgroup_product(before, after), 128, 128 * 64, tile_bytes);
        } catch (const Fault& f) {
            return found(f.what(), what);
        }
        return false;
    };
    const std::string begin = "bar.sync 0;\nwgmma.fence.sync.aligned;\n",
                      wait = "wgmma.wait_group.sync.aligned 0;\n";
    CHECK(fails("bar.sync 0;\n", wait, "registers are not ready"));
    CHECK(fails(begin, "", "products under way"));
    CHECK(fails(begin, "mov.u32 %r10, 7;\n" + wait, "has changed"));
    CHECK(fails(begin, "st.shared.u32 [memory], %r1;\n" + wait, "has changed"));
    // What was copied must be shown to the tensor cores before the barrier.
    const std::string copy =
        "mov.u32 %r3, memory; setp.eq.s32 %p1, %r1, 0;\n"
        "@%p1 cp.async.cg.shared.global [%r3+2048], [%rd1], 16;\n"
        "cp.async.commit_group; cp.async.wait_group 0;\n";
    CHECK(fails(copy + begin, wait, "was not shown"));
    CHECK(!fails(copy + "fence.proxy.async.shared::cta;\n" + begin, wait, ""));
}

TEST_CASE("copies in one piece end the turn of a barrier that was told of them") {
    // Memory begins as all ones; thread 0 writes 7 there, and has 16 bytes of it copied.
    const auto body = [](const char* expected, const char* rest) {
        return cat(R"(
    mov.u32 %r3, memory;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra MADE;
    mov.u32 %r4, 7;
    st.global.u32 [%rd1], %r4;
    mbarrier.init.shared::cta.b64 [%r3+16], 1;
    fence.mbarrier_init.release.cluster;
MADE:
    bar.sync 0;
    @%p1 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+16], )",
                   expected, R"(;
    mov.u32 %r5, 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], %r5, [%r3+16];
WAIT:
)",
                   rest, R"(
    ld.shared.u32 %r2, [%r3];
    mul.wide.u32 %rd8, %r1, 4;
    add.s64 %rd8, %rd8, %rd1;
    st.global.u32 [%rd8+16], %r2;)");
    };
    const char* const wait = R"(
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3+16], 0;
    @!%p2 bra AGAIN;)";
    const auto results = words(body("16", wait), 64, 68, 24);
    CHECK(std::all_of(results.begin() + 4, results.end(), [](uint32_t v) { return v == 7; }));
    CHECK(found(fault(body("32", wait), 64, 24), "whose turn does not end"));
    CHECK(found(fault(body("16", "bar.sync 0;"), 28, 24), "copies under way"));
}

TEST_CASE("faults of kernels are found") {
    CHECK(fault("st.global.u32 [%rd1+124], %r1;") == "");
    CHECK(found(fault("st.global.u32 [%rd1+128], %r1;"), "4 bytes at 128 of an allocation of 128"));
    CHECK(found(fault("mov.u64 %rd2, 4096; ld.global.u32 %r2, [%rd2];"), "not the card's"));
    CHECK(found(fault("ld.global.v2.u32 {%r2, %r3}, [%rd1+4];"), "not aligned"));
    CHECK(found(fault("ld.shared.u32 %r2, [memory+16];", 32, 16), "at 16 of 16 of shared memory"));
    const std::string parted = "setp.lt.s32 %p1, %r1, 16;\n@%p1 bra LOW;\n";
    CHECK(
        found(fault(parted + "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nbra END;\nLOW: add.s32 %r2, %r1, 1;\n"
                             "bar.warp.sync -1;\nEND: ret;"),
              "parted"));
    CHECK(found(fault("setp.lt.s32 %p1, %r1, 16;\n@%p1 ret;\nbar.warp.sync -1;"), "have ended"));
    CHECK(found(fault("@%p1 bra LOW;\nfrobnicate.u32 %r1;\nLOW: ret;"), "frobnicate"));
    CHECK(fault(parted + "add.s32 %r2, %r1, 1;\nLOW: bar.sync 0;") == "");
    // Launches that overlap: constants may be read at once, all else after the wait.
    const std::string wait = "griddepcontrol.wait;\n";
    CHECK(found(fault("ld.global.u32 %r2, [%rd1];\n" + wait, 32, 0, true), "before the launches before"));
    CHECK(fault("ld.global.nc.u32 %r2, [%rd1];\n" + wait + "st.global.u32 [%rd1], %r2;", 32, 0, true) == "");
}
