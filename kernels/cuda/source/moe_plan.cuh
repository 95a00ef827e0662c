// From logits to one layer's plan: top-k of every row, distinct experts, who computes what, whose
// slot is given away. Done by the last CTA of route_plan that arrives; every loop is over routes.
#pragma once

#include "moe_unit.cuh"

namespace freetoken {

// Shared memory of the planning CTA. "By route" means by row * top-k + k; a job is kept at the first
// route that names its expert.
struct PlanScratch {
    int slot_of[kExperts];  // the layer's residency, read while x is normed
    int valid[kExperts];
    uint32_t stamp[kExperts];
    float score[kExperts];
    int expert[kRoutes];
    float weight[kRoutes];
    int lead[kRoutes];     // route that keeps the job
    int rows[kRoutes];     // mask of the job's rows; 0 where no job is kept
    int missing[kRoutes];  // units that lie in no slot
    uint32_t key[kRoutes];
    int place[kRoutes];    // of the job
    int base[kRoutes];     // number of its first pair
    int wants[kRoutes];    // 1: it has no slot and shall get one
    Victim victim[kVictims];
    uint32_t victim_key[kVictims];
    uint32_t usable[2];  // masks of victims that may be taken
    int fills;
    int units, listed, jobs;
};

constexpr int kOwnRecords = (kExperts + kThreads - 1) / kThreads;

// A thread's part of what lies where in a layer, on its way: nothing of it changes before the plan.
struct Residency {
    int slot_of[kOwnRecords], valid[kOwnRecords];
    uint32_t stamp[kOwnRecords];
    float score[kOwnRecords];
    Victim victim;  // a candidate
};

// What a candidate was when the CTA began; one thread each.
struct Candidate {
    Victim victim;
    int owner;  // of its slot; the host may have moved it
    uint32_t stamp;
    float score;
    bool usable;
};

// How the missing units are shared out.
struct Share {
    int limit;       // the pool may take [0, limit)
    int link_first;  // link workers [link_first, units)
    int forecast;    // units that the link will bring, as far as is known
    int store_min;
};

__device__ __forceinline__ Share share_out(const Policy& policy, const Clock& clock, bool link_ok,
                                           int units) {
    const bool pool = policy.pool && !clock.failed;
    const int mode = pool ? policy.mode : kFillOnly;
    if (!link_ok) return {pool ? units : 0, units, 0, 1};
    if (mode == kTwoEnded) {
        const int forecast = static_cast<int>(static_cast<float>(units) * clock.share + 0.5f);
        return {units, 0, forecast, policy.store_min > 1 ? policy.store_min : 1};
    }
    if (mode == kSplit) {
        const int link = static_cast<int>(static_cast<float>(units) * policy.share + 0.5f);
        return {units - link, units - link, link, 1};
    }
    if (mode == kCpuOnly) return {units, units, 0, 1};
    return {0, 0, units, 1};
}

// A number that orders like the logit; 0 is below every one.
__device__ __forceinline__ uint32_t rank_bits(float logit) {
    const uint32_t bits = __float_as_uint(logit);
    const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return order ? order : 1u;
}

// Softmax over all experts and the K largest, equal ones by lower id; one warp, one row.
__device__ __forceinline__ void choose_experts(const float* logits, float weight_scale, int* expert,
                                               float* weight) {
    constexpr int kOwn = (kExperts + kWarpLanes - 1) / kWarpLanes;  // neighbours, so lanes order ids
    const int lane = threadIdx.x % kWarpLanes;
    const float lowest = __uint_as_float(0xff800000u);  // minus infinity
    float logit[kOwn];
    uint32_t rank[kOwn];
    float highest = lowest;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const int id = lane * kOwn + i;
        logit[i] = id < kExperts ? __ldcg(logits + id) : lowest;
        rank[i] = id < kExperts ? rank_bits(logit[i]) : 0u;
        highest = fmaxf(highest, logit[i]);
    }
    highest = warp_max(highest);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kOwn; i++)
        if (lane * kOwn + i < kExperts) sum += exponential(__fsub_rn(logit[i], highest));
    sum = warp_sum(sum);
    float chosen = 0.0f;
    int chosen_id = 0;
    for (int k = 0; k < kTopK; k++) {
        uint32_t best = rank[0];
        int at = 0;
#pragma unroll
        for (int i = 1; i < kOwn; i++)
            if (rank[i] > best) best = rank[i], at = i;
        const uint32_t top = __reduce_max_sync(kAllLanes, best);
        const int from = __ffs(static_cast<int>(__ballot_sync(kAllLanes, best == top))) - 1;
        float value = 0.0f;
#pragma unroll
        for (int i = 0; i < kOwn; i++) {
            if (i != at) continue;
            value = logit[i];
            if (lane == from) rank[i] = 0;
        }
        const int id = __shfl_sync(kAllLanes, lane * kOwn + at, from);
        value = __shfl_sync(kAllLanes, value, from);
        if (lane == k) chosen = value, chosen_id = id;
    }
    const float share = __fdiv_rn(exponential(__fsub_rn(chosen, highest)), sum);
    float total = 0.0f;
    if (FT_NORMALISE)
        for (int k = 0; k < kTopK; k++) total += __shfl_sync(kAllLanes, share, k);
    if (lane < kTopK) {
        expert[lane] = chosen_id;
        weight[lane] = __fmul_rn(FT_NORMALISE ? __fdiv_rn(share, total) : share, weight_scale);
    }
}

