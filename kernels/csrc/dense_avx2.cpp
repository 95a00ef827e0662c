// Dense operations with AVX2. Compiled with this tier's flags: nothing else may be in here.
#define FREETOKEN_AVX2
#include "dense_unit.h"

namespace freetoken {

const DenseTier& dense_tier_avx2() { return kDenseTier; }

}  // namespace freetoken
