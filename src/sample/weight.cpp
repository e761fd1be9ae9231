// Weighs logits in the widest registers that the processor has.
// The weights are the same in all of them: every step is an exact or correctly rounded operation of IEEE.
#include "src/sample/weight.h"

#include <cstring>

namespace nibble {

namespace {

template <size_t lanes>
struct Lanes;
// Every 64-bit machine has registers for two doubles.
template <>
struct Lanes<2> {
    using Real [[gnu::vector_size(16)]] = double;
    using Word [[gnu::vector_size(16)]] = uint64_t;
    using Single [[gnu::vector_size(8)]] = float;
};
template <>
struct Lanes<4> {
    using Real [[gnu::vector_size(32)]] = double;
    using Word [[gnu::vector_size(32)]] = uint64_t;
    using Single [[gnu::vector_size(16)]] = float;
};
template <>
struct Lanes<8> {
    using Real [[gnu::vector_size(64)]] = double;
    using Word [[gnu::vector_size(64)]] = uint64_t;
    using Single [[gnu::vector_size(32)]] = float;
};

// A whole run. What exceeds the range of f32 on the way weighs nothing, whether it is clamped or not.
template <size_t lanes>
[[gnu::always_inline]] inline void weigh_all(const float* logits, const LogitScale& scale, double top,
                                             WeighedRun& out) {
    using Real = typename Lanes<lanes>::Real;
    using Word = typename Lanes<lanes>::Word;
    using Single = typename Lanes<lanes>::Single;
    for (size_t i = 0; i < weighed_at_once; i += lanes) {
        Single single;
        std::memcpy(&single, logits + i, sizeof single);
        Real x = __builtin_convertvector(single, Real);
        if (scale.on()) {
            single = __builtin_convertvector((x - scale.best) / scale.temperature, Single);
            x = __builtin_convertvector(single, Real);
        }
        x = x - top;
        Word weight;
        exp_weight(x, weight);
        x = -x;
        std::memcpy(out.distance + i, &x, sizeof x);
        std::memcpy(out.weight + i, &weight, sizeof weight);
    }
}

void weigh_all_2(const float* logits, const LogitScale& scale, double top, WeighedRun& out) {
    weigh_all<2>(logits, scale, top, out);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void weigh_all_4(const float* logits, const LogitScale& scale, double top,
                                         WeighedRun& out) {
    weigh_all<4>(logits, scale, top, out);
}
[[gnu::target("avx512f,avx512dq,avx512vl")]] void weigh_all_8(const float* logits, const LogitScale& scale,
                                                              double top, WeighedRun& out) {
    weigh_all<8>(logits, scale, top, out);
}
#endif

}  // namespace

std::vector<WeighWhole> ways_to_weigh() {
    std::vector<WeighWhole> ways{weigh_all_2};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) ways.push_back(weigh_all_4);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        ways.push_back(weigh_all_8);
#endif
    return ways;
}

void weigh_run(const float* logits, size_t n, const LogitScale& scale, double top, WeighedRun& out) {
    static const WeighWhole widest = ways_to_weigh().back();
    if (n == weighed_at_once) return widest(logits, scale, top, out);
    float whole[weighed_at_once] = {};
    std::copy_n(logits, n, whole);
    widest(whole, scale, top, out);
}

}  // namespace nibble
