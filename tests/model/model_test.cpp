// RoPE scaling against numbers from an independent implementation of the published formulas; fields and
// names. The forward pass itself is tested in tests/golden.
#include <cmath>

#include <doctest/doctest.h>

#include "src/model/opened_model.h"
#include "src/model/rope.h"

using namespace nibble;

namespace {

Hyper hyper(std::string type, float theta, float factor, uint32_t original) {
    Hyper h;
    h.rope_theta = theta;
    h.rope_scaling.type = std::move(type);
    h.rope_scaling.factor = factor;
    h.rope_scaling.original_context = original;
    return h;
}

void check_every(const Result<RopeSpec>& rope, size_t step, const std::vector<double>& expected) {
    REQUIRE_MESSAGE(rope, (rope ? "" : rope.error().message()));
    for (size_t i = 0; i < expected.size(); ++i)
        CHECK(rope->inv_freq[i * step] == doctest::Approx(expected[i]).epsilon(1e-6));
}

}  // namespace

TEST_CASE("rope frequencies: none, linear, llama3, yarn, stored factors") {
    check_every(make_rope(hyper("none", 10000, 1, 0), 8, RopeStyle::half, {}), 1, {1, 0.1, 0.01, 0.001});
    check_every(make_rope(hyper("linear", 10000, 4, 0), 8, RopeStyle::half, {}), 1,
                {0.25, 0.025, 0.0025, 0.00025});
    check_every(make_rope(hyper("none", 10000, 1, 0), 8, RopeStyle::half, {1, 2, 4, 8}), 1,
                {1, 0.05, 0.0025, 0.000125});

    check_every(make_rope(hyper("llama3", 500000, 8, 8192), 128, RopeStyle::half, {}), 8,
                {1, 0.193922745, 0.0376060309, 0.00729266474, 0.000524846161, 3.4281022e-05, 6.64786987e-06,
                 1.28917317e-06});
    const auto yarn = make_rope(hyper("yarn", 10000, 16, 4096), 64, RopeStyle::adjacent, {});
    check_every(yarn, 4,
                {1, 0.316227766, 0.1, 0.0270617992, 0.00567307692, 0.000881788963, 6.25e-05, 1.97642354e-05});
    CHECK(yarn->magnitude == doctest::Approx(1.2772588722239782));
}

TEST_CASE("rope scaling that has no meaning is refused by name") {
    CHECK(make_rope(hyper("dynamic", 10000, 2, 0), 8, RopeStyle::half, {}).error().what.find("dynamic") !=
          std::string::npos);
    CHECK(!make_rope(hyper("linear", 10000, 0, 0), 8, RopeStyle::half, {}));
    CHECK(!make_rope(hyper("linear", 10000, NAN, 0), 8, RopeStyle::half, {}));
    CHECK(!make_rope(hyper("yarn", 10000, 4, 0), 8, RopeStyle::half, {}));
    CHECK(!make_rope(hyper("none", 0, 1, 0), 8, RopeStyle::half, {}));
    CHECK(!make_rope(hyper("none", 10000, 1, 0), 7, RopeStyle::half, {}));
    CHECK(!make_rope(hyper("none", 10000, 1, 0), 8, RopeStyle::half, {1, 2}));
}

TEST_CASE("Hugging Face names become canonical ones") {
    const auto names = standard_names();
    CHECK(canonical_name("model.embed_tokens.weight", names) == "token_embd.weight");
    CHECK(canonical_name("model.layers.17.self_attn.k_proj.bias", names) == "blk.17.attn_k.bias");
    CHECK(!canonical_name("model.layers.x.self_attn.k_proj.bias", names));
    CHECK(!canonical_name("model.layers.1.self_attn.z_proj.weight", names));
    CHECK(!canonical_name("", names));
}

TEST_CASE("fields written are fields read") {
    Hyper h;
    h.n_layers = 3, h.n_ctx = 99, h.n_embd = 64, h.n_ff = 128, h.n_heads = 4, h.n_kv_heads = 2,
    h.head_dim = 24;
    h.v_head_dim = 24, h.n_vocab = 300, h.norm_eps = 1e-6f, h.rope_theta = 12345, h.rope_dim = 16;
    h.rope_scaling = {"yarn", 4, 33, 1, 4, 20, 2, 1.5f};
    Metadata m;
    Fields out = Fields::writing(m, "llama");
    standard_fields(out, h);
    REQUIRE(out.result().ok());
    CHECK(m.u32("llama.block_count") == 3u);
    CHECK(m.u32("llama.attention.key_length") == 24u);
    CHECK(m.u32("llama.rope.dimension_count") == 16u);
    CHECK(m.str("llama.rope.scaling.type") == "yarn");
    CHECK(m.u32("llama.rope.scaling.original_context_length") == 33u);
    // What YaRN's own factor, 1 + 0.1 ln 4, is multiplied by.
    const auto beside = m.get_or<float>("llama.rope.scaling.attn_factor", 0.0f);
    REQUIRE(beside);
    CHECK(*beside == doctest::Approx(1.5 / 1.13862944));
}
