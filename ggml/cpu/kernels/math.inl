// Elementary functions on vectors. NaN in, NaN out.
// Polynomials: own fits at Chebyshev nodes; coefficients from the highest power down.

constexpr float log2_e = 1.44269504f;

// e^x = 2^n (1 + r + r^2 p): x = n ln 2 + r with |r| <= ln 2 / 2, error of p below 1.1e-8.
struct PowerOfE {
    F n, r, p;
};
inline PowerOfE power_of_e(F x) {
    // Beyond these the result is 0 or infinity. Operand order lets a NaN through.
    x = max(set1(-104.0f), min(set1(89.0f), x));
    const F n = round(x * set1(log2_e));
    const F r = fma(n, set1(-1.42860677e-6f), fma(n, set1(-0.693145752f), x));
    F p = set1(0.00139261817f);
    p = fma(p, r, set1(0.00836317800f));
    p = fma(p, r, set1(0.0416665561f));
    p = fma(p, r, set1(0.166665763f));
    p = fma(p, r, set1(0.5f));
    return {n, r, p};
}

// e^x to about 1 ulp.
inline F exp(F x) {
    const PowerOfE e = power_of_e(x);
    return scale_by_power(fma(e.r * e.r, e.p, e.r) + set1(1), e.n);
}

// e^x - 1 - x for x <= 0, to a relative 2e-6: close to zero, where n is 0, only r^2 p is left of it.
inline F exp_less_line(F x) {
    const PowerOfE e = power_of_e(x);
    const F scale = scale_by_power(set1(1), e.n), scaled = scale * e.r;
    return fma(scaled * e.r, e.p, (scale - set1(1)) + (scaled - x));
}

// 2^x - 2^-126 for -126 <= x <= 0, to a relative 2e-7 of 2^x, which is enough for weights that are
// normalised; 2^0 is 1. Below that it is 0, and found without a number too small for a normal one: processors
// may take a hundred cycles for each of those.
inline F exp2(F x) {
    x = max(set1(-126.0f), x);  // operand order lets a NaN through
    const F n = round(x), r = x - n;
    F p = set1(0.00133813021f);
    p = fma(p, r, set1(0.00966636837f));
    p = fma(p, r, set1(0.0555038117f));
    p = fma(p, r, set1(0.240223497f));
    p = fma(p, r, set1(0.693147182f));
    return scale_by_normal_power(fma(p, r, set1(1)), n) - set1(0x1p-126f);
}

inline F sigmoid(F x) { return set1(1) / (set1(1) + exp(zero() - x)); }
inline F silu(F x) { return x / (set1(1) + exp(zero() - x)); }
inline F gelu_quick(F x) { return x / (set1(1) + exp(set1(-1.702f) * x)); }

// ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|, and ln(1 + t) = 2 atanh s, s = t / (2 + t) <= 1/3: its
// series, whose next term is below 2e-8 of it.
inline F softplus(F x) {
    const F t = exp(zero() - abs(x));
    const F s = t / (set1(2) + t), s2 = s * s;
    F p = set1(2.0f / 13);
    p = fma(p, s2, set1(2.0f / 11));
    p = fma(p, s2, set1(2.0f / 9));
    p = fma(p, s2, set1(2.0f / 7));
    p = fma(p, s2, set1(2.0f / 5));
    p = fma(p, s2, set1(2.0f / 3));
    p = fma(p, s2, set1(2));
    return fma(p, s, max(zero(), x));
}

// tanh(x) = 1 - 2 / (e^2x + 1), to about 1e-7 absolute: for soft caps, where small arguments need no more.
inline F tanh(F x) { return set1(1) - set1(2) / (exp(x + x) + set1(1)); }

// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
inline F gelu_tanh(F x) {
    const F cubic = fma(x * x * x, set1(0.044715f), x);
    return x / (set1(1) + exp(cubic * set1(-1.59576912f)));
}

// x * Phi(x), through erfc(z) = t exp(-z^2 + P(t)), t = 1 / (1 + z/2), for z = |x| / sqrt 2 (relative 1e-7).
inline F gelu_erf(F x) {
    const F z = min(set1(10), abs(x) * set1(0.707106781f));
    const F t = set1(1) / fma(z, set1(0.5f), set1(1));
    F p = set1(0.148046046f);
    p = fma(p, t, set1(-0.697536588f));
    p = fma(p, t, set1(1.19532764f));
    p = fma(p, t, set1(-0.746469915f));
    p = fma(p, t, set1(-0.0398663245f));
    p = fma(p, t, set1(-0.0195080005f));
    p = fma(p, t, set1(0.0413959622f));
    p = fma(p, t, set1(0.385283619f));
    p = fma(p, t, set1(0.998782456f));
    p = fma(p, t, set1(-1.26545489f));
    const F erfc = t * exp(p - z * z);
    return max(zero(), x) - abs(x) * set1(0.5f) * erfc;
}
