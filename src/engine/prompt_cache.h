// The keys and values of a prompt in a file, for the next run whose prompt begins alike: a document is read
// once, whatever is asked about it.
#pragma once

#include <filesystem>

#include "src/engine/engine.h"

namespace nibble {

class PromptCache {
  public:
    PromptCache(Engine& engine, std::filesystem::path path) : engine_(&engine), path_(std::move(path)) {}

    // Puts what the file has of the prompt's beginning into the cache of the engine, which must be idle. A
    // file of another model or cache, of another version of this program, or a damaged one is passed over.
    // Errors: what is there is not such a file, and so not to be replaced; it cannot be read; none can be
    // written.
    Result<void> load(std::span<const Token> prompt);
    const std::optional<Error>& passed_over() const { return passed_over_; }
    int32_t reused() const { return reused_; }  // tokens of that prompt that are not computed again
    // Of a model with a state, which serves whoever has all of its tokens: where that prompt and the file's
    // part. Once it is kept there (Request::kept_beginning) it serves both, and others like them.
    int32_t parting() const { return parting_; }

    // Once that prompt is computed: writes the file anew if more had to be than an eighth of what the file
    // had of it. Other ends of a long beginning leave it as it is; of a prompt that grows less than that is
    // computed again.
    Result<void> save();

  private:
    Engine* engine_;
    std::filesystem::path path_;
    std::vector<Token> prompt_;  // the one that was loaded for
    int32_t reused_ = 0, parting_ = 0;
    std::optional<Error> passed_over_;
};

}  // namespace nibble
