// The file is a saved prefix without fields of its own (saved_prefix.h).
// One that cannot be used costs what having none costs, so it does not end the run; a file that is none does.
#include "src/engine/prompt_cache.h"

#include <algorithm>

#include "src/engine/saved_prefix.h"

namespace nibble {
namespace {

constexpr SavedKind kind{"NIBBLEPC", 1, "prompt cache", "--prompt-cache"};

}  // namespace

Result<void> PromptCache::load(std::span<const Token> prompt) {
    prompt_.assign(prompt.begin(), prompt.end());
    (void)NIBBLE_TRY(AtomicFile::create(path_));  // not after the answer
    std::error_code none;
    if (const auto size = std::filesystem::file_size(path_, none); none || size == 0) return {};
    SavedFile file = NIBBLE_TRY(SavedFile::open(kind, path_));
    const auto take = [&]() -> Result<void> {
        NIBBLE_TRY(file.check(*engine_));
        const PrefixView stored = NIBBLE_TRY(file.prefix(*engine_));
        const auto alike =
            static_cast<size_t>(std::ranges::mismatch(stored.tokens, prompt).in1 - stored.tokens.begin());
        // Whole pages: what two questions begin with alike a third may not.
        const int32_t page = engine_->runner().config().page_size;
        if (NIBBLE_TRY(engine_->import_beginning(stored, alike)) < alike)
            parting_ = static_cast<int32_t>(alike) / page * page;
        return {};
    };
    if (const auto taken = take(); !taken)
        passed_over_ = taken.error(), passed_over_->where = path_.string();  // the engine knows no files
    reused_ = engine_->known(prompt);
    return {};
}

Result<void> PromptCache::save() {
    if (static_cast<int32_t>(prompt_.size()) - reused_ <= reused_ / 8) return {};
    const CachedPrefix prefix = NIBBLE_TRY(engine_->export_prefix(prompt_));
    if (prefix.tokens.size() <= static_cast<size_t>(reused_)) return {};
    return write_saved(kind, *engine_, {}, prefix, path_);
}

}  // namespace nibble
