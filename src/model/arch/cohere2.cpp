// cohere2: Command-R7B, Command-A; as cohere, but three layers of four slide and rotate, the fourth does
// neither.
#include "src/model/arch/cohere.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    cohere_layer_norm_fields(f, h);
    sliding_fields(f, h, 4);
    if (!f.is_writing()) h.rotated = h.sliding;
}

}  // namespace

extern const Architecture cohere2_arch;
const Architecture cohere2_arch{"cohere2", {"cohere2"}, fields, cohere_spec, standard_names()};

}  // namespace nibble
