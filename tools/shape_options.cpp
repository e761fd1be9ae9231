// The flags of ShapeOptions and what they make: a shape, then a model of it.
// The list of known shapes in the help comes from the table.
#include "tools/shape_options.h"

#include "ggml/base/cat.h"

namespace nibble {
namespace {

constexpr int32_t max_size = 1 << 22;

void add_size(Flags& flags, const char* flag, int32_t& value, const char* what, int32_t most) {
    flags.value(flag, value, what).range(1, most).needs("--shape").group("More about the shape");
}

}  // namespace

void ShapeOptions::add(Flags& flags) {
    std::string names;
    for (const ModelShape& s : all_shapes()) names += cat(names.empty() ? "" : "|", s.name);
    const auto shape =
        flags.value("--shape", name, "random weights of this shape instead of a model").type_name(names);
    if (const auto model = flags.find("--model")) shape.excludes(*model);
    flags
        .value("--type", type,
               "type of the random weights, as in nibble quantize, or iq2_xxs and others that are only read")
        .type_name("TYPE")
        .needs(shape)
        .show_default();
    const auto size = [&](const char* flag, int32_t& value, const char* what, int32_t most = max_size) {
        add_size(flags, flag, value, what, most);
    };
    size("--layers", layers, "number of layers", 1024);  // as many as a model may have
    size("--embd", embd, "width of the residual stream");
    size("--ff", ff, "width of the feed-forward, of an expert where there are experts");
    size("--heads", heads, "query heads");
    size("--kv-heads", kv_heads, "key-value heads");
    size("--head-dim", head_dim, "columns of a head");
    size("--vocab", vocab, "tokens");
}

void ShapeOptions::add_seed(Flags& flags) {
    flags.value("--weights-seed", seed, "seed of the random weights").needs("--shape").show_default();
}

void ShapeOptions::add_n_ctx(Flags& flags) {
    add_size(flags, "--n-ctx", n_ctx, "context the model claims", max_size);
}

Result<ModelShape> ShapeOptions::shape() const {
    ModelShape s = NIBBLE_TRY(find_shape(name));
    const auto change = [](int32_t given, int32_t& value) {
        if (given > 0) value = given;
    };
    if (layers > 0) s.n_sharing = s.n_sharing * layers / s.n_layers;
    if (ff > 0) s.n_ff_sharing = static_cast<int32_t>(int64_t{s.n_ff_sharing} * ff / s.n_ff);
    change(layers, s.n_layers);
    change(embd, s.n_embd);
    // A llama file states one width for both.
    if (s.n_experts == 0 || s.n_ff == s.n_ff_expert) change(ff, s.n_ff);
    if (s.n_experts > 0) change(ff, s.n_ff_expert);
    if (s.n_ff_shared > 0) change(ff, s.n_ff_shared);
    change(heads, s.n_heads);
    change(kv_heads, s.n_kv_heads);
    change(head_dim, s.head_dim);
    change(vocab, s.n_vocab);
    change(n_ctx, s.n_ctx);
    int32_t silent = 0;  // layers before the first that attends, as the one that guesses does
    while (s.predicts && !s.attends_in(silent)) ++silent;
    if (s.predicts && s.n_layers <= silent)
        return Error{ErrorCode::invalid_argument, "--layers",
                     cat("none of the first ", s.n_layers, " of ", name, " attends"),
                     cat("give ", silent + 1, " or more")};
    return s;
}

Result<TensorFile> ShapeOptions::model(Fill fill, int threads) const {
    const ModelShape s = NIBBLE_TRY(shape());
    ThreadPool pool(threads);
    return synthetic_model(s, type, fill, seed, pool);
}

}  // namespace nibble
