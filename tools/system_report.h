// What this machine offers: processor, instruction sets, memory, and what nibble chooses.
// Shown by `nibble inspect --system`.
#pragma once

#include "tools/cli.h"

namespace nibble {

// `measure`: also reads memory to tell its bandwidth, about a second.
Result<int> report_system(bool json, bool measure);

}  // namespace nibble
