// ModelRunner: pages of the cache in host memory and back, and the model's fingerprint. For saved sessions.
// A page is a run of rows in every tensor of its group; in host memory keys are rows whatever their layout
// here.
#include "ggml/program/key_tiles.h"
#include "src/engine/model_runner.h"

namespace nibble {
namespace {

struct Fnv {
    uint64_t hash = 0xcbf29ce484222325;
    void add(std::span<const std::byte> bytes) {
        for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
    }
    void add(std::string_view text) {
        add(std::as_bytes(std::span(text)));
        add(std::as_bytes(std::span("", 1)));
    }
    template <class... Number>
    void numbers(Number... n) {
        (add(std::as_bytes(std::span(&n, 1))), ...);
    }
};

void add(Fnv& fnv, const AttentionSpec& a) {
    fnv.numbers(a.n_heads, a.n_kv_heads, a.head_dim, a.v_head_dim, a.window, a.scale, a.softcap, a.qk_norm,
                a.rope_before_norm, a.query_scale.beta, a.query_scale.period, a.rope, a.gated, a.gate_act,
                a.v_norm, a.keys_are_values, a.kv_layer);
}
void add(Fnv& fnv, const LatentAttentionSpec& a) {
    fnv.numbers(a.n_heads, a.latent_dim, a.nope_dim, a.rope_dim, a.v_head_dim, a.scale, a.norm_eps, a.rope,
                a.query_scale.beta, a.query_scale.period);
}
void add(Fnv& fnv, const DeltaNetSpec& d) {
    fnv.numbers(d.n_k_heads, d.n_v_heads, d.k_dim, d.v_dim, d.n_taps, d.tiled);
}
void add(Fnv& fnv, const Mamba2Spec& m) {
    fnv.numbers(m.n_groups, m.n_heads, m.k_dim, m.v_dim, m.n_taps, m.group_norm);
}
void add(Fnv&, const NoBlock&) {}
void add(Fnv& fnv, const ShortConvSpec& s) { fnv.numbers(s.n_taps); }
void add(Fnv& fnv, const DenseFfnSpec& f) {
    fnv.numbers(f.n_ff, f.act, f.gated, f.xielu.alpha_p, f.xielu.alpha_n, f.xielu.beta);
}
void add(Fnv& fnv, const MoeFfnSpec& f) {
    fnv.numbers(f.n_experts, f.n_used, f.n_ff, f.normalize, f.gating, f.n_groups, f.n_groups_used, f.scale,
                f.router_scale, f.act, f.limit, f.up_shift, f.n_ff_shared, f.shared_scale, f.gated,
                f.latent_dim);
}
void add(Fnv& fnv, const TwinFfnSpec& f) { add(fnv, f.dense), add(fnv, f.experts); }

// What the model computes of its weights, with the choices that use_context() made: a folder's config.json is
// no metadata, and frequencies can depend on the length of the context.
void add(Fnv& fnv, const ModelSpec& spec) {
    fnv.numbers(spec.norm_eps, spec.post_norm_eps, spec.layer_norm, spec.embed_scale, spec.embed_norm,
                spec.residual_scale);
    for (const RopeSpec& r : spec.ropes) {
        fnv.numbers(r.rot_dim, r.style, r.magnitude);
        fnv.add(std::as_bytes(std::span(r.inv_freq)));
    }
    const auto add_layer = [&](const LayerSpec& l) {
        std::visit([&](const auto& mixer) { add(fnv, mixer); }, l.mixer);
        std::visit([&](const auto& ffn) { add(fnv, ffn); }, l.ffn);
        fnv.numbers(l.pre_norm, l.post_norm, l.parallel, l.out_scale);
        fnv.add(l.ffn_norm);
    };
    for (const LayerSpec& l : spec.layers) add_layer(l);
    // Whose keys and values pages hold, too
    if (spec.predictor) add_layer(*spec.predictor);
    for (const LayerSpec& l : spec.guests) add_layer(l);
}

}  // namespace

std::vector<ModelRunner::PagePart> ModelRunner::page_parts(int32_t group, int32_t page) const {
    std::vector<PagePart> parts;
    const auto layers = kv_layers(spec());
    const int32_t place = places_[static_cast<size_t>(group)].of_page(page);
    for (size_t i = 0; i < layers.size(); ++i) {
        if (layers[i].group != group) continue;
        const auto add = [&](const Tensor& t, int64_t page_rows) {
            if (!t) return;
            const auto bytes = static_cast<size_t>(t.stride * page_rows);
            parts.push_back(
                {&cache_backend(i, backends_), &t, t.data + bytes * static_cast<size_t>(place), bytes});
        };
        add(kv_.k[i], layers[i].k_page_rows(config_.page_size));
        add(kv_.v[i], layers[i].v_page_rows(config_.page_size));
    }
    return parts;
}

size_t ModelRunner::page_bytes(int32_t group) const {
    size_t bytes = 0;
    for (const PagePart& p : page_parts(group, 0)) bytes += p.bytes;
    return bytes;
}

Result<void> ModelRunner::read_page(int32_t group, int32_t page, std::span<std::byte> bytes) const {
    for (const PagePart& p : page_parts(group, page)) {
        NIBBLE_TRY(p.backend->download(bytes.first(p.bytes), p.data));
        if (p.cache->layout == Layout::key_tiles) rows_from_key_tiles(*p.cache, bytes.first(p.bytes));
        bytes = bytes.subspan(p.bytes);
    }
    return {};
}

Result<void> ModelRunner::write_page(int32_t group, int32_t page, std::span<const std::byte> bytes) {
    for (const PagePart& p : page_parts(group, page)) {
        std::vector<std::byte> tiles;
        std::span<const std::byte> part = bytes.first(p.bytes);
        if (p.cache->layout == Layout::key_tiles) {
            tiles.assign(part.begin(), part.end());
            key_tiles_from_rows(*p.cache, tiles);
            part = tiles;
        }
        NIBBLE_TRY(p.backend->upload(p.data, part));
        bytes = bytes.subspan(p.bytes);
    }
    return {};
}

uint64_t ModelRunner::fingerprint() const {
    constexpr size_t n_samples = 4, sample_bytes = 64;
    Fnv fnv;
    const TensorFile& file = model_->file;
    for (const Metadata::Entry& e : file.metadata().entries()) fnv.add(e.key), fnv.add(describe(e.value));
    for (const TensorInfo& t : file.tensors()) {
        fnv.add(t.name);
        fnv.add(t.type_name());
        fnv.add(shape_text(t));
        const size_t n = t.data.size(), length = std::min(n, sample_bytes);
        for (size_t i = 0; i < n_samples; ++i)
            fnv.add(t.data.subspan((n - length) / (n_samples - 1) * i, length));
    }
    add(fnv, spec());
    return fnv.hash;
}

}  // namespace nibble
