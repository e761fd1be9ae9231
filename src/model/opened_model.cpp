// Finding the architecture of a file, reading its hyperparameters and naming its tensors.
// Whatever is not understood is refused with its name.
#include "src/model/opened_model.h"

#include <algorithm>
#include <charconv>
#include <map>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/exp_weight.h"

namespace nibble {
namespace {

std::string known_architectures(bool hf) {
    std::string s = "known are";
    for (const Architecture* a : all_architectures())
        for (const std::string_view n : hf ? a->hf : std::vector{a->gguf})
            s += cat(s.ends_with("are") ? " " : ", ", n);
    return s;
}

Result<const Architecture*> find_architecture(const TensorFile& file) {
    const bool hf = file.kind() == TensorFile::Kind::hf;
    std::string name;
    if (hf) {
        const auto it = file.config().find("model_type");
        if (it != file.config().end() && it->is_string()) name = it->get<std::string>();
        // A model of text and images is known by its text model where it is not known itself.
        const auto text = file.config().find("text_config");
        const bool known = std::ranges::any_of(all_architectures(), [&](const Architecture* a) {
            return std::ranges::find(a->hf, name) != a->hf.end();
        });
        if (!known && text != file.config().end() && text->is_object()) {
            const auto inner = text->find("model_type");
            if (inner != text->end() && inner->is_string()) name = inner->get<std::string>();
        }
    } else {
        name = NIBBLE_TRY(file.metadata().require_str("general.architecture"));
    }
    for (const Architecture* a : all_architectures())
        if (hf ? std::ranges::find(a->hf, name) != a->hf.end() && (!a->is_of || a->is_of(file.config()))
               : a->gguf == name)
            return a;
    return Error{ErrorCode::unsupported, file.path().string(),
                 cat("architecture '", name, "' is not implemented"), known_architectures(hf)};
}

// The numbers that stand for the holes "{}" of a pattern, or nothing when `text` is not of its form.
std::optional<std::vector<std::string_view>> holes(std::string_view text, std::string_view pattern) {
    std::vector<std::string_view> numbers;
    for (size_t hole; (hole = pattern.find("{}")) != std::string_view::npos;) {
        if (!text.starts_with(pattern.substr(0, hole))) return {};
        text.remove_prefix(hole);
        const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
        if (digits.empty()) return {};
        numbers.push_back(digits);
        text.remove_prefix(digits.size());
        pattern.remove_prefix(hole + 2);
    }
    if (text != pattern) return {};
    return numbers;
}

// The layer of a canonical name, -1 outside layers.
int64_t layer_number(std::string_view name) {
    int64_t layer = -1;
    if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
    return layer;
}

// The canonical name of `hf` if it is the one that the pair describes. The number of an expert goes to
// `part`.
std::optional<std::string> match(std::string_view hf, const NamePair& p, std::string_view* part = nullptr) {
    if (p.hf.ends_with('*')) {
        if (!hf.starts_with(p.hf.substr(0, p.hf.size() - 1))) return {};
        return std::string(p.canonical);
    }
    std::string_view stem = hf, suffix;
    for (const std::string_view s : {".weight", ".bias"})
        if (hf.ends_with(s)) stem = hf.substr(0, hf.size() - s.size()), suffix = s;
    // Experts that share a tensor are a parameter of their own, as transformers 5 and Qwen 3.5 store them.
    if (suffix.empty() && p.canonical.ends_with("_exps")) suffix = ".weight";
    const auto numbers = holes(stem, p.hf);
    if (!numbers) return {};
    if (p.canonical.empty()) return std::string();
    if (numbers->empty()) return cat(p.canonical, suffix);
    if (part && numbers->size() > 1) *part = (*numbers)[1];
    const size_t at = std::min(p.canonical.find("{}"), p.canonical.size());
    return cat(p.canonical.substr(0, at), (*numbers)[0],
               p.canonical.substr(std::min(at + 2, p.canonical.size())), suffix);
}

// What a Hugging Face tensor is; the name is empty when it is left out.
struct Named {
    std::string name;
    Storage storage = Storage::same;
    std::string_view left_out;  // the prefix by which
    size_t part = 0;            // Storage::expert: which
};

// Models of text and images keep the text model under a prefix of its own; so do those that descend from
// Mamba. One without a head has none.
std::string text_name(std::string_view hf) {
    for (const std::string_view part : {"layers.", "norm.", "embed_tokens."})
        if (hf.starts_with(part)) return cat("model.", hf);
    constexpr std::string_view outer = "language_model.", inner = "model.language_model.",
                               mamba = "backbone.";
    if (hf.starts_with(outer)) return std::string(hf.substr(outer.size()));
    if (hf.starts_with(mamba)) return cat("model.", hf.substr(mamba.size()));
    return hf.starts_with(inner) ? cat("model.", hf.substr(inner.size())) : std::string(hf);
}

// Qwen keeps the layer that guesses further ahead under a prefix of its own; here it is the one behind the
// others, as DeepSeek's is.
std::string next_layer_name(std::string hf, uint32_t n_layers) {
    constexpr std::string_view prefix = "mtp.", layers = "layers.";
    if (!hf.starts_with(prefix)) return hf;
    std::string_view rest = std::string_view(hf).substr(prefix.size());
    uint32_t layer = 0;
    if (rest.starts_with(layers)) {
        rest.remove_prefix(layers.size());
        const auto number = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
        rest = rest.substr(std::min(rest.size(), static_cast<size_t>(number.ptr - rest.data()) + 1));
        return cat("model.layers.", uint64_t{n_layers} + layer, ".", rest);
    }
    static constexpr std::pair<std::string_view, std::string_view> names[] = {
        {"fc.", "eh_proj."},
        {"pre_fc_norm_embedding.", "enorm."},
        {"pre_fc_norm_hidden.", "hnorm."},
        {"norm.", "shared_head.norm."}};
    for (const auto& [theirs, ours] : names)
        if (rest.starts_with(theirs))
            return cat("model.layers.", n_layers, ".", ours, rest.substr(theirs.size()));
    return hf;
}

std::optional<Named> find_name(std::string_view hf, const Architecture& arch) {
    if (hf.ends_with("rotary_emb.inv_freq")) return Named{};  // old checkpoints store what config.json says
    for (const auto list : {arch.own_names, arch.names})
        for (const NamePair& p : list) {
            std::string_view part;
            auto name = match(hf, p, &part);
            if (!name) continue;
            Named n{std::move(*name), p.storage, p.hf.ends_with('*') ? p.hf : std::string_view{}};
            std::from_chars(part.data(), part.data() + part.size(), n.part);
            // A number that is too large stays 0, which is there already.
            return n;
        }
    return {};
}

// Puts one expert's matrix in its place among the others of the same name. `places`: how many there may still
// be, one for every tensor of the file, so that a large number in a name makes no large list.
Result<void> add_expert(TensorMap& map, const Named& named, const TensorInfo& t, size_t& places) {
    TensorSource& s = map.try_emplace(named.name, TensorSource{&t, Storage::expert, 0}).first->second;
    if (named.part >= static_cast<size_t>(max_experts) || s.storage != Storage::expert)
        return Error{ErrorCode::corrupt, t.name, cat("is of expert ", named.part, ", which cannot be"), ""};
    if (const size_t n = s.parts.size(); n <= named.part) {
        if (named.part + 1 - n > places)
            return Error{ErrorCode::corrupt, t.name, cat("is of expert ", named.part, ", others are missing"),
                         "the checkpoint is incomplete"};
        places -= named.part + 1 - n;
        s.parts.resize(named.part + 1);
    }
    if (s.parts[named.part])
        return Error{ErrorCode::corrupt, t.name, cat("says again what ", s.parts[named.part]->name, " is"),
                     ""};
    s.parts[named.part] = &t;
    return {};
}

// Of a GGUF file's tensor whose canonical form is another.
Named canonical_gguf(const TensorInfo& t, const Architecture& arch) {
    for (const NamePair& p : arch.own_names)  // older files
        if ((p.storage == Storage::latent || p.storage == Storage::head_qkvz) &&
            match(t.name, {p.canonical, p.canonical}))
            return {t.name, p.storage, {}};
    if (auto gates = match(t.name, {"blk.{}.ffn_gate_up_exps", "blk.{}.ffn_gate_exps"}))
        return {std::move(*gates), Storage::gate_up, {}};
    return {t.name, Storage::same, {}};
}

// A name with another part; without the part, as it is.
std::string renamed(std::string name, std::string_view part, std::string_view other) {
    if (const size_t at = name.find(part); at != std::string::npos) name.replace(at, part.size(), other);
    return name;
}

// Gates and ups of experts in one tensor, under the names of its halves.
bool add_halves(TensorMap& map, const std::string& name, const TensorInfo& t, bool alternating) {
    const Storage first = alternating ? Storage::even_gate : Storage::gate_half,
                  second = alternating ? Storage::odd_up : Storage::up_half;
    return map.emplace(name, TensorSource{&t, first, 0}).second &&
           map.emplace(renamed(name, "ffn_gate", "ffn_up"), TensorSource{&t, second, 0}).second;
}

// Queries, keys and values of key heads with what gates their outputs, under the names of both.
bool add_key_heads(TensorMap& map, const std::string& name, const TensorInfo& t) {
    constexpr std::string_view both = "ssm_in";
    return map.emplace(renamed(name, both, "attn_qkv"), TensorSource{&t, Storage::head_qkv, 0}).second &&
           map.emplace(renamed(name, both, "attn_gate"), TensorSource{&t, Storage::head_z, 0}).second;
}

// Keys and values out of the latent in one tensor, under the names of its halves.
bool add_latent(TensorMap& map, const std::string& name, const TensorInfo& t) {
    constexpr std::string_view both = "attn_kv_b";
    TensorSource k{&t, Storage::latent_keys, 0};
    k.parts = {&t};
    if (!t.foreign() && info(t.type).block_len > 1) {
        auto plain = std::make_shared<TensorInfo>(t);
        plain->type = Type::f16;
        k.info = plain.get();
        k.joined = std::move(plain);
    }
    return map.emplace(renamed(name, both, "attn_k_b"), std::move(k)).second &&
           map.emplace(renamed(name, both, "attn_v_b"), TensorSource{&t, Storage::latent_values, 0}).second;
}

// Joins blocks of codes [.. x columns / 32 x 16] and their scales to tensors of MXFP4. By name of the codes:
// gates and ups have theirs in common.
using Scales = std::map<std::string, const TensorInfo*>;

Result<void> join_scales(TensorMap& map, const Scales& scales) {
    std::map<const TensorInfo*, const TensorInfo*> scales_of;  // by blocks
    for (const auto& [name, t] : scales) {
        const auto codes = map.find(name);
        if (codes == map.end())
            return Error{ErrorCode::corrupt, t->name, cat("are scales without the blocks of '", name, "'"),
                         ""};
        scales_of[codes->second.info] = t;
    }
    for (auto& [name, source] : map) {
        const auto found = scales_of.find(source.info);
        if (found == scales_of.end()) continue;
        auto joined = std::make_shared<TensorInfo>(*source.info);
        if (joined->dtype != "U8" || joined->n_dims != 4 || joined->ne[0] != 16 ||
            joined->ne[1] > (int64_t{1} << 32))
            return Error{ErrorCode::corrupt, joined->name, "holds no blocks of 16 bytes", ""};
        joined->type = Type::mxfp4;
        joined->dtype = {};
        joined->ne = {joined->ne[1] * 32, joined->ne[2], joined->ne[3], 1};
        joined->n_dims = 3;
        source.scales = found->second;
        source.info = joined.get();
        source.joined = std::move(joined);
    }
    return {};
}

Result<TensorMap> name_tensors(const TensorFile& file, const Architecture& arch, uint32_t n_layers,
                               std::vector<std::string>& notes) {
    TensorMap map;
    size_t expert_places = file.tensors().size();
    std::map<std::string_view, int64_t> left_out;
    Scales scales;
    for (const TensorInfo& t : file.tensors()) {
        Named named = canonical_gguf(t, arch);
        if (file.kind() == TensorFile::Kind::hf) {
            const std::string text = text_name(t.name);
            auto found = find_name(text, arch);
            if (!found) found = find_name(next_layer_name(text, n_layers), arch);
            if (!found)
                return Error{ErrorCode::unsupported, file.path().string(),
                             cat("tensor '", t.name, "' has no place in architecture '", arch.gguf, "'"),
                             "the model may be a variant that is not implemented"};
            if (!found->left_out.empty()) ++left_out[found->left_out];
            if (found->name.empty()) continue;
            named = std::move(*found);
            if (named.storage == Storage::transposed && t.n_dims < 2)
                named.storage = Storage::same;  // a bias
        }
        if (named.storage == Storage::expert) {
            NIBBLE_TRY(add_expert(map, named, t, expert_places));
            continue;
        }
        const bool alternating = named.storage == Storage::alternating;
        const bool fresh = named.storage == Storage::latent      ? add_latent(map, named.name, t)
                           : named.storage == Storage::head_qkvz ? add_key_heads(map, named.name, t)
                           : alternating || named.storage == Storage::gate_up
                               ? add_halves(map, named.name, t, alternating)
                           : named.storage == Storage::scales
                               ? scales.emplace(named.name, &t).second
                               : map.emplace(named.name, TensorSource{&t, named.storage, 0}).second;
        if (!fresh)
            return Error{ErrorCode::corrupt, file.path().string(),
                         cat("tensor '", t.name, "' says again what '", named.name, "' is"), ""};
    }
    for (auto& [name, source] : map) {
        if (source.storage != Storage::expert) continue;
        const auto gap = std::ranges::find(source.parts, nullptr);
        if (gap != source.parts.end())
            return Error{
                ErrorCode::corrupt, file.path().string(),
                cat("'", name, "' lacks expert ", gap - source.parts.begin(), " of ", source.parts.size()),
                ""};
        source.info = source.parts[0];
    }
    NIBBLE_TRY(join_scales(map, scales));
    for (const auto& [prefix, n] : left_out) notes.push_back(cat(n, " tensors '", prefix, "' are not used"));
    return map;
}

// Fields that files may leave out, and the vocabulary, which the embedding knows best.
void fill_defaults(Hyper& h, const TensorMap& tensors) {
    if (!h.n_kv_heads) h.n_kv_heads = h.n_heads;
    if (!h.head_dim && h.n_heads) h.head_dim = h.n_embd / h.n_heads;
    if (!h.v_head_dim) h.v_head_dim = h.head_dim;
    // As config.json means it: the fraction that a float cannot hold is not a smaller dimension.
    if (!h.rope_dim && h.rope_share > 0 && h.rope_share <= 1)
        h.rope_dim = static_cast<uint32_t>(h.head_dim * static_cast<double>(h.rope_share) + 1e-4);
    const auto embedding = tensors.find("token_embd.weight");
    if (embedding != tensors.end())
        h.n_vocab = static_cast<uint32_t>(std::min(embedding->second.rows(), int64_t{max_vocab} + 1));
}

// Of layers behind the others, which guess tokens further ahead (DeepSeek-V3, arXiv:2412.19437, section 2.2),
// the first is used where the architecture knows how.
void settle_next_layers(OpenedModel& m) {
    const uint32_t first = m.hyper.n_layers, all = std::exchange(m.hyper.n_next_layers, 0);
    if (m.arch->predicts && m.tensors.contains(cat("blk.", first, ".nextn.eh_proj.weight")))
        m.hyper.n_next_layers = 1;
    const size_t dropped = std::erase_if(m.tensors, [&](const auto& entry) {
        const int64_t layer = layer_number(entry.first);
        return layer >= first + m.hyper.n_next_layers && layer < int64_t{first} + all;
    });
    if (dropped > 0)
        m.notes.push_back(cat(dropped, " tensors of layers that predict tokens further ahead are not used"));
}

// That layer is built as the last one that attends.
LayerSpec predictor_of(const ModelSpec& spec) {
    LayerSpec predictor = spec.layers.back();
    for (const LayerSpec& l : spec.layers)
        if (std::holds_alternative<AttentionSpec>(l.mixer)) predictor.mixer = l.mixer;
    return predictor;
}

// The expert that every token passes is a plain feed-forward where there are no others.
Result<void> name_dense(OpenedModel& m) {
    constexpr std::string_view shared = "_shexp";
    if (m.hyper.n_experts > 0 || m.file.kind() != TensorFile::Kind::hf) return {};
    std::vector<std::string> names;
    for (const auto& [name, source] : m.tensors)
        if (name.find(shared) != std::string::npos) names.push_back(name);
    for (const std::string& name : names) {
        auto entry = m.tensors.extract(name);
        entry.key().erase(name.find(shared), shared.size());
        const auto placed = m.tensors.insert(std::move(entry));
        if (!placed.inserted)
            return Error{ErrorCode::corrupt, m.file.path().string(),
                         cat("tensor '", placed.node.mapped()->name, "' says again what '",
                             placed.position->second->name, "' is"),
                         ""};
    }
    return {};
}

// What value heads are stored as where each has a key head of its own: then there is but one order.
Storage in_order(Storage storage) {
    if (storage == Storage::value_taps) return Storage::taps;
    return storage == Storage::value_decay ? storage : Storage::same;
}

// Experts may be stored the other way around (Qwen 3 VL): their shape tells, where it is not square.
void turn_experts(TensorSource& s, const std::string& name, const Hyper& h) {
    const int64_t width = h.n_embd, n_ff = h.n_ff_expert;
    if (name.ends_with("_down_exps.weight") && s.storage == Storage::same && s->ne[0] == width &&
        s->ne[1] == n_ff)
        s.storage = Storage::turned;
    if (s->ne[0] == width || s->ne[1] != width) return;
    if (s.storage == Storage::gate_half) s.storage = Storage::turned_gate;
    if (s.storage == Storage::up_half) s.storage = Storage::turned_up;
}

// Layers that attend to another's keys and values need none, though files may hold them.
void drop_shared_kv(OpenedModel& m) {
    for (uint32_t i = m.hyper.n_layers - m.hyper.n_shared_kv_layers; i < m.hyper.n_layers; ++i)
        for (const std::string_view name :
             {"attn_k.weight", "attn_k.bias", "attn_v.weight", "attn_v.bias", "attn_k_norm.weight"})
            m.tensors.erase(cat("blk.", i, ".", name));
}

}  // namespace

void drop_predictor(OpenedModel& m) {
    if (!m.spec.predictor) return;
    m.spec.predictor.reset();
    m.hyper.n_next_layers = 0;
    std::erase_if(m.tensors,
                  [&](const auto& entry) { return layer_number(entry.first) >= m.hyper.n_layers; });
}

std::optional<std::string> canonical_name(std::string_view hf, std::span<const NamePair> names) {
    for (const NamePair& p : names)
        if (auto name = match(hf, p)) return name;
    return {};
}

namespace {

// GGUF files from before April 2024 do not say how text is cut into words, where it is taken as GPT-2 does.
void note_split(OpenedModel& m) {
    constexpr std::string_view as_gpt2[] = {"gpt2", "gptneox", "starcoder2", "stablelm"};
    if (m.file.kind() != TensorFile::Kind::gguf ||
        std::ranges::find(as_gpt2, m.arch->gguf) != std::end(as_gpt2))
        return;
    const auto text = [&](std::string_view key) {
        const auto found = m.file.metadata().get_or<std::string_view>(key, "");
        return found ? *found : "";
    };
    const std::string_view pre = text("tokenizer.ggml.pre");
    if (text("tokenizer.ggml.model") == "gpt2" && (pre.empty() || pre == "default") &&
        !m.file.metadata().contains("nibble.tokenizer.split_regexes"))
        m.notes.emplace_back(
            "the file does not say how text is split (tokenizer.ggml.pre): tokens may be wrong; a newer file "
            "does");
}

}  // namespace

Result<std::unique_ptr<OpenedModel>> open_model(TensorFile file) {
    auto opened = std::unique_ptr<OpenedModel>(new OpenedModel{std::move(file)});
    OpenedModel& m = *opened;
    m.arch = NIBBLE_TRY(find_architecture(m.file));
    if (m.file.tensors().empty())
        return Error{ErrorCode::corrupt, m.file.path().string(), "holds a vocabulary but no tensors",
                     "use it with `nibble tokenize`, or give a file with weights"};
    note_split(m);
    Fields f = Fields::reading(m.file, std::string(m.arch->gguf));
    m.arch->fields(f, m.hyper);
    if (const auto r = f.result(); !r) return of_file(r.error(), m.file.path().string());
    m.tensors = NIBBLE_TRY(name_tensors(m.file, *m.arch, m.hyper.n_layers, m.notes));
    fill_defaults(m.hyper, m.tensors);
    NIBBLE_TRY(check_ranges(m.hyper, m.file.path().string()));
    if (f.from_hf() && m.arch->take_numbers) {
        const auto taken = m.arch->take_numbers(m.tensors, m.hyper);
        if (!taken) return of_file(taken.error(), m.file.path().string());
    }
    settle_next_layers(m);
    drop_shared_kv(m);
    NIBBLE_TRY(name_dense(m));
    for (auto& [name, source] : m.tensors) {
        source.heads = static_cast<int32_t>(m.hyper.n_heads);
        source.keys = static_cast<int32_t>(m.hyper.head_dim - m.hyper.rope_dim);
        if (source.has_value_heads() && m.hyper.delta_v_heads == m.hyper.delta_k_heads)
            source.storage = in_order(source.storage);
        if (source.storage == Storage::groups) source.heads = static_cast<int32_t>(m.hyper.delta_k_heads);
        if (source.of_key_heads() && m.hyper.delta_k_heads > 0) {
            source.heads = static_cast<int32_t>(m.hyper.delta_k_heads);
            source.keys = static_cast<int32_t>(m.hyper.delta_k_dim);
            source.values =
                static_cast<int32_t>(m.hyper.delta_v_heads / m.hyper.delta_k_heads * m.hyper.delta_v_dim);
        }
        if (source.has_value_heads()) {
            source.heads = static_cast<int32_t>(m.hyper.delta_k_heads);
            source.keys = static_cast<int32_t>(2 * m.hyper.delta_k_heads * m.hyper.delta_k_dim);
            source.values = static_cast<int32_t>(m.hyper.delta_v_heads);
        }
        const bool of_experts = name.find("_exps.") != std::string::npos;
        const int64_t n_experts = of_experts ? int64_t{m.hyper.n_experts} : 1;
        if (of_experts && m.hyper.n_ff_expert != m.hyper.n_embd) turn_experts(source, name, m.hyper);
        if (const Result<void> r = check_source(source); !r)
            return of_file(r.error(), m.file.path().string());
        if (source.is_half() && !source.in_columns() && source->ne[2] != n_experts)
            return Error{ErrorCode::corrupt, m.file.path().string(),
                         cat("tensor '", source->name, "' is of ", source->ne[2],
                             " experts but the hyperparameters say ", n_experts),
                         ""};
    }
    auto spec = m.arch->build(m.hyper, f.from_hf(), m.tensors);
    if (!spec) return of_file(spec.error(), m.file.path().string());
    m.spec = std::move(*spec);
    m.spec.arch = m.arch->gguf;
    if (m.hyper.n_next_layers > 0) m.spec.predictor = predictor_of(m.spec);
    return opened;
}

}  // namespace nibble
