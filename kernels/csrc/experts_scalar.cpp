// Expert rows in plain C++.
#include "expert_unit.h"

namespace freetoken {

const ExpertTier& expert_tier_scalar() { return kTier; }

}  // namespace freetoken
