// NanCheck: an observer that stops at the first instruction whose result holds a NaN or an infinity.
// For `--check-nan`: names the layer and the op, which a wrong token never does.
#pragma once

#include <string>

#include "ggml/program/backend.h"

namespace nibble {

class NanCheck : public Observer {
  public:
    void after(const BoundInstr& b) override;
    // Empty, or "blk.3.attn_output (matmul) row 7 column 12 is nan".
    const std::string& finding() const { return finding_; }
    void reset() { finding_.clear(); }

  private:
    std::string finding_;
};

}  // namespace nibble
