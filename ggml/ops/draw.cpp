// draw: a token for each row from its shortlist, as a sampler chain on the whole row would draw it.
// So that a device can go on with a text before the host has seen its last token.
#include <algorithm>

#include "ggml/base/candidate.h"
#include "ggml/base/draw_row.h"
#include "ggml/base/exp_weight.h"
#include "ggml/ops/common.h"

namespace nibble {
namespace {

// The first in order of what a row holds; while `open`, the others may follow `last`. What would need them
// makes it undecided.
class OpenList {
  public:
    OpenList(const float* values, int32_t count, const int32_t* weighed) {
        const int32_t n_columns = weighed[2];
        const float* const columns = values + count;
        for (int32_t i = 0; i < count && columns[i] >= 0; ++i)
            if (columns[i] < static_cast<float>(n_columns))
                list_.push_back({static_cast<int32_t>(columns[i]), values[i]});
        undecided_ = std::isnan(values[0]) || list_.empty();
        if (undecided_) return;
        last_ = list_.back();
        // Weights are against the largest of all.
        if (columns[0] < static_cast<float>(n_columns)) total_temperature_ = shortlist_temperature(weighed);
        for (int32_t i = 0; i < shortlist_pieces; ++i)
            total_ += joined_weight(values + 2 * count + static_cast<ptrdiff_t>(3 * i));
    }

    bool undecided() const { return undecided_; }

    void apply(const DrawView& how, int32_t step, int32_t before) {
        const double value = how.value(step);
        switch (how.kind(step)) {
            case DrawKind::best:
                return keep(1);
            case DrawKind::top_k:
                return keep_top(static_cast<size_t>(value));
            case DrawKind::top_p:
                return keep_probable(value);
            case DrawKind::min_p:
                return keep_at_least(list_[0].logit + value);
            case DrawKind::temperature:
                return scale(value);
            case DrawKind::penalties:
                return penalize(how, step, before);
            case DrawKind::bias:
                return add(static_cast<int32_t>(value), how.value(step, 1));
        }
        undecided_ = true;
    }

    int32_t draw(uint64_t random) {
        const auto share = static_cast<uint64_t>(static_cast<unsigned __int128>(random) * weigh() >> 64);
        const size_t at = reach(share + 1);
        return undecided_ ? -1 : list_[at].id;
    }

  private:
    bool rest_may_precede(const Candidate& end) const {
        return open_ && (scale_ == 1 ? precedes(last_, end) : end.logit <= last_.logit);
    }
    void keep(size_t n) {
        undecided_ |= rest_may_precede(list_[n - 1]);
        list_.resize(n);
        open_ = false;
    }
    void keep_top(size_t k) {
        k = std::max<size_t>(k, 1);
        if (k < list_.size()) return keep(k);
        undecided_ |= open_;
    }
    // The threshold may lie between two numbers of f32.
    void keep_at_least(double threshold) {
        threshold = std::min<double>(threshold, list_[0].logit);
        undecided_ |= open_ && last_.logit >= threshold;
        std::erase_if(list_, [threshold](const Candidate& c) { return c.logit < threshold; });
        open_ = false;
    }
    void keep_probable(double p) {
        const auto enough = static_cast<uint64_t>(p * static_cast<double>(weigh()));
        const size_t at = reach(std::max<uint64_t>(1, enough));
        undecided_ |= open_ && last_.logit >= list_[at].logit;
        list_.resize(at + 1);
        open_ = false;
    }
    void scale(double temperature) {
        const double best = list_[0].logit;
        const auto scaled = [=](float logit) { return clamped_logit((logit - best) / temperature); };
        for (Candidate& c : list_) c.logit = scaled(c.logit);
        last_.logit = scaled(last_.logit);
        scale_ *= temperature;
        std::ranges::sort(list_, precedes);  // two logits may round to one, and equal ones go by id
    }
    void penalize(const DrawView& how, int32_t step, int32_t before) {
        std::vector<int32_t> recent;
        for (int32_t i = 0; i < how.n_recent(); ++i)
            recent.push_back(how.recent(i) == drawn_before ? before : how.recent(i));
        edit(recent, [&](double logit, int32_t id) {
            return penalized(logit, static_cast<int32_t>(std::ranges::count(recent, id)), how.value(step, 0),
                             how.value(step, 1), how.value(step, 2));
        });
    }
    void add(int32_t id, double bias) {
        edit(std::span(&id, 1), [bias](double logit, int32_t) { return logit + bias; });
    }
    // One of those edited that is not listed must stay behind the last.
    template <class Edited>
    void edit(std::span<const int32_t> ids, Edited edited) {
        if (ids.empty()) return;
        total_temperature_ = 0;
        for (const int32_t id : ids)
            undecided_ |= open_ && !(clamped_logit(edited(last_.logit, id)) < last_.logit);
        for (Candidate& c : list_)
            if (std::ranges::count(ids, c.id) > 0) c.logit = clamped_logit(edited(c.logit, c.id));
        std::ranges::sort(list_, precedes);
        undecided_ |= (open_ && list_[0].logit < last_.logit) || !(list_[0].logit > -INFINITY);
    }
    uint64_t weight(size_t i) const {
        return exp_weight(static_cast<double>(list_[i].logit) - static_cast<double>(list_[0].logit));
    }
    uint64_t weigh() {
        uint64_t listed = 0;
        for (size_t i = 0; i < list_.size(); ++i) listed += weight(i);
        if (!open_) return listed;
        undecided_ |= total_temperature_ != scale_ || total_ < listed;
        return undecided_ ? listed : total_;
    }
    size_t reach(uint64_t target) {
        uint64_t sum = 0;
        for (size_t i = 0; i < list_.size(); ++i) {
            sum += weight(i);
            if (sum < target) continue;
            undecided_ |= rest_may_precede(list_[i]);
            return i;
        }
        undecided_ = true;
        return list_.size() - 1;
    }

