// --beams, --best-of and --length-penalty: answers that are chosen among several.
// For subcommands that can wait for the end of an answer.
#pragma once

#include "src/sample/beam_search.h"
#include "src/sample/params.h"
#include "tools/cli.h"

namespace nibble {

struct DecodingOptions {
    int32_t beams = 0, best_of = 0;  // 0: not asked for
    double length_penalty = 1;
    // After the sampling flags: a beam search excludes them.
    void add(Flags& flags, const std::string& group);
    // Errors: best-of without anything random.
    Result<Decoding> decoding(const SamplerParams& sampling) const;
};

}  // namespace nibble
