// The scan behind --check-nan.
// Only f32 results are scanned: activations are always f32.
#include "src/engine/nan_check.h"

#include <cmath>

#include "ggml/base/cat.h"

namespace nibble {

void NanCheck::after(const BoundInstr& b) {
    if (!finding_.empty()) return;
    for (const Tensor& t : b.out) {
        if (t.type != Type::f32) continue;
        for (int64_t r = 0; r < t.rows; ++r)
            for (int64_t c = 0; c < t.cols; ++c) {
                if (std::isfinite(t.row(r)[c])) continue;
                finding_ = cat(b.instr->label, " (", b.instr->op->name, ") row ", r, " column ", c, " is ",
                               t.row(r)[c]);
                return;
            }
    }
}

}  // namespace nibble
