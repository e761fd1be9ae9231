// draw: a sampler chain over a row's shortlist. A block takes a row, a thread one of its tokens.
// Every thread takes the same way through the chain: what decides it is the block's, not the thread's.
// Weights are integers, so sums come out as the processor's in any order.
#include "ggml/base/candidate.h"
#include "ggml/base/draw_row.h"
#include "ggml/base/exp_weight.h"
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

constexpr int32_t draw_threads = 256;
constexpr int draw_warps = draw_threads / 32;

struct DrawMemory {
    Candidate tokens[draw_threads];
    uint64_t weights[draw_warps];
    int counts[draw_warps];
};

__device__ uint64_t shuffle_word(uint64_t v, int from) {
    const uint32_t low = shuffle(static_cast<uint32_t>(v), from);
    return static_cast<uint64_t>(shuffle(static_cast<uint32_t>(v >> 32), from)) << 32 | low;
}

// The upper half of a product.
__device__ uint64_t upper_product(uint64_t a, uint64_t b) {
    const uint64_t al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    const uint64_t middle = ah * bl + (al * bl >> 32), lower = al * bh + (middle & 0xffffffffu);
    return ah * bh + (middle >> 32) + (lower >> 32);
}

// The list of one row; see OpenList in ggml/ops/draw.cpp. Members are the same in every thread but for
// `mine`, which counts in the first n.
class DeviceList {
  public:
    __device__ DeviceList(DrawMemory& memory, const float* values, int count, const int32_t* weighed)
        : m_(memory) {
        const float* const columns = values + count;
        const int i = thread_index();
        const float column = i < count ? columns[i] : -1, n_columns = static_cast<float>(weighed[2]);
        const bool counts = column >= 0 && column < n_columns;
        mine_ = {static_cast<int>(column), counts ? values[i] : 0};
        const int at = sum_up_to(counts, n_);
        undecided_ = values[0] != values[0] || n_ == 0;
        if (undecided_) return;
        if (counts) m_.tokens[at - 1] = mine_;
        fetch_mine();
        last_ = m_.tokens[n_ - 1];
        if (columns[0] < n_columns) total_temperature_ = shortlist_temperature(weighed);
        static_assert(shortlist_pieces == 32);  // a lane takes one
        total_ = joined_weight(values + 2 * count + 3 * lane());
        for (int m = 16; m > 0; m /= 2) total_ += shuffle_word(total_, lane() ^ m);
    }

    __device__ bool undecided() const { return undecided_; }

    __device__ void apply(const DrawView& how, int step, int before) {
        const double value = how.value(step);
        switch (how.kind(step)) {
            case DrawKind::best:
                return keep(1);
            case DrawKind::top_k:
                return keep_top(value);
            case DrawKind::top_p:
                return keep_probable(value);
            case DrawKind::min_p:
                return keep_at_least(first().logit + value);
            case DrawKind::temperature:
                return scale(value);
            case DrawKind::penalties:
                return penalize(how, step, before);
            case DrawKind::bias:
                return add(static_cast<int>(value), how.value(step, 1));
        }
        undecided_ = true;
    }

    __device__ int draw(uint64_t random) {
        uint64_t up_to;
        const uint64_t total = weigh(up_to);
        const int at = reach(upper_product(random, total) + 1, up_to);
        return undecided_ ? -1 : m_.tokens[at].id;
    }

  private:
    __device__ Candidate first() const { return m_.tokens[0]; }
    __device__ bool counts() const { return thread_index() < n_; }
    // After tokens were written: every thread has its own, and all are there for everyone.
    __device__ void fetch_mine() {
        sync_block();
        if (counts()) mine_ = m_.tokens[thread_index()];
    }

