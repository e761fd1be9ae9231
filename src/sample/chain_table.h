// The one table of sampling: every parameter with its field, flag, default, range and help; every chain link.
// A new sampler is a file src/sample/x.cpp and its entries here; flags, JSON fields and /set follow.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/sample/sampler.h"

namespace nibble {

struct LogitBias {
    Token token = 0;
    double bias = 0;  // added to the logit; -inf bans the token
};

// Plain data with the defaults. Definitions are at the links below.
struct SamplerParams {
    std::string samplers =
        "penalties,dry,logit_bias,top_n_sigma,top_k,typical,top_p,min_p,xtc,temperature,mirostat";
    std::optional<uint64_t> seed;  // empty: the caller draws one, and tells which

    double temperature = 0.8;
    double dynatemp_range = 0;
    double dynatemp_exponent = 1;
    int32_t top_k = 40;
    double top_p = 0.95;
    double min_p = 0.05;
    double typical_p = 1;
    double top_n_sigma = 0;
    double xtc_probability = 0;
    double xtc_threshold = 0.1;

    double repeat_penalty = 1;
    double frequency_penalty = 0;
    double presence_penalty = 0;
    int32_t repeat_last_n = 64;

    double dry_multiplier = 0;
    double dry_base = 1.75;
    int32_t dry_allowed_length = 2;
    int32_t dry_penalty_last_n = -1;
    std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
    std::vector<Token>
        dry_breaker_tokens;  // the tokens that contain a breaker; filled by who has a tokenizer

