// The part of Reply.claim that belongs to a call.
#pragma once

#include <cstdint>

#include "mailbox.h"

namespace freetoken {

constexpr uint64_t kAheadUnit = 1ull << kPassedBits;

struct Claimed {
    int parts, ahead;

    explicit Claimed(uint64_t word)
        : parts(static_cast<int>(word & (kAheadUnit - 1))),
          ahead(static_cast<int>(static_cast<uint32_t>(word) >> kPassedBits)) {}
};

}  // namespace freetoken
