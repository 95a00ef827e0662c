// How fast this machine's memory can be read: what the pool's rate is compared with.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace freetoken {

// Reads `bytes` of memory `passes` times, one thread for each of `cpus`, each its own share.
// Returns bytes per second, from the moment that all threads have started to the last one's end.
double read_rate(const uint8_t* data, size_t bytes, const std::vector<int>& cpus, bool pin,
                 int passes);

}  // namespace freetoken
