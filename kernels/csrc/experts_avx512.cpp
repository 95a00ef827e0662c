// Expert rows with AVX512. Compiled with this tier's flags: nothing but the kernel may be in here.
#define FREETOKEN_AVX512
#include "expert_unit.h"

namespace freetoken {

const ExpertTier& expert_tier_avx512() { return kTier; }

}  // namespace freetoken
