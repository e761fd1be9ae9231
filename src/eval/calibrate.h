// Calibration: runs a text through a model and adds up the squares of what each weight matrix is multiplied
// by. The result weighs quantization errors (src/quant/importance.h).
#pragma once

#include <map>

#include "src/eval/scorer.h"
#include "src/quant/importance.h"

namespace nibble {

// Watches every matmul, and of experts those that a row chose; activations are read as f32 in host memory.
class ImportanceObserver : public Observer {
  public:
    void before(const BoundInstr& b) override;
    // An Error that names the matrix whose inputs were no finite numbers.
    Result<void> check(const Program& program) const;
    Result<void> finish(const Program& program, Importance& out) const;

  private:
    struct Sums {
        std::vector<double> squares;
        double rows = 0;
        std::vector<double> expert_rows = {};  // moe_matmul: of each expert; `squares` is one after the other
    };
    void add_experts(const BoundInstr& b);
    std::map<const Instr*, Sums> sums_;  // by instruction: its weights are named in the program
};

}  // namespace nibble
