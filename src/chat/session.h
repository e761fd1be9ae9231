// A session: a chat with its keys and values in one file, so that going on needs no prefill.
// Valid for one model, one pair of cache types and one page size; anything else is refused with the reason.
#pragma once

#include <filesystem>

#include "src/chat/chat.h"

namespace nibble {

// A file as src/engine/saved_prefix.h has it, magic "NIBBLESN", its fields: string conversation (JSON),
// u64 first, u64 stream, string text, tokens.
Result<void> save_session(Chat& chat, const std::filesystem::path& path);

// Replaces the chat's conversation and fills the engine's cache. On an Error the chat is unchanged. Yields
// the number of tokens that need no prefill.
Result<int32_t> load_session(Chat& chat, const std::filesystem::path& path);

}  // namespace nibble