    std::vector<LogitBias> logit_bias;
    int32_t mirostat = 0;
    double mirostat_tau = 5;
    double mirostat_eta = 0.1;
};

// The field's type decides how values are read and written; see params.h.
using ParamField =
    std::variant<double SamplerParams::*, int32_t SamplerParams::*, std::optional<uint64_t> SamplerParams::*,
                 std::string SamplerParams::*, std::vector<std::string> SamplerParams::*,
                 std::vector<LogitBias> SamplerParams::*>;

struct Param {
    std::string_view key;   // in JSON, /set and the configuration file
    std::string_view flag;  // on the command line
    std::string_view link;  // the chain link it belongs to; empty: none
    ParamField field;
    double min = 0, max = 0;  // of numbers, both included
    double step = 0;          // > 0: only min, min + step, ... max
    std::string_view help;
};

inline constexpr double unlimited = 1 << 30;  // stands for "no limit" of a count

namespace chain_table {

using P = SamplerParams;
inline constexpr std::array params = {
    Param{"temperature", "--temp", "temperature", &P::temperature, 0, 100, 0,
          "> 1 flattens, < 1 sharpens; 0: the best token"},
    Param{"dynatemp_range", "--dynatemp-range", "temperature", &P::dynatemp_range, 0, 100, 0,
          "temperature moves by this much up and down with the entropy; 0: off"},
    Param{"dynatemp_exponent", "--dynatemp-exp", "temperature", &P::dynatemp_exponent, 0, 10, 0,
          "how entropy maps to dynamic temperature"},
    Param{"top_k", "--top-k", "top_k", &P::top_k, 0, unlimited, 0, "keep the k best tokens; 0: off"},
    Param{"top_p", "--top-p", "top_p", &P::top_p, 0, 1, 0,
          "keep the best tokens of this probability; 1: off"},
    Param{"min_p", "--min-p", "min_p", &P::min_p, 0, 1, 0, "keep tokens of this part of the best; 0: off"},
    Param{"typical_p", "--typical", "typical", &P::typical_p, 0, 1, 0,
          "keep the most typical tokens that hold this probability together; 1: off"},
    Param{"top_n_sigma", "--top-n-sigma", "top_n_sigma", &P::top_n_sigma, 0, 100, 0,
          "keep logits within n standard deviations of the best; 0: off"},
    Param{"xtc_probability", "--xtc-probability", "xtc", &P::xtc_probability, 0, 1, 0,
          "how often the top choices are excluded; 0: off"},
    Param{"xtc_threshold", "--xtc-threshold", "xtc", &P::xtc_threshold, 0, 1, 0,
          "the probability that makes a token a top choice"},
    Param{"repeat_penalty", "--repeat-penalty", "penalties", &P::repeat_penalty, 0.01, 100, 0,
          "divides the logits of recent tokens; 1: off"},
    Param{"frequency_penalty", "--frequency-penalty", "penalties", &P::frequency_penalty, -100, 100, 0,
          "subtracted per occurrence of a recent token; 0: off"},
    Param{"presence_penalty", "--presence-penalty", "penalties", &P::presence_penalty, -100, 100, 0,
          "subtracted once from every recent token; 0: off"},
    Param{"repeat_last_n", "--repeat-last-n", "penalties", &P::repeat_last_n, -1, unlimited, 0,
          "how many recent tokens the penalties see; 0: none, -1: all"},
    Param{"dry_multiplier", "--dry-multiplier", "dry", &P::dry_multiplier, 0, 100, 0,
          "strength of the penalty on continuing a repetition; 0: off"},
    Param{"dry_base", "--dry-base", "dry", &P::dry_base, 1, 10, 0,
          "growth of that penalty with each repeated token"},
    Param{"dry_allowed_length", "--dry-allowed-length", "dry", &P::dry_allowed_length, 1, unlimited, 0,
          "repetitions shorter than this are free"},
    Param{"dry_penalty_last_n", "--dry-penalty-last-n", "dry", &P::dry_penalty_last_n, -1, unlimited, 0,
          "how many recent tokens DRY sees; 0: none, -1: all"},
    Param{"dry_sequence_breakers", "--dry-sequence-breakers", "dry", &P::dry_sequence_breakers, 0, 0, 0,
          "strings that no repetition reaches across"},
    Param{"logit_bias", "--logit-bias", "logit_bias", &P::logit_bias, -1000, 1000, 0,
          "added to the logits of single tokens; -inf bans one"},
    Param{"mirostat", "--mirostat", "mirostat", &P::mirostat, 0, 2, 2,
          "2: hold the surprise of the text at a target, instead of top-k, top-p, ...; 0: off"},
    Param{"mirostat_tau", "--mirostat-ent", "mirostat", &P::mirostat_tau, 0, 100, 0,
          "the target surprise, in bits per token"},
    Param{"mirostat_eta", "--mirostat-lr", "mirostat", &P::mirostat_eta, 0, 1, 0,
          "how fast mirostat corrects"},
    Param{"samplers", "--samplers", "", &P::samplers, 0, 0, 0,
          "the links of the chain in their order; one that is left out is off"},
    Param{"seed", "--seed", "", &P::seed, 0, 0, 0, "the same seed gives the same text"},
};

}  // namespace chain_table

// Edits of single logits also count when the temperature is 0; truncations give way to mirostat.
enum class LinkKind { edit, truncate, scale };

struct Link {
    std::string_view name;
    LinkKind kind;
    // Null: with these (valid) parameters the link would change nothing.
    std::unique_ptr<Sampler> (*make)(const SamplerParams&);
};

// The links, p being the softmax over the candidates that reach them. All sums of probabilities are exact
// sums of the integer weights of weight.h; where an order matters it is that of `precedes`.

// For tokens that occurred c > 0 times among the last repeat_last_n:
//   l = l > 0 ? l / repeat_penalty : l * repeat_penalty
// N. S. Keskar et al., "CTRL", arXiv:1909.05858, section 4.1; then
//   l = l - c * frequency_penalty - presence_penalty
// OpenAI API reference, "frequency_penalty".
std::unique_ptr<Sampler> make_penalties(const SamplerParams&);
// For a token t that followed, at an earlier place, the same n >= dry_allowed_length tokens that end the
// history now (n the longest such match, neither reaching across a sequence breaker nor t being one):
//   l = l - dry_multiplier * dry_base ^ (n - dry_allowed_length)
// p-e-w, "DRY: A modern repetition penalty", https://github.com/oobabooga/text-generation-webui/pull/5677
std::unique_ptr<Sampler> make_dry(const SamplerParams&);
// l = l + bias. OpenAI API reference, "logit_bias".
std::unique_ptr<Sampler> make_logit_bias(const SamplerParams&);
// Keeps l >= max(l) - n * sigma, sigma being the (population) standard deviation of the finite logits.
// C. Tang et al., "Top-n-sigma: Not All Logits Are You Need", arXiv:2411.07641, algorithm 1.
std::unique_ptr<Sampler> make_top_n_sigma(const SamplerParams&);
// Keeps the first k. A. Fan et al., "Hierarchical Neural Story Generation", arXiv:1805.04833, 5.4.
std::unique_ptr<Sampler> make_top_k(const SamplerParams&);
// Orders by | -ln p - H |, H being the entropy, and keeps the shortest beginning whose p sum to typical_p.
// C. Meister et al., "Locally Typical Sampling", arXiv:2202.00666, 4.
std::unique_ptr<Sampler> make_typical(const SamplerParams&);
// Keeps the shortest beginning whose p sum to top_p, one token at least.
// A. Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv:1904.09751, 3.1.
std::unique_ptr<Sampler> make_top_p(const SamplerParams&);
// Keeps p >= min_p * max(p). M. N. Nguyen et al., "Turning Up the Heat: Min-p Sampling", arXiv:2407.01082, 3.
std::unique_ptr<Sampler> make_min_p(const SamplerParams&);
// In a share xtc_probability of all steps: if two tokens or more have p >= xtc_threshold, removes all of them
// but the last in order. p-e-w, "Exclude Top Choices",
// https://github.com/oobabooga/text-generation-webui/pull/6335
std::unique_ptr<Sampler> make_xtc(const SamplerParams&);
// l = (l - max(l)) / T. With dynatemp_range r > 0, after kalomaze
// (https://github.com/ggml-org/llama.cpp/pull/4972):
//   T = lo + (hi - lo) * (H / ln n) ^ dynatemp_exponent, lo = max(0, temperature - r), hi = temperature + r,
// H being the entropy of p and n the number of candidates.
std::unique_ptr<Sampler> make_temperature(const SamplerParams&);
// Keeps -log2 p <= mu (the best token always), mu starting at 2 tau; after a token of surprise s = -log2 p
// (before the truncation) was accepted: mu = mu - eta * (s - tau).
// S. Basu et al., "Mirostat", arXiv:2007.14966; version 2 as in the authors'
// https://github.com/basusourya/mirostat
std::unique_ptr<Sampler> make_mirostat(const SamplerParams&);

namespace chain_table {

// In the default order.
inline constexpr std::array links = {
    Link{"penalties", LinkKind::edit, make_penalties},
    Link{"dry", LinkKind::edit, make_dry},
    Link{"logit_bias", LinkKind::edit, make_logit_bias},
    Link{"top_n_sigma", LinkKind::truncate, make_top_n_sigma},
    Link{"top_k", LinkKind::truncate, make_top_k},
    Link{"typical", LinkKind::truncate, make_typical},
    Link{"top_p", LinkKind::truncate, make_top_p},
    Link{"min_p", LinkKind::truncate, make_min_p},
    Link{"xtc", LinkKind::truncate, make_xtc},
    Link{"temperature", LinkKind::scale, make_temperature},
    Link{"mirostat", LinkKind::scale, make_mirostat},
};

}  // namespace chain_table

}  // namespace nibble
