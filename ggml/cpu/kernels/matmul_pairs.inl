// Activations rounded to bf16, as vectors and tiles (AMX) read them.
// Rows lie in tiles, see bf16_step.

inline void round_row(const float* x, int64_t n, int64_t h, uint16_t* out) {
    for (int64_t i = 0; i < n; i += bf16_step, out += h * bf16_step) {
        const int64_t count = n - i < bf16_step ? n - i : bf16_step;
        Pairs::narrow(x + i, count, 1, reinterpret_cast<Pairs::Number*>(out));
        std::memset(out + count, 0, static_cast<size_t>(bf16_step - count) * sizeof *out);
    }
}
