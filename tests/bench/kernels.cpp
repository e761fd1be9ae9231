// Kernel benchmarks: matmul of one row against the measured read bandwidth, of many rows against the FMA
// peak. Run alone on the machine: nibble_bench_kernels [--benchmark_filter=...]; not part of the tests.
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "ggml/base/cat.h"
#include "ggml/cpu/cpu_backend.h"
#include "ggml/cpu/kernel_table.h"
#include "ggml/types/list.h"

using namespace nibble;

namespace {

constexpr int threads = 2;

// One matmul on one backend, with memory of its own. Copies of the weight take turns, as a model's weights
// do: what fits a cache would look two times as fast as it is, and would rank kernels otherwise.
class MatmulRun {
  public:
    MatmulRun(const std::string& isa, Type type, int64_t rows, int64_t n, int64_t k)
        : backend_(std::move(*CpuBackend::create({threads, isa}))), params_(MatmulParams{1}) {
        const auto stride = static_cast<int64_t>(*row_bytes(type, k));
        memory_ = {take(static_cast<size_t>(n * stride)), take(static_cast<size_t>(rows * k * 4)),
                   take(static_cast<size_t>(rows * n * 4))};
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        std::vector<float> row(static_cast<size_t>(k));
        for (float& x : row) x = normal(random);
        for (int64_t r = 0; r < n; ++r)
            info(type).encode(row.data(), memory_[0].data.get() + r * stride, row.size());
        for (int64_t r = 0; r < rows; ++r)
            std::memcpy(memory_[1].data.get() + r * k * 4, row.data(), row.size() * 4);
        Tensor w{memory_[0].data.get(), n, k, stride, type, Layout::rows};
        PlacedWeight placed = std::move(*backend_->place(w, WeightUse::matmul));
        weight_bytes = static_cast<size_t>(n * placed.tensor.stride);
        constexpr size_t beyond_caches = size_t{512} << 20;
        do {
            weights_.push_back(take(weight_bytes));
            std::memcpy(weights_.back().data.get(), placed.tensor.data, weight_bytes);
        } while (weights_.size() * weight_bytes < beyond_caches);
        instr_.op = &matmul_op;
        instr_.params = params_;
        bound_.instr = &instr_;
        bound_.in = {{memory_[1].data.get(), rows, k, k * 4, Type::f32, Layout::rows}, {}, placed.tensor, {}};
        bound_.out = {{memory_[2].data.get(), rows, n, n * 4, Type::f32, Layout::rows}};
        memory_.push_back(take(backend_->scratch_bytes(matmul_op, bound_.args())));
        bound_.scratch = {memory_.back().data.get(), memory_.back().size};
    }
    void operator()() {
        bound_.in[2].data = weights_[turn_++ % weights_.size()].data.get();
        (void)backend_->run({&bound_, 1}, nullptr);
    }
    size_t weight_bytes = 0;

