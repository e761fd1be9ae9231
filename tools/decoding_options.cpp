// Which combinations make sense is said here; what the strategies are, in src/sample/beam_search.h.
// Settings of the sampler from the configuration file give way to --beams, flags are refused beside it.
#include "tools/decoding_options.h"

#include "ggml/base/cat.h"

namespace nibble {

void DecodingOptions::add(Flags& flags, const std::string& group) {
    const auto many = flags.value("--beams", beams, "beam search with N beams; takes no sampling flags")
                          .range(1, max_answers)
                          .group(group);
    flags.value("--length-penalty", length_penalty, "of --beams; 0 favours short answers, above 1 long ones")
        .needs(many)
        .real_range(0, 10)
        .show_default()
        .group(group);
    flags.value("--best-of", best_of, "the likeliest of N answers, those of seed, seed+1, ...")
        .excludes(many)
        .range(1, max_answers)
        .group(group);
    for (const Param& p : param_table())
        if (const auto flag = flags.find(std::string(p.flag))) flag->excludes(many);
}

Result<Decoding> DecodingOptions::decoding(const SamplerParams& sampling) const {
    if (beams) return Decoding{Decoding::Kind::beams, beams, length_penalty};
    if (!best_of) return Decoding{};
    if (sampling.temperature == 0 && best_of > 1)
        return Error{ErrorCode::invalid_argument, "--best-of",
                     cat("all ", best_of, " answers are the same at temperature 0"),
                     "give a --temp above 0, or use --beams"};
    return Decoding{Decoding::Kind::best_of, best_of, 1};
}

}  // namespace nibble
