// The working set of one sampling step: the tokens that are still in play and their logits.
// Starts as a view of the whole vocabulary, or as its best tokens where the logits are far away; becomes a
// short list as soon as a link of the chain selects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ggml/base/candidate.h"
#include "ggml/base/result.h"
#include "src/sample/weight.h"
#include "src/sample/weight_histogram.h"

namespace nibble {

using Token = int32_t;

// What all tokens weigh together (exp_weight_at) against the best one, at a temperature; 0: not known.
struct TotalWeight {
    double temperature = 0;
    uint64_t weight = 0;
};

// The first tokens in order, none of them at -inf.
struct FirstTokens {
    std::span<const Candidate> list;
    TotalWeight total;
};

// Two states. "Dense": the caller's logits, edited in place (restore() undoes it) and seen at a temperature,
// with the maximum of every block of 64, so that selections look at the few blocks that matter. "Listed": a
// vector of candidates in ascending id, or in their order (precedes) after a selection by rank. A vocabulary
// of 150,000 is never sorted.
//
// Begun with the best tokens only, the list is "open": the tokens that are not listed follow the last one.
// A selection that needs none of them closes it. What would need them (a selection that reaches the end of
// the list, sums over all candidates but for the total weight where that is known at the temperature of the
// moment) makes the step undecided: it goes on with what is listed, but its result means nothing.
//
// Invariants after begin(): no NaN, no +inf, at least one finite logit. -inf means "cannot be picked".
// Links keep it so: set() clamps, and no selection removes the best candidate.
class Candidates {
  public:
    // Borrows the logits until the next begin(). An Error names the token whose logit is NaN or +inf, or says
    // that every logit is -inf.
    Result<void> begin(std::span<float> logits);
    // Begins with the first tokens, at least one; copied.
    void begin_with_first(const FirstTokens& first);
    bool undecided() const { return undecided_; }
    void restore();  // puts back what edits have changed in the caller's logits

    bool listed() const { return listed_; }
    size_t size() const { return listed_ ? list_.size() : dense_.size(); }
    float best() const;             // the largest logit; O(1) when sorted or dense
    uint64_t total_weight() const;  // sum of weight_of(logit - best()) over all candidates

    // Replaces logits of some tokens: logit = edit(logit, value) for each (token, value) of the map, edit
    // never falling as the logit grows. Tokens that are not candidates are ignored. Map: any associative
    // container keyed by Token.
    template <class Map, class Edit>
    void edit(const Map& values, Edit edit) {
        if (!listed_ && seen_.on()) list();
        if (!listed_) {
            for (const auto& [token, value] : values) {
                if (token >= 0 && static_cast<size_t>(token) < dense_.size())
                    set_dense(token, edit(dense_[static_cast<size_t>(token)], value));
            }
            return;
        }
        // What is not listed must stay behind the last token of an open list, and weighs something else.
        if (!values.empty()) total_ = {};
        for (auto it = values.begin(); open_ && !undecided_ && it != values.end(); ++it)
            undecided_ = !(clamped_logit(edit(last_.logit, it->second)) < last_.logit);
        for (Candidate& c : list_) {
            if (const auto it = values.find(c.id); it != values.end())
                c.logit = clamped_logit(edit(c.logit, it->second));
        }
        changed(false);
    }

    // Selections. Tokens at -inf are never listed.
    void keep_top(size_t k);               // the first k in order; k >= 1
    void keep_at_least(double threshold);  // logit >= threshold; the best always stays
    Candidate first();                     // the first in order
    void keep_through(Candidate last);     // `last`, a candidate, and what precedes it

    // logit = (logit - best) / temperature for all.
    void scale(double temperature);

    // The first in order at which the sum of weights reaches `weight`; 1 <= weight <= total. weigh() gives
    // the total and must come right before.
    uint64_t weigh();
    Candidate reach(uint64_t weight);

    // The list, with at least the first n in order; the rest follows them in no particular order.
    std::span<const Candidate> sorted(size_t n);
    bool in_order() const { return listed_ && n_sorted_ == list_.size(); }

    // Everything as a list that the caller may change; who does, calls changed() and says whether the list is
    // in order.
    std::vector<Candidate>& list();
    void changed(bool sorted);

    // For who looks at all candidates: an open list cannot decide that.
    void need_rest() const { undecided_ |= open_; }
    // The logit of the i-th of size(), in the order of storage.
    float stored(size_t i) const { return listed_ ? list_[i].logit : seen_(dense_[i]); }

  private:
    struct Undo {
        Token token;
        float logit;
    };

    template <class Visit>
    void each_weight(Visit visit) const;
    void set_dense(Token token, double logit);
    void list_blocks(float least);
    void sort_first(size_t n);
    // The weight of all, given that of the listed.
    uint64_t with_rest(uint64_t listed) const;
    // A selection that keeps what precedes `end`, and perhaps `end`.
    void close(Candidate end);
    // Whether what is not listed may precede `end`. Scaled, logits of the rest may be equal to the last one.
    bool rest_may_precede(Candidate end) const {
        return open_ && (scale_ == 1 ? precedes(last_, end) : end.logit <= last_.logit);
    }

    std::span<float> dense_;
    LogitScale seen_;                // how dense_ counts
    std::vector<float> block_best_;  // likewise
    std::vector<Undo> undo_;
    bool listed_ = false;
    bool open_ = false;  // tokens that are not listed may be candidates: they follow last_
    mutable bool undecided_ = false;
    Candidate last_;
    TotalWeight total_;  // of all candidates of an open list,
    double scale_ = 1;   // if this is its temperature
    std::vector<Candidate> list_;
    size_t n_sorted_ = 0;  // list_[0, n_sorted_) is in order and precedes the rest
    mutable float best_ = 0;
    mutable bool best_known_ = false;
    std::vector<float> block_scratch_;
    WeightHistogram histogram_;
    std::vector<Candidate> crossing_;
};

}  // namespace nibble
