// The list of formats: add a header and a name here, and codecs, kernels, tests and CLI names follow.
// visit_format() is the one bridge from a run-time Type to a compile-time format.
#pragma once

#include <utility>

#include "ggml/types/fp4.h"
#include "ggml/types/iq4.h"
#include "ggml/types/iq_grid.h"
#include "ggml/types/k_min.h"
#include "ggml/types/k_signed.h"
#include "ggml/types/nf4.h"
#include "ggml/types/q4_q5.h"
#include "ggml/types/q8_0.h"
#include "ggml/types/real.h"
#include "ggml/types/ternary.h"

namespace nibble {

template <class... F>
struct FormatList {
    // Calls fn.operator()<Format>() for every format.
    template <class Fn>
    static void for_each(Fn&& fn) {
        (fn.template operator()<F>(), ...);
    }
    // Calls fn.operator()<Format>() for the format of this type; false when it is not in the list.
    template <class Fn>
    static bool visit(Type type, Fn&& fn) {
        return ((F::type == type && (fn.template operator()<F>(), true)) || ...);
    }
};

// Formats with a codec. Types known only by geometry stand in list.cpp.
using Formats = FormatList<F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
                           Q8_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4, TQ1_0, TQ2_0, Q1_0, Q2_0, NF4, NF4_DQ, IQ2_XXS,
                           IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M>;

template <class Fn>
bool visit_format(Type type, Fn&& fn) {
    return Formats::visit(type, std::forward<Fn>(fn));
}

}  // namespace nibble
