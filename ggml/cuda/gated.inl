// Activations and gated units: elementwise, so a product may end in them with the same bits.
// Contracts are in ggml/ops/ops.h.

// x / (1 + e^-u), in a few instructions.
__device__ inline float logistic(float x, float u) {
    return x * reciprocal(1 + exp2_or_zero(u * -1.4426950408889634f));
}

// ln(1 + e^u), exact to a few bits however small: with w = 1 + e rounded, e / (w - 1) undoes what the
// rounding of w does to its logarithm.
__device__ inline float softplus(float u) {
    if (u > 20) return u;
    const float e = expf(u), w = 1 + e;
    return w == 1 ? e : logf(w) * (e / (w - 1));
}

__device__ inline float activated(Activation act, float x) {
    switch (act) {
        case Activation::silu:
            return logistic(x, x);
        case Activation::gelu_tanh:
            // (1 + tanh u) / 2 without cancellation
            return logistic(x, 1.5957691216f * (x + 0.044715f * x * x * x));
        case Activation::gelu_erf:
            return 0.5f * x * erfcf(x * -0.7071067812f);
        case Activation::relu:
            return x > 0 || x != x ? x : 0;
        case Activation::tanh:
            return tanhf(x);
        case Activation::none:
            return x;
        case Activation::gelu_quick:
            return logistic(x, 1.702f * x);
        case Activation::sigmoid:
            return logistic(1, x);
        case Activation::relu_squared:
            return x > 0 || x != x ? x * x : 0;
        case Activation::softplus:
            return softplus(x);
        case Activation::xielu:  // see activate_kernel()
            return x;
    }
    return x;
}

// Comparisons that are false for a NaN keep it.
__device__ inline float gated(const GluParams& p, float gate, float up) {
    if (p.limit > 0) {
        if (gate > p.limit) gate = p.limit;
        if (up > p.limit) up = p.limit;
        if (up < -p.limit) up = -p.limit;
    }
    return activated(p.act, gate) * (up + p.up_shift);
}
// The same without a limit and with an activation that the compiler knows, for where there is much such code.
template <Activation act>
__device__ float gated_as(const GluParams& p, float gate, float up) {
    return activated(act, gate) * (up + p.up_shift);
}
