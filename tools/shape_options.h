// --shape and the flags that change single sizes of it: bench, plan and synth.
// A shape becomes a model with random weights, or one without memory for sizes only.
#pragma once

#include "src/eval/synthetic.h"
#include "tools/cli.h"

namespace nibble {

struct ShapeOptions {
    std::string name, type = "int8";
    uint64_t seed = 1;
    int32_t layers = 0, embd = 0, ff = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, n_ctx = 0;
    // After -m where there is one: the two exclude each other.
    void add(Flags& flags);
    void add_seed(Flags& flags);       // where the weights are made
    void add_n_ctx(Flags& flags);      // where the context is not the caller's
    Result<ModelShape> shape() const;  // the named one with the given changes
    Result<TensorFile> model(Fill fill, int threads) const;
};

}  // namespace nibble
