// Which combinations make sense is said here; what the strategies are, in src/sample/beam_search.h.
// Settings of the sampler from the configuration file give way to --beams, flags are refused beside it.
#include "tools/decoding_options.h"

#include <charconv>

#include "ggml/base/cat.h"

namespace nibble {

namespace {

// CLI::Range lets NaN pass.
CLI::Validator in_range(double least, double most) {
    return {[least, most](std::string& text) {
                double v = 0;
                const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
                const bool ok = error == std::errc{} && end == text.data() + text.size();
                if (ok && v >= least && v <= most) return std::string();
                return cat("Value ", text, " not in range ", least, " to ", most);
            },
            cat("FLOAT in [", least, " - ", most, "]")};
}

}  // namespace

void DecodingOptions::add(CLI::App& app, const std::string& group) {
    auto* many = app.add_option("--beams", beams, "beam search with N beams; takes no sampling flags")
                     ->check(CLI::Range(1, max_answers))
                     ->group(group);
    app.add_option("--length-penalty", length_penalty,
                   "of --beams; 0 favours short answers, above 1 long ones")
        ->needs(many)
        ->check(in_range(0, 10))
        ->capture_default_str()
        ->group(group);
    app.add_option("--best-of", best_of, "the likeliest of N answers, those of seed, seed+1, ...")
        ->excludes(many)
        ->check(CLI::Range(1, max_answers))
        ->group(group);
    for (const Param& p : param_table())
        if (CLI::Option* o = app.get_option_no_throw(std::string(p.flag))) o->excludes(many);
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
