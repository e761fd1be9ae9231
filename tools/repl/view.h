// What the chat shows: the streamed answer with its thinking dimmed or hidden, notices, the status line.
// Colours only where the caller found a terminal that wants them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/chat/chat.h"
#include "src/text/thoughts.h"
#include "tools/status_line.h"

namespace nibble {

class ReplView {
  public:
    ReplView(bool terminal, bool colour, bool hide_thinking)
        : terminal_(terminal), colour_(colour), hide_(hide_thinking), status_line_(terminal) {}

    void reading(int64_t read, int64_t left);  // of the prompt, until anything else is shown
    void text(std::string_view part);          // of an answer
    void end_answer();                         // what was held back, and a line end
    void notice(std::string_view line);
    void status(const Turn& turn, int32_t ctx) const;
    void line(std::string_view text) const;

  private:
    void put(const std::vector<ThoughtSplitter::Piece>& pieces);
    void dim(bool on) const;

    bool terminal_, colour_, hide_;
    bool dimmed_ = false, line_open_ = false;
    ThoughtSplitter splitter_;
    StatusLine status_line_;
};

}  // namespace nibble
