// Dense operations in plain C++.
#include "dense_unit.h"

namespace freetoken {

const DenseTier& dense_tier_scalar() { return kDenseTier; }

}  // namespace freetoken
