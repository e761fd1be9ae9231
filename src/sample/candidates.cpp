// Scanning, selecting and ordering candidates without sorting the vocabulary.
// The loops over whole logits are written so that compilers vectorize them without relaxing IEEE rules.
#include "src/sample/candidates.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "ggml/base/cat.h"

namespace nibble {

namespace {

constexpr size_t block_size = weighed_at_once;
constexpr float lowest = std::numeric_limits<float>::lowest();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct BlockScan {
    float best;
    bool nan;
};

using Float4 [[gnu::vector_size(16)]] = float;
using Mask4 [[gnu::vector_size(16)]] = int32_t;

// The maximum, and whether there is a NaN (which no comparison would show). Two accumulators hide the
// latency.
BlockScan scan(const float* x, size_t n) {
    const auto load = [x](size_t i) {
        Float4 v;
        std::memcpy(&v, x + i, sizeof v);
        return v;
    };
    Float4 best0 = {-infinity, -infinity, -infinity, -infinity}, best1 = best0;
    Mask4 nan0 = {}, nan1 = {};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const Float4 a = load(i), b = load(i + 4);
        best0 = a > best0 ? a : best0;
        best1 = b > best1 ? b : best1;
        nan0 |= a != a;
        nan1 |= b != b;
    }
    BlockScan all{-infinity, false};
    for (size_t j = 0; j < 4; ++j) {
        all.best = std::max({all.best, best0[j], best1[j]});
        all.nan |= (nan0[j] | nan1[j]) != 0;
    }
    for (; i < n; ++i) {
        all.best = std::max(all.best, x[i]);
        all.nan |= x[i] != x[i];
    }
    return all;
}

Error bad_logits(std::string what) {
    return {ErrorCode::corrupt, "logits", std::move(what),
            "the model or its computation is broken; --check-nan names the layer"};
}

}  // namespace

Result<void> Candidates::begin(std::span<float> logits) {
    dense_ = logits;
    undo_.clear();
    listed_ = open_ = undecided_ = false;
    seen_ = {};
    scale_ = 1;
    n_sorted_ = 0;
    list_.clear();
    const size_t n_blocks = (logits.size() + block_size - 1) / block_size;
    block_best_.resize(n_blocks);
    bool nan = false;
    float best = -infinity;
    for (size_t b = 0; b < n_blocks; ++b) {
        const size_t first = b * block_size;
        const BlockScan s = scan(logits.data() + first, std::min(block_size, logits.size() - first));
        block_best_[b] = s.best;
        best = std::max(best, s.best);
        nan |= s.nan;
    }
    best_ = best;
    best_known_ = true;
    if (nan || best == infinity) {
        const auto bad = std::ranges::find_if(logits, [](float v) { return v != v || v == infinity; });
        return bad_logits(cat("the logit of token ", bad - logits.begin(), " of ", logits.size(), " is ",
                              *bad == infinity ? "infinite" : "NaN"));
    }
    if (best == -infinity)
        return bad_logits(cat("all ", logits.size(), " logits are -inf: there is nothing to pick"));
    return {};
}

void Candidates::begin_with_first(const FirstTokens& first) {
    dense_ = {};
    undo_.clear();
    list_.assign(first.list.begin(), first.list.end());
    total_ = first.total;
    scale_ = 1;
    n_sorted_ = list_.size();
    listed_ = open_ = true;
    undecided_ = best_known_ = false;
    last_ = list_.back();
}

void Candidates::close(Candidate end) {
    undecided_ |= rest_may_precede(end);
    open_ = false;
}

void Candidates::restore() {
    for (auto u = undo_.rbegin(); u != undo_.rend(); ++u) dense_[static_cast<size_t>(u->token)] = u->logit;
    undo_.clear();
}

void Candidates::set_dense(Token token, double logit) {
    const auto i = static_cast<size_t>(token);
    undo_.push_back({token, dense_[i]});
    dense_[i] = clamped_logit(logit);
    const size_t first = i / block_size * block_size;
    block_best_[i / block_size] =
        scan(dense_.data() + first, std::min(block_size, dense_.size() - first)).best;
    best_known_ = false;
}

float Candidates::best() const {
    if (best_known_) return best_;
    float best = -infinity;
    if (!listed_) {
        for (float v : block_best_) best = std::max(best, v);
    } else if (n_sorted_ > 0) {
        best = list_[0].logit;
    } else {
        for (const Candidate& c : list_) best = std::max(best, c.logit);
    }
    undecided_ |= open_ && best < last_.logit;
    best_ = best;
    best_known_ = true;
    return best;
}

// visit(distance from the best, weight) for every candidate that weighs something; for others it may.
template <class Visit>
void Candidates::each_weight(Visit visit) const {
    const double top = best();
    WeighedRun run;
    const auto visit_run = [&](const float* logits, size_t n, const LogitScale& scale) {
        weigh_run(logits, n, scale, top, run);
        for (size_t i = 0; i < n; ++i) visit(run.distance[i], run.weight[i]);
    };
    if (!listed_) {
        for (size_t b = 0; b < block_best_.size(); ++b)
            if (const size_t first = b * block_size; top - block_best_[b] < WeightHistogram::range)
                visit_run(dense_.data() + first, std::min(block_size, dense_.size() - first), seen_);
        return;
    }
    for (size_t first = 0; first < list_.size(); first += weighed_at_once) {
        const size_t n = std::min(weighed_at_once, list_.size() - first);
        float logits[weighed_at_once];
        for (size_t i = 0; i < n; ++i) logits[i] = list_[first + i].logit;
        visit_run(logits, n, {});
    }
}

uint64_t Candidates::with_rest(uint64_t listed) const {
    if (!open_) return listed;
    undecided_ |= total_.temperature != scale_ || total_.weight < listed;
    return undecided_ ? listed : total_.weight;
}

