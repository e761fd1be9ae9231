// Batches of arbitrary tokens through a ModelRunner, timed.
// Every sequence has its own run of pages, filled as far as `depth` says with whatever the memory holds.
#include "src/eval/bench.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "ggml/base/checked.h"
#include "src/sample/chain.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

// A GPU runs a step by itself the first time that it comes, then records it, and replays it from then on: a
// prompt of one step has to come so often.
constexpr int most_untimed = 2;
constexpr std::chrono::milliseconds warm_enough{500};

class Session {
  public:
    Session(ModelRunner& runner, const BenchCase& what) : runner_(runner), what_(what) {
        const int32_t page = runner.config().page_size;
        const int32_t block = runner.predictor() ? runner.predictor()->block_size() : 0;
        const int32_t longest = what.depth + std::max(what.prompt, what.generate + what.guesses + block);
        pages_each_ = ceil_div(longest, page);
        for (int32_t s = 0; s < what.batch; ++s) {
            tables_.emplace_back(static_cast<size_t>(pages_each_));
            std::iota(tables_.back().begin(), tables_.back().end(), s * pages_each_);
            states_.push_back(s);
        }
    }

    Result<void> repeat() {
        if (what_.prompt > 0) return process();
        if (what_.guesses > 0) return generate_guessing();
        return runner_.draws() ? generate_ahead() : generate();
    }

  private:
    // The prompt of every sequence in turn, in chunks of the runner's batch; logits of its end.
    Result<void> process() {
        for (int32_t at = 0; at < what_.prompt;) {
            const int32_t n = std::min(what_.prompt - at, runner_.config().batch_tokens / what_.batch);
            Batch b = rows(what_.depth + at, n);
            at += n;
            if (at < what_.prompt) b.out_rows.clear();
            NIBBLE_TRY(step(b));
        }
        return {};
    }

    Result<void> generate() {
        for (int32_t i = 0; i < what_.generate; ++i) NIBBLE_TRY(step(rows(what_.depth + i, 1)));
        return {};
    }

    // As the engine does it with a device that draws: a step starts before the last one's tokens are known.
    Result<void> generate_ahead() {
        const Chain chain = NIBBLE_TRY(Chain::create({}, static_cast<size_t>(runner_.spec().n_vocab)));
        for (int32_t i = 0; i < what_.generate; ++i) {
            Batch b = rows(what_.depth + i, 1);
            for (int32_t s = 0; s < what_.batch; ++s) {
                Rng rng(0, static_cast<uint64_t>(s));
                rng.seek(static_cast<uint32_t>(i));
                b.draws.push_back(*chain.draw_row(rng, false));
                if (i > 0) b.tokens[static_cast<size_t>(s)] = -1 - s;
            }
            NIBBLE_TRY(runner_.launch(b));
            if (i > 0) NIBBLE_TRY(runner_.drawn(1));
        }
        NIBBLE_TRY(runner_.drawn(0));
        return {};
    }

    // A token that is sure and the guesses behind it, then what it takes to guess again.
    Result<void> generate_guessing() {
        const int32_t n = 1 + what_.guesses;
        for (int32_t i = 0; i < what_.generate; i += n) {
            Batch b = rows(what_.depth + i, n);
            b.out_rows.resize(b.tokens.size());
            std::iota(b.out_rows.begin(), b.out_rows.end(), 0);
            b.forks.resize(b.pages.size());
            for (size_t g = 0; g < b.pages.size(); ++g)
                for (int32_t s = 0; s < what_.batch; ++s) b.forks[g].push_back({1, what_.batch + s});
            NIBBLE_TRY(step(b));
            if (runner_.predictor()) NIBBLE_TRY(predict(what_.depth + i, n));
        }
        return {};
    }

    // The rows of the last step, and then each guess but the last by itself, or a block. Who does not read
    // all takes the last row of each sequence, and its guesses at the same position.
    Result<void> predict(int32_t first, int32_t n) {
        Predictor& predictor = *runner_.predictor();
        const int32_t behind = first + n;
        const bool all = predictor.reads_all();
        std::vector<float> hidden = NIBBLE_TRY(known(n, all));
        if (!all) first = behind - 1, n = 1;
        if (predictor.block_size() > 0) return predict_blocks(rows(first, n), hidden, behind);
        for (int32_t i = 0; i < what_.guesses; ++i, first += all ? n : 0, n = 1) {
            const std::span<float> next = NIBBLE_TRY(predictor.read(runner_.spec(), rows(first, n), hidden));
            hidden.assign(next.begin(), next.end());
            NIBBLE_TRY(predictor.logits(predictor.states(), false));
        }
        return {};
    }

    // What the last step's rows left, n of each sequence: all of them, or the last.
    Result<std::vector<float>> known(int32_t n, bool all) {
        const auto parts = NIBBLE_TRY(runner_.hidden());
        const auto width = static_cast<size_t>(runner_.spec().n_embd);
        std::vector<float> rows;
        for (int32_t row = 0; row < n * what_.batch; ++row)
            for (const std::span<float> part : parts) {
                if (!all && (row + 1) % n != 0) continue;
                const auto one = part.subspan(static_cast<size_t>(row) * width, width);
                rows.insert(rows.end(), one.begin(), one.end());
            }
        return rows;
    }

