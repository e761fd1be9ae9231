// Reading, writing and checking sampling parameters by name: what flags, JSON, /set and /params share.
// Everything here follows from the table in chain_table.h.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "src/sample/chain_table.h"

namespace nibble {

std::span<const Param> param_table();

// By key or flag, '-' and '_' being equal: "top_k", "top-k" and "--top-k" are the same. Null: unknown.
const Param* find_param(std::string_view name);

// The value as text that set() reads back: shortest exact numbers; "random" for no seed; "15:-2.5,7:-inf"
// for biases; strings separated by ',', with \n \t \\ \, escaped.
std::string get(const SamplerParams& params, const Param& param);
std::string default_text(const Param& param);
std::string allowed_text(const Param& param);  // "a number from 0 to 1", for messages and help

// An Error (invalid_argument) names the parameter, the text and what is allowed; params is then unchanged.
Result<void> set(SamplerParams& params, const Param& param, std::string_view text);
Result<void> set(SamplerParams& params, std::string_view name, std::string_view text);

// Checks all values, e.g. of a struct that was filled field by field.
Result<void> validate(const SamplerParams& params);

// The links named by `samplers`, in order. An Error lists the names that exist, or says which one is twice.
Result<std::vector<const Link*>> chain_order(std::string_view samplers);

// One line per setting that another setting makes useless or fights; empty when all is well.
std::vector<std::string> conflicts(const SamplerParams& params);

}  // namespace nibble
