// Link workers: CTAs that take missing units from the back of the list, read them over the link,
// compute them, and store them on the way. And the search for slots that the next plan may take.
#pragma once

#include "moe_unit.cuh"

namespace freetoken {

constexpr int kClaimMargin = 16;  // units that the pool may have claimed since one looked
// Units at the end that are left to the pool: all its threads share them, and are done sooner than
// one link worker with one unit.
#ifndef FT_LINK_RESERVE
#define FT_LINK_RESERVE (FT_UNITS / 12)
#endif
constexpr float kLinkReserve = FT_LINK_RESERVE;
constexpr float kPoolUnitsPerNs = 120.0f / kUnitBytes;  // a fast pool

// What thread 0 of a worker knows of the other side.
struct Rival {
    float claimed = 0.0f;  // units that the pool had claimed ..
    uint64_t looked_ns = 0;  // .. at that time
    uint32_t mine = 0;       // units that this worker has taken
};

// Units of the list that the pool has begun, as if all were at the front: a read over the link.
__device__ __forceinline__ float claimed_units(const Reply* reply, uint32_t call) {
    const uint64_t word = poll8(&reply->claim);
    const int32_t ahead = static_cast<int32_t>(static_cast<uint32_t>(word >> 32) - call);
    if (ahead > 0) return 1e9f;  // it has finished
    const uint32_t begun = static_cast<uint32_t>(word);
    const uint32_t parts = begun & ((1u << kPassedBits) - 1u);
    const uint32_t units = (parts + kUnitParts - 1) / kUnitParts + (begun >> kPassedBits);
    return ahead < 0 ? 0.0f : static_cast<float>(units);
}

// The plan's words that a worker needs.
struct List {
    int listed, units, limit, link_first;
    uint32_t call;
};

// Takes the next unit from the back: its place in the list, or -1 if there is none for the link.
// What was taken is computed, whoever else does it too: the units behind the pool's part must exist.
__device__ __forceinline__ int take_unit(const MoeArguments& a, const List& list, int worker,
                                         Rival& rival) {
    const bool contested = list.limit > list.link_first;
    const int next = list.units - 1 - static_cast<int>(poll4(&a.plan->taken));
    if (next < list.link_first) return -1;
    if (contested) {
        const uint64_t now = nanoseconds();
        const float since = static_cast<float>(now - rival.looked_ns) * kPoolUnitsPerNs;
        if (static_cast<float>(next) < rival.claimed + kLinkReserve + since + kClaimMargin) {
            rival.claimed = claimed_units(a.reply, list.call);
            rival.looked_ns = now;
        }
        if (static_cast<float>(next) < rival.claimed + kLinkReserve) return -1;
    }
    const int unit = list.units - 1 - static_cast<int>(atomicAdd(&a.plan->taken, 1u));
    if (unit < list.link_first) return -1;
    if (contested)
        post8(&a.mail->stolen[worker], static_cast<uint64_t>(list.call) << 32 | ++rival.mine);
    return unit;
}

#ifndef FT_APART
#define FT_APART __noinline__
#endif
__device__ FT_APART void work_on_link(const MoeArguments& a, const MoeLayer& layer,
                                             int worker, UnitScratch& s) {
    __shared__ int taken;
    const Plan& plan = *a.plan;
    const List list{__ldcg(&plan.listed), __ldcg(&plan.units), __ldcg(&plan.limit),
                    __ldcg(&plan.link_first), __ldcg(&plan.call)};
    if (list.units <= list.link_first) return;
    Rival rival;
    rival.looked_ns = nanoseconds();
    int place = list.listed - 1;
    Job job = read_job(&a.plan->job[place]);
    for (;;) {
        if (threadIdx.x == 0) taken = take_unit(a, list, worker, rival);
        __syncthreads();
        const int at = taken;
        if (at < 0) return;
        while (at < job.start) job = read_job(&a.plan->job[--place]);  // places only fall
        const int unit = kUnits - 1 - (at - job.start);
        const size_t offset = unit * kUnitBytes;
        UnitWork work;
        work.source = layer.records +
                      static_cast<size_t>(job.record - layer.layer * kExperts) * kRecordBytes +
                      offset;
        work.target = job.slot >= 0 ? a.slots + job.slot * kRecordBytes + offset
                      : kRowsAtOnce < kRows ? a.staging + worker * kUnitBytes
                                            : nullptr;
        work.rows = job.rows;
        work.base = job.base;
        work.unit = unit;
        compute_unit<true>(a, work, s);
        if (threadIdx.x == 0)
            atomicMax(reinterpret_cast<unsigned long long*>(&a.plan->link_end_ns),
                      static_cast<unsigned long long>(nanoseconds()));
    }
}

// --- victims -------------------------------------------------------------------------------------

// A CTA's sum of one number a thread; all threads get it.
__device__ __forceinline__ int count_all(int own, int (*parts)[kWarps], int& turn) {
    const int sum = __reduce_add_sync(kAllLanes, own);
    int* here = parts[turn ^= 1];  // the other one may still be read
    if (threadIdx.x % kWarpLanes == 0) here[threadIdx.x / kWarpLanes] = sum;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < kWarps; w++) all += here[w];
    return all;
}

