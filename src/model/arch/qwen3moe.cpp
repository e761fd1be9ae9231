// qwen3moe: Qwen 3 with experts; a norm on every head of queries and keys.
// Layers without a router are dense, whatever the fields that say which are.
#include "src/model/arch/qwen3.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.assume("use_sliding_window", false);
    sliding_fields(f, h, 0);
    qwen3_fields(f, h);
    if (f.from_hf()) h.expert_norm = false;  // where nothing is stated; GGUF files leave out that it is so
    f.optional("expert_weights_norm", "norm_topk_prob", h.expert_norm);
}

}  // namespace

extern const Architecture qwen3moe_arch;
const Architecture qwen3moe_arch{"qwen3moe", {"qwen3_moe"}, fields, qwen3_spec, standard_names()};

}  // namespace nibble
