// Names that Python uses for tiers and encodings.
#pragma once

#include <stdexcept>
#include <string>

#include "experts.h"
#include "isa.h"

namespace freetoken {

constexpr const char* kTierNames[] = {"scalar", "avx2", "avx512"};  // in the order of the enum

inline Tier tier_of(const std::string& name) {
    for (int i = 0; i <= static_cast<int>(isa_tier()); i++)
        if (name == kTierNames[i]) return static_cast<Tier>(i);
    throw std::invalid_argument("this CPU cannot run the tier " + name);
}

inline Encoding encoding_of(const std::string& name) {
    if (name == "bf16") return Encoding::bf16;
    if (name == "fp8_block") return Encoding::fp8_block;
    throw std::invalid_argument("unknown encoding " + name);
}

}  // namespace freetoken
