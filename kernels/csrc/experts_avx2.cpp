// Expert rows with AVX2. Compiled with this tier's flags: nothing but the kernel may be in here.
#define FREETOKEN_AVX2
#include "expert_unit.h"

namespace freetoken {

const ExpertTier& expert_tier_avx2() { return kTier; }

}  // namespace freetoken
