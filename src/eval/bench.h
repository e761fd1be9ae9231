// Speed of a loaded model, and of the memory it runs from: the measurements behind `nibble bench` and `plan`.
// No text is made: tokens are arbitrary, or what the device draws if it draws its own, and a given depth of
// context is assumed full.
#pragma once

#include <functional>
#include <vector>

#include "src/engine/model_runner.h"

namespace nibble {

struct BenchCase {
    int32_t prompt = 0;    // tokens of a prompt to process at once, or
    int32_t generate = 0;  // tokens to generate one after the other
    int32_t depth = 0;     // tokens already in the context
    int32_t batch = 1;     // sequences that generate side by side
    // Tokens that each sequence guesses in a step, all of them right: by the model's predictor or assistant,
    // if it is loaded with one, else for nothing, as from an earlier place in the text.
    int32_t guesses = 0;
};

struct BenchResult {
    BenchCase what;
    std::vector<double> seconds;     // of each repetition
    std::vector<double> bandwidths;  // bytes per second that memory gave beside each repetition
    double tokens = 0;               // of one repetition, all sequences together
    double outputs = 0;              // rows of logits likewise
    double rate() const;             // mean tokens per second
    double deviation() const;        // of the rates; 0 for one repetition
    double bandwidth() const;        // mean; 0: not known
};

// Untimed repetitions first: one, or up to three within half a second. The runner's context must hold depth +
// prompt or generate tokens of every sequence, and its outputs those of the guesses. `bandwidth`, if given,
// is called before every repetition and after the last: what others take of the memory changes from second to
// second, so a repetition is compared with the mean of its two neighbours.
Result<BenchResult> run_bench(ModelRunner& runner, const BenchCase& what, int repetitions,
                              const std::function<double()>& bandwidth = {});

// Bytes per second at which the model's weights can be read where they lie, measured now: of their device, or
// of all devices together for a split model, which reads them one after the other. 0: not known.
double read_bandwidth(const MemoryForecast& model, std::span<Backend* const> backends);

}  // namespace nibble
