// gemma4: Gemma 4 (E2B, E4B, 12B, 31B, 26B-A4B), the text model: an embedding per layer, last layers that
// attend to the keys and values of earlier ones, experts beside the feed-forward.
#include "src/model/arch/gemma4.h"

namespace nibble {
namespace {

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(gemma4_spec(h, tensors));
    const auto attention = [&](size_t i) -> AttentionSpec& {
        return std::get<AttentionSpec>(s.layers[i].mixer);
    };
    const auto slides = [&](size_t i) { return i < h.sliding.size() && h.sliding[i]; };
    const size_t first_shared = s.layers.size() - h.n_shared_kv_layers;
    for (size_t i = first_shared; i < s.layers.size(); ++i) {
        AttentionSpec& a = attention(i);
        size_t from = first_shared;  // behind the last of its kind that has keys
        while (from > 0 && slides(from - 1) != slides(i)) --from;
        if (from == 0)
            return Error{ErrorCode::corrupt, "shared_kv_layers",
                         cat("layer ", i, " has no keys to attend to"), ""};
        const AttentionSpec& other = attention(from - 1);
        if (other.n_kv_heads != a.n_kv_heads || other.head_dim != a.head_dim || other.kv_group != a.kv_group)
            return Error{ErrorCode::corrupt, "shared_kv_layers",
                         cat("layer ", i, " cannot attend to the keys of layer ", from - 1, ": other heads"),
                         ""};
        a.kv_layer = static_cast<int32_t>(from - 1);
    }
    return s;
}

}  // namespace

extern const Architecture gemma4_arch;
const Architecture gemma4_arch{
    "gemma4",         {"gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified"},
    gemma4_fields,    build,
    standard_names(), false,
    gemma4_names};

}  // namespace nibble