__device__ __forceinline__ Residency load_residency(const MoeArguments& a, int layer) {
    Residency r;
#pragma unroll
    for (int i = 0; i < kOwnRecords; i++) {
        const int expert = threadIdx.x + i * kThreads;
        if (expert >= kExperts) break;
        const int record = layer * kExperts + expert;
        r.slot_of[i] = __ldcg(a.slot_of + record);
        r.valid[i] = __ldcg(a.valid + record);
        r.stamp[i] = __ldcg(a.stamp + record);
        r.score[i] = __ldcg(a.score + record);
    }
    r.victim = {-1, -1};
    if (threadIdx.x < kVictims) {
        const int2 v = __ldcg(reinterpret_cast<const int2*>(a.victims) + threadIdx.x);
        r.victim = {v.x, v.y};
    }
    return r;
}

// Puts the layer's residency where all threads see it; they meet before they use it.
__device__ __forceinline__ void keep_residency(const Residency& r, PlanScratch& s) {
#pragma unroll
    for (int i = 0; i < kOwnRecords; i++) {
        const int expert = threadIdx.x + i * kThreads;
        if (expert >= kExperts) break;
        s.slot_of[expert] = r.slot_of[i];
        s.valid[expert] = r.valid[i];
        s.stamp[expert] = r.stamp[i];
        s.score[expert] = r.score[i];
    }
}

__device__ __forceinline__ Candidate load_candidate(const MoeArguments& a, const Policy& policy,
                                                    Victim victim) {
    Candidate c{victim, -1, 0, 0.0f, victim.slot >= 0 && victim.slot < policy.num_slots};
    if (!c.usable) return c;
    c.owner = __ldcg(a.owner + victim.slot);
    if (victim.record >= 0) {
        c.stamp = __ldcg(a.stamp + victim.record);
        c.score = __ldcg(a.score + victim.record);
    }
    return c;
}

// Step 1, one thread a route: distinct experts and what they miss. With `used` their use is counted;
// without it this is a guess.
__device__ __forceinline__ void find_jobs(const MoeArguments& a, const Policy& policy, int layer,
                                          uint32_t tick, bool used, PlanScratch& s) {
    const int route = threadIdx.x;
    if (route >= kRoutes) return;
    const int expert = s.expert[route];
    int lead = route, rows = 0, uses = 0;
    for (int other = kRoutes - 1; other >= 0; other--) {
        if (s.expert[other] != expert) continue;
        rows |= 1 << other / kTopK;
        uses++;
        if (other < route) lead = other;
    }
    s.lead[route] = lead;
    s.rows[route] = lead == route ? rows : 0;
    s.missing[route] = 0;
    s.wants[route] = 0;
    if (lead != route) return;
    const int record = layer * kExperts + expert;
    const uint32_t age = tick - s.stamp[expert];
    const float old = s.score[expert];
    const float decay = exp2f(-policy.growth * (static_cast<float>(age) / kMoeLayers));
    const float score = (old > 0.0f ? old * decay : 0.0f) + static_cast<float>(uses);
    if (used) {
        a.score[record] = score;
        a.stamp[record] = tick;
        atomicAdd(a.uses + record, uses);
    }
    s.missing[route] = s.slot_of[expert] >= 0 ? kUnits - s.valid[expert] : kUnits;
    s.key[route] = worth(policy, 0, score);
}