    __device__ bool rest_may_precede(const Candidate& end) const {
        return open_ && (scale_ == 1 ? precedes(last_, end) : end.logit <= last_.logit);
    }
    __device__ void keep(int n) {
        undecided_ |= rest_may_precede(m_.tokens[n - 1]);
        n_ = n;
        open_ = false;
    }
    __device__ void keep_top(double k) {
        if (k < n_) return keep(k < 1 ? 1 : static_cast<int>(k));
        undecided_ |= open_;
    }
    __device__ void keep_at_least(double threshold) {
        if (threshold > first().logit) threshold = first().logit;
        undecided_ |= open_ && last_.logit >= threshold;
        int kept;
        sum_up_to(counts() && mine_.logit >= threshold, kept);  // they come first
        n_ = kept;
        open_ = false;
    }
    __device__ void keep_probable(double p) {
        uint64_t up_to;
        const auto enough = static_cast<uint64_t>(p * static_cast<double>(weigh(up_to)));
        const int at = reach(enough > 1 ? enough : 1, up_to);
        undecided_ |= open_ && last_.logit >= m_.tokens[at].logit;
        n_ = at + 1;
        open_ = false;
    }
    __device__ void scale(double temperature) {
        const double best = first().logit;
        mine_.logit = clamped_logit((mine_.logit - best) / temperature);
        last_.logit = clamped_logit((last_.logit - best) / temperature);
        scale_ *= temperature;
        sort();
    }
    __device__ void penalize(const DrawView& how, int step, int before) {
        const auto recent = [&](int i) { return how.recent(i) == drawn_before ? before : how.recent(i); };
        edit(how.n_recent(), recent, [&](double logit, int count) {
            return penalized(logit, count, how.value(step, 0), how.value(step, 1), how.value(step, 2));
        });
    }
    __device__ void add(int id, double bias) {
        edit(
            1, [id](int) { return id; }, [bias](double logit, int) { return logit + bias; });
    }
    // The logits of ids(0 .. n), which may repeat: edited(logit, how often). One of them that is not listed
    // must stay behind the last.
    template <class Ids, class Edited>
    __device__ void edit(int n, Ids ids, Edited edited) {
        if (n <= 0) return;
        const auto count_of = [&](int id) {
            int count = 0;
            for (int i = 0; i < n; ++i) count += ids(i) == id;
            return count;
        };
        total_temperature_ = 0;
        const int count = count_of(ids(thread_index() < n ? thread_index() : 0));
        int passing;
        sum_up_to(!(clamped_logit(edited(last_.logit, count)) < last_.logit), passing);
        undecided_ |= open_ && passing > 0;
        if (const int mine = counts() ? count_of(mine_.id) : 0)
            mine_.logit = clamped_logit(edited(mine_.logit, mine));
        sort();
        undecided_ |= (open_ && first().logit < last_.logit) || !(first().logit > -INFINITY);
    }

    // By counting those that precede: a thread's own moves to its place.
    __device__ void sort() {
        sync_block();  // all have read what they need of the old order
        if (counts()) m_.tokens[thread_index()] = mine_;
        sync_block();
        int rank = 0;
        for (int i = 0; i < n_; ++i) rank += precedes(m_.tokens[i], mine_);
        sync_block();
        if (counts()) m_.tokens[rank] = mine_;
        fetch_mine();
    }

    // Of this thread's and those before it; `total`: of all.
    __device__ int sum_up_to(int v, int& total) { return block_sum_up_to(v, total, m_.counts); }
    // The weight of all candidates, and of those up to this thread's.
    __device__ uint64_t weigh(uint64_t& up_to) {
        const double distance = static_cast<double>(mine_.logit) - static_cast<double>(first().logit);
        up_to = counts() ? exp_weight(distance) : 0;
        for (int d = 1; d < 32; d *= 2) {
            const uint64_t before = shuffle_word(up_to, (lane() + 32 - d) % 32);
            if (lane() >= d) up_to += before;
        }
        sync_block();
        if (lane() == 31) m_.weights[warp_index()] = up_to;
        sync_block();
        uint64_t listed = 0;
        for (int w = 0; w < draw_warps; ++w) {
            if (w < warp_index()) up_to += m_.weights[w];
            listed += m_.weights[w];
        }
        if (!open_) return listed;
        undecided_ |= total_temperature_ != scale_ || total_ < listed;
        return undecided_ ? listed : total_;
    }
    // The first token at which the weight reaches the target; the last one if none does.
    __device__ int reach(uint64_t target, uint64_t up_to) {
        int before;
        sum_up_to(counts() && up_to < target, before);
        undecided_ |= before == n_;
        const int at = before < n_ ? before : n_ - 1;
        undecided_ |= rest_may_precede(m_.tokens[at]);
        return at;
    }

    DrawMemory& m_;
    Candidate mine_, last_;
    int n_ = 0;
    bool open_ = true, undecided_ = false;
    double scale_ = 1, total_temperature_ = 0;
    uint64_t total_ = 0;
};

__global__ void draw_kernel(View list, View weighed, View how, View drawn, int count) {
    wait_for_previous();
    const int64_t r = block_x();
    const DrawView row{how.row<int32_t>(r)};
    const int before = static_cast<int>(*drawn.row(r));
    int token = -1;
    if (row.draws()) {
        auto& memory = *reinterpret_cast<DrawMemory*>(shared_memory());
        DeviceList open(memory, list.row(r), count, weighed.row<int32_t>(r));
        for (int step = 0; step < row.n_steps() && !open.undecided(); ++step) open.apply(row, step, before);
        if (!open.undecided()) token = open.draw(row.random());
    }
    sync_block();  // all have read what was drawn before
    if (thread_index() == 0) *drawn.row(r) = static_cast<float>(token);
}

}  // namespace

bool draw_supported(const OpArgs& a) { return a.params->as<ShortlistParams>().count <= draw_threads; }

void run_draw(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Dims dims{a.in[0].rows, 1, 1, draw_threads, sizeof(DrawMemory)};
    launch(draw_kernel, dims, *e.stream, a.in[0], a.in[1], a.in[2], a.in[3],
           a.params->as<ShortlistParams>().count);
}

}  // namespace nibble::cuda
