// Who takes part in a call of the pool.
#pragma once

#include <cstdint>

namespace freetoken {

// In one word, so that one exchange decides. A thread joins while the gate is open; it closes when
// everyone who has joined has arrived, that is, found no more units.
struct Gate {
    enum Phase : uint32_t { closed, opening, open };

    uint32_t call;
    Phase phase;
    uint32_t joined;
    uint32_t arrived;

    static Gate of(uint64_t word) {
        const uint32_t low = static_cast<uint32_t>(word);
        return {static_cast<uint32_t>(word >> 32), static_cast<Phase>(low >> 24),
                low >> 12 & kMostThreads, low & kMostThreads};
    }
    uint64_t word() const {
        return static_cast<uint64_t>(call) << 32 | phase << 24 | joined << 12 | arrived;
    }
    static constexpr uint32_t kMostThreads = 0xfff;
};

}  // namespace freetoken
