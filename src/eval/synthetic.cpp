// Random weights: a stock of encoded blocks per type, and tensors that take runs of it in hashed order.
// Copying blocks is as fast as memory; encoding a billion random numbers would not be.
#include "src/eval/synthetic.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include <sys/mman.h>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/file/gguf_writer.h"
#include "ggml/types/arbitrary.h"
#include "src/model/opened_model.h"
#include "src/model/rope.h"
#include "src/model/vocab_file.h"
#include "src/quant/plan.h"

namespace nibble {
namespace {

constexpr size_t tensor_alignment = 4096;  // a page of its own for every tensor

Result<const Architecture*> architecture_of(const ModelShape& shape) {
    for (const Architecture* a : all_architectures())
        if (a->gguf == shape.arch) return a;
    return Error{ErrorCode::unsupported, std::string(shape.name),
                 cat("is of the architecture '", shape.arch, "', which is not implemented"), ""};
}

void add_window(const ModelShape& s, Hyper& h) {
    h.window = static_cast<uint32_t>(s.window);
    for (int32_t i = 0; i < s.n_layers; ++i) h.sliding.push_back(s.slides_in(i));
    if (s.has_gated_heads()) h.rope_theta_local = 10000;
    if (s.gated_columns) h.rotated = h.sliding, h.logit_softcap = 20;
    if (s.full_head_dim == 0) return;
    h.head_dim_local = h.head_dim;
    h.head_dim = h.v_head_dim = h.rope_dim = static_cast<uint32_t>(s.full_head_dim);
    h.rope_theta_local = 10000;
    h.logit_softcap = 30;
    h.n_shared_kv_layers = static_cast<uint32_t>(s.n_sharing);
    h.n_per_layer = static_cast<uint32_t>(s.n_per_layer);
    for (int32_t i = 0; i < s.n_layers; ++i) h.ff_lengths.push_back(static_cast<uint32_t>(s.n_ff_in(i)));
}

void add_latents(const ModelShape& s, Hyper& h) {
    h.latent_dim = static_cast<uint32_t>(s.kv_latent);
    h.q_latent_dim = static_cast<uint32_t>(s.q_latent);
    h.rope_dim = static_cast<uint32_t>(s.rope_dim);
    h.v_head_dim = static_cast<uint32_t>(s.v_head_dim);
    h.gating = Gating::sigmoid;
    h.n_dense_layers = h.n_experts_shared = 1;
    h.n_ff_shared = 0;
}

Hyper hyper_of(const ModelShape& s) {
    const auto u = [](int32_t v) { return static_cast<uint32_t>(v); };
    Hyper h;
    h.n_layers = u(s.n_layers);
    h.n_next_layers = s.predicts ? 1 : 0;
    h.n_ctx = u(s.n_ctx);
    h.n_embd = u(s.n_embd);
    h.n_ff = u(s.n_ff);
    h.n_heads = u(s.n_heads);
    h.n_kv_heads = u(s.n_kv_heads);
    h.head_dim = h.v_head_dim = u(s.head_dim);
    h.rope_dim =
        static_cast<uint32_t>(static_cast<float>(s.head_dim) * (s.has_gated_heads() ? 1 : s.rope_share));
    h.n_vocab = u(s.n_vocab);
    h.rope_theta = s.rope_theta;
    h.n_experts = u(s.n_experts);
    h.n_experts_used = u(s.n_experts_used);
    h.n_ff_expert = u(s.n_ff_expert);
    h.n_ff_shared = u(s.n_ff_shared);
    for (int32_t i = 0; i < s.n_layers && !s.attends.empty(); ++i) h.attends.push_back(s.attends_in(i));
    if (s.delta_v_heads == 0 || s.state_dim > 0) list_kv_heads(h);  // whose files state it layer by layer
    h.n_taps = u(s.n_taps);
    h.delta_k_heads = u(s.delta_k_heads);
    h.delta_v_heads = u(s.delta_v_heads);
    h.delta_v_dim = u(s.delta_dim);
    h.delta_k_dim = s.state_dim > 0 ? u(s.state_dim) : h.delta_v_dim;
    for (int32_t i = 0; i < s.n_layers && s.state_dim > 0; ++i)
        h.ff_lengths.push_back(s.kind_of(i) == 'e' ? h.n_ff_expert : 0);
    if (s.window > 0) add_window(s, h);
    if (s.kv_latent > 0) add_latents(s, h);
    if (s.all_biased) h.ffn_limit = 7;  // of the gate, which files do not state
    return h;
}

// `n`: so many matrices, of experts or heads.
TensorInfo tensor(std::string name, int64_t cols, int64_t rows = 0, int64_t n = 0) {
    TensorInfo t;
    t.name = std::move(name);
    t.type = rows > 0 ? Type::bf16 : Type::f32;
    t.ne = {cols, rows > 0 ? rows : 1, n > 0 ? n : 1, 1};
    t.n_dims = n > 0 ? 3 : rows > 0 ? 2 : 1;
    return t;
}

using AddTensor = std::function<void(std::string_view name, int64_t cols, int64_t rows)>;

// Of a state space (Mamba-2).
void add_state_space_tensors(const ModelShape& s, const AddTensor& add) {
    const int64_t values = int64_t{s.delta_v_heads} * s.delta_dim,
                  inputs = values + 2 * int64_t{s.delta_k_heads} * s.state_dim;
    add("ssm_in.weight", s.n_embd, values + inputs + s.delta_v_heads);
    add("ssm_conv1d.weight", s.n_taps, inputs);
    add("ssm_conv1d.bias", inputs, 0);
    for (const std::string_view name : {"ssm_a", "ssm_d", "ssm_dt.bias"}) add(name, s.delta_v_heads, 0);
    add("ssm_norm.weight", values, 0);
    add("ssm_out.weight", values, s.n_embd);
}

// Of linear attention, of a state space, or of a convolution between two gates.
void add_state_tensors(const ModelShape& s, const AddTensor& add) {
    if (s.delta_v_heads == 0) {
        add("shortconv.in_proj.weight", s.n_embd, 3 * int64_t{s.n_embd});
        add("shortconv.conv.weight", s.n_taps, s.n_embd);
        add("shortconv.out_proj.weight", s.n_embd, s.n_embd);
        return;
    }
    if (s.state_dim > 0) return add_state_space_tensors(s, add);
    const int64_t values = int64_t{s.delta_v_heads} * s.delta_dim,
                  qkv = 2 * int64_t{s.delta_k_heads} * s.delta_dim + values;
    add("attn_qkv.weight", s.n_embd, qkv);
    add("attn_gate.weight", s.n_embd, values);
    if (s.gates_together) {
        add("ssm_ba.weight", s.n_embd, 2 * int64_t{s.delta_v_heads});
    } else {
        add("ssm_beta.weight", s.n_embd, s.delta_v_heads);
        add("ssm_alpha.weight", s.n_embd, s.delta_v_heads);
    }
    add("ssm_conv1d.weight", s.n_taps, qkv);
    add("ssm_a", s.delta_v_heads, 0);
    add("ssm_dt.bias", s.delta_v_heads, 0);
    add("ssm_norm.weight", s.delta_dim, 0);
    add("ssm_out.weight", values, s.n_embd);
}

void add_attention_tensors(const ModelShape& s, int32_t layer, const AddTensor& add) {
    const int64_t dim = s.head_dim_in(layer), q = s.n_heads * dim, kv = s.n_kv_heads * dim;
    const bool gated = s.delta_v_heads > 0 && s.state_dim == 0;  // beside each head's queries
    add("attn_q.weight", s.n_embd, gated ? 2 * q : q);
    if (s.has_gated_heads() || s.gated_columns)
        add("attn_gate.weight", s.n_embd, s.gated_columns ? q : s.n_heads);
    add("attn_output.weight", q, s.n_embd);
    if (s.qkv_bias) add("attn_q.bias", q, 0);
    if (s.qk_norm) add("attn_q_norm.weight", dim, 0);
    if (s.all_biased) add("attn_output.bias", s.n_embd, 0), add("attn_sinks.weight", s.n_heads, 0);
    if (s.shares_in(layer)) return;
    add("attn_k.weight", s.n_embd, kv);
    add("attn_v.weight", s.n_embd, kv);
    if (s.qkv_bias) add("attn_k.bias", kv, 0), add("attn_v.bias", kv, 0);
    if (s.qk_norm) add("attn_k_norm.weight", dim, 0);
}

void add_latent_tensors(const ModelShape& s, const std::string& block, std::vector<TensorInfo>& list) {
    const auto add = [&](std::string_view name, int64_t cols, int64_t rows = 0, int64_t n = 0) {
        list.push_back(tensor(cat(block, name, ".weight"), cols, rows, n));
    };
    add("attn_q_a", s.n_embd, s.q_latent);
    add("attn_q_a_norm", s.q_latent);
    add("attn_q_b", s.q_latent, int64_t{s.n_heads} * s.head_dim);
    add("attn_kv_a_mqa", s.n_embd, s.kv_latent + s.rope_dim);
    add("attn_kv_a_norm", s.kv_latent);
    add("attn_k_b", s.head_dim - s.rope_dim, s.kv_latent, s.n_heads);
    add("attn_v_b", s.kv_latent, s.v_head_dim, s.n_heads);
    add("attn_output", int64_t{s.n_heads} * s.v_head_dim, s.n_embd);
}

// Of a layer that takes what a token has for it, and norms what its blocks give.
void add_per_layer_tensors(const ModelShape& s, const AddTensor& add) {
    add("inp_gate.weight", s.n_embd, s.n_per_layer);
    add("proj.weight", s.n_per_layer, s.n_embd);
    for (const std::string_view name : {"post_norm", "post_attention_norm", "post_ffw_norm"})
        add(cat(name, ".weight"), s.n_embd, 0);
}

void add_expert_tensors(const ModelShape& s, const std::string& block, std::vector<TensorInfo>& list) {
    const auto add = [&](std::string_view name, int64_t cols, int64_t rows = 0) {
        list.push_back(tensor(cat(block, name), cols, rows));
    };
    add("ffn_gate_inp.weight", s.n_embd, s.n_experts);
    if (s.all_biased) add("ffn_gate_inp.bias", s.n_experts);
    const auto add_experts = [&](std::string_view name, int64_t cols, int64_t rows) {
        list.push_back(tensor(cat(block, name, ".weight"), cols, rows, s.n_experts));
        if (!s.all_biased) return;
        list.back().type = Type::mxfp4;
        add(cat(name, ".bias"), rows, s.n_experts);
    };
    const bool gated = s.state_dim == 0;
    if (gated) add_experts("ffn_gate_exps", s.n_embd, s.n_ff_expert);
    add_experts("ffn_up_exps", s.n_embd, s.n_ff_expert);
    add_experts("ffn_down_exps", s.n_ff_expert, s.n_embd);
    if (s.n_ff_shared == 0) return;
    if (gated) add("ffn_gate_shexp.weight", s.n_embd, s.n_ff_shared);
    add("ffn_up_shexp.weight", s.n_embd, s.n_ff_shared);
    add("ffn_down_shexp.weight", s.n_ff_shared, s.n_embd);
    if (s.kv_latent > 0 || !gated)
        add("exp_probs_b.bias", s.n_experts);
    else
        add("ffn_gate_inp_shexp.weight", s.n_embd);
}

std::vector<TensorInfo> tensors_of(const ModelShape& s) {
    std::vector<TensorInfo> list{tensor("token_embd.weight", s.n_embd, s.n_vocab),
                                 tensor(cat(s.output_norm, ".weight"), s.n_embd)};
    if (!s.tied) list.push_back(tensor("output.weight", s.n_embd, s.n_vocab));
    if (s.n_per_layer > 0) {
        const int64_t cols = int64_t{s.n_layers} * s.n_per_layer;
        list.push_back(tensor("per_layer_token_embd.weight", cols, s.n_vocab));
        list.push_back(tensor("per_layer_model_proj.weight", s.n_embd, cols));
        list.push_back(tensor("per_layer_proj_norm.weight", s.n_per_layer));
        list.push_back(tensor("rope_freqs.weight", s.full_head_dim / 2));
    }
    if (s.has_gated_heads()) list.push_back(tensor("rope_freqs.weight", s.head_dim / 2));
    for (int32_t i = 0; i < s.n_layers + (s.predicts ? 1 : 0); ++i) {
        const std::string block = cat("blk.", i, ".");
        const auto add = [&](std::string_view name, int64_t cols, int64_t rows = 0) {
            list.push_back(tensor(cat(block, name), cols, rows));
        };
        const bool ahead = i == s.n_layers;
        if (ahead) {
            add("nextn.eh_proj.weight", 2 * int64_t{s.n_embd}, s.n_embd);
            for (const std::string_view name : {"enorm", "hnorm", "shared_head_norm"})
                add(cat("nextn.", name, ".weight"), s.n_embd);
        }
        add("attn_norm.weight", s.n_embd);
        if (s.state_dim > 0) {
            if (s.kind_of(i) == 'e')
                add_expert_tensors(s, block, list);
            else
                s.attends_in(i) ? add_attention_tensors(s, i, add) : add_state_tensors(s, add);
            continue;
        }
        add(cat(s.ffn_norm, ".weight"), s.n_embd);
        if (s.has_post_norms())
            add("post_attention_norm.weight", s.n_embd), add("post_ffw_norm.weight", s.n_embd);
        if (s.kv_latent > 0)
            add_latent_tensors(s, block, list);
        else
            ahead || s.attends_in(i) ? add_attention_tensors(s, i, add) : add_state_tensors(s, add);
        if (s.n_per_layer > 0) add_per_layer_tensors(s, add);
        if (s.has_experts_in(i)) {
            add_expert_tensors(s, block, list);
            continue;
        }
        add("ffn_gate.weight", s.n_embd, s.n_ff_in(i));
        add("ffn_up.weight", s.n_embd, s.n_ff_in(i));
        add("ffn_down.weight", s.n_ff_in(i), s.n_embd);
    }
    return list;
}

// Anonymous memory: no page exists before it is touched, and a release gives it back.
Result<std::shared_ptr<std::byte>> reserve(size_t bytes) {
    void* p =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return Error{ErrorCode::out_of_memory, "random weights", cat("need ", bytes, " bytes"),
                     "use a smaller shape or type"};
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(p),
                                      [bytes](std::byte* m) { ::munmap(m, bytes); });
}

uint64_t mixed(uint64_t x) {  // the finalizer of SplitMix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Encoded normal numbers of one type: `runs` runs of `run_len` elements.
class Stock {
  public:
    static constexpr size_t run_len = 1024, runs = 256;
    Stock(Type type, float scale, uint64_t seed) : bytes_(*row_bytes(type, run_len)) {
        std::vector<float> x(run_len * runs);
        data_.resize(bytes_ * runs);
        if (info(type).encode) {
            std::mt19937_64 random(seed);
            std::normal_distribution<float> normal(0, scale);
            for (float& v : x) v = normal(random);
            info(type).encode(x.data(), data_.data(), x.size());
        } else {
            fill_with_any_codes(type, scale, seed, x);
        }
    }
    void fill(std::span<std::byte> out, uint64_t key, ThreadPool& pool) const {
        const size_t per_task = bytes_ * 1024;
        pool.run(static_cast<int64_t>(ceil_div(out.size(), per_task)), [&](int64_t task, int) {
            const size_t begin = static_cast<size_t>(task) * per_task,
                         end = std::min(out.size(), begin + per_task);
            for (size_t at = begin; at < end; at += bytes_) {
                const uint64_t run = mixed(key + at) % runs;
                std::memcpy(out.data() + at, data_.data() + run * bytes_, std::min(bytes_, end - at));
            }
        });
    }

  private:
    // Of types that are only read. Their factor is what gives the numbers that deviation.
    void fill_with_any_codes(Type type, float scale, uint64_t seed, std::vector<float>& x) {
        visit_format(type, [&]<class Format>() {
            if constexpr (HasFactor<Format>) {
                const auto write = [&](float d) {
                    std::mt19937_64 random(seed);
                    for (size_t at = 0; at < data_.size(); at += sizeof(typename Format::Block)) {
                        const auto block = arbitrary_block<Format>(random, d, d);
                        std::memcpy(data_.data() + at, &block, sizeof block);
                    }
                };
                write(1);
                info(type).decode(data_.data(), x.data(), x.size());
                double squares = 0;
                for (const float v : x) squares += double{v} * v;
                write(scale / static_cast<float>(std::sqrt(squares / static_cast<double>(x.size()))));
            }
        });
    }

    size_t bytes_;
    std::vector<std::byte> data_;
};

void fill_vector(const ModelShape& s, const TensorInfo& t, std::span<std::byte> out) {
    if (t.name == "rope_freqs.weight") {
        const auto divisors = rotating_divisors(out.size() / sizeof(float), s.rope_share);
        std::memcpy(out.data(), divisors.data(), out.size());
        return;
    }
    // Norms pass their input through, biases are absent in effect, states fade.
    const float value = t.name.find("norm") != std::string::npos ? 1.0f
                        : t.name.ends_with(".ssm_a")             ? -1.0f
                                                                 : 0.0f;
    for (size_t i = 0; i < out.size(); i += sizeof value) std::memcpy(out.data() + i, &value, sizeof value);
}

// The weights of a model, tensor after tensor.
class Weights {
  public:
    Weights(const ModelShape& shape, uint64_t seed) : shape_(shape), seed_(seed) {}
    void fill(const TensorInfo& t, std::span<std::byte> out, ThreadPool& pool) {
        if (t.n_dims > 1)
            stocks_.try_emplace(t.type, t.type, scale_, seed_)
                .first->second.fill(out, mixed(seed_ + at_), pool);
        else
            fill_vector(shape_, t, out);
        at_ += round_up<size_t>(out.size(), tensor_alignment);
    }

  private:
    const ModelShape& shape_;
    const uint64_t seed_;
    const float scale_ = 1 / std::sqrt(static_cast<float>(shape_.n_embd));
    std::map<Type, Stock> stocks_;
    size_t at_ = 0;
};

Result<void> check(const ModelShape& s) {
    for (const int32_t v :
         {s.n_layers, s.n_embd, s.n_ff, s.n_heads, s.n_kv_heads, s.head_dim, s.n_vocab, s.n_ctx})
        if (v < 1 || v > 1 << 22)
            return Error{ErrorCode::invalid_argument, std::string(s.name), cat(v, " is no possible size"),
                         "give every size of the shape between 1 and 4194304"};
    const int32_t e = s.n_experts;
    if (e < 0 || e > max_experts ||
        (e > 0 && (s.n_experts_used < 1 || s.n_experts_used > e || s.n_ff_expert < 1)))
        return Error{ErrorCode::invalid_argument, std::string(s.name),
                     cat(s.n_experts_used, " of ", e, " experts cannot be"), ""};
    return {};
}

}  // namespace

Result<TensorFile> synthetic_model(const ModelShape& shape, std::string_view recipe, Fill fill, uint64_t seed,
                                   ThreadPool& pool) {
    NIBBLE_TRY(check(shape));
    const Architecture* arch = NIBBLE_TRY(architecture_of(shape));
    PlanOptions options;
    options.recipe = NIBBLE_TRY(find_recipe(recipe, true));
    Metadata metadata(cat("synthetic ", shape.name));
    metadata.set("general.architecture", std::string(shape.arch));
    metadata.set("general.name", cat(shape.name, " with random weights"));
    Hyper hyper = hyper_of(shape);
    Fields fields = Fields::writing(metadata, std::string(arch->gguf));
    arch->fields(fields, hyper);
    NIBBLE_TRY(fields.result());

    const auto outline = NIBBLE_TRY(
        open_model(NIBBLE_TRY(TensorFile::in_memory(metadata, tensors_of(shape), nullptr, false))));
    const ConvertPlan plan = NIBBLE_TRY(plan_conversion(*outline, options));
    size_t total = 0;
    for (const TensorPlan& p : plan.tensors) total += round_up<size_t>(p.bytes, tensor_alignment);
    const auto memory = NIBBLE_TRY(reserve(total));

    std::vector<TensorInfo> tensors;
    Weights weights(shape, seed);
    size_t at = 0;
    for (const TensorPlan& p : plan.tensors) {
        TensorInfo t = *p.source;
        t.type = p.type;
        const std::span<std::byte> data(memory.get() + at, p.bytes);
        t.data = data;
        if (fill == Fill::random) weights.fill(t, data, pool);
        at += round_up<size_t>(p.bytes, tensor_alignment);
        tensors.push_back(std::move(t));
    }
    return TensorFile::in_memory(std::move(metadata), std::move(tensors), memory, true);
}

Result<uint64_t> write_synthetic(const ModelShape& shape, std::string_view recipe, uint64_t seed, Vocab vocab,
                                 const std::filesystem::path& destination, ThreadPool& pool) {
    const TensorFile model = NIBBLE_TRY(synthetic_model(shape, recipe, Fill::nothing, seed, pool));
    const TensorInfo* embedding = NIBBLE_TRY(model.require("token_embd.weight"));
    const auto n_vocab = static_cast<size_t>(embedding->rows());
    if (n_vocab < vocab.tokens.size())
        return Error{ErrorCode::invalid_argument, "vocabulary",
                     cat("of ", n_vocab, " is smaller than that of the tokenizer, ", vocab.tokens.size()),
                     "give a larger --vocab"};
    for (size_t i = vocab.tokens.size(); i < n_vocab; ++i) {
        vocab.tokens.push_back(cat("<|unused_", i, "|>"));
        if (!vocab.types.empty()) vocab.types.push_back(static_cast<uint8_t>(TokenType::unused));
        if (!vocab.scores.empty()) vocab.scores.push_back(0);
    }
    GgufWriter writer = NIBBLE_TRY(GgufWriter::create(destination));
    for (const Metadata::Entry& e : model.metadata().entries()) writer.metadata().set(e.key, e.value);
    write_vocab(vocab, writer.metadata());
    for (const TensorInfo& t : model.tensors())
        NIBBLE_TRY(writer.declare(t.name, t.type, std::span(t.ne).first(static_cast<size_t>(t.n_dims))));
    NIBBLE_TRY(writer.begin());
    Weights weights(shape, seed);
    std::vector<std::byte> data;
    for (const TensorInfo& t : model.tensors()) {
        data.resize(t.data.size());
        weights.fill(t, data, pool);
        NIBBLE_TRY(writer.write(t.name, data));
    }
    NIBBLE_TRY(writer.finish());
    return model.tensor_bytes();
}

}  // namespace nibble