uint64_t Candidates::total_weight() const {
    uint64_t total = 0;
    each_weight([&total](double, uint64_t weight) { total += weight; });
    return with_rest(total);
}

uint64_t Candidates::weigh() {
    histogram_.clear();
    each_weight([this](double distance, uint64_t weight) { histogram_.add(distance, weight); });
    return with_rest(histogram_.total());
}

void Candidates::scale(double temperature) {
    const LogitScale scaled{best(), temperature};
    if (!listed_ && seen_.on()) list_blocks(lowest);
    scale_ *= temperature;
    if (!listed_) {
        seen_ = scaled;
        for (float& b : block_best_) b = scaled(b);
        best_known_ = false;
        return;
    }
    const bool was_in_order = in_order();
    for (Candidate& c : list_) c.logit = scaled(c.logit);
    last_.logit = scaled(last_.logit);
    // Two logits may round to one, and equal logits go by id.
    changed(was_in_order && std::ranges::is_sorted(list_, precedes));
}

Candidate Candidates::reach(uint64_t weight) {
    if (weight > histogram_.total()) {  // only an open list weighs less than all
        undecided_ = true;
        return list_.back();
    }
    const double top = best();
    const auto at = histogram_.crossing(weight);
    crossing_.clear();
    const auto gather = [&](Token id, float logit) {
        if (WeightHistogram::bucket(top - logit) == at.bucket) crossing_.push_back({id, logit});
    };
    if (listed_) {
        for (const Candidate& c : list_) gather(c.id, c.logit);
    } else {
        for (size_t b = 0; b < block_best_.size(); ++b) {
            if (WeightHistogram::bucket(top - block_best_[b]) > at.bucket) continue;
            const size_t first = b * block_size, end = std::min(first + block_size, dense_.size());
            for (size_t i = first; i < end; ++i) gather(static_cast<Token>(i), seen_(dense_[i]));
        }
    }
    const Candidate reached = WeightHistogram::reach(
        crossing_, at, weight, precedes, [top](const Candidate& c) { return weight_of(c.logit - top); });
    undecided_ |= rest_may_precede(reached);
    return reached;
}

// Lists the candidates with logit >= least, skipping blocks that cannot hold one. Within a block every
// logit is written and only those that count advance: no branch that could be mispredicted.
void Candidates::list_blocks(float least) {
    size_t n = 0;
    for (size_t b = 0; b < block_best_.size(); ++b) {
        if (block_best_[b] < least) continue;
        const size_t first = b * block_size, count = std::min(block_size, dense_.size() - first);
        if (list_.size() < n + count) list_.resize(2 * n + count);
        for (size_t i = first; i < first + count; ++i) {
            const float logit = seen_(dense_[i]);
            list_[n] = {static_cast<Token>(i), logit};
            n += logit >= least ? 1 : 0;
        }
    }
    list_.resize(n);
    listed_ = true;
    n_sorted_ = 0;
}

std::vector<Candidate>& Candidates::list() {
    need_rest();
    if (!listed_) list_blocks(lowest);
    return list_;
}

void Candidates::changed(bool sorted) {
    n_sorted_ = sorted ? list_.size() : 0;
    best_known_ = false;
}

void Candidates::keep_at_least(double threshold) {
    threshold = std::clamp<double>(threshold, lowest, best());
    auto least = static_cast<float>(threshold);
    if (least < threshold) least = std::nextafter(least, infinity);
    if (!listed_) return list_blocks(least);
    close({std::numeric_limits<Token>::max(), least});
    std::erase_if(list_, [least](const Candidate& c) { return c.logit < least; });
    n_sorted_ = std::min(n_sorted_, list_.size());
}

void Candidates::keep_through(Candidate last) {
    keep_at_least(last.logit);
    std::erase_if(list_, [last](const Candidate& c) { return precedes(last, c); });
    n_sorted_ = std::min(n_sorted_, list_.size());
}

void Candidates::keep_top(size_t k) {
    k = std::max<size_t>(k, 1);
    if (k >= size()) return need_rest();
    if (!listed_) {
        // The k-th largest block maximum bounds the k-th largest logit from below: k blocks reach it.
        if (k <= block_best_.size()) {
            block_scratch_ = block_best_;
            std::ranges::nth_element(block_scratch_,
                                     block_scratch_.begin() + static_cast<std::ptrdiff_t>(k - 1),
                                     std::greater<>());
            list_blocks(std::max(block_scratch_[k - 1], lowest));
        } else {
            list_blocks(lowest);
        }
    }
    sort_first(k);
    close(list_[std::min(k, list_.size()) - 1]);
    if (k < list_.size()) list_.resize(k);
}

std::span<const Candidate> Candidates::sorted(size_t n) {
    list();
    sort_first(n);
    return list_;
}

void Candidates::sort_first(size_t n) {
    n = std::min(n, list_.size());
    if (n > n_sorted_) {
        const auto from = list_.begin() + static_cast<std::ptrdiff_t>(n_sorted_);
        const auto to = list_.begin() + static_cast<std::ptrdiff_t>(n);
        if (to != list_.end()) std::nth_element(from, to - 1, list_.end(), precedes);
        std::sort(from, to, precedes);
        n_sorted_ = n;
    }
}

Candidate Candidates::first() {
    if (listed_) {
        sort_first(1);
        undecided_ |= rest_may_precede(list_[0]);
        return list_[0];
    }
    const float top = best();
    size_t b = 0;
    while (block_best_[b] != top) ++b;
    size_t i = b * block_size;
    while (seen_(dense_[i]) != top) ++i;
    return {static_cast<Token>(i), top};
}

}  // namespace nibble
