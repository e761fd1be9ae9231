// ModelRunner: dry run, memory check, load; then batches in, logits out.
// The dry run records the real program over unplaced weights, so its footprint is exact.
#include "src/engine/model_runner.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "ggml/base/checked.h"

namespace nibble {
namespace {

constexpr std::string_view consumed_elsewhere[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                                   "rope_factors_long.weight"};

Error usage(std::string where, std::string what, std::string fix) {
    return {ErrorCode::invalid_argument, std::move(where), std::move(what), std::move(fix)};
}

// A cache tensor without memory. Nothing for a dim of 0.
Tensor cache_shape(Type type, int64_t rows, int32_t dim) {
    Tensor t;
    if (dim == 0) return t;
    t.type = type;
    t.rows = rows;
    t.cols = dim;
    t.stride = static_cast<int64_t>(*row_bytes(type, dim));
    return t;
}

constexpr int32_t default_batch = 512;

Result<void> check_cache_types(const RunnerConfig& c, const ModelSpec& spec) {
    for (const Type t : {c.k_type, c.v_type})
        if (!info(t).encode || !info(t).decode)
            return usage("cache type", cat(info(t).name, " cannot be written"),
                         "use f16, bf16, f32, int8 or int4");
    if (!kv_bytes_per_token(spec, c.k_type, c.v_type))
        return usage("cache type", "a head is no whole number of blocks of this type",
                     "use f16, bf16 or f32");
    return {};
}

Result<void> fill_defaults(RunnerConfig& c, const ModelSpec& spec) {
    if (c.ctx == 0) c.ctx = std::min(spec.n_ctx_train, default_ctx);
    if (c.ctx < 1) return usage("context", cat(c.ctx, " tokens are not possible"), "give at least 1");
    if (c.batch_tokens == 0) c.batch_tokens = default_batch;
    if (c.max_sequences < 1 || c.batch_tokens < 1 || c.page_size < 1)
        return usage("batch", "sizes must be at least 1", "");
    const int64_t most = int64_t{c.ctx} * c.max_sequences;
    c.batch_tokens = std::max(static_cast<int32_t>(std::min<int64_t>(c.batch_tokens, most)), c.max_sequences);
    if (c.max_outputs == 0) c.max_outputs = c.max_sequences;
    c.max_outputs = std::min(std::max(c.max_outputs, c.guess_outputs), c.batch_tokens);
    return {};
}

// Whether output rows are those of the sequences in turn, of each some that follow each other.
bool outputs_in_order(const Batch& b) {
    size_t row = 0;
    for (const Batch::Rows& s : b.sequences) {
        const int32_t end = s.first + s.count;
        for (const size_t first = row; row < b.out_rows.size() && b.out_rows[row] < end; ++row)
            if (b.out_rows[row] < s.first || (row > first && b.out_rows[row] != b.out_rows[row - 1] + 1))
                return false;
    }
    return row == b.out_rows.size();
}

}  // namespace

MatmulCost matmul_cost(const Program& program) {
    MatmulCost cost;
    for (const Instr& i : program.instrs) {
        const bool experts = i.op == &moe_matmul_op;
        if (i.op != &matmul_op && !experts) continue;
        const MoeMatmulParams moe = experts ? i.params.as<MoeMatmulParams>() : MoeMatmulParams{};
        const bool outputs = program.values[static_cast<size_t>(i.out[0].id)].dim == RowDim::outputs;
        double& multiply_adds = outputs ? cost.output_multiply_adds : cost.token_multiply_adds;
        const int32_t n_weights = experts ? moe.n_weights : i.params.as<MatmulParams>().n_weights;
        for (int32_t w = 0; w < n_weights; ++w) {
            const Tensor& t = program.values[static_cast<size_t>(i.in[2 + static_cast<size_t>(w)].id)].bound;
            const int64_t rows = t.rows / moe.n_experts * moe.n_used;  // of the experts in use
            cost.bytes += static_cast<size_t>(rows * t.stride);
            if (experts) cost.expert_bytes += static_cast<size_t>(rows * t.stride);
            multiply_adds += static_cast<double>(rows) * static_cast<double>(t.cols);
        }
    }
    return cost;
}

Result<ModelRunner> ModelRunner::prepare(TensorFile file, RunnerConfig config,
                                         std::span<Backend* const> backends) {
    ModelRunner r;
    r.model_ = NIBBLE_TRY(open_model(std::move(file)));
    if (!config.predict) drop_predictor(*r.model_);
    const ModelSpec& spec = r.model_->spec;
    if (spec.n_backbone > 0)
        return Error{ErrorCode::unsupported, r.model_->file.path().string(),
                     "guesses for another model and says nothing by itself",
                     "give the other with -m and this one with --draft-model"};
    const bool any_batch = config.batch_tokens == 0;
    NIBBLE_TRY(fill_defaults(config, spec));
    NIBBLE_TRY(use_context(r.model_->spec, config.ctx));
    if (!config.assistant.empty()) NIBBLE_TRY(r.open_assistant(config.assistant, config.ctx));
    NIBBLE_TRY(check_cache_types(config, spec));  // of guests, too
    const int64_t pages_per_sequence = ceil_div<int64_t>(config.ctx, config.page_size);
    const int64_t per_sequence = config.guess_outputs > 0 ? 2 : 1;  // one to go back to
    const int64_t n_states = per_sequence * config.max_sequences + kept_states;
    int64_t pages = 0, cache_rows = 0;
    int64_t most_rows = 1, most_state_rows = 1;  // of a page
    for (const KvLayer& l : kv_layers(spec))
        if (l.is_state())
            most_state_rows = std::max<int64_t>({most_state_rows, l.k_rows, l.v_rows});
        else
            most_rows = std::max(most_rows, l.k_page_rows(config.page_size));
    if (!checked_mul<int64_t>(pages_per_sequence, config.max_sequences, pages) ||
        !checked_mul<int64_t>(pages, most_rows, cache_rows) || cache_rows > INT32_MAX)
        return usage("context", cat(config.ctx, " tokens are more than the cache can address"),
                     "give a smaller --ctx");
    const int64_t longest = has_states(spec) ? int64_t{std::bit_ceil(static_cast<uint32_t>(config.ctx))} : 1;
    if (!checked_mul<int64_t>(n_states, std::max(most_state_rows, longest), cache_rows) ||
        cache_rows > INT32_MAX)
        return usage("batch", cat(config.max_sequences, " sequences are more than the cache can address"),
                     "let fewer run at a time");
    r.n_pages_ = static_cast<int32_t>(pages);
    r.n_states_ = static_cast<int32_t>(n_states);

    r.kv_.page_size = config.page_size;
    r.kv_.rotate_keys = info(config.k_type).block_bytes * 8 < 6 * info(config.k_type).block_len;
    r.kv_.max_pages = pages_per_sequence;
    for (const KvLayer& l : kv_layers(spec)) {
        const int64_t n = l.is_state() ? n_states : pages;
        const auto type = [&](Type kv) { return l.is_state() ? Type::f32 : kv; };
        r.kv_.k.push_back(cache_shape(type(config.k_type), n * l.k_page_rows(config.page_size), l.k_dim));
        r.kv_.v.push_back(cache_shape(type(config.v_type), n * l.v_page_rows(config.page_size), l.v_dim));
    }
    r.limits_ = {config.batch_tokens, config.max_outputs, config.max_sequences};
    r.kv_.output_hidden = !config.assistant.empty() && spec.guests.empty();
    r.config_ = std::move(config);
    Program dry = NIBBLE_TRY(r.place_layers(backends));
    if (any_batch) dry = NIBBLE_TRY(r.widen_steps(std::move(dry), backends));
    if (const auto name = r.weights_->unused(consumed_elsewhere))
        return Error{ErrorCode::unsupported, r.model_->file.path().string(),
                     cat("tensor '", *name, "' is not used by architecture '", spec.arch, "' as implemented"),
                     "running without it would give wrong text"};
    constexpr std::string_view not_needed[] = {"rope_freqs.weight", "mtp.centroids.weight",
                                               "mtp.token_ordering.weight"};
    if (const auto name = r.assistant_ ? r.assistant_weights_->unused(not_needed) : std::nullopt)
        return Error{ErrorCode::unsupported, r.assistant_->file.path().string(),
                     cat("tensor '", *name, "' is not used"), "guesses without it would be wrong"};
    r.set_forecast(dry, backends);
    return r;
}

void ModelRunner::set_forecast(const Program& dry, std::span<Backend* const> backends) {
    const auto& layers = config_.placement.layers;
    const MatmulCost matmuls = matmul_cost(dry);
    forecast_ = {footprint(dry),
                 *kv_bytes_per_token(spec(), config_.k_type, config_.v_type),
                 *kv_bytes_read_per_token(spec(), config_.k_type, config_.v_type),
                 matmuls.bytes,
                 0,
                 matmuls.expert_bytes,
                 state_bytes(spec()),
                 has_states(spec()) ? n_states_ : 0,
                 config_.ctx,
                 spec().n_ctx_train,
                 static_cast<int32_t>(layers.size()),
                 static_cast<int32_t>(std::ranges::count(layers, 1))};
    if (predictor_) {
        for (const Program* p : predictor_->programs_of_a_guess())
            forecast_.predictor_bytes += matmul_cost(*p).bytes;
    }
    const size_t host = host_device(backends);
    if (host == backends.size()) return;
    forecast_.devices[host].packed += weights_->rearranged_bytes_to_be();
    if (assistant_) forecast_.devices[host].packed += assistant_weights_->rearranged_bytes_to_be();
}

Result<void> ModelRunner::open_assistant(const std::filesystem::path& path, int32_t ctx) {
    assistant_ = NIBBLE_TRY(open_model(NIBBLE_TRY(TensorFile::open(path))));
    if (const auto attached = attach(assistant_->spec, model_->spec); !attached)
        return of_file(attached.error(), path.string());
    return use_context(assistant_->spec, ctx);
}

Result<void> ModelRunner::record_predictor(std::span<Backend* const> backends) {
    if (spec().predictor)
        predictor_ =
            std::make_unique<Predictor>(NIBBLE_TRY(nibble::record_predictor(spec(), *weights_, kv_, limits_,
                                                                            config_.placement, backends)),
                                        std::vector{kv_group_of(*spec().predictor)});
    if (!assistant_) return {};
    const Placement placement = NIBBLE_TRY(assistant_placement(assistant_->spec, config_.placement));
    // Recorded twice, like the model: as a dry run and over weights that are placed.
    if (!runner_)
        assistant_weights_ = std::make_unique<WeightStore>(assistant_->tensors, placement, backends);
    if (const auto& block = assistant_->spec.block_guess) {
        std::vector<int32_t> groups;
        for (const LayerSpec& l : assistant_->spec.layers) groups.push_back(kv_group_of(l));
        predictor_ = std::make_unique<Predictor>(
            NIBBLE_TRY(record_guest(assistant_->spec, *assistant_weights_, spec(), *weights_, kv_, limits_,
                                    placement, config_.placement, backends)),
            std::move(groups), *block);
        return {};
    }
    const Tensor embedding = NIBBLE_TRY(weights_->get("token_embd.weight", WeightUse::lookup));
    predictor_ = std::make_unique<Predictor>(
        NIBBLE_TRY(record_assistant(assistant_->spec, *assistant_weights_, spec(), embedding, kv_, limits_,
                                    placement, backends)),
        std::vector<int32_t>());
    return {};
}

Result<MemoryForecast> ModelRunner::forecast(TensorFile file, RunnerConfig config,
                                             std::span<Backend* const> backends) {
    const ModelRunner r = NIBBLE_TRY(prepare(std::move(file), std::move(config), backends));
    return r.forecast_;
}

Backend& ModelRunner::cache_backend(size_t layer, std::span<Backend* const> backends) const {
    return *backends[static_cast<size_t>(config_.placement.device(static_cast<int32_t>(layer)))];
}

// Memory of the host is taken in large pages, when they are first written to. Places are numbers of 32 bits,
// and so are rows.
Result<void> ModelRunner::share_cache(int32_t group, std::span<Backend* const> backends) {
    constexpr int64_t run_bytes = 64 * 1024;  // what is read in one go, if there is as much
    const auto layers = kv_layers(spec());
    std::vector<size_t> members;
    for (size_t i = 0; i < layers.size(); ++i)
        if (layers[i].group == group && kv_.k[i].rows > 0 && !layers[i].is_state()) members.push_back(i);
    if (members.size() < 2) return {};
    const size_t first = members[0];
    Backend& backend = cache_backend(first, backends);
    const int64_t page_rows = layers[first].k_page_rows(config_.page_size);
    const auto n = static_cast<int32_t>(members.size());
    const int64_t all_pages = int64_t{n_pages_} * n;
    if (!backend.device().host_memory || all_pages > INT32_MAX / page_rows) return {};
    for (const size_t i : members)
        if (&cache_backend(i, backends) != &backend || layers[i].n_kv_heads != layers[first].n_kv_heads ||
            kv_.k[i].stride != kv_.k[first].stride || kv_.v[i].stride != kv_.v[first].stride ||
            kv_.v[i].rows != kv_.v[first].rows)
            return {};
    int32_t run = 1;
    while (n_pages_ % (2 * run) == 0 && 2 * run * page_rows * kv_.k[first].stride <= run_bytes) run *= 2;
    places_[static_cast<size_t>(group)] = {config_.page_size, run, run * n};
    for (std::vector<Tensor>* tensors : {&kv_.k, &kv_.v}) {
        const Tensor& t = (*tensors)[first];
        if (t.rows == 0) continue;
        const int64_t page_bytes = page_rows * t.stride;
        cache_memory_.push_back(
            NIBBLE_TRY(backend.allocate(static_cast<size_t>(all_pages * page_bytes), "the KV cache")));
        int64_t before = 0;  // pages
        for (const size_t i : members) {
            (*tensors)[i].data = cache_memory_.back().data.get() + before * page_bytes;
            (*tensors)[i].rows = (all_pages - before) * page_rows;
            before += run;
        }
    }
    return {};
}

Result<void> ModelRunner::allocate_cache(std::span<Backend* const> backends) {
    const auto layers = kv_layers(spec());
    for (size_t layer = 0; layer < kv_.k.size(); ++layer) {
        const Backend& backend = cache_backend(layer, backends);
        // Where values are columns of the keys, their rows must stay rows.
        if (kv_.v[layer].cols > 0 && !layers[layer].is_state())
            kv_.k[layer].layout = backend.key_layout(config_.k_type, config_.page_size);
    }
    places_.assign(spec().kv_groups.size(), PagePlaces{config_.page_size});
    for (int32_t g = 0; g < static_cast<int32_t>(places_.size()); ++g) NIBBLE_TRY(share_cache(g, backends));
    for (size_t layer = 0; layer < kv_.k.size(); ++layer) {
        Backend& backend = cache_backend(layer, backends);
        for (Tensor* t : {&kv_.k[layer], &kv_.v[layer]}) {
            if (t->rows == 0 || t->data) continue;
            cache_memory_.push_back(
                NIBBLE_TRY(backend.allocate(static_cast<size_t>(t->rows * t->stride), "the KV cache")));
            t->data = cache_memory_.back().data.get();
        }
    }
    return {};
}

Result<void> ModelRunner::allocate_drawn() {
    if (kv_.drawn.rows == 0) return {};
    Backend& backend = *backends_[static_cast<size_t>(config_.placement.last)];
    const auto bytes = static_cast<size_t>(kv_.drawn.rows * kv_.drawn.stride);
    cache_memory_.push_back(NIBBLE_TRY(backend.allocate(bytes, "drawn tokens")));
    kv_.drawn.data = cache_memory_.back().data.get();
    NIBBLE_TRY(backend.upload(kv_.drawn.data, std::vector<std::byte>(bytes)));
    for (auto& mailbox : mailboxes_) mailbox = NIBBLE_TRY(backend.mailbox(bytes));
    return {};
}

Result<void> ModelRunner::make_copy_runners(std::span<Backend* const> backends) {
    const auto layers = kv_layers(spec());
    for (int32_t g = 0; g < static_cast<int32_t>(spec().kv_groups.size()); ++g) {
        Builder b({1, 1, 1});
        const Ref pairs = b.input("pairs", Type::i32, RowDim::sequences, 2);
        for (size_t i = 0; i < layers.size(); ++i) {
            if (layers[i].group != g) continue;
            b.at(static_cast<int32_t>(i), "copy_pages");
            const auto copy = [&](const Tensor& cache, int64_t page_rows) {
                if (cache)
                    nibble::copy_pages(b, b.cache(cache, "cache"), pairs, {static_cast<int32_t>(page_rows)});
            };
            copy(kv_.k[i], layers[i].k_page_rows(config_.page_size));
            copy(kv_.v[i], layers[i].v_page_rows(config_.page_size));
        }
        Program program = NIBBLE_TRY(compile(std::move(b), config_.placement, backends));
        copy_runners_.push_back(NIBBLE_TRY(Runner::create(std::move(program), backends)));
    }
    return {};
}

Result<ModelRunner> ModelRunner::load(TensorFile file, RunnerConfig config,
                                      std::span<Backend* const> backends) {
    ModelRunner r = NIBBLE_TRY(prepare(std::move(file), std::move(config), backends));
    NIBBLE_TRY(r.fit_packed(backends));
    NIBBLE_TRY(r.check_memory(backends));
    r.backends_.assign(backends.begin(), backends.end());
    const auto start = std::chrono::steady_clock::now();
    NIBBLE_TRY(r.weights_->place(r.model_->file.disposable()));
    if (r.assistant_) NIBBLE_TRY(r.assistant_weights_->place(r.assistant_->file.disposable()));
    r.pack_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    NIBBLE_TRY(r.allocate_cache(backends));
    NIBBLE_TRY(r.allocate_drawn());
    Program p =
        NIBBLE_TRY(record_forward(r.spec(), *r.weights_, r.kv_, r.limits_, r.config_.placement, backends));
    r.runner_ = std::make_unique<Runner>(NIBBLE_TRY(Runner::create(std::move(p), backends)));
    NIBBLE_TRY(r.record_predictor(backends));
    if (r.predictor_) NIBBLE_TRY(r.predictor_->create(backends, r.places_));
    NIBBLE_TRY(r.make_copy_runners(backends));
    return r;
}

Result<void> ModelRunner::check(const Batch& b) const {
    const size_t rows = b.tokens.size(), groups = spec().kv_groups.size();
    bool ok = b.positions.size() == rows && b.slots.size() == groups && b.pages.size() == groups &&
              rows <= static_cast<size_t>(limits_.tokens) &&
              b.out_rows.size() <= static_cast<size_t>(limits_.outputs) &&
              b.sequences.size() <= static_cast<size_t>(limits_.sequences);
    for (size_t g = 0; ok && g < groups; ++g) {
        ok = (spec().kv_groups[g].states || b.slots[g].size() == rows) &&
             b.pages[g].size() == b.sequences.size();
        for (const auto& pages : b.pages[g]) ok = ok && pages.size() <= static_cast<size_t>(kv_.max_pages);
    }
    ok = ok && outputs_in_order(b) && std::ranges::all_of(b.sequences, [](const Batch::Rows& s) {
             return s.count > 0;  // what backends tell sequences of one token by
         });
    ok = ok && (b.draws.empty() || b.draws.size() == b.out_rows.size());
    if (!ok) return Error{ErrorCode::internal, "batch", "its parts do not fit together", ""};
    const auto drawn = static_cast<int64_t>(launches_ > 0 ? rows_drawn_[(launches_ - 1) % 2] : 0);
    for (const int32_t t : b.tokens)
        if (t >= spec().n_vocab || -1 - int64_t{t} >= drawn)
            return Error{ErrorCode::invalid_argument, "prompt",
                         cat("token ", t, " is outside the model's vocabulary of ", spec().n_vocab),
                         "the tokenizer does not belong to this model"};
    return {};
}

Result<void> ModelRunner::copy_pages(std::span<const Batch::Copy> copies) {
    for (const Batch::Copy& c : copies) {
        Runner& r = copy_runners_[static_cast<size_t>(c.group)];
        const auto pairs = r.input("pairs");
        const PagePlaces& places = places_[static_cast<size_t>(c.group)];
        pairs[0] = places.of_page(c.from), pairs[1] = places.of_page(c.to);
        NIBBLE_TRY(r.run({1, 1, 1}));
    }
    return {};
}

void ModelRunner::fill_inputs(const Batch& batch) {
    fill_rows(*runner_, spec(), places_, batch);
    if (runner_->has_output(io::shortlist)) {
        const auto weighed = runner_->input(io::weighed);
        for (size_t r = 0; r < batch.out_rows.size(); ++r) {
            const Batch::Weighing how = r < batch.weighed.size() ? batch.weighed[r] : Batch::Weighing{};
            std::ranges::copy(weighed_row(how.temperature, how.n_tokens), weighed.subspan(3 * r).begin());
        }
    }
    if (kv_.drawn.rows > 0) {
        auto to = runner_->input(io::draws).begin();
        for (size_t r = 0; r < batch.out_rows.size(); ++r) {
            const DrawColumns how = r < batch.draws.size() ? encoded(batch.draws[r]) : draws_nothing();
            to = std::ranges::copy(how, to).out;
        }
    }
}

Result<void> ModelRunner::start(const Batch& batch, Observer* observer) {
    NIBBLE_TRY(check(batch));
    NIBBLE_TRY(copy_pages(batch.copies));
    fill_inputs(batch);
    logits_ = {};
    first_tokens_.clear();
    const StepShape shape{static_cast<int64_t>(batch.tokens.size()),
                          static_cast<int64_t>(batch.out_rows.size()),
                          static_cast<int64_t>(batch.sequences.size())};
    return runner_->run(shape, observer);
}

Result<void> ModelRunner::step(const Batch& batch, Observer* observer) {
    NIBBLE_TRY(start(batch, observer));
    return fetch_first_tokens(batch);
}

Result<void> ModelRunner::launch(const Batch& batch) {
    if (!draws() || batch.draws.size() != batch.out_rows.size())
        return Error{ErrorCode::internal, "launch", "the device draws no tokens", ""};
    NIBBLE_TRY(start(batch, nullptr));
    rows_drawn_[launches_ % 2] = batch.out_rows.size();
    return mailboxes_[launches_++ % 2]->send(kv_.drawn.data);
}

Result<std::vector<Token>> ModelRunner::drawn(int launches_ago) {
    const size_t launch = (launches_ - 1 - static_cast<size_t>(launches_ago)) % 2;
    const std::span<const std::byte> letter = NIBBLE_TRY(mailboxes_[launch]->receive());
    std::vector<Token> tokens;
    for (size_t r = 0; r < rows_drawn_[launch]; ++r) {
        float token;
        std::memcpy(&token, letter.data() + r * sizeof token, sizeof token);
        tokens.push_back(static_cast<Token>(token));
    }
    return tokens;
}

Result<void> ModelRunner::fetch_first_tokens(const Batch& batch) {
    const size_t rows = batch.out_rows.size();
    if (rows == 0 || !runner_->has_output(io::shortlist)) return {};
    const std::span<float> lists = NIBBLE_TRY(runner_->output(io::shortlist));
    constexpr auto count = static_cast<size_t>(shortlist_tokens);
    for (size_t r = 0; r < rows; ++r) {
        const auto list = lists.subspan(r * (2 * count + 3 * shortlist_pieces));
        const auto values = list.first(count), ids = list.subspan(count, count);
        RowList& row = first_tokens_.emplace_back();
        if (values[0] != values[0]) continue;
        for (size_t i = 0; i < count && ids[i] >= 0; ++i)
            row.tokens.push_back({static_cast<Token>(ids[i]), values[i]});
        if (r >= batch.weighed.size() || row.tokens.empty()) continue;
        // Weights are against the largest logit of all, which must be that of a token with a text.
        if (row.tokens[0].id < batch.weighed[r].n_tokens)
            row.total.temperature = batch.weighed[r].temperature;
        for (size_t i = 0; i < shortlist_pieces; ++i)
            row.total.weight += joined_weight(&list[2 * count + 3 * i]);
    }
    return {};
}

FirstTokens ModelRunner::first_tokens(size_t row) const {
    if (row >= first_tokens_.size()) return {};
    return {first_tokens_[row].tokens, first_tokens_[row].total};
}

Result<std::vector<std::span<float>>> ModelRunner::hidden() {
    std::vector<std::span<float>> parts;
    for (size_t i = 0; i < spec().sources.size(); ++i)
        parts.push_back(NIBBLE_TRY(runner_->output(io::source(i))));
    if (parts.empty()) parts.push_back(NIBBLE_TRY(runner_->output(io::hidden)));
    return parts;
}

Result<std::span<float>> ModelRunner::logits() {
    if (logits_.empty()) logits_ = NIBBLE_TRY(runner_->output(io::logits));
    return logits_;
}

Result<std::span<float>> ModelRunner::run(const Batch& batch, Observer* observer) {
    NIBBLE_TRY(step(batch, observer));
    return logits();
}

size_t ModelRunner::allocated_bytes() const {
    size_t bytes = 0;
    for (const Buffer& b : cache_memory_) bytes += b.size;
    for (size_t d = 0; d < forecast_.devices.size(); ++d)
        bytes += runner_->allocated_bytes(d) + (predictor_ ? predictor_->allocated_bytes(d) : 0);
    return bytes;
}

}  // namespace nibble
