// Progress of what takes a while: one line on stderr, redrawn in place, and gone before anything else is
// written.
#pragma once

#include <cstdint>
#include <string>

namespace nibble {

class StatusLine {
  public:
    // Only on a terminal that understands escape sequences; else nothing happens.
    explicit StatusLine(bool wanted = true);
    ~StatusLine() { clear(); }
    StatusLine(const StatusLine&) = delete;
    StatusLine& operator=(const StatusLine&) = delete;

    bool possible() const { return possible_; }
    void show(const std::string& text);  // of one line; control characters are not shown
    void clear();

  private:
    bool possible_, shown_ = false;
};

// "reading the prompt, 512 of 2850 tokens"
std::string reading_status(int64_t read, int64_t left);

}  // namespace nibble
