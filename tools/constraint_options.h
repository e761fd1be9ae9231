// --grammar, --json-schema and --regex: the flags that constrain an answer.
// For every subcommand that generates text.
#pragma once

#include "src/engine/engine.h"
#include "tools/cli.h"

namespace nibble {

struct ConstraintOptions {
    std::string grammar, schema, regex;
    bool has_regex = false;
    void add(Flags& flags, const std::string& group);
    bool reads_standard_input() const;
    // Before a model is loaded: nothing when no flag was given. Errors name the file or flag.
    Result<std::optional<Grammar>> read() const;
};

}  // namespace nibble
