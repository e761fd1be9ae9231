// RoPE scaling schemes, computed once in double precision when a model is opened.
// Formulas from the papers named in the header.
#include "src/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

// Llama 3: long wavelengths are divided by the factor, short ones kept, those between blended.
double llama3_factor(const RopeScaling& s, double frequency) {
    const double wavelength = 2 * std::numbers::pi / frequency, original = s.original_context;
    if (wavelength < original / s.high_freq_factor) return 1;
    if (wavelength > original / s.low_freq_factor) return s.factor;
    const double smooth =
        (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return 1 / ((1 - smooth) / s.factor + smooth);
}

// YaRN: dimensions that turn more than beta_fast times over the original context are kept, those that turn
// less than beta_slow times are interpolated, with a linear ramp over the dimensions between.
double yarn_factor(const RopeScaling& s, double theta, int32_t rot_dim, int32_t pair) {
    const auto dim_of_turns = [&](double turns) {
        return rot_dim * std::log(s.original_context / (turns * 2 * std::numbers::pi)) /
               (2 * std::log(theta));
    };
    double low = dim_of_turns(s.beta_fast), high = dim_of_turns(s.beta_slow);
    if (s.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, rot_dim - 1.0);
    const double ramp = std::clamp((pair - low) / std::max(high - low, 0.001), 0.0, 1.0);
    return 1 / (ramp / s.factor + (1 - ramp));
}

bool is_none(const RopeScaling& s) { return s.type == "none" || s.type == "default"; }

}  // namespace

// As config.json means it: the fraction that a float cannot hold is not a smaller number.
size_t rotating_pairs(size_t pairs, float share) {
    return static_cast<size_t>(static_cast<double>(pairs) * static_cast<double>(share) + 1e-4);
}

std::vector<float> rotating_divisors(size_t pairs, float share) {
    std::vector<float> divisors(pairs, 1e30f);
    std::fill_n(divisors.begin(), rotating_pairs(pairs, share), 1.0f);
    return divisors;
}

float yarn_magnitude(float factor, float mscale) {
    return static_cast<float>(0.1 * static_cast<double>(mscale) * std::log(std::max(1.0f, factor)) + 1);
}

Result<std::vector<float>> rope_factors(const RopeScaling& s, float theta, int32_t rot_dim) {
    const auto refuse = [&](std::string what) {
        return Error{ErrorCode::unsupported, "rope scaling", std::move(what),
                     "known are linear, yarn, llama3 and longrope"};
    };
    const bool known = s.type == "linear" || s.type == "yarn" || s.type == "llama3" || s.type == "longrope";
    if (!is_none(s) && !known) return refuse(cat("type '", s.type, "' is not implemented"));
    if (!is_none(s) && !(s.factor > 0)) return refuse(cat("factor ", s.factor, " has no meaning"));
    const bool needs_original = s.type == "yarn" || s.type == "llama3" || s.type == "longrope";
    if (needs_original && s.original_context == 0) return refuse("the original context length is missing");
    if (s.type == "llama3" && !(s.high_freq_factor > s.low_freq_factor && s.low_freq_factor > 0))
        return refuse("high_freq_factor must be above low_freq_factor");

    if (s.type == "longrope") {
        for (const auto* list : {&s.short_factors, &s.long_factors}) {
            if (list->size() != static_cast<size_t>(rot_dim / 2))
                return refuse(cat("longrope has ", list->size(), " factors for ", rot_dim / 2, " pairs"));
            for (const float f : *list)
                if (!(f > 0)) return refuse(cat("the longrope factor ", f, " has no meaning"));
        }
        return s.short_factors;
    }
    std::vector<float> factors(static_cast<size_t>(rot_dim / 2), 1.0f);
    for (int32_t i = 0; i < rot_dim / 2; ++i) {
        const double frequency = std::pow(static_cast<double>(theta), -2.0 * i / rot_dim);
        double f = 1;
        if (s.type == "linear") f = s.factor;
        if (s.type == "llama3") f = llama3_factor(s, frequency);
        if (s.type == "yarn") f = yarn_factor(s, theta, rot_dim, i);
        factors[static_cast<size_t>(i)] = static_cast<float>(f);
    }
    return factors;
}

Result<RopeSpec> make_rope(const Hyper& h, int32_t rot_dim, RopeStyle style,
                           const std::vector<float>& stored) {
    const auto pairs = static_cast<size_t>(rot_dim / 2);
    if (rot_dim <= 0 || rot_dim % 2 || !(h.rope_theta > 0))
        return Error{ErrorCode::corrupt, "rope",
                     cat("rotating ", rot_dim, " columns with base ", h.rope_theta), ""};
    if (!stored.empty() && stored.size() != pairs)
        return Error{ErrorCode::corrupt, "rope_freqs.weight",
                     cat("has ", stored.size(), " values for ", pairs, " pairs"), ""};
    const std::vector<float> factors = NIBBLE_TRY(rope_factors(h.rope_scaling, h.rope_theta, rot_dim));
    RopeSpec r;
    r.rot_dim = rot_dim;
    r.style = style;
    for (size_t i = 0; i < pairs; ++i) {
        const double plain =
            std::pow(static_cast<double>(h.rope_theta), -2.0 * static_cast<double>(i) / rot_dim);
        const double extra = stored.empty() ? 1.0 : static_cast<double>(stored[i]);
        const bool rotates = i < rotating_pairs(pairs, h.rotated_share);
        r.inv_freq.push_back(rotates ? static_cast<float>(plain / (static_cast<double>(factors[i]) * extra))
                                     : 0.0f);
    }
    const RopeScaling& s = h.rope_scaling;
    if (s.type == "longrope") {
        r.original_context = static_cast<int32_t>(std::min(s.original_context, 1u << 30));
        for (size_t i = 0; i < pairs; ++i)
            r.long_inv_freq.push_back(static_cast<float>(
                std::pow(static_cast<double>(h.rope_theta), -2.0 * static_cast<double>(i) / rot_dim) /
                static_cast<double>(s.long_factors[i])));
        if (s.attention_factor > 0) r.magnitude = s.attention_factor;
    }
    if (s.type == "yarn")
        r.magnitude = s.attention_factor > 0 ? s.attention_factor : yarn_magnitude(s.factor, 1);
    return r;
}

}  // namespace nibble
