// cohere: Command-R; every layer attends to everything and rotates.
// Norms on queries and keys (Command-R+) are refused.
#include "src/model/arch/cohere.h"

namespace nibble {

extern const Architecture cohere_arch;
const Architecture cohere_arch{
    "command-r", {"cohere"}, cohere_layer_norm_fields, cohere_spec, standard_names()};

}  // namespace nibble