// Step 2: the list, lowest key first, because the link takes from its end and stores what it takes.
// Experts that miss nothing follow.
__device__ __forceinline__ void order_jobs(PlanScratch& s) {
    const int route = threadIdx.x;
    if (route >= kRoutes) return;
    const int missing = s.missing[route];
    const uint32_t key = missing ? s.key[route] : 0;
    int listed = 0, jobs = 0, units = 0, before = 0, base = 0, hits_before = 0;
    for (int other = 0; other < kRoutes; other++) {
        const int rows = s.rows[other], theirs = s.missing[other];
        if (!rows) continue;
        jobs++;
        units += theirs;
        if (other < route) base += __popc(static_cast<unsigned>(rows));
        if (theirs) {
            listed++;
            const uint32_t other_key = s.key[other];
            before += other_key < key || (other_key == key && other > route);
        } else {
            hits_before += other < route;
        }
    }
    s.place[route] = missing ? before : listed + hits_before;
    s.base[route] = base;
    if (route == 0) s.units = units, s.listed = listed, s.jobs = jobs;
}

// Where the job of `route` begins in the list.
__device__ __forceinline__ int list_start(const PlanScratch& s, int route) {
    int start = 0;
    for (int other = 0; other < kRoutes; other++)
        if (s.missing[other] && s.place[other] < s.place[route]) start += s.missing[other];
    return start;
}

// Step 3: who wants a slot, and which candidates may lose theirs.
__device__ __forceinline__ void find_wishes(const Share& share, const Policy& policy, int layer,
                                            uint32_t tick, const Candidate& c, PlanScratch& s) {
    const int thread = threadIdx.x;
    if (thread < kRoutes && s.rows[thread] && s.missing[thread]) {
        // The link brings the list's last `forecast` units, the most valuable experts.
        const int behind = s.units - list_start(s, thread) - s.missing[thread];
        const int left = share.forecast - behind;
        const int comes = left < s.missing[thread] ? left : s.missing[thread];
        s.wants[thread] = s.slot_of[s.expert[thread]] < 0 && comes >= share.store_min;
    }
    if (thread >= kVictims) return;
    const int record = c.victim.record;
    bool usable = c.usable && c.owner == record;
    for (int route = 0; route < kRoutes; route++)
        if (record == layer * kExperts + s.expert[route]) usable = false;
    const uint32_t mask = __ballot_sync(kAllLanes, usable);
    if (thread % kWarpLanes == 0) s.usable[thread / kWarpLanes] = mask;
    s.victim[thread] = c.victim;
    s.victim_key[thread] = record >= 0 ? worth(policy, tick - c.stamp, c.score) : 0;
}

// The candidate for the `rank`-th of those who want a slot, or -1.
__device__ __forceinline__ int pick_candidate(const PlanScratch& s, int rank) {
    uint64_t mask = s.usable[0] | static_cast<uint64_t>(s.usable[1]) << 32;
    for (; rank && mask; rank--) mask &= mask - 1;
    return mask ? __ffsll(static_cast<long long>(mask)) - 1 : -1;
}

// Step 4: the best expert gets the worst slot, if it is worth more than who lies there; and so on.
// Returns the slot, or -1.
__device__ __forceinline__ int give_slot(const MoeArguments& a, int record, PlanScratch& s) {
    const int route = threadIdx.x;
    int rank = 0;
    for (int other = 0; other < kRoutes; other++)
        rank += s.wants[other] && s.place[other] > s.place[route];
    const int candidate = pick_candidate(s, rank);
    if (candidate < 0) return -1;
    const Victim victim = s.victim[candidate];
    if (s.key[route] <= s.victim_key[candidate]) return -1;
    if (victim.record >= 0) {
        a.slot_of[victim.record] = -1;
        a.valid[victim.record] = 0;
    }
    a.owner[victim.slot] = record;
    a.slot_of[record] = victim.slot;
    a.valid[record] = 0;  // merge says what has come
    atomicAdd(&s.fills, 1);
    return victim.slot;
}

