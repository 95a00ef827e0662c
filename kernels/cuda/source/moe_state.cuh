// What the kernels of an MoE layer share in device memory: sizes, policy, residency, one plan.
//
// The Python side is kernels/cuda/moe_state.py, which allocates these structures as tensors and
// whose sizes a test compares. One layer's nodes follow each other, so that one plan serves all.
#pragma once

#include "common.cuh"
#include "mailbox.h"

namespace freetoken {

constexpr int kRows = FT_ROWS;
constexpr int kHidden = FT_HIDDEN;
constexpr int kUnits = FT_UNITS;
constexpr int kExperts = FT_EXPERTS;
constexpr int kTopK = FT_TOPK;
constexpr int kMoeLayers = FT_MOE_LAYERS;
constexpr int kMaxSlots = FT_MAX_SLOTS;
constexpr int kRoutes = kRows * kTopK;  // also the most jobs and (job, row) pairs of a call
constexpr size_t kUnitBytes = FT_UNIT_BYTES;
constexpr size_t kRecordBytes = FT_RECORD_BYTES;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kRouterCtas = (kExperts + kWarps - 1) / kWarps;  // that ask one router, a warp an expert
constexpr int kVictims = 64;                     // candidates kept for the next plan
constexpr int kMergeColumns = kWarpLanes;        // columns of a CTA of `merge`
constexpr int kSharedFloats = 8192;              // rows of x that a CTA holds: 32 KiB of them
constexpr int kRowsAtOnce = kSharedFloats / kHidden < kRows ? kSharedFloats / kHidden : kRows;

static_assert(kHidden % 32 == 0 && kHidden <= kSharedFloats, "a row has whole parts and fits");
static_assert(kRoutes <= kMailSums && kTopK <= kExperts, "a call fits the mailbox");
static_assert(kMaxSlots >= 1 && kMaxSlots <= 1 << 14, "slots that one CTA can look through");

#ifdef FT_WATCHDOG_NS
constexpr uint64_t kWatchdogNs = FT_WATCHDOG_NS;
#else
constexpr uint64_t kWatchdogNs = 1200000000;
#endif

enum Mode : int { kTwoEnded, kSplit, kFillOnly, kCpuOnly };
enum Eviction : int { kLru, kFrequency };

// Written by the host between steps.
struct Policy {
    int32_t mode;
    int32_t eviction;
    int32_t num_slots;  // slots that may hold something
    int32_t store_min;  // two_ended: units forecast to arrive for which a slot is given away
    float share;        // split: of the missing units, over the link
    float growth;       // frequency: log2 of a score's decay by one step
    int32_t pool;       // 1: the CPU pool serves the mailbox
    int32_t ahead;      // 1: the pool is told what the next layer will probably miss
};

// Written by the kernels.
struct Clock {
    uint32_t tick;    // layers planned; may wrap
    uint32_t call;    // last number published
    uint32_t failed;  // 1: the pool did not answer, or refused; nothing is published any more
    float share;      // running mean of the link's share of the missing units
};

struct Victim {
    int32_t slot;    // -1: none
    int32_t record;  // its owner when it was chosen, -1 if it was free
};

// One distinct expert of a call. Jobs that miss units come first, in the order of the list.
struct alignas(16) Job {
    int32_t record;
    int32_t slot;   // -1: none; what the link brings is stored there
    int16_t valid;  // units [0, valid) lie in the slot; the list holds the others
    uint8_t rows;   // bit r: row r uses it
    uint8_t base;   // number of its first (job, row) pair
    int32_t start;  // place of its first unit in the list
};

// One layer's plan: written by route_plan, read by experts and merge.
struct Plan {
    int32_t jobs;
    int32_t listed;      // jobs that miss units
    int32_t units;       // in the list
    int32_t limit;       // the pool may take [0, limit); 0: it was not asked
    int32_t link_first;  // link workers may take [link_first, units)
    uint32_t call;       // number of the call, if limit > 0
    int32_t fills;       // slots that change owner
    int32_t unserved;    // 1: nobody may compute the missing units
    uint64_t planned_ns;
    uint64_t link_end_ns;  // of the last unit over the link, 0 if there was none
    uint32_t ticket;       // CTAs of route_plan that have arrived, of those that plan
    uint32_t taken;        // units taken from the back; may pass the end of the list
    uint64_t seen;         // merge: the call whose reply was read, and units << 32 that it holds
    uint32_t seen_ns;      // of that call
    uint32_t ahead_ticket;  // CTAs of route_plan that have arrived, of those that look ahead
    uint32_t guesses;       // told to the pool; 16 bits
    uint32_t unused[3];
    Job job[kMailJobs];  // those behind the last one have no units in a slot
    int32_t route_job[kMailSums];   // by row * top-k + k
    int32_t route_pair[kMailSums];
    float route_weight[kMailSums];
};

// Sums since load; int64 each.
enum Counter : int {
    kCountRoutes,
    kCountHitUnits,
    kCountLinkUnits,
    kCountCpuUnits,
    kCountWastedUnits,  // over the link, though the pool's sums hold them already
    kCountLayers,
    kCountLinkLayers,
    kCountCpuLayers,
    kCountLinkNs,
    kCountCpuNs,
    kCountTimeouts,
    kCountPoolErrors,
    kCountFills,
    kCountHash,
    kNumCounters,
};

struct MoeArguments {
    float* x;          // [rows][hidden], the residual stream
    float* normed;     // [rows][hidden]
    float* logits;     // [2][rows][experts]: of the layer, and of the next one as far as can be told
    float* partial;    // [rows * top-k][units][hidden]: units' sums by (job, row) pair
    uint8_t* slots;    // [max_slots] records
    uint8_t* staging;  // [kMailWorkers] units
    Mail* mail;
    Reply* reply;
    int32_t* slot_of;  // by record: slot or -1
    int32_t* valid;    // by record: units [0, valid) lie in the slot
    int32_t* owner;    // by slot: record or -1
    float* score;      // by record: uses, those of long ago counting less; as of its stamp
    uint32_t* stamp;   // by record: tick of its last use
    int32_t* uses;     // by record: routes since load
    Victim* victims;   // [kVictims], coldest first
    const uint8_t* link_ok;  // by layer: its records can be read over the link
    const Policy* policy;
    Clock* clock;
    Plan* plan;
    int64_t* counters;
};

struct MoeLayer {
    const void* router;      // [experts][hidden]
    const float* norm;       // [hidden]
    const uint8_t* records;  // the layer's first record, as the device sees it
    float eps;
    float weight_scale;  // of every route's weight
    int32_t layer;
    int32_t workers;  // link workers, up to kMailWorkers
    const void* next_router;  // of the layer behind it, or none
    const float* next_norm;
};

// How much a record is worth a slot: higher is better, 1 is the least; free slots count 0.
__device__ __forceinline__ uint32_t worth(const Policy& policy, uint32_t age, float score) {
    if (policy.eviction == kLru) return 0x80000000u - (age < 0x7fffffffu ? age : 0x7fffffffu);
    const float level = log2f(score) - policy.growth * (static_cast<float>(age) / kMoeLayers);
    const uint32_t bits = __float_as_uint(level);  // as a number that orders like the level
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ Policy read_policy(const MoeArguments& a) {
    Policy policy;
    const int4* from = reinterpret_cast<const int4*>(a.policy);
    const int4 first = __ldcg(from), second = __ldcg(from + 1);
    policy.mode = first.x, policy.eviction = first.y, policy.num_slots = first.z;
    policy.store_min = first.w, policy.share = __int_as_float(second.x);
    policy.growth = __int_as_float(second.y), policy.pool = second.z, policy.ahead = second.w;
    return policy;
}

__device__ __forceinline__ Job read_job(const Job* from) {
    const int4 v = __ldcg(reinterpret_cast<const int4*>(from));
    const uint32_t z = static_cast<uint32_t>(v.z);
    return {v.x, v.y, static_cast<int16_t>(z & 0xffffu), static_cast<uint8_t>(z >> 16 & 0xffu),
            static_cast<uint8_t>(z >> 24), v.w};
}

static_assert(sizeof(Policy) == 32 && sizeof(Clock) == 16 && sizeof(Victim) == 8, "as in Python");
static_assert(sizeof(Job) == 16 && sizeof(Plan) == 96 + kMailJobs * 16 + kMailSums * 12,
              "as in Python");
static_assert(sizeof(MoeArguments) == 20 * 8 && sizeof(MoeLayer) == 56, "as in Python");

}  // namespace freetoken
