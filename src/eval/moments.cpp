// MomentMeter: which inputs are measured in one run of the text, and the sums themselves.
// Rows that meet one expert are gathered first: a product of many rows costs little more than that of one.
#include "src/eval/moments.h"

#include <algorithm>

#include "src/eval/products.h"

namespace nibble {
namespace {

// Of what a text says and what holds without it. The second is for the rows of an embedding
// (docs/quality.md).
constexpr double usual_damping = 0.01, embedding_damping = 0.5;

// Experts that choose among the same rows need no sums of their own. Of one expert per row the widths do not
// tell whose the rows are.
bool has_sums_of_experts(const Program& program, const Instr& i) {
    if (!of_experts(i)) return false;
    return i.params.as<MoeMatmulParams>().n_used == 1 ||
           program.values[static_cast<size_t>(i.in[0].id)].cols != weight_of(program, i, 0).cols;
}

size_t n_sums(const Program& program, const Instr& i) {
    return has_sums_of_experts(program, i) ? static_cast<size_t>(i.params.as<MoeMatmulParams>().n_experts)
                                           : 1;
}

}  // namespace

// Either sums or, once they have been asked for, what is made of them in the same memory.
struct MomentMeter::Input {
    std::vector<Moments> sums = {};
    std::vector<Feedback> feedback = {};
};

class MomentMeter::Watcher : public Observer {
  public:
    Watcher(std::map<const Instr*, Input>& inputs, ThreadPool& pool) : inputs_(inputs), pool_(pool) {}
    void before(const BoundInstr& b) override {
        const auto it = inputs_.find(b.instr);
        if (it == inputs_.end()) return;
        std::vector<Moments>& sums = it->second.sums;
        const Tensor& x = b.in[0];
        if (sums.size() == 1) return sums[0].add(x.row(0), x.rows, x.stride / 4, pool_);
        std::vector<std::vector<float>> rows(sums.size());
        const auto cols = static_cast<size_t>(b.in[2].cols);
        each_routed_row(b, [&](size_t expert, const float* row) {
            rows[expert].insert(rows[expert].end(), row, row + cols);
        });
        for (size_t e = 0; e < sums.size(); ++e)
            sums[e].add(rows[e].data(), static_cast<int64_t>(rows[e].size() / cols), b.in[2].cols, pool_);
    }

  private:
    std::map<const Instr*, Input>& inputs_;
    ThreadPool& pool_;
};

MomentMeter::MomentMeter(Engine& engine, std::span<const Window> windows, ThreadPool& pool, Config config)
    : engine_(&engine), scorer_(engine), windows_(windows), pool_(&pool), config_(std::move(config)) {
    const Program& program = engine.runner().program();
    std::map<int32_t, const Instr*> first_reader;  // of a value
    for (const Instr& i : program.instrs) {
        if (i.op == &embed_op) embedded_.insert(program.values[static_cast<size_t>(i.in[1].id)].name);
        if (weight_count(i) == 0) continue;
        const Instr* measured =
            has_sums_of_experts(program, i) ? &i : first_reader.emplace(i.in[0].id, &i).first->second;
        for (size_t n = 0; n < weight_count(i); ++n)
            instr_of_.emplace(weight_of(program, i, n).name, measured);
    }
}

MomentMeter::~MomentMeter() = default;

size_t MomentMeter::bytes(const Instr& instr) const {
    const Program& program = engine_->runner().program();
    const auto cols = static_cast<size_t>(weight_of(program, instr, 0).cols);
    return n_sums(program, instr) * Feedback::bytes(cols);
}

Result<void> MomentMeter::measure(size_t first) {
    const Program& program = engine_->runner().program();
    inputs_.clear();
    size_t taken = 0;
    for (size_t i = first; i < config_.order.size(); ++i) {
        const auto it = instr_of_.find(config_.order[i]);
        if (it == instr_of_.end() || inputs_.contains(it->second) || bytes(*it->second) > config_.memory)
            continue;
        taken += bytes(*it->second);
        if (taken > config_.memory) break;
        std::vector<Moments>& sums = inputs_[it->second].sums;
        for (size_t n = n_sums(program, *it->second); n > 0; --n)
            sums.emplace_back(weight_of(program, *it->second, 0).cols);
    }
    Watcher watcher(inputs_, *pool_);
    for (size_t w = 0; w < windows_.size(); ++w) {
        if (config_.progress) config_.progress(w, windows_.size());
        NIBBLE_TRY(scorer_.read(windows_[w], watcher));
    }
    if (config_.progress) config_.progress(windows_.size(), windows_.size());
    return {};
}

Result<std::span<const Feedback>> MomentMeter::of(const std::string& name) {
    const auto place = std::ranges::find(config_.order, name);
    const auto it = instr_of_.find(name);
    if (place == config_.order.end() || it == instr_of_.end()) return std::span<const Feedback>();
    if (bytes(*it->second) > config_.memory) {
        left_out_.push_back(name);
        return std::span<const Feedback>();
    }
    if (!inputs_.contains(it->second))
        NIBBLE_TRY(measure(static_cast<size_t>(place - config_.order.begin())));
    Input& input = inputs_.at(it->second);
    const double damping = embedded_.contains(name) ? embedding_damping : usual_damping;
    for (Moments& m : input.sums)
        input.feedback.push_back(NIBBLE_TRY(std::move(m).feedback(name, *pool_, damping)));
    input.sums.clear();
    return std::span<const Feedback>(input.feedback);
}

}  // namespace nibble