// Step 5: the plan, and its list for the pool; one thread a route.
__device__ __forceinline__ void write_jobs(const MoeArguments& a, int layer, bool publish,
                                           PlanScratch& s) {
    const int route = threadIdx.x;
    if (route >= kRoutes) return;
    const int lead = s.lead[route], row = route / kTopK;
    const unsigned before = static_cast<unsigned>(s.rows[lead]) & ((1u << row) - 1u);
    a.plan->route_job[route] = s.place[lead];
    a.plan->route_pair[route] = s.base[lead] + __popc(before);
    a.plan->route_weight[route] = s.weight[route];
    if (lead != route) {
        int spare = 0;
        for (int other = 0; other < route; other++) spare += s.lead[other] != other;
        a.plan->job[s.jobs + spare] = {-1, -1, 0, 0, 0, 0};
        return;
    }
    const int expert = s.expert[route], record = layer * kExperts + expert;
    const int missing = s.missing[route], place = s.place[route];
    int slot = s.slot_of[expert];
    if (s.wants[route]) slot = give_slot(a, record, s);
    Job job;
    job.record = record;
    job.slot = slot;
    job.valid = static_cast<int16_t>(kUnits - missing);
    job.rows = static_cast<uint8_t>(s.rows[route]);
    job.base = static_cast<uint8_t>(s.base[route]);
    job.start = missing ? list_start(s, route) : s.units;
    a.plan->job[place] = job;
    if (!publish || !missing) return;
    MailJob mail;
    mail.record = record;
    mail.first = job.valid;
    mail.rows = job.rows;
    mail.base = job.base;
    a.mail->job[place] = mail;
}

// Tells the pool what a layer will probably miss, in the order in which its list would be; by one CTA,
// beside the plan of the layer before. Residency may change meanwhile, which makes the guess a worse
// one and nothing else.
__device__ __forceinline__ void tell_guess(const MoeArguments& a, const Policy& policy, int layer,
                                           uint32_t tick, PlanScratch& s) {
    const int route = threadIdx.x;
    uint32_t* guesses = &a.plan->guesses;
    find_jobs(a, policy, layer, tick, false, s);
    __syncthreads();
    order_jobs(s);
    __syncthreads();
    if (s.listed == 0) return;
    const uint64_t number = static_cast<uint16_t>(__ldcg(guesses) + 1);
    __syncthreads();
    if (route == 0) *guesses = static_cast<uint32_t>(number);
    if (route >= kRoutes || !s.missing[route] || s.place[route] >= kMailAhead) return;
    const uint64_t record = static_cast<uint64_t>(layer * kExperts + s.expert[route]);
    const uint64_t first = static_cast<uint64_t>(kUnits - s.missing[route]);
    post8(&a.mail->ahead[s.place[route]], record | first << 32 | number << 48);
}

// The plan of one layer by one CTA, published to the pool if that has a share. `x` are the normed
// rows. All state of the plan before has been used up: kernels of a step follow each other.
__device__ __forceinline__ void make_plan(const MoeArguments& a, const MoeLayer& layer,
                                          const Policy& policy, const Clock& clock,
                                          const Candidate& c, const float (*x)[kHidden],
                                          PlanScratch& s) {
    const int thread = threadIdx.x;
    if (thread == 0) s.fills = 0;
    find_jobs(a, policy, layer.layer, clock.tick, true, s);
    __syncthreads();
    order_jobs(s);
    __syncthreads();
    const bool link_ok = __ldcg(a.link_ok + layer.layer) && layer.workers > 0;
    const Share share = share_out(policy, clock, link_ok, s.units);
    find_wishes(share, policy, layer.layer, clock.tick, c, s);
    __syncthreads();
    const bool publish = share.limit > 0;
    const uint32_t call = clock.call + 1;
    write_jobs(a, layer.layer, publish, s);
    if (publish) {
        float4* to = reinterpret_cast<float4*>(reinterpret_cast<uint8_t*>(a.mail) + kMailBytes);
        const float4* from = reinterpret_cast<const float4*>(a.normed);
        const float4* here = reinterpret_cast<const float4*>(x[0]);  // all rows, if so many fit
        for (int i = thread; i < kRows * kHidden / 4; i += kThreads)
            to[i] = kRows <= kRowsAtOnce ? here[i] : __ldcg(from + i);
    }
    __syncthreads();
    if (thread) return;
    Plan& plan = *a.plan;
    plan.jobs = s.jobs;
    plan.listed = s.listed;
    plan.units = s.units;
    plan.limit = share.limit;
    plan.link_first = share.link_first;
    plan.call = call;
    plan.fills = s.fills;
    plan.unserved = s.units > 0 && share.limit == 0 && share.link_first >= s.units;
    plan.link_end_ns = 0;
    plan.taken = 0;
    a.clock->tick = clock.tick + 1;
    if (publish) {
        a.clock->call = call;
        a.mail->jobs = static_cast<uint32_t>(s.listed);
        a.mail->rows = kRows;
        a.mail->limit = static_cast<uint32_t>(share.limit);
        system_fence();  // with the barrier: all of the CTA's stores come before the number
        post4(&a.mail->call, call);
    }
    plan.planned_ns = nanoseconds();
}

}  // namespace freetoken
