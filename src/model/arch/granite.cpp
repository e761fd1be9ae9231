// granite: Granite 3 and later dense models.
// Llama with the family's multipliers.
#include "src/model/arch/granite.h"

namespace nibble {

extern const Architecture granite_arch;
const Architecture granite_arch{"granite", {"granite"}, granite_fields, granite_spec, standard_names(), true};

}  // namespace nibble
