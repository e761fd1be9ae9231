// Recipes: which type each matrix of a model gets, by the part it plays.
// A new recipe is a row of the table in recipe.cpp; plain types are recipes with one type for all.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/types/type.h"

namespace nibble {

// The part a matrix plays, from its canonical name. A tied embedding plays the output's part.
enum class Role : uint8_t { embedding, output, attn_q, attn_k, attn_v, attn_output, ffn_in, ffn_down, other };
inline constexpr size_t role_count = 9;
Role role_of(std::string_view name, bool tied);

struct Recipe {
    std::string_view name;
    std::string_view about;
    Type types[role_count];
};

// int8, int4, int3, nf4, nf4-dq or any type that can be written; an Error lists them. For weights that are
// made up also types that are only read, with the embedding and the output in q6_k.
Result<Recipe> find_recipe(std::string_view name, bool made_up = false);
// What it knows: the named ones first, then every plain type.
std::vector<std::string_view> recipe_names(bool made_up = false);

// The type to use where rows of `cols` do not divide into blocks of `wanted`: like quality, not more bits
// where there is a choice, `real` where no blocks fit. The type itself when it fits.
Type fitting_type(Type wanted, int64_t cols, Type real = Type::f16);

}  // namespace nibble
