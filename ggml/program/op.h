// OpDef: the contract of an op: reference implementation, cost, expansion and test cases.
// One instance per op lives in ggml/ops/<op>.cpp; backends map its id to a kernel.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ggml/program/program.h"

namespace nibble {

// The operands of one instruction, resolved to memory and with this step's row counts.
struct OpArgs {
    std::span<const Tensor> in;  // an absent optional operand has data == nullptr
    std::span<const Tensor> out;
    const Params* params = nullptr;
};

struct Cost {
    double flops = 0;       // multiplications and additions counted separately
    double bytes_read = 0;  // each operand once
    double bytes_written = 0;
};

// One case of the sweep test: records the op with operands from the sink, which fills them with data.
// `tolerance` is the largest allowed normalised mean squared error against the reference; 0 = exact.
class CaseSink;
struct OpCase {
    std::string label;
    StepShape shape;
    double tolerance = 0;
    std::function<void(Builder&, CaseSink&)> record;
};

// Provides operands for test cases; implemented by the sweep test.
class CaseSink {
  public:
    virtual ~CaseSink() = default;
    // Random normal values times `scale`, encoded in `type`; any codes in types that are only read.
    virtual Ref random_weight(Builder&, Type, int64_t rows, int64_t cols, float scale = 1) = 0;
    virtual Ref random_input(Builder&, RowDim, int64_t cols, float scale = 1) = 0;
    virtual Ref int_input(Builder&, RowDim, int64_t cols, std::vector<int32_t> values) = 0;
    // A cache whose rows hold random values (attention) and which the op may write (rope_store).
    virtual Ref random_cache(Builder&, Type, int64_t rows, int64_t cols) = 0;
    // The same for keys, in the layout that the backend wants for pages of `page_size`.
    virtual Ref random_keys(Builder&, Type, int64_t rows, int64_t cols, int64_t page_size) = 0;
};

struct OpDef {
    uint16_t id = 0;
    std::string_view name;
    // Computes the op in the plainest way, accumulating in double where a sum is long. It defines the op.
    void (*reference)(const OpArgs&) = nullptr;
    Cost (*cost)(const OpArgs&) = nullptr;
    // Records simpler ops that write the same outputs; null when there are none.
    void (*expand)(Builder&, const Instr&) = nullptr;
    std::vector<OpCase> (*cases)() = nullptr;
};

// Cost of reading and writing every operand once; what most ops' `cost` builds on.
Cost operand_traffic(const OpArgs& args);

}  // namespace nibble
