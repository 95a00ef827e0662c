// Dense operations with AVX-512. Compiled with this tier's flags: nothing else may be in here.
#define FREETOKEN_AVX512
#include "dense_unit.h"

namespace freetoken {

const DenseTier& dense_tier_avx512() { return kDenseTier; }

}  // namespace freetoken