    Result<void> predict_blocks(Batch read, std::span<const float> hidden, int32_t behind) {
        Predictor& predictor = *runner_.predictor();
        read.out_rows.clear();
        NIBBLE_TRY(predictor.read(runner_.spec(), read, hidden));
        const Batch places = rows(behind, predictor.block_size());
        Batch blocks;
        blocks.slots = places.slots;
        blocks.pages.resize(places.pages.size());
        for (size_t s = 0; s < places.sequences.size(); ++s) {
            predictor.add_block(blocks, 0, behind, std::min(what_.guesses, predictor.block_size() - 1));
            for (size_t g = 0; g < places.pages.size(); ++g)
                blocks.pages[g].insert(blocks.pages[g].end(), static_cast<size_t>(predictor.block_size()),
                                       places.pages[g][s]);
        }
        NIBBLE_TRY(predictor.guess(runner_.spec(), blocks));
        NIBBLE_TRY(predictor.logits(predictor.states(), false));
        return {};
    }

    Result<void> step(const Batch& b) {
        NIBBLE_TRY(runner_.step(b));
        // What a sampler needs: of a device's logits, the list of the largest will do, and has been waited
        // for.
        if (!runner_.lists_first_tokens()) NIBBLE_TRY(runner_.logits());
        return {};
    }

    // `n` tokens of every sequence from position `first`; logits of the last of each.
    Batch rows(int32_t first, int32_t n) const {
        Batch b;
        const size_t groups = runner_.spec().kv_groups.size();
        b.slots.resize(groups);
        b.pages.resize(groups);
        for (int32_t s = 0; s < what_.batch; ++s) {
            b.sequences.push_back({s * n, n});
            b.out_rows.push_back((s + 1) * n - 1);
            for (int32_t i = 0; i < n; ++i) {
                const int32_t position = first + i, page = runner_.config().page_size;
                b.tokens.push_back((position * 31 + s * 7 + 1) % runner_.spec().n_vocab);
                b.positions.push_back(position);
                for (auto& slots : b.slots)
                    slots.push_back((s * pages_each_ + position / page) * page + position % page);
            }
            for (size_t g = 0; g < groups; ++g)
                b.pages[g].push_back(runner_.spec().kv_groups[g].states
                                         ? std::span(&states_[static_cast<size_t>(s)], 1)
                                         : std::span<const int32_t>(tables_[static_cast<size_t>(s)]));
        }
        return b;
    }

    ModelRunner& runner_;
    BenchCase what_;
    int32_t pages_each_ = 0;
    std::vector<std::vector<int32_t>> tables_;
    std::vector<int32_t> states_;  // of each sequence
};

}  // namespace

double BenchResult::rate() const {
    double sum = 0;
    for (const double s : seconds) sum += tokens / s;
    return seconds.empty() ? 0 : sum / static_cast<double>(seconds.size());
}

double BenchResult::bandwidth() const {
    const double sum = std::accumulate(bandwidths.begin(), bandwidths.end(), 0.0);
    return bandwidths.empty() ? 0 : sum / static_cast<double>(bandwidths.size());
}

double BenchResult::deviation() const {
    if (seconds.size() < 2) return 0;
    const double mean = rate();
    double sum = 0;
    for (const double s : seconds) sum += (tokens / s - mean) * (tokens / s - mean);
    return std::sqrt(sum / static_cast<double>(seconds.size() - 1));
}

Result<BenchResult> run_bench(ModelRunner& runner, const BenchCase& what, int repetitions,
                              const std::function<double()>& bandwidth) {
    const int32_t each = 1 + what.guesses;
    const int32_t tokens = what.prompt > 0 ? what.prompt : round_up(what.generate, each);
    BenchResult result{what,
                       {},
                       {},
                       static_cast<double>(tokens) * what.batch,
                       static_cast<double>(what.prompt > 0 ? 1 : tokens) * what.batch};
    Session session(runner, what);
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < most_untimed && Clock::now() - begin < warm_enough; ++i) NIBBLE_TRY(session.repeat());
    double before = bandwidth ? bandwidth() : 0;
    for (int i = 0; i < repetitions; ++i) {
        const Clock::time_point start = Clock::now();
        NIBBLE_TRY(session.repeat());
        result.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
        if (!bandwidth) continue;
        const double after = bandwidth();
        result.bandwidths.push_back((before + after) / 2);
        before = after;
    }
    return result;
}

double read_bandwidth(const MemoryForecast& model, std::span<Backend* const> backends) {
    double bytes = 0, seconds = 0;
    for (size_t d = 0; d < backends.size(); ++d) {
        const auto weights = static_cast<double>(model.devices[d].weights);
        if (weights == 0) continue;
        const double rate = backends[d]->read_bandwidth();
        if (rate == 0) return 0;
        bytes += weights;
        seconds += weights / rate;
    }
    return seconds > 0 ? bytes / seconds : 0;
}

}  // namespace nibble
