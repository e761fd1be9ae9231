// Choosing among several answers to one prompt: the step of a beam search, and the score of an answer.
// Pure arithmetic on log-probabilities; who computes them, and what ends an answer, is the engine's.
#pragma once

#include <span>
#include <vector>

#include "src/sample/logprobs.h"

namespace nibble {

// How an answer comes about.
struct Decoding {
    enum class Kind : uint8_t {
        sample,   // one answer, token by token from the sampler chain
        best_of,  // `width` answers as the seeds seed, seed + 1, ... would give them alone; the best one
                  // counts
        beams,    // beam search of `width` beams; nothing is random and the sampler chain has no part
    };
    Kind kind = Kind::sample;
    int32_t width = 1;
    double length_penalty = 1;  // of beams
};
inline constexpr int32_t max_answers = 64;

// The score by which complete answers are compared:
//   ln p(y | x) / |y| ^ penalty
// p under the model's own distribution, |y| the number of tokens of the answer with the one that ended it.
// 0: the probability itself, which favours short answers; 1: the mean per token, also the measure of best-of;
// above: long ones are favoured. Y. Wu et al., "Google's Neural Machine Translation System",
// arXiv:1609.08144, section 7, the first of the two normalizations given there. An empty answer scores 0.
double answer_score(double logprob, size_t n_tokens, double penalty);

// An unfinished answer and a token that could follow it.
struct Continuation {
    size_t beam = 0;
    Token token = 0;
    double token_logprob = 0;  // of the token after that beam
    double logprob = 0;        // of the whole
};

// The `limit` most likely continuations in order; of equal ones the lower beam, then the lower token first.
// logprobs[i]: of beam i so far; next[i]: its most likely next tokens, `limit` of them (or all) suffice.
//
// A beam search takes, step by step, the best `width` continuations that go on as its new beams, walking down
// this list; those met on the way that end are complete answers if they are among the first `width`. It ends
// when no beam is left, or when `width` answers are complete and the best beam scores no more, at its present
// length, than the worst of them. With a width of all continuations it is an exhaustive search.
// B. T. Lowerre, "The Harpy Speech Recognition System", 1976; as used for sequence models by A. Graves,
// "Sequence Transduction with Recurrent Neural Networks", arXiv:1211.3711, section 2.6.
std::vector<Continuation> best_continuations(std::span<const double> logprobs,
                                             std::span<const std::vector<TokenLogprob>> next, size_t limit);

}  // namespace nibble
