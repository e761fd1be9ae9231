// granite: Granite 3 and later dense models.
// Llama with the family's multipliers.
#include "src/model/arch/granite.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) { granite_fields(f, h, true); }

}  // namespace

extern const Architecture granite_arch;
const Architecture granite_arch{"granite", {"granite"}, fields, granite_spec, standard_names(), true};

}  // namespace nibble
