// Instructions that work lane by lane, from registers to a register: PTX ISA 9.0, sections 9.7.1 to 9.7.9.
// One function per meaning; the table below says under which names and for which types it is known.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "ggml/base/cat.h"
#include "ggml/types/float16.h"
#include "tests/card/machine.h"

namespace nibble::card {
namespace {

using s8 = int8_t;
using u8 = uint8_t;
using s16 = int16_t;
using u16 = uint16_t;
using s32 = int32_t;
using u32 = uint32_t;
using s64 = int64_t;
using u64 = uint64_t;
using f32 = float;
using f64 = double;

struct Half {
    u16 bits;
};
struct Bf16 {
    u16 bits;
};
struct Halves {  // f16x2
    u16 bits[2];
};

// "s32" and the like.
template <class T>
std::string type_name() {
    return cat(std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "s" : "u", 8 * sizeof(T));
}

template <auto f, class D, class... S>
void lane_by_lane(Machine& m, const Instruction& i, Lanes on) {
    uint64_t* const out = m.cells(i.out[0]);
    std::array<const uint64_t*, sizeof...(S)> in;
    for (size_t n = 0; n < in.size(); ++n) in[n] = m.cells(i.in[n]);
    const auto one = [&]<size_t... n>(int lane, std::index_sequence<n...>) {
        set_value<D>(out, lane, static_cast<D>(f(value<S>(in[n], lane)...)));
    };
    if (on == all_lanes)
        for (int lane = 0; lane < warp_size; ++lane) one(lane, std::index_sequence_for<S...>{});
    else
        each_lane(on, [&](int lane) { one(lane, std::index_sequence_for<S...>{}); });
}

template <auto f, class T>
void compare(Machine& m, const Instruction& i, Lanes on) {
    const uint64_t *a = m.cells(i.in[0]), *b = m.cells(i.in[1]);
    Lanes result = 0;
    each_lane(
        on, [&](int lane) { result |= static_cast<Lanes>(f(value<T>(a, lane), value<T>(b, lane))) << lane; });
    Lanes& p = m.predicate(i.out[0]);
    p = (p & ~on) | result;
}

template <auto f>
void combine(Machine& m, const Instruction& i, Lanes on) {
    Lanes& p = m.predicate(i.out[0]);
    p = (p & ~on) | (f(m.predicate(i.in[0]), m.predicate(i.in[1])) & on);
}

void select(Machine& m, const Instruction& i, Lanes on) {
    uint64_t* const out = m.cells(i.out[0]);
    const uint64_t *a = m.cells(i.in[0]), *b = m.cells(i.in[1]);
    const Lanes p = m.predicate(i.in[2]);
    each_lane(on, [&](int lane) { out[lane] = p >> lane & 1 ? a[lane] : b[lane]; });
}

// Two halves of a register from or to two registers of half its width.
template <class Wide, class Narrow>
void pack(Machine& m, const Instruction& i, Lanes on) {
    uint64_t* const out = m.cells(i.out[0]);
    const uint64_t *lo = m.cells(i.in[0]), *hi = m.cells(i.in[1]);
    each_lane(on, [&](int lane) {
        set_value<Wide>(
            out, lane,
            static_cast<Wide>(value<Narrow>(lo, lane) | Wide{value<Narrow>(hi, lane)} << 8 * sizeof(Narrow)));
    });
}
template <class Wide, class Narrow>
void unpack(Machine& m, const Instruction& i, Lanes on) {
    const uint64_t* const in = m.cells(i.in[0]);
    each_lane(on, [&](int lane) {
        const Wide v = value<Wide>(in, lane);
        if (i.out[0] != no_slot) set_value<Narrow>(m.cells(i.out[0]), lane, static_cast<Narrow>(v));
        if (i.out[1] != no_slot)
            set_value<Narrow>(m.cells(i.out[1]), lane, static_cast<Narrow>(v >> 8 * sizeof(Narrow)));
    });
}

// Sums and products longer than 32 bits, which pass a carry on.
enum class Extended { add, sub, mad_lo, mad_hi };
template <Extended what, bool carry_in, bool carry_out>
void extended(Machine& m, const Instruction& i, Lanes on) {
    uint64_t* const out = m.cells(i.out[0]);
    const uint64_t *a = m.cells(i.in[0]), *b = m.cells(i.in[1]), *c = m.cells(i.in[2]);
    Lanes& carry = m.warp->carry;
    each_lane(on, [&](int lane) {
        const u64 x = value<u32>(a, lane), y = value<u32>(b, lane), in = carry_in ? carry >> lane & 1 : 0;
        u64 r = 0;
        if (what == Extended::add) r = x + y + in;
        if (what == Extended::sub) r = x - y - in;
        if (what == Extended::mad_lo) r = (x * y & 0xffffffff) + value<u32>(c, lane) + in;
        if (what == Extended::mad_hi) r = (x * y >> 32) + value<u32>(c, lane) + in;
        set_value<u32>(out, lane, static_cast<u32>(r));
        if (carry_out) carry = (carry & ~(Lanes{1} << lane)) | static_cast<Lanes>(r >> 32 & 1) << lane;
    });
}

template <int rounding>
void fma_rounded(Machine& m, const Instruction& i, Lanes on) {
    std::fesetround(rounding);
    lane_by_lane<[](f32 a, f32 b, f32 c) {
        volatile const f32 x = a, y = b, z = c;  // not before the rounding is set
        return std::fma(x, y, z);
    },
                 f32, f32, f32, f32>(m, i, on);
    std::fesetround(FE_TONEAREST);
}

// The library's reduction of large angles, which kernels call: the rest and the quarter of a turn.
void reduce_angle(Machine& m, const Instruction& i, Lanes on) {
    const uint64_t* const x = m.cells(i.in[0]);
    each_lane(on, [&](int lane) {
        int quarter = 0;
        const auto half_pi = std::acos(-1.0L) / 2;
        const auto rest = std::remquo(static_cast<long double>(value<f64>(x, lane)), half_pi, &quarter);
        set_value<f64>(m.cells(i.out[0]), lane, static_cast<f64>(rest));
        set_value<s32>(m.cells(i.out[1]), lane, quarter);
    });
}

// ---- values -------------------------------------------------------------------------------------------

f32 wide(Half h) { return f16_to_f32(h.bits); }
f32 wide(Bf16 h) { return bf16_to_f32(h.bits); }
// Rounded once: what f32 cannot hold leaves a mark in its last bit.
Half half_of(f64 x) {
    auto f = static_cast<f32>(x);
    if (static_cast<f64>(f) != x && std::isfinite(f)) {
        if (std::fabs(static_cast<f64>(f)) > std::fabs(x)) f = std::nextafter(f, 0.0f);
        f = std::bit_cast<f32>(std::bit_cast<u32>(f) | 1);
    }
    return {f32_to_f16(f)};
}
template <auto f>
constexpr auto by_halves = [](auto... v) {
    return Halves{{half_of(f(static_cast<f64>(wide(Half{v.bits[0]}))...)).bits,
                   half_of(f(static_cast<f64>(wide(Half{v.bits[1]}))...)).bits}};
};
template <auto f>
constexpr auto by_half = [](auto... v) { return half_of(f(static_cast<f64>(wide(v))...)); };

// Integers wrap around.
template <class T>
using Wrapping = std::make_unsigned_t<decltype(+T{})>;
template <auto f>
constexpr auto wrapped = []<class T>(T a, auto... b) {
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(f(static_cast<Wrapping<T>>(a), static_cast<Wrapping<T>>(b)...));
    else
        return f(a, b...);
};

constexpr auto same = [](auto a) { return a; };
constexpr auto plus = [](auto a, auto b) { return a + b; };
constexpr auto minus = [](auto a, auto b) { return a - b; };
constexpr auto times = [](auto a, auto b) { return a * b; };
constexpr auto times_plus = [](auto a, auto b, auto c) { return a * b + c; };
constexpr auto fused = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
constexpr auto negated = [](auto a) { return -a; };
constexpr auto quotient = []<class T>(T a, T b) {
    if constexpr (std::is_integral_v<T>)
        return b ? static_cast<T>(a / b) : static_cast<T>(-1);
    else
        return a / b;
};
constexpr auto remainder_of = []<class T>(T a, T b) { return b ? static_cast<T>(a % b) : a; };
// Of a number and no number, the number; -0 is less than 0.
constexpr auto least = []<class T>(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
        return a != a ? b : b != b ? a : b < a || (a == b && std::signbit(b)) ? b : a;
    else
        return std::min(a, b);
};
constexpr auto most = []<class T>(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
        return a != a ? b : b != b ? a : a < b || (a == b && std::signbit(a)) ? b : a;
    else
        return std::max(a, b);
};
constexpr auto magnitude = []<class T>(T a) { return static_cast<T>(std::abs(a)); };
constexpr auto shifted_left = []<class T>(T a, u32 n) {
    return n >= 8 * sizeof a ? T{} : static_cast<T>(a << n);
};
constexpr auto shifted_right = []<class T>(T a, u32 n) {
    return static_cast<T>(a >> std::min<u32>(n, 8 * sizeof a - 1) >> (n >= 8 * sizeof a ? 1 : 0));
};
template <class D>
constexpr auto product = [](auto a, auto b) { return static_cast<D>(a) * static_cast<D>(b); };
template <class D>
constexpr auto product_plus = [](auto a, auto b, D c) {
    return wrapped<plus>(static_cast<D>(static_cast<D>(a) * static_cast<D>(b)), c);
};
template <class Wider>
constexpr auto upper_half = []<class T>(T a, T b) {
    return static_cast<T>(static_cast<Wider>(a) * static_cast<Wider>(b) >> 8 * sizeof(T));
};
constexpr auto permuted = [](u32 a, u32 b, u32 selector) {
    const u64 bytes = a | u64{b} << 32;
    u32 r = 0;
    for (int k = 0; k < 4; ++k) {
        const u32 s = selector >> 4 * k & 15, byte = static_cast<u32>(bytes >> 8 * (s & 7)) & 255;
        r |= (s & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * k;
    }
    return r;
};
constexpr auto looked_up = [](u32 a, u32 b, u32 c, u32 table) {
    u32 r = 0;
    for (int k = 0; k < 8; ++k)
        if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return r;
};
constexpr auto inserted = []<class T>(T bits, T into, u32 at, u32 n) {
    for (u32 k = 0; k < (n & 255) && (at & 255) + k < 8 * sizeof into; ++k) {
        const T bit = T{1} << ((at & 255) + k);
        into = bits >> k & 1 ? into | bit : into & ~bit;
    }
    return into;
};
constexpr auto funnel_left = [](u32 lo, u32 hi, u32 n) {
    return static_cast<u32>((lo | u64{hi} << 32) << (n & 31) >> 32);
};
constexpr auto funnel_right = [](u32 lo, u32 hi, u32 n) {
    return static_cast<u32>((lo | u64{hi} << 32) >> (n & 31));
};
constexpr auto unordered = [](auto a, auto b) { return a != a || b != b; };

// Conversions: nan becomes 0, what is too large the largest.
template <class D>
D saturated(f64 x) {
    if (std::isnan(x)) return 0;
    constexpr auto lowest = static_cast<f64>(std::numeric_limits<D>::min());
    const f64 limit = std::ldexp(1.0, std::numeric_limits<D>::digits);
    return x >= limit    ? std::numeric_limits<D>::max()
           : x <= lowest ? std::numeric_limits<D>::min()
                         : static_cast<D>(x);
}

// ---- names --------------------------------------------------------------------------------------------

using Table = std::unordered_map<std::string, Handler>;

template <class... T, class F>
void each(F add) {
    (add.template operator()<T>(cat(".", type_name<T>())), ...);
}

void add_integers(Table& t) {
    each<s16, u16, s32, u32, s64, u64>([&]<class T>(const std::string& type) {
        t["add" + type] = lane_by_lane<wrapped<plus>, T, T, T>;
        t["sub" + type] = lane_by_lane<wrapped<minus>, T, T, T>;
        t["mul.lo" + type] = lane_by_lane<wrapped<times>, T, T, T>;
        t["mad.lo" + type] = lane_by_lane<wrapped<times_plus>, T, T, T, T>;
        t["div" + type] = lane_by_lane<quotient, T, T, T>;
        t["rem" + type] = lane_by_lane<remainder_of, T, T, T>;
        t["min" + type] = lane_by_lane<least, T, T, T>;
        t["max" + type] = lane_by_lane<most, T, T, T>;
        t["shr" + type] = lane_by_lane<shifted_right, T, T, u32>;
    });
    each<s16, s32, s64>([&]<class T>(const std::string& type) {
        t["neg" + type] = lane_by_lane<wrapped<negated>, T, T>;
        t["abs" + type] = lane_by_lane<magnitude, T, T>;
    });
    const auto widening = [&]<class D, class T>(const std::string& type) {
        t["mul.wide" + type] = lane_by_lane<product<D>, D, T, T>;
        t["mul.hi" + type] = lane_by_lane<upper_half<D>, T, T, T>;
        t["mad.wide" + type] = lane_by_lane<product_plus<D>, D, T, T, D>;
    };
    widening.operator()<s32, s16>(".s16");
    widening.operator()<u32, u16>(".u16");
    widening.operator()<s64, s32>(".s32");
    widening.operator()<u64, u32>(".u32");
    t["mul.hi.s64"] = lane_by_lane<upper_half<__int128>, s64, s64, s64>;
    t["mul.hi.u64"] = lane_by_lane<upper_half<unsigned __int128>, u64, u64, u64>;

    using E = Extended;
    t["add.cc.u32"] = t["add.cc.s32"] = extended<E::add, false, true>;
    t["addc.cc.u32"] = t["addc.cc.s32"] = extended<E::add, true, true>;
    t["addc.u32"] = t["addc.s32"] = extended<E::add, true, false>;
    t["sub.cc.u32"] = t["sub.cc.s32"] = extended<E::sub, false, true>;
    t["subc.cc.u32"] = t["subc.cc.s32"] = extended<E::sub, true, true>;
    t["subc.u32"] = t["subc.s32"] = extended<E::sub, true, false>;
    t["mad.lo.cc.u32"] = extended<E::mad_lo, false, true>;
    t["madc.lo.cc.u32"] = extended<E::mad_lo, true, true>;
    t["madc.lo.u32"] = extended<E::mad_lo, true, false>;
    t["mad.hi.cc.u32"] = extended<E::mad_hi, false, true>;
    t["madc.hi.cc.u32"] = extended<E::mad_hi, true, true>;
    t["madc.hi.u32"] = extended<E::mad_hi, true, false>;
}

void add_bits(Table& t) {
    const auto bits = [&]<class T>(const std::string& width) {
        t["and.b" + width] = lane_by_lane<[](T a, T b) { return a & b; }, T, T, T>;
        t["or.b" + width] = lane_by_lane<[](T a, T b) { return a | b; }, T, T, T>;
        t["xor.b" + width] = lane_by_lane<[](T a, T b) { return a ^ b; }, T, T, T>;
        t["not.b" + width] = lane_by_lane<[](T a) { return ~a; }, T, T>;
        t["shl.b" + width] = lane_by_lane<shifted_left, T, T, u32>;
        t["shr.b" + width] = lane_by_lane<shifted_right, T, T, u32>;
        for (const char kind : {'b', 'u', 's', 'f'}) {
            t[cat("mov.", kind, width)] = lane_by_lane<same, T, T>;
            t[cat("selp.", kind, width)] = select;
        }
    };
    bits.operator()<u16>("16");
    bits.operator()<u32>("32");
    bits.operator()<u64>("64");
    t["clz.b32"] = lane_by_lane<[](u32 a) { return std::countl_zero(a); }, u32, u32>;
    t["clz.b64"] = lane_by_lane<[](u64 a) { return std::countl_zero(a); }, u32, u64>;
    t["popc.b32"] = lane_by_lane<[](u32 a) { return std::popcount(a); }, u32, u32>;
    t["popc.b64"] = lane_by_lane<[](u64 a) { return std::popcount(a); }, u32, u64>;
    t["bfi.b32"] = lane_by_lane<inserted, u32, u32, u32, u32, u32>;
    t["bfi.b64"] = lane_by_lane<inserted, u64, u64, u64, u32, u32>;
    t["prmt.b32"] = lane_by_lane<permuted, u32, u32, u32, u32>;
    t["lop3.b32"] = lane_by_lane<looked_up, u32, u32, u32, u32, u32>;
    t["shf.l.wrap.b32"] = lane_by_lane<funnel_left, u32, u32, u32, u32>;
    t["shf.r.wrap.b32"] = lane_by_lane<funnel_right, u32, u32, u32, u32>;
    t["pack.b32"] = pack<u32, u16>;
    t["pack.b64"] = pack<u64, u32>;
    t["unpack.b32"] = unpack<u32, u16>;
    t["unpack.b64"] = unpack<u64, u32>;
    t["mov.pred"] = combine<[](Lanes a, Lanes) { return a; }>;
    t["not.pred"] = combine<[](Lanes a, Lanes) { return ~a; }>;
    t["and.pred"] = combine<[](Lanes a, Lanes b) { return a & b; }>;
    t["or.pred"] = combine<[](Lanes a, Lanes b) { return a | b; }>;
    t["xor.pred"] = combine<[](Lanes a, Lanes b) { return a ^ b; }>;
}

void add_reals(Table& t) {
    each<f32, f64>([&]<class T>(const std::string& type) {
        t["add.rn" + type] = t["add" + type] = lane_by_lane<plus, T, T, T>;
        t["sub.rn" + type] = t["sub" + type] = lane_by_lane<minus, T, T, T>;
        t["mul.rn" + type] = t["mul" + type] = lane_by_lane<times, T, T, T>;
        t["fma.rn" + type] = lane_by_lane<fused, T, T, T, T>;
        t["div.rn" + type] = lane_by_lane<quotient, T, T, T>;
        t["min" + type] = lane_by_lane<least, T, T, T>;
        t["max" + type] = lane_by_lane<most, T, T, T>;
        t["neg" + type] = lane_by_lane<negated, T, T>;
        t["abs" + type] = lane_by_lane<[](T a) { return std::fabs(a); }, T, T>;
        t["copysign" + type] = lane_by_lane<[](T sign, T a) { return std::copysign(a, sign); }, T, T, T>;
        t["sqrt.rn" + type] = lane_by_lane<[](T a) { return std::sqrt(a); }, T, T>;
        t["rcp.rn" + type] = lane_by_lane<[](T a) { return 1 / a; }, T, T>;
    });
    t["fma.rm.f32"] = fma_rounded<FE_DOWNWARD>;
    t["fma.rp.f32"] = fma_rounded<FE_UPWARD>;
    t["fma.rz.f32"] = fma_rounded<FE_TOWARDZERO>;
    t["rcp.approx.f32"] = t["rcp.rn.f32"];
    t["sqrt.approx.f32"] = t["sqrt.rn.f32"];
    t["div.approx.f32"] = t["div.full.f32"] = t["div.rn.f32"];
    t["rsqrt.approx.f32"] = lane_by_lane<[](f32 a) { return 1 / std::sqrt(a); }, f32, f32>;
    t["ex2.approx.f32"] = lane_by_lane<[](f32 a) { return std::exp2(a); }, f32, f32>;
    t["lg2.approx.f32"] = lane_by_lane<[](f32 a) { return std::log2(a); }, f32, f32>;
    t["add.f16x2"] = t["add.rn.f16x2"] = lane_by_lane<by_halves<plus>, Halves, Halves, Halves>;
    t["sub.f16x2"] = t["sub.rn.f16x2"] = lane_by_lane<by_halves<minus>, Halves, Halves, Halves>;
    t["mul.f16x2"] = t["mul.rn.f16x2"] = lane_by_lane<by_halves<times>, Halves, Halves, Halves>;
    t["fma.rn.f16x2"] = lane_by_lane<by_halves<times_plus>, Halves, Halves, Halves, Halves>;
    t["add.f16"] = t["add.rn.f16"] = lane_by_lane<by_half<plus>, Half, Half, Half>;
    t["sub.f16"] = t["sub.rn.f16"] = lane_by_lane<by_half<minus>, Half, Half, Half>;
    t["mul.f16"] = t["mul.rn.f16"] = lane_by_lane<by_half<times>, Half, Half, Half>;
    t["fma.rn.f16"] = lane_by_lane<by_half<times_plus>, Half, Half, Half, Half>;
    t["call.__internal_trig_reduction_slowpathd"] = reduce_angle;
}

void add_comparisons(Table& t) {
    const auto ordered = [&]<class T>(const std::string& type) {
        t["setp.eq" + type] = compare<[](T a, T b) { return a == b; }, T>;
        t["setp.ne" + type] = compare<[](T a, T b) { return !unordered(a, b) && a != b; }, T>;
        t["setp.lt" + type] = compare<[](T a, T b) { return a < b; }, T>;
        t["setp.le" + type] = compare<[](T a, T b) { return a <= b; }, T>;
        t["setp.gt" + type] = compare<[](T a, T b) { return (a > b); }, T>;
        t["setp.ge" + type] = compare<[](T a, T b) { return (a >= b); }, T>;
    };
    each<s16, u16, s32, u32, s64, u64, f32, f64>(ordered);
    ordered.operator()<u16>(".b16");
    ordered.operator()<u32>(".b32");
    ordered.operator()<u64>(".b64");
    each<f32, f64>([&]<class T>(const std::string& type) {
        t["setp.equ" + type] = compare<[](T a, T b) { return unordered(a, b) || a == b; }, T>;
        t["setp.neu" + type] = compare<[](T a, T b) { return a != b; }, T>;
        t["setp.ltu" + type] = compare<[](T a, T b) { return !(a >= b); }, T>;
        t["setp.leu" + type] = compare<[](T a, T b) { return !(a > b); }, T>;
        t["setp.gtu" + type] = compare<[](T a, T b) { return !(a <= b); }, T>;
        t["setp.geu" + type] = compare<[](T a, T b) { return !(a < b); }, T>;
        t["setp.nan" + type] = compare<unordered, T>;
        t["setp.num" + type] = compare<[](T a, T b) { return !unordered(a, b); }, T>;
    });
}

template <auto rounded>
void add_rounding(Table& t, const std::string& mode) {
    each<s8, u8, s16, u16, s32, u32, s64, u64>([&]<class D>(const std::string& to) {
        each<f32, f64>([&]<class S>(const std::string& from) {
            t[cat("cvt.", mode, to, from)] =
                lane_by_lane<[](S x) { return saturated<D>(rounded(static_cast<f64>(x))); }, D, S>;
        });
    });
    t[cat("cvt.", mode, ".f32.f32")] = lane_by_lane<[](f32 x) { return rounded(x); }, f32, f32>;
    t[cat("cvt.", mode, ".f64.f64")] = lane_by_lane<[](f64 x) { return rounded(x); }, f64, f64>;
}

void add_conversions(Table& t) {
    each<s8, u8, s16, u16, s32, u32, s64, u64>([&]<class S>(const std::string& from) {
        each<s8, u8, s16, u16, s32, u32, s64, u64>(
            [&]<class D>(const std::string& to) { t[cat("cvt", to, from)] = lane_by_lane<same, D, S>; });
        t["cvt.rn.f32" + from] = lane_by_lane<same, f32, S>;
        t["cvt.rn.f64" + from] = lane_by_lane<same, f64, S>;
    });
    add_rounding<[](auto x) { return std::trunc(x); }>(t, "rzi");
    add_rounding<[](auto x) { return std::nearbyint(x); }>(t, "rni");
    add_rounding<[](auto x) { return std::floor(x); }>(t, "rmi");
    add_rounding<[](auto x) { return std::ceil(x); }>(t, "rpi");
    t["cvt.f64.f32"] = lane_by_lane<same, f64, f32>;
    t["cvt.rn.f32.f64"] = lane_by_lane<same, f32, f64>;
    t["cvt.sat.f32.f32"] = lane_by_lane<[](f32 x) { return (x > 0) ? std::min(x, 1.0f) : 0.0f; }, f32, f32>;
    t["cvt.f32.f16"] = lane_by_lane<[](Half h) { return wide(h); }, f32, Half>;
    t["cvt.f32.bf16"] = lane_by_lane<[](Bf16 h) { return wide(h); }, f32, Bf16>;
    t["cvt.rn.f16.f32"] = lane_by_lane<[](f32 x) { return Half{f32_to_f16(x)}; }, Half, f32>;
    t["cvt.rn.bf16.f32"] = lane_by_lane<[](f32 x) { return Bf16{f32_to_bf16(x)}; }, Bf16, f32>;
}

}  // namespace

Handler elementwise_handler(const std::string& name) {
    static const Table* const table = [] {
        auto* t = new Table;
        add_integers(*t);
        add_bits(*t);
        add_reals(*t);
        add_comparisons(*t);
        add_conversions(*t);
        for (const int width : {32, 64}) {  // an address of one space as one of all
            const std::string w = std::to_string(width);
            (*t)["cvta.global.u" + w] = (*t)["cvta.to.global.u" + w] = (*t)["mov.u" + w];
        }
        (*t)["cvta.shared.u64"] = lane_by_lane<[](u64 a) { return a + shared_window; }, u64, u64>;
        (*t)["cvta.to.shared.u64"] = lane_by_lane<[](u64 a) { return a - shared_window; }, u64, u64>;
        (*t)["cvta.local.u64"] = lane_by_lane<[](u64 a) { return a + local_window; }, u64, u64>;
        (*t)["cvta.to.local.u64"] = lane_by_lane<[](u64 a) { return a - local_window; }, u64, u64>;
        return t;
    }();
    const auto it = table->find(name);
    return it == table->end() ? nullptr : it->second;
}

}  // namespace nibble::card