    std::vector<Candidate> list_;
    bool open_ = true, undecided_ = false;
    Candidate last_;
    double scale_ = 1, total_temperature_ = 0;
    uint64_t total_ = 0;
};

void reference(const OpArgs& a) {
    const Tensor &list = a.in[0], &weighed = a.in[1], &how = a.in[2], &drawn = a.in[3];
    const int32_t count = a.params->as<ShortlistParams>().count;
    for (int64_t r = 0; r < list.rows; ++r) {
        const DrawView row{how.row<int32_t>(r)};
        float& to = *drawn.row(r);
        const auto before = static_cast<int32_t>(to);
        to = -1;
        if (!row.draws()) continue;
        OpenList open(list.row(r), count, weighed.row<int32_t>(r));
        for (int32_t step = 0; step < row.n_steps() && !open.undecided(); ++step)
            open.apply(row, step, before);
        if (!open.undecided()) to = static_cast<float>(open.draw(row.random()));
    }
}

Cost cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = 100.0 * static_cast<double>(a.in[0].rows * a.in[0].cols);
    return c;
}

// Chains that decide and that do not, over vocabularies with more and fewer tokens than a list.
std::vector<OpCase> cases() {
    using enum DrawKind;
    struct Chain {
        double weighed_at;  // the temperature at which it wants to know what all tokens weigh
        std::vector<DrawStep> steps;
    };
    static const std::vector<Chain> chains = {
        {0, {{best, {}}}},
        {1, {}},
        {0.7, {{temperature, {0.7}}}},
        {0, {{top_k, {40}}, {top_p, {0.95}}, {min_p, {-3.0}}, {temperature, {0.8}}}},
        {1, {{top_p, {0.6}}, {temperature, {1.3}}}},
        {0.5, {{min_p, {-1.5}}}},
        {0, {{top_k, {1000}}}},
        {0.5, {{temperature, {0.5}}, {top_p, {0.9}}, {top_k, {20}}}},
        {0, {{penalties, {1.3, 0.2, 0.1}}, {top_k, {12}}, {temperature, {0.9}}}},
        {0, {{penalties, {0.5, 0, 0}}, {best, {}}}},
        {0, {{top_k, {100}}, {penalties, {1.1, 0, 2}}, {min_p, {-4.0}}, {best, {}}}},
        {0, {{bias, {3, -INFINITY}}, {bias, {5, -2}}, {top_k, {30}}, {bias, {1, 1.5}}}},
    };
    const auto rows = static_cast<int64_t>(chains.size()) + 1;  // for the last one nothing is drawn
    struct Size {
        int32_t cols, count;
    };
    std::vector<OpCase> list;
    for (const Size size : {Size{1, 1}, Size{9, 40}, Size{200, 256}, Size{3000, 256}}) {
        const int32_t cols = size.cols, count = size.count;
        list.push_back(
            {cat("draw of ", count, " in ", cols), token_shape(rows), 0, [=](Builder& b, CaseSink& sink) {
                 std::vector<int32_t> weighed, how;
                 for (int64_t r = 0; r < rows; ++r) {
                     const bool draws = r + 1 < rows;
                     const Chain& chain = chains[static_cast<size_t>(draws ? r : 0)];
                     const auto w = weighed_row(chain.weighed_at, cols - (cols > 100 ? 19 : 0));
                     weighed.insert(weighed.end(), w.begin(), w.end());
                     DrawRow row;
                     row.steps = chain.steps;
                     row.random = static_cast<uint64_t>(r + 1) * 0x1c71c71c71c71c71u;
                     for (int32_t i = 0; i < 5 * r; ++i)
                         row.recent.push_back(i % 5 ? i * i % cols : drawn_before);
                     const DrawColumns c = draws ? encoded(row) : draws_nothing();
                     how.insert(how.end(), c.begin(), c.end());
                 }
                 const Ref counts = sink.int_input(b, RowDim::tokens, 3, weighed);
                 const Ref x = sink.random_input(b, RowDim::tokens, cols, 4);
                 draw(b, shortlist(b, x, counts, {count}), counts,
                      sink.int_input(b, RowDim::tokens, draw_columns, how),
                      sink.random_cache(b, Type::f32, rows, 1), {count});
             }});
    }
    return list;
}

}  // namespace

const OpDef draw_op{static_cast<uint16_t>(Op::draw), "draw", reference, cost, nullptr, cases};

void draw(Builder& b, Ref list, Ref weighed, Ref how, Ref drawn, ShortlistParams p) {
    const auto is = [&b](Ref r, Type type, int64_t cols) {
        return r && b.value(r).type == type && b.value(r).cols == cols;
    };
    if (b.require(is(list, Type::f32, int64_t{2} * p.count + 3 * shortlist_pieces) &&
                      is(weighed, Type::i32, 3) && is(how, Type::i32, draw_columns) &&
                      is(drawn, Type::f32, 1) && b.value(drawn).rows >= b.value(list).rows,
                  cat("drawing from a shortlist of ", p.count)))
        b.emit_into(draw_op, {list, weighed, how, drawn}, p, {});
}

}  // namespace nibble
