// Which instruction-set tier this CPU and operating system can run.
#pragma once

namespace freetoken {

enum class Tier { scalar, avx2, avx512 };

// The highest tier that is safe to run; asks CPUID and the saved register state (XGETBV).
Tier isa_tier();

}  // namespace freetoken
