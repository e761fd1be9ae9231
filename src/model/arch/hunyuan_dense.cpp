// hunyuan-dense: Hunyuan 0.5B to 7B and Hunyuan-MT.
// See hunyuan.h.
#include "src/model/arch/hunyuan.h"

namespace nibble {

extern const Architecture hunyuan_dense_arch;
const Architecture hunyuan_dense_arch{"hunyuan-dense", {"hunyuan_v1_dense"}, hunyuan_fields,
                                      hunyuan_spec,    standard_names(),     false,
                                      hunyuan_names};

}  // namespace nibble
