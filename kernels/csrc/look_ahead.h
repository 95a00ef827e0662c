// Fetches what the next layer will probably miss from memory into the CPU's caches, while the GPU is
// at attention and projections and the memory has nothing else to do.
//
// The GPU says what that will be (mailbox.h): the next router, asked with this layer's input. It is
// a guess that nobody waits for: a wrong, late or torn one costs memory traffic, never a bit. Units
// are fetched in the order in which the pool would compute them, each by one thread, which later
// computes it too if it can: what lies in its own cache is read several times as fast.
#pragma once

#include <atomic>
#include <cstdint>

#include "experts.h"
#include "mailbox.h"

namespace freetoken {

struct PoolConfig;

// What one thread has fetched, of the newest guess and of the one before: a guess comes a little
// before the call for which the older one was made.
struct Fetched {
    static constexpr int kMostUnits = 8;  // of a guess

    struct Unit {
        const uint8_t* first;
        uint32_t guess;
    };
    Unit unit[2 * kMostUnits];
    int units = 0;
    uint32_t guess = 0;    // the newest one
    int of_guess = 0;      // units of it
    bool is_open = false;  // the last unit still has bytes to fetch, ..
    int64_t bytes = 0;     // .. these of it are there
    bool is_over = true;   // nothing is left of the guess for this thread

    void begin(uint32_t newest);
    void add(const uint8_t* first);
    // Its call has come: what was not fetched by now is not fetched any more.
    void end() { is_over = true; }
    // Whether unit number `n` lies in the cache for the most part.
    bool has(int n, size_t unit_bytes) const {
        return !(is_open && n == units - 1) || 2 * bytes >= static_cast<int64_t>(unit_bytes);
    }
};

class LookAhead {
   public:
    explicit LookAhead(const PoolConfig& config);
    LookAhead(const LookAhead&) = delete;
    LookAhead& operator=(const LookAhead&) = delete;

    // For a thread that waits for a call other than `seen`: fetches units of the newest guess until
    // there are none for it, or the call is there. Called again it goes on.
    void fetch(uint32_t seen, Fetched& mine);
    uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
    uint32_t number() const;

   private:
    const uint8_t* take(uint32_t guess);
    const uint8_t* unit(uint32_t guess, int64_t place) const;
    bool fetch_unit(uint32_t seen, Fetched& mine);

    const PoolConfig& config_;
    const int most_;  // units that a thread fetches
    alignas(64) std::atomic<uint64_t> taken_;  // guess << 32 | units of it that threads have taken
    alignas(64) std::atomic<uint64_t> bytes_{0};
};

}  // namespace freetoken
