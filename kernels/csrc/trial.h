// Calls to a pool with nobody else at its mailbox: how fast it reads records with one prefetch setting
// and another. Nothing is kept of what it computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pool.h"

namespace freetoken {

class Trial {
   public:
    // Threads as `config` says, but with a mailbox of their own.
    explicit Trial(PoolConfig config);
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    // One call: all units of some records, up to kMailJobs, for one row. Returns nanoseconds from
    // seeing the call to its end, or 0 if there was none within `patience_ns`: no more calls then.
    int64_t run(const std::vector<int32_t>& records, const Prefetch& prefetch,
                int64_t patience_ns);

   private:
    struct Freed {
        void operator()(uint8_t* memory) const;
    };
    using Memory = std::unique_ptr<uint8_t[], Freed>;

    static Memory zeros(size_t bytes);

    Memory mail_, reply_;
    std::unique_ptr<Pool> pool_;  // ends before its mailbox
};

}  // namespace freetoken
