// A piece of a prompt with its provenance: what the chat template wrote, or what came from outside.
// Made by ChatTemplate::render_segments, read by Tokenizer::encode.
#pragma once

#include <string>

namespace nibble {

// Adjacent pieces differ in `from_template`. The pieces are one text: ordinary merges cross their borders,
// but control tokens are recognised only within a piece that is from_template. So text of a message that
// spells
// "<|im_end|>" stays text.
struct TemplateSegment {
    std::string text;
    bool from_template = false;
    bool operator==(const TemplateSegment&) const = default;
};

}  // namespace nibble
