// The inner loops of the search: a handful of candidates side by side in vector lanes.
// Included into a namespace that says how wide vectors are (constexpr int vector_floats), once per ISA.
//
// Each element is rounded for all candidates at once, so sums need no reduction across lanes, and the
// arithmetic (hence the bytes chosen) is the same whatever the width of the vectors.

using Vec = float __attribute__((vector_size(vector_floats * sizeof(float))));

// n candidates.
template <int n>
struct Lanes {
    static constexpr int count = n, vectors = n / vector_floats;
    Vec v[vectors];
    // Lane i gets first + step * (i / per).
    static Lanes ramp(float first, float step, int per = 1, int modulus = n) {
        Lanes r;
        for (int i = 0; i < n; ++i) r.at(i) = first + step * static_cast<float>(i % modulus / per);
        return r;
    }
    float& at(int i) { return reinterpret_cast<float*>(v)[i]; }
    float at(int i) const { return reinterpret_cast<const float*>(v)[i]; }
};

// Formats with consecutive integer levels F::lo..F::hi; the others list F::levels, ascending.
template <class F>
concept IntegerLevels = requires {
    F::lo;
};

template <class F>
constexpr float lowest_level() {
    if constexpr (IntegerLevels<F>)
        return F::lo;
    else
        return F::levels.front();
}

template <class F>
constexpr float highest_level() {
    if constexpr (IntegerLevels<F>)
        return F::hi;
    else
        return F::levels.back();
}

// Adding and subtracting 1.5 * 2^23 rounds |v| < 2^22 to the nearest integer, ties to even.
constexpr float round_magic = 12582912.0f;

// v becomes the nearest level of F.
template <class F>
inline void to_level(Vec& v) {
    const Vec zero = {};
    if constexpr (IntegerLevels<F>) {
        const Vec lo = zero + (round_magic + F::lo), hi = zero + (round_magic + F::hi);
        v += round_magic;
        v = v > lo ? v : lo;
        v = v < hi ? v : hi;
        v -= round_magic;
    } else {
        static constexpr auto mid = midpoints(F::levels);
        Vec level = zero + F::levels[0];
        for (size_t k = 0; k < mid.size(); ++k)
            level += v > zero + mid[k] ? zero + (F::levels[k + 1] - F::levels[k]) : zero;
        v = level;
    }
}

// v becomes the nearest integer within 0..top; limit is round_magic + top.
inline void to_code(Vec& v, const Vec& limit) {
    const Vec least = Vec{} + round_magic;
    v += round_magic;
    v = v > least ? v : least;
    v = v < limit ? v : limit;
    v -= round_magic;
}

// For levels L = nearest(x * inverse): sums of w L x and w L L.
template <class F, int n, int C>
void level_sums(const float* x, const float* w, const Lanes<C>& inverse, Lanes<C>& lx, Lanes<C>& ll) {
    constexpr int V = Lanes<C>::vectors;
    Vec a[V] = {}, b[V] = {};
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < V; ++k) {
            Vec v = x[i] * inverse.v[k];
            to_level<F>(v);
            const Vec wv = w[i] * v;
            a[k] += wv * x[i];
            b[k] += wv * v;
        }
    for (int k = 0; k < V; ++k) lx.v[k] = a[k], ll.v[k] = b[k];
}

// Sums of squares of x / scale become errors; a zero scale, NaN and infinity become the largest number, so
// that they lose every comparison.
template <int C>
void in_units_of(const Lanes<C>& scale, const Vec* sum, Lanes<C>& error) {
    const Vec zero = {}, worst = zero + 0x1.fffffep127f;
    for (int k = 0; k < Lanes<C>::vectors; ++k) {
        const Vec e = scale.v[k] * scale.v[k] * sum[k];
        error.v[k] = e < worst && scale.v[k] != zero ? e : worst;
    }
}

// Error of scale * nearest(x / scale), for scales as they will be decoded.
template <class F, int n, int C>
void level_errors(const float* x, const float* w, const Lanes<C>& scale, Lanes<C>& error) {
    constexpr int V = Lanes<C>::vectors;
    Vec inverse[V], sum[V] = {};
    const Vec zero = {};
    for (int k = 0; k < V; ++k) inverse[k] = scale.v[k] != 0 ? 1 / scale.v[k] : zero;
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < V; ++k) {
            const Vec v0 = x[i] * inverse[k];
            Vec v = v0;
            to_level<F>(v);
            const Vec r = v0 - v;
            sum[k] += w[i] * r * r;
        }
    in_units_of<C>(scale, sum, error);
}

