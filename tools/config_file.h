// The configuration file: a subset of TOML, every item and every mistake with its line.
// Tables one deep, strings of one line, numbers, booleans and lists of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"

namespace nibble {

struct ConfigItem {
    std::string table, name;  // table: empty at the top of the file
    std::vector<std::string> values;
    bool is_list = false;
    size_t line = 0;  // from 1
};

// "FILE line 7"
std::string line_of(const std::string& file, size_t line);

// The items in the order of the file. "run.temp = 1" at the top is temp of the table run. Other than in TOML,
// a word of one piece needs no quotes. Errors name `file`, the line, and what is wrong there.
Result<std::vector<ConfigItem>> parse_config(std::string_view text, const std::string& file);

}  // namespace nibble
