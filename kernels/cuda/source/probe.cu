// What the probe of a machine runs: reads, gathers over the link, graph nodes, a host's answer.
//
// No part of a model. Launched by tests/perf/probe_cuda.py.
#include "common.cuh"

using freetoken::spin_hint;

extern "C" {

// A graph node that does nothing.
__global__ void probe_empty() {}

// A graph node that depends on the one before it.
__global__ void probe_step(float* values) {
    values[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f;
}

// Reads words [0, count). What they come to is stored if it is `never`, so that the loads must be done.
__global__ void probe_read(const uint4* words, uint64_t count, uint32_t never, uint32_t* sink) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    uint32_t sum = 0;
    for (; i + 3 * step < count; i += 4 * step) {
        uint4 part[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) part[k] = words[i + k * step];
#pragma unroll
        for (int k = 0; k < 4; ++k) sum ^= part[k].x ^ part[k].y ^ part[k].z ^ part[k].w;
    }
    if (sum == never) *sink = sum;
}

// Copies `records` records of `words` words each from mapped host memory, one behind the other;
// ids[r] is the place of record r in the source.
__global__ void probe_gather(const uint4* source, uint4* target, const int* ids, int records,
                             uint64_t words) {
    const uint64_t count = words * records;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        uint4 part[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const uint64_t at = i + k * step;
            part[k] = source[ids[at / words] * words + at % words];
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) target[i + k * step] = part[k];
    }
    for (; i < count; i += step) target[i] = source[ids[i / words] * words + i % words];
}

// Rings the host's bell with the next number.
__global__ void probe_ring(volatile uint64_t* bell, uint64_t* number) {
    *number += 1;
    __threadfence_system();
    *bell = *number;
}

// Waits until the host has answered that number, two seconds at most.
__global__ void probe_wait(volatile uint64_t* answer, const uint64_t* number, int64_t limit_cycles) {
    const int64_t start = clock64();
    while (*answer < *number && clock64() - start < limit_cycles) spin_hint();
    __threadfence_system();
}

}  // extern "C"