// For codes q = round(x * inverse + offset) within 0..top: sums of w q, w q q and w q x.
template <int n, int C>
void code_sums(const float* x, const float* w, float top, const Lanes<C>& inverse, const Lanes<C>& offset,
               Lanes<C>& wq, Lanes<C>& wqq, Lanes<C>& wqx) {
    constexpr int V = Lanes<C>::vectors;
    Vec a[V] = {}, b[V] = {}, c[V] = {};
    const Vec limit = Vec{} + (round_magic + top);
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < V; ++k) {
            Vec q = x[i] * inverse.v[k] + offset.v[k];
            to_code(q, limit);
            const Vec p = w[i] * q;
            a[k] += p;
            b[k] += p * q;
            c[k] += p * x[i];
        }
    for (int k = 0; k < V; ++k) wq.v[k] = a[k], wqq.v[k] = b[k], wqx.v[k] = c[k];
}

// Error of scale * q + min with the nearest q, for scales and minima as they will be decoded.
template <int n, int C>
void code_errors(const float* x, const float* w, float top, const Lanes<C>& scale, const Lanes<C>& min,
                 Lanes<C>& error) {
    constexpr int V = Lanes<C>::vectors;
    Vec inverse[V], offset[V], sum[V] = {};
    const Vec zero = {}, limit = zero + (round_magic + top);
    for (int k = 0; k < V; ++k) {
        inverse[k] = scale.v[k] != 0 ? 1 / scale.v[k] : zero;
        offset[k] = -min.v[k] * inverse[k];
    }
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < V; ++k) {
            const Vec v = x[i] * inverse[k] + offset[k];
            Vec q = v;
            to_code(q, limit);
            const Vec r = v - q;
            sum[k] += w[i] * r * r;
        }
    in_units_of<C>(scale, sum, error);
}

// Eight partial sums in a fixed order, whatever the width of the vectors.
struct PartialSums {
    static constexpr int width = vector_floats < 8 ? vector_floats : 8, vectors = 8 / width;
    using Part = float __attribute__((vector_size(width * sizeof(float))));
    Part sum[vectors] = {};

    static Part load(const float* x) {
        Part v;
        std::memcpy(&v, x, sizeof v);
        return v;
    }
    float total() const {
        float r = 0;
        for (int l = 0; l < 8; ++l) r += sum[l / width][l % width];
        return r;
    }
};

// Sum of w (x - y)^2 over n elements.
template <int n>
float weighted_error(const float* x, const float* w, const float* y) {
    PartialSums s;
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < s.vectors; ++k) {
            const int at = i + k * s.width;
            const auto r = s.load(x + at) - s.load(y + at);
            s.sum[k] += s.load(w + at) * r * r;
        }
    return s.total();
}

template <int n>
float sum_of(const float* x) {
    PartialSums s;
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < s.vectors; ++k) s.sum[k] += s.load(x + i + k * s.width);
    return s.total();
}

// Sum of w x over n elements.
template <int n>
float weighted_sum(const float* x, const float* w) {
    PartialSums s;
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < s.vectors; ++k)
            s.sum[k] += s.load(x + i + k * s.width) * s.load(w + i + k * s.width);
    return s.total();
}

// For given levels l: sums of w l, w l l and w l x.
struct LevelSums {
    float l, ll, lx;
};

template <int n>
LevelSums level_sums_of(const float* x, const float* w, const float* level) {
    PartialSums a, b, c;
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < a.vectors; ++k) {
            const int at = i + k * a.width;
            const auto l = a.load(level + at), wl = a.load(w + at) * l;
            a.sum[k] += wl;
            b.sum[k] += wl * l;
            c.sum[k] += wl * a.load(x + at);
        }
    return {a.total(), b.total(), c.total()};
}

// Index of the smallest of non-negative lanes, and of the largest; lanes within 2^-18 of each other count as
// equal, because the index takes the place of the lowest bits.
template <int C>
int argmin(const Lanes<C>& lanes) {
    int32_t key[C], best = 0x7fffffff;
    std::memcpy(key, lanes.v, sizeof key);
    for (int i = 0; i < C; ++i) key[i] = (key[i] & ~(C - 1)) | i;
    for (int i = 0; i < C; ++i) best = key[i] < best ? key[i] : best;
    return best & (C - 1);
}

template <int C>
int argmax(const Lanes<C>& lanes) {
    int32_t key[C], best = 0;
    std::memcpy(key, lanes.v, sizeof key);
    for (int i = 0; i < C; ++i) key[i] = (key[i] & ~(C - 1)) | i;
    for (int i = 0; i < C; ++i) best = key[i] > best ? key[i] : best;
    return best & (C - 1);
}