// The kVictims slots of least worth, lowest slot first among equals, for the plans up to the next
// miss. By halving an interval: first of keys, then of slots among those of the last key that still
// fits.
__device__ FT_APART void find_victims(const MoeArguments& a) {
    constexpr int kOwn = (kMaxSlots + kThreads - 1) / kThreads;
    __shared__ int parts[2][kWarps];
    __shared__ int found;
    __shared__ uint32_t keys[kVictims];
    __shared__ Victim victims[kVictims];
    const int thread = threadIdx.x;
    const Policy policy = read_policy(a);
    const uint32_t tick = __ldcg(&a.clock->tick);
    uint32_t key[kOwn];
    int turn = 0, own = 0;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const int slot = thread + i * kThreads;
        key[i] = ~0u;
        if (slot >= policy.num_slots || slot >= kMaxSlots) continue;
        const int owner = __ldcg(a.owner + slot);
        key[i] = owner < 0 ? 0u
                           : worth(policy, tick - __ldcg(a.stamp + owner), __ldcg(a.score + owner));
        own++;
    }
    const int slots = count_all(own, parts, turn);
    const int want = slots < kVictims ? slots : kVictims;
    // The lowest limit that at least `want` keys do not pass.
    uint32_t low = 0, high = ~0u;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        int below = 0;
#pragma unroll
        for (int i = 0; i < kOwn; i++) below += key[i] <= middle;
        if (count_all(below, parts, turn) >= want)
            high = middle;
        else
            low = middle + 1;
    }
    // And the lowest slot of that key up to which there are just as many as are wanted.
    int first = 0, last = kMaxSlots - 1;
    while (first < last) {
        const int middle = (first + last) / 2;
        int below = 0;
#pragma unroll
        for (int i = 0; i < kOwn; i++)
            below += key[i] < low || (key[i] == low && thread + i * kThreads <= middle);
        if (count_all(below, parts, turn) >= want)
            last = middle;
        else
            first = middle + 1;
    }
    if (thread == 0) found = 0;
    if (thread < kVictims) keys[thread] = ~0u, victims[thread] = {-1, -1};
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const int slot = thread + i * kThreads;
        if (slot >= policy.num_slots || !(key[i] < low || (key[i] == low && slot <= first)))
            continue;
        const int at = atomicAdd(&found, 1);
        if (at < kVictims) keys[at] = key[i], victims[at] = {slot, __ldcg(a.owner + slot)};
    }
    __syncthreads();
    if (thread >= kVictims) return;
    const Victim mine = victims[thread];
    int rank = 0;
    for (int other = 0; other < kVictims; other++) {
        const int slot = victims[other].slot;
        if (mine.slot < 0)
            rank += slot >= 0 || other < thread;
        else
            rank += slot >= 0 && (keys[other] < keys[thread] ||
                                  (keys[other] == keys[thread] && slot < mine.slot));
    }
    a.victims[rank] = mine;
}

}  // namespace freetoken
