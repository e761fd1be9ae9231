// GluRows: what a gated unit gives, piece by piece, for the op itself and for a product that begins with it.
// Pieces are whole cache lines and whole blocks of operands.
#pragma once

#include <array>

#include "ggml/cpu/exec.h"

namespace nibble::cpu {

class GluRows {
  public:
    static constexpr int64_t piece = 1024;  // columns at most

    GluRows(const Exec& exec, const OpArgs& a)
        : kernels_(*exec.kernels),
          params_(a.params->as<GluParams>()),
          x_(a.in[0]),
          beside_(a.in[1]),
          cols_(a.out[0].cols),
          of_gate_(beside_ ? cols_ / x_.cols : 1) {}

    // Calls fn(row, column, columns) for every piece, from all threads.
    template <class Fn>
    void each_piece(const Exec& exec, const Fn& fn) const {
        exec.pieces(x_.rows, cols_, piece, 8, fn);
    }
    // Columns [c, c + n) of row r.
    void write(int64_t r, int64_t c, int64_t n, float* out) const {
        std::array<float, piece> spread;
        const float* const up = beside_ ? beside_.row(r) : x_.row(r) + cols_;
        const float* gate = x_.row(r) + c;
        if (of_gate_ > 1) {
            for (int64_t i = 0; i < n; ++i) spread[static_cast<size_t>(i)] = x_.row(r)[(c + i) / of_gate_];
            gate = spread.data();
        }
        kernels_.rows.glu(params_, gate, up + c, out, n);
    }

  private:
    const KernelTable& kernels_;
    const GluParams& params_;
    const Tensor &x_, &beside_;
    int64_t cols_, of_gate_;  // of_gate: columns that share one of the gate's
};

}  // namespace nibble::cpu
