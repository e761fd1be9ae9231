// Every guess is a request to the smaller model; its cache of prefixes has all but the last few tokens.
// What it goes on to generate ends where it gets unsure.
#include "src/engine/model_drafter.h"

#include <algorithm>
#include <cmath>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

// Models of one family differ in how many unused tokens fill up their embeddings.
constexpr size_t tokens_of_one_alone = 512;

bool is_unused(const Vocab& v, size_t token) {
    return token < v.types.size() && v.types[token] == static_cast<uint8_t>(TokenType::unused);
}

}  // namespace

std::string different_token(const Tokenizer& model, const Tokenizer& other) {
    for (size_t i = 0; i < std::min(model.n_vocab(), other.n_vocab()); ++i) {
        const auto t = static_cast<Token>(i);
        if (model.piece(t) != other.piece(t) && !is_unused(model.vocab(), i) && !is_unused(other.vocab(), i))
            return cat("token ", t, " is '", other.piece(t), "', the model's '", model.piece(t), "'");
    }
    return {};
}

Result<void> check_same_tokens(const Tokenizer& model, const Tokenizer& draft,
                               const std::string& draft_name) {
    const size_t a = model.n_vocab(), b = draft.n_vocab(), both = std::min(a, b);
    const auto differ = [&](std::string what) {
        return Error{ErrorCode::invalid_argument, draft_name, std::move(what),
                     "a draft model needs the same tokens as the model"};
    };
    if (std::max(a, b) - both > tokens_of_one_alone) return differ(cat("has ", b, " tokens, the model ", a));
    const std::string other = different_token(model, draft);
    if (!other.empty()) return differ(other);
    return {};
}

ModelDrafter::ModelDrafter(Engine& model, SamplerParams sampling, Worth worth)
    : model_(&model), sampling_(std::move(sampling)), worth_(worth) {
    sampling_.temperature = 0;
    sampling_.mirostat = 0;
    sampling_.dry_multiplier = 0;  // looks through the whole text for every token
    sampling_.samplers = SamplerParams().samplers;
    std::erase_if(sampling_.logit_bias, [&](const LogitBias& b) { return b.token >= model.spec().n_vocab; });
}

ModelDrafter::~ModelDrafter() {
    if (reading_) model_->cancel(*reading_);
}

Result<RequestId> ModelDrafter::ask(std::span<const Token> tokens, int32_t n) {
    Request request;
    request.prompt.assign(tokens.begin(), tokens.end());
    request.sampling = sampling_;
    request.max_tokens = n;
    request.logprobs = 0;
    return model_->submit(std::move(request));
}

// A long prompt is read by one step of the smaller model whenever a guess is asked for, so that nothing waits
// for the whole of it. What another drafter's prompt needs goes first.
Result<bool> ModelDrafter::has_read(std::span<const Token> tokens) {
    if (read_ && model_->idle()) return true;
    if (model_->idle()) reading_ = NIBBLE_TRY(ask(tokens, 0));
    NIBBLE_TRY(model_->step());
    if (!model_->idle()) return false;
    if (reading_) read_ = true;
    reading_.reset();
    return read_;
}

Result<std::vector<Token>> ModelDrafter::propose(std::span<const Token> tokens, int32_t limit) {
    if (!record_.ready(tokens)) return std::vector<Token>();
    const auto known = [this](Token t) { return t < model_->spec().n_vocab; };
    if (limit <= 0 || !std::ranges::all_of(tokens, known) || !NIBBLE_TRY(has_read(tokens)))
        return std::vector<Token>();
    return continued(tokens, limit);
}

Result<std::vector<Token>> ModelDrafter::continued(std::span<const Token> tokens, int32_t limit) {
    std::vector<Token> draft;
    record_.begin(tokens.size());
    const RequestId id = NIBBLE_TRY(ask(tokens, limit));
    while (!model_->idle()) {
        const StepReport report = NIBBLE_TRY(model_->step());
        for (const Event& e : report.events) {
            if (e.token < 0) continue;
            if (record_.add(e.token, std::exp(e.logprob), worth_.at(tokens.size(), n_texts_)))
                draft.push_back(e.token);
            else
                model_->cancel(id);
        }
    }
    return draft;
}

}  // namespace nibble
