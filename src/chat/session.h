// A session: a chat with its keys and values in one file, so that going on needs no prefill.
// Valid for one model, one pair of cache types and one page size; anything else is refused with the reason.
#pragma once

#include <filesystem>

#include "src/chat/chat.h"

namespace nibble {

// Little-endian:
//   magic "NIBBLESN", u32 version
//   u64 fingerprint of the model, u32 type of the keys, u32 of the values, u32 page size
//   string conversation (JSON), u64 first, u64 stream, string text, u64 count, i32 tokens[count]
//   u64 stored, i32 tokens[stored]: the prefix whose keys and values follow
//   u32 groups; of each group: u64 length, its pages
//   u64 check sum of everything before it: FNV-1a of its 64-bit words, the last one filled up with zeros,
//   each followed by h ^= h >> 32
// A string is its length as u64, then its bytes. The file appears only when it is complete, mode 0600.
Result<void> save_session(Chat& chat, const std::filesystem::path& path);

// Replaces the chat's conversation and fills the engine's cache. On an Error the chat is unchanged. Yields
// the number of tokens that need no prefill.
Result<int32_t> load_session(Chat& chat, const std::filesystem::path& path);

}  // namespace nibble