  private:
    Buffer take(size_t bytes) { return *backend_->allocate(bytes, "bench"); }
    std::unique_ptr<CpuBackend> backend_;
    Params params_;
    std::vector<Buffer> memory_, weights_;
    size_t turn_ = 0;
    Instr instr_;
    BoundInstr bound_;
};

// What can be read at best: plain sums over a buffer much larger than any cache.
void read_bandwidth(benchmark::State& state) {
    auto backend = std::move(*CpuBackend::create({1, "scalar"}));
    ThreadPool pool(threads);
    constexpr size_t bytes = size_t{256} << 20;
    const Buffer buffer = *backend->allocate(bytes, "bench");
    std::memset(buffer.data.get(), 1, bytes);
    constexpr int64_t pieces = 64;
    std::vector<uint64_t> sums(pieces * 8);
    for (auto _ : state) {
        pool.run(pieces, [&](int64_t i, int) {
            const auto* p = reinterpret_cast<const uint64_t*>(buffer.data.get() +
                                                              static_cast<size_t>(i) * bytes / pieces);
            uint64_t s[8] = {};
            for (size_t j = 0; j < bytes / pieces / 8; j += 8)
                for (size_t l = 0; l < 8; ++l) s[l] += p[j + l];
            for (size_t l = 0; l < 8; ++l) sums[static_cast<size_t>(i) * 8 + l] = s[l];
        });
        benchmark::DoNotOptimize(sums.data());
    }
    state.counters["GB/s"] =
        benchmark::Counter(static_cast<double>(bytes) / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

void matmul_bench(benchmark::State& state, const std::string& isa, Type type, int64_t rows, int64_t n,
                  int64_t k) {
    MatmulRun run(isa, type, rows, n, k);
    for (auto _ : state) run();
    using benchmark::Counter;
    state.counters["GB/s"] =
        Counter(static_cast<double>(run.weight_bytes) / 1e9, Counter::kIsIterationInvariantRate);
    state.counters["GFLOP/s"] =
        Counter(2e-9 * static_cast<double>(rows * n * k), Counter::kIsIterationInvariantRate);
}

// One thread packs a weight that comes from memory, group after group into the same place: what a load takes
// besides new memory, and a product with weights used in place besides the product.
void pack_bench(benchmark::State& state, const cpu::PackKernels& kernels, const TypeInfo& type) {
    constexpr int64_t k = 2048;
    const auto stride = static_cast<int64_t>(*row_bytes(type.type, k));
    const int64_t rows = (int64_t{64} << 20) / stride / kernels.lanes * kernels.lanes;
    std::vector<std::byte> weight(static_cast<size_t>(rows * stride)), group(kernels.group_bytes(type, k));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(k));
    for (float& x : row) x = normal(random);
    for (int64_t r = 0; r < rows; ++r) type.encode(row.data(), weight.data() + r * stride, row.size());
    for (auto _ : state)
        for (int64_t r = 0; r < rows; r += kernels.lanes)
            kernels.pack_group(type, weight.data() + r * stride, stride, kernels.lanes, k, group.data());
    using benchmark::Counter;
    state.counters["GB/s"] =
        Counter(static_cast<double>(rows * stride) / 1e9, Counter::kIsIterationInvariantRate);
}

// The last `tokens` tokens up to a position, of a model with 8 kv heads of `group` heads each and
// head_dim 64.
void attention_bench(benchmark::State& state, const std::string& isa, Type type, int32_t group,
                     int32_t tokens, int32_t position) {
    auto backend = std::move(*CpuBackend::create({threads, isa}));
    const AttentionParams p{8 * group, 8, 64, 64, 32, 0, 0.125f, 0};
    const int64_t width = int64_t{p.n_heads} * p.head_dim;
    const int64_t pages = position / p.page_size + 1, rows = pages * p.n_kv_heads * p.page_size;
    const auto stride = static_cast<int64_t>(*row_bytes(type, p.head_dim));
    std::vector<float> q(static_cast<size_t>(tokens * width), 0.01f), out(q.size()),
        zeros(static_cast<size_t>(p.head_dim));
    const Buffer k = *backend->allocate(static_cast<size_t>(rows * stride), "bench"),
                 v = *backend->allocate(static_cast<size_t>(rows * stride), "bench");
    for (int64_t r = 0; r < rows; ++r)
        for (const Buffer& b : {k, v})
            info(type).encode(zeros.data(), b.data.get() + r * stride, zeros.size());
    std::vector<int32_t> seq_rows{0, tokens}, positions(static_cast<size_t>(tokens)),
        table(static_cast<size_t>(pages));
    std::iota(positions.begin(), positions.end(), position + 1 - tokens);
    std::iota(table.begin(), table.end(), 0);
    const auto ints = [](std::vector<int32_t>& x, int64_t cols) {
        return Tensor{reinterpret_cast<std::byte*>(x.data()),
                      std::ssize(x) / cols,
                      cols,
                      4 * cols,
                      Type::i32,
                      Layout::rows};
    };
    const auto floats = [&](std::vector<float>& x) {
        return Tensor{
            reinterpret_cast<std::byte*>(x.data()), tokens, width, 4 * width, Type::f32, Layout::rows};
    };
    Instr instr;
    instr.op = &attention_op;
    instr.params = Params(p);
    BoundInstr bound;
    bound.instr = &instr;
    bound.in = {floats(q),
                {k.data.get(), rows, p.head_dim, stride, type, backend->key_layout(type, p.page_size)},
                {v.data.get(), rows, p.head_dim, stride, type, Layout::rows},
                ints(seq_rows, 2),
                ints(positions, 1),
                ints(table, pages),
                {}};
    bound.out = {floats(out)};
    const Buffer scratch = *backend->allocate(backend->scratch_bytes(attention_op, bound.args()), "bench");
    bound.scratch = {scratch.data.get(), scratch.size};
    for (auto _ : state) (void)backend->run({&bound, 1}, nullptr);
    using benchmark::Counter;
    const Cost cost = attention_op.cost(bound.args());
    state.counters["GB/s"] = Counter(cost.bytes_read / 1e9, Counter::kIsIterationInvariantRate);
    state.counters["GFLOP/s"] = Counter(cost.flops / 1e9, Counter::kIsIterationInvariantRate);
}

// `rows` rows of one sequence through the heads of a layer; `at` is the operand that is the state.
void state_bench(benchmark::State& state, const std::string& isa, const OpDef& op, const Params& params,
                 int64_t rows, std::vector<int64_t> columns, size_t at, int64_t state_rows) {
    auto backend = std::move(*CpuBackend::create({threads, isa}));
    std::vector<Buffer> memory;
    const auto filled = [&](int64_t n, int64_t cols, float value) {
        memory.push_back(*backend->allocate(static_cast<size_t>(4 * n * cols), "bench"));
        auto* const x = reinterpret_cast<float*>(memory.back().data.get());
        std::fill(x, x + n * cols, value);
        return Tensor{memory.back().data.get(), n, cols, 4 * cols, Type::f32, Layout::rows};
    };
    std::vector<int32_t> seq_rows{0, static_cast<int32_t>(rows)}, positions(static_cast<size_t>(rows)),
        pages{0, 0, 0};
    std::iota(positions.begin(), positions.end(), 1);
    const auto ints = [](std::vector<int32_t>& x, int64_t cols) {
        return Tensor{reinterpret_cast<std::byte*>(x.data()), std::ssize(x) / cols, cols, 4 * cols,
                      Type::i32};
    };
    Instr instr;
    instr.op = &op;
    instr.params = params;
    BoundInstr bound;
    bound.instr = &instr;
    // Values that change by row, then those of the model, then the state.
    for (size_t i = 0; i < columns.size(); ++i)
        bound.in.push_back(filled(i == at ? state_rows
                                  : i < 2 ? rows
                                          : 1,
                                  columns[i], i < 2 ? 0.01f : -0.01f));
    for (const Tensor& t : {ints(seq_rows, 2), ints(positions, 1), ints(pages, state_page_columns)})
        bound.in.push_back(t);
    bound.out = {filled(rows, state_rows / 128 * columns[at], 0)};
    const Buffer scratch = *backend->allocate(backend->scratch_bytes(op, bound.args()) + 64, "bench");
    bound.scratch = {scratch.data.get(), scratch.size};
    for (auto _ : state) (void)backend->run({&bound, 1}, nullptr);
    using benchmark::Counter;
    state.counters["GFLOP/s"] =
        Counter(op.cost(bound.args()).flops / 1e9, Counter::kIsIterationInvariantRate);
}

void delta_rule_bench(benchmark::State& s, const std::string& isa, int64_t rows) {  // Qwen 3.5 4B
    const DeltaRuleParams p{16, 32, 128, 128, true};
    state_bench(s, isa, delta_rule_op, p, rows, {8192, 64, 32, 32, 128}, 4, 32 * 128);
}

void ssm_scan_bench(benchmark::State& s, const std::string& isa, int64_t rows) {  // Granite 4 1B
    const SsmScanParams p{1, 48, 128, 64};
    state_bench(s, isa, ssm_scan_op, p, rows, {48 * 64 + 256, 48, 48, 48, 48, 64}, 5, 48 * 128);
}

// An empty parallel region: what every instruction of a program pays.
void empty_run(benchmark::State& state) {
    ThreadPool pool(threads);
    for (auto _ : state) pool.run(threads, [](int64_t, int) {});
}

}  // namespace

int main(int argc, char** argv) {
    benchmark::RegisterBenchmark("read_bandwidth", read_bandwidth)->UseRealTime();
    benchmark::RegisterBenchmark("empty_run", empty_run)->UseRealTime();
    for (const cpu::KernelTable* table : cpu::compiled_tables()) {
        if (!table->available(cpu::features())) continue;
        Formats::for_each([&]<class Fmt>() {
            const TypeInfo& type = info(Fmt::type);
            if (!type.encode || table->pack.group_bytes(type, Fmt::block_len) == 0) return;
            benchmark::RegisterBenchmark(
                cat(table->name, "/pack/", type.name).c_str(),
                [=, &type](benchmark::State& s) { pack_bench(s, table->pack, type); });
        });
        for (const int64_t rows : {1, 4, 512})
            for (const auto& [name, run] :
                 {std::pair{"delta_rule", &delta_rule_bench}, {"ssm_scan", &ssm_scan_bench}})
                benchmark::RegisterBenchmark(
                    cat(table->name, "/", name, "/", rows).c_str(),
                    [=, run = run](benchmark::State& s) { run(s, std::string(table->name), rows); })
                    ->UseRealTime();
        for (const Type type : {Type::f16, Type::bf16, Type::q8_0, Type::q4_0})
            for (const int32_t group : {4, 8})
                for (const int32_t tokens : {1, 2, 4, 8, 13, 512})
                    benchmark::RegisterBenchmark(
                        cat(table->name, "/attention/", info(type).name, "/", group, "/", tokens).c_str(),
                        [=](benchmark::State& s) {
                            const int32_t position = tokens < 512 ? 16383 : 4095;
                            attention_bench(s, std::string(table->name), type, group, tokens, position);
                        })
                        ->UseRealTime();
        for (const Type type :
             {Type::f32, Type::bf16, Type::q8_0, Type::q4_0, Type::q4_k, Type::q6_k, Type::nf4})
            for (const int64_t rows : {1, 2, 4, 8, 16, 32, 512}) {
                // Few rows: many tasks. Many rows: long enough to reach the steady state.
                const int64_t n = rows < 64 ? 32768 : 2048, k = 2048;
                benchmark::RegisterBenchmark(
                    cat(table->name, "/", info(type).name, "/", rows).c_str(),
                    [=](benchmark::State& s) { matmul_bench(s, std::string(table->name), type, rows, n, k); })
                    ->UseRealTime();
            }
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
