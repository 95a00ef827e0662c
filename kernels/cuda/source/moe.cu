// An MoE layer of a decode step in three nodes: route_plan, experts, merge. And a hash for tests.
//
// The protocol with the CPU pool stands in mailbox.h, the order of sums in canonical.h. Whatever a
// CTA waits for is done by a CTA of a lower number of the same grid, so that it runs already.
#include "moe_link.cuh"
#include "moe_plan.cuh"

namespace freetoken {

// --- router --------------------------------------------------------------------------------------

#if FT_ROUTER == 0
constexpr int kRouterWords = 1;  // of 16 bytes, for 8 weights
#elif FT_ROUTER == 2
constexpr int kRouterWords = 2;
#else
#error "a router is bf16 or float32"
#endif
constexpr int kRouterChunks = kChunks < 8 ? kChunks : 8;  // of a row, on their way at once

struct RouterPiece {
    uint4 raw[kRouterChunks][kRouterWords];
};

template <bool kEarly>
__device__ __forceinline__ void load_router(const void* router, int row, int first,
                                            RouterPiece& out) {
    const uint4* from = static_cast<const uint4*>(router) +
                        static_cast<size_t>(row) * (kHidden / kLaneValues) * kRouterWords;
    const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
    for (int c = 0; c < kRouterChunks; c++) {
        const int block = (first + c) * kWarpLanes + lane;
        if (block >= kHidden / kLaneValues) break;
#pragma unroll
        for (int i = 0; i < kRouterWords; i++)
            out.raw[c][i] = stream16<kEarly>(from + block * kRouterWords + i);
    }
}

// A lane's part of one row's logit.
__device__ __forceinline__ float router_part(const RouterPiece& w, int first, const float* x) {
    const int lane = threadIdx.x % kWarpLanes;
    float sum[2] = {};
#pragma unroll
    for (int c = 0; c < kRouterChunks; c++) {
        const int block = (first + c) * kWarpLanes + lane;
        if (block >= kHidden / kLaneValues) break;
        const float* in = x + block * kLaneValues;
        float value[kLaneValues];
#if FT_ROUTER == 0
        const uint4 v = w.raw[c][0];
        value[0] = bf16_low(v.x), value[1] = bf16_high(v.x);
        value[2] = bf16_low(v.y), value[3] = bf16_high(v.y);
        value[4] = bf16_low(v.z), value[5] = bf16_high(v.z);
        value[6] = bf16_low(v.w), value[7] = bf16_high(v.w);
#else
        const uint4 v = w.raw[c][0], u = w.raw[c][1];
        value[0] = __uint_as_float(v.x), value[1] = __uint_as_float(v.y);
        value[2] = __uint_as_float(v.z), value[3] = __uint_as_float(v.w);
        value[4] = __uint_as_float(u.x), value[5] = __uint_as_float(u.y);
        value[6] = __uint_as_float(u.z), value[7] = __uint_as_float(u.w);
#endif
#pragma unroll
        for (int i = 0; i < kLaneValues; i++) sum[i & 1] = __fmaf_rn(value[i], in[i], sum[i & 1]);
    }
    return __fadd_rn(sum[0], sum[1]);
}

constexpr int kQuads = (kHidden / 4 + kThreads - 1) / kThreads;  // of 4 columns, a thread's

// Requests a thread's weights of a norm, ahead of the wait.
__device__ __forceinline__ void load_norm(const float* norm, float4 (&factor)[kQuads]) {
#pragma unroll
    for (int i = 0; i < kQuads; i++) {
        const int at = threadIdx.x + i * kThreads;
        if (at >= kHidden / 4) break;
        const uint4 bits = stream16<true>(norm + 4 * at);
        factor[i] = make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y),
                                __uint_as_float(bits.z), __uint_as_float(bits.w));
    }
}

// Normed rows [first, first + count) to shared memory; the CTA that has a row's number among those
// that ask the router also writes it to memory. All threads.
__device__ __forceinline__ void norm_rows(const MoeArguments& a, const float4 (&factor)[kQuads],
                                          float eps, int number, int first, int count,
                                          float (*x)[kHidden]) {
    __shared__ float squares[kRowsAtOnce][kWarps];
    const int thread = threadIdx.x;
    float4 value[kRowsAtOnce][kQuads];
#pragma unroll
    for (int n = 0; n < kRowsAtOnce; n++) {
        if (n >= count) break;
        const float4* from = reinterpret_cast<const float4*>(a.x + (first + n) * kHidden);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < kQuads; i++) {
            const int at = thread + i * kThreads;
            value[n][i] = at < kHidden / 4 ? __ldcg(from + at) : make_float4(0, 0, 0, 0);
            sum = __fmaf_rn(value[n][i].x, value[n][i].x, sum);
            sum = __fmaf_rn(value[n][i].y, value[n][i].y, sum);
            sum = __fmaf_rn(value[n][i].z, value[n][i].z, sum);
            sum = __fmaf_rn(value[n][i].w, value[n][i].w, sum);
        }
        sum = warp_sum(sum);
        if (thread % kWarpLanes == 0) squares[n][thread / kWarpLanes] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kRowsAtOnce; n++) {
        if (n >= count) break;
        float sum = 0.0f;
        for (int w = 0; w < kWarps; w++) sum += squares[n][w];
        const float scale = __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(sum, kHidden), eps)));
        const bool keep = (first + n) % kRouterCtas == number;
        float4* out = reinterpret_cast<float4*>(a.normed + (first + n) * kHidden);
#pragma unroll
        for (int i = 0; i < kQuads; i++) {
            const int at = thread + i * kThreads;
            if (at >= kHidden / 4) continue;
            float4 v = value[n][i];
            v.x = __fmul_rn(__fmul_rn(v.x, scale), factor[i].x);
            v.y = __fmul_rn(__fmul_rn(v.y, scale), factor[i].y);
            v.z = __fmul_rn(__fmul_rn(v.z, scale), factor[i].z);
            v.w = __fmul_rn(__fmul_rn(v.w, scale), factor[i].w);
            reinterpret_cast<float4*>(x[n])[at] = v;
            if (keep) out[at] = v;
        }
    }
    __syncthreads();
}

}  // namespace freetoken

using namespace freetoken;

// Norm, logits, and by the CTA that arrives last: top-k, plan, publication. A warp an expert. As many
// CTAs again ask the next layer's router with this layer's input and tell the pool what that layer
// will probably miss. Grid: kRouterCtas, twice where there is a next layer.
extern "C" __global__ void __launch_bounds__(256) route_plan(MoeArguments a, MoeLayer layer) {
    __shared__ __align__(16) float x[kRowsAtOnce][kHidden];
    __shared__ PlanScratch s;
    const int thread = threadIdx.x, warp = thread / kWarpLanes, lane = thread % kWarpLanes;
    const bool ahead = blockIdx.x >= kRouterCtas;
    const int block = static_cast<int>(blockIdx.x) - (ahead ? kRouterCtas : 0);
    const int expert = block * kWarps + warp;
    const int row = expert < kExperts ? expert : kExperts - 1;
    const void* router = ahead ? layer.next_router : layer.router;
    float* logits = a.logits + (ahead ? kRows * kExperts : 0);
    RouterPiece w;
    float4 factor[kQuads];
    start_next_kernel();
    const Policy policy = read_policy(a);  // the host's, between steps
    if (ahead && !policy.ahead) return;
    load_router<true>(router, row, 0, w);
    load_norm(ahead ? layer.next_norm : layer.norm, factor);
    wait_for_previous_kernel();
    // All of this is on its way at once, with the rows to be normed.
    const uint4 words = __ldcg(reinterpret_cast<const uint4*>(a.clock));
    const Clock clock{words.x, words.y, words.z, __uint_as_float(words.w)};
    const Residency residency = load_residency(a, layer.layer + ahead);
    Candidate candidate{};
    for (int first = 0; first < kRows; first += kRowsAtOnce) {
        const int count = kRows - first < kRowsAtOnce ? kRows - first : kRowsAtOnce;
        norm_rows(a, factor, layer.eps, ahead ? -1 : block, first, count, x);
        if (first == 0) {
            keep_residency(residency, s);
            candidate = load_candidate(a, policy, residency.victim);
        }
        for (int n = 0; n < count; n++) {
            float sum = 0.0f;
#pragma unroll 1
            for (int chunk = 0; chunk < kChunks; chunk += kRouterChunks) {
                if (kChunks > kRouterChunks && (chunk > 0 || first + n > 0))
                    load_router<false>(router, row, chunk, w);
                sum += router_part(w, chunk, x[n]);
            }
            sum = warp_sum(sum);
            if (lane == 0 && expert < kExperts)
                __stcg(logits + (first + n) * kExperts + expert, sum);
        }
        __syncthreads();
    }
    if (!arrives_last(ahead ? &a.plan->ahead_ticket : &a.plan->ticket, kRouterCtas)) return;
    if (warp < kRows)
        choose_experts(logits + warp * kExperts, layer.weight_scale, s.expert + warp * kTopK,
                       s.weight + warp * kTopK);
    __syncthreads();
    if (ahead)
        tell_guess(a, policy, layer.layer + 1, clock.tick, s);
    else
        make_plan(a, layer, policy, clock, candidate, x, s);
}

// Missing units by link workers, units in slots by a CTA each, and the search for victims.
// Grid: workers + 1 + rows * top-k * units.
#ifndef FT_EXPERT_CTAS
#define FT_EXPERT_CTAS (FT_ROWS == 1 ? 3 : 2)
#endif
extern "C" __global__ void __launch_bounds__(256, FT_EXPERT_CTAS)
experts(const __grid_constant__ MoeArguments a, const __grid_constant__ MoeLayer layer) {
    __shared__ UnitScratch s;
    start_next_kernel();
    wait_for_previous_kernel();
    const int block = static_cast<int>(blockIdx.x) - layer.workers;
    if (block < 0) {
        work_on_link(a, layer, static_cast<int>(blockIdx.x), s);
        return;
    }
    if (block == 0) {
        // Without a miss the candidates still stand, and a search would outlast the hits.
        if (__ldcg(&a.plan->listed)) find_victims(a);
        return;
    }
    const Job job = read_job(&a.plan->job[(block - 1) % kRoutes]);
    UnitWork work;
    work.unit = (block - 1) / kRoutes;
    if (work.unit >= job.valid) return;
    work.source = a.slots + job.slot * kRecordBytes + work.unit * kUnitBytes;
    work.target = nullptr;
    work.rows = job.rows;
    work.base = job.base;
    compute_unit<false>(a, work, s);
}

namespace freetoken {

constexpr int kUnitsAhead = kUnits < 48 ? kUnits : 48;  // partial sums on their way to a thread

// Waits for the pool; returns how many of the list's units its sums hold. One thread of the grid
// polls the host's memory, the others wait for one word in the device's: call and units.
__device__ __forceinline__ int await_pool(const MoeArguments& a, uint32_t call, bool poller) {
    uint64_t* const seen = &a.plan->seen;
    if (!poller) {
        uint64_t word;
        while (static_cast<uint32_t>(word = poll8(seen)) != call) spin_hint();
        device_fence();
        return static_cast<int>(word >> 32);
    }
    const uint64_t begin = nanoseconds();
    uint4 reply;
    for (;;) {
        reply = poll16(a.reply);
        if (reply.x == call) break;
        if (nanoseconds() - begin > kWatchdogNs) {
            reply = {call, 0, 0, 0};
            a.counters[kCountTimeouts]++;
            a.clock->failed = 1;
            break;
        }
        spin_hint();
    }
    if (reply.w) {
        reply.y = 0;
        a.counters[kCountPoolErrors]++;
        a.clock->failed = 1;
    }
    a.plan->seen_ns = reply.z;
    system_fence();
    post8(seen, call | static_cast<uint64_t>(reply.y) << 32);
    return static_cast<int>(reply.y);
}

// Units of a job that the pool's part holds.
__device__ __forceinline__ int pool_units(const Job& job, int units) {
    const int missing = kUnits - job.valid, own = units - job.start;
    return own < 0 ? 0 : own < missing ? own : missing;
}

// What came over the link lies in the slots from now on. One thread a job.
__device__ __forceinline__ void extend_residency(const MoeArguments& a, int units, int link_first) {
    const Plan& plan = *a.plan;
    const int place = threadIdx.x;
    if (place >= __ldcg(&plan.listed)) return;
    const Job job = read_job(&plan.job[place]);
    if (job.slot < 0) return;
    const int end = job.start + kUnits - job.valid;
    int first = units - static_cast<int>(__ldcg(&plan.taken));
    first = first < link_first ? link_first : first;
    const int stored = end - (first > job.start ? first : job.start);
    if (stored > 0) a.valid[job.record] = job.valid + stored;
}

// Adds a layer to the sums since load; one thread.
__device__ __forceinline__ void count_layer(const MoeArguments& a, int units, int pool) {
    const Plan& plan = *a.plan;
    int64_t* counters = a.counters;
    const int jobs = __ldcg(&plan.jobs), link = units - pool;
    const int room = units - __ldcg(&plan.link_first);
    const int raised = static_cast<int>(__ldcg(&plan.taken));
    const int taken = raised < room ? raised : room;
    counters[kCountRoutes] += kRoutes;
    counters[kCountHitUnits] += jobs * kUnits - units;
    counters[kCountLayers]++;
    counters[kCountFills] += __ldcg(&plan.fills);
    if (!units) return;
    if (__ldcg(&plan.unserved)) {
        counters[kCountPoolErrors]++;
        return;
    }
    counters[kCountLinkUnits] += link;
    counters[kCountCpuUnits] += pool;
    counters[kCountWastedUnits] += taken > link ? taken - link : 0;
    counters[kCountLinkLayers] += taken > 0;
    counters[kCountCpuLayers] += pool > 0;
    if (taken > 0) counters[kCountLinkNs] += __ldcg(&plan.link_end_ns) - __ldcg(&plan.planned_ns);
    if (pool > 0) counters[kCountCpuNs] += __ldcg(&plan.seen_ns);
    const float share = __ldcg(&a.clock->share), now = static_cast<float>(link) / units;
    // Of layers that both sides serve: one without a link says nothing of what the link brings.
    if (__ldcg(&plan.limit) > 0 && room > 0) a.clock->share = share + 0.02f * (now - share);
}

}  // namespace freetoken

// Sums of units to rows of experts, those to the layer's output, that to the residual stream.
// Grid: hidden / kMergeColumns, rows. Block: kMergeColumns * top-k.
extern "C" __global__ void __launch_bounds__(kMergeColumns * kTopK) merge(MoeArguments a) {
    __shared__ float rows[kTopK][kMergeColumns];
    __shared__ int pool_part;
    start_next_kernel();
    wait_for_previous_kernel();
    const Plan& plan = *a.plan;
    const int thread = threadIdx.x, k = thread / kMergeColumns;
    const int column = blockIdx.x * kMergeColumns + thread % kMergeColumns;
    const int route = blockIdx.y * kTopK + k;
    const int pair = __ldcg(&plan.route_pair[route]);
    const Job job = read_job(&plan.job[__ldcg(&plan.route_job[route])]);
    const float* partial = a.partial + static_cast<size_t>(pair) * kUnits * kHidden + column;
    float ahead[kUnitsAhead];
#pragma unroll
    for (int u = 0; u < kUnitsAhead; u++)
        ahead[u] = __ldcg(partial + static_cast<size_t>(u) * kHidden);
    float* const x = a.x + blockIdx.y * kHidden + column;
    float before = 0.0f, weight[kTopK] = {};
    if (k == 0) {
        before = __ldcg(x);
#pragma unroll
        for (int i = 0; i < kTopK; i++)
            weight[i] = __ldcg(&plan.route_weight[blockIdx.y * kTopK + i]);
    }
    const bool first_cta = blockIdx.x == 0 && blockIdx.y == 0;
    const int units = __ldcg(&plan.units);
    const bool asked = __ldcg(&plan.limit) > 0;
    if (asked) {
        if (thread == 0) pool_part = await_pool(a, __ldcg(&plan.call), first_cta);
        __syncthreads();
    }
    const int pool = asked ? pool_part : 0;
    const int theirs = pool_units(job, pool);
    float sum = -0.0f;  // added to anything, it changes no bit
    if (theirs > 0) {
        const float* sums =
            reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(a.reply) + kReplyBytes);
        sum = __ldcv(sums + static_cast<size_t>(pair) * kHidden + column);
    }
    const int top = kUnits - theirs;
#pragma unroll 8
    for (int u = top - 1; u >= kUnitsAhead; u--)
        sum = __fadd_rn(sum, __ldcg(partial + static_cast<size_t>(u) * kHidden));
#pragma unroll
    for (int u = kUnitsAhead - 1; u >= 0; u--) sum = __fadd_rn(sum, u < top ? ahead[u] : -0.0f);
    rows[k][thread % kMergeColumns] = sum;
    __syncthreads();
    if (k == 0) {
        float out = 0.0f;
#pragma unroll
        for (int i = 0; i < kTopK; i++) out = __fmaf_rn(weight[i], rows[i][thread], out);
        *x = __fadd_rn(before, out);
    }
    if (!first_cta) return;
    extend_residency(a, units, __ldcg(&plan.link_first));
    if (thread == kMergeColumns * kTopK - 1) count_layer(a, units, pool);
}

// Mixes the residual stream into counters[kCountHash]: equal streams give equal hashes. One CTA.
extern "C" __global__ void __launch_bounds__(256) hash(MoeArguments a) {
    __shared__ unsigned long long parts[kWarps];
    start_next_kernel();
    wait_for_previous_kernel();
    const int thread = threadIdx.x;
    unsigned long long sum = 0;
    for (int i = thread; i < kRows * kHidden; i += kThreads)
        sum += __float_as_uint(__ldcg(a.x + i)) * (2ull * i + 1) * 0x9e3779b97f4a7c15ull;
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(kAllLanes, sum, step);
    if (thread % kWarpLanes == 0) parts[thread / kWarpLanes] = sum;
    __syncthreads();
    if (thread) return;
    sum = 0;
    for (int w = 0; w < kWarps; w++) sum += parts[w];
    const unsigned long long before = static_cast<unsigned long long>(a.counters[kCountHash]);
    a.counters[kCountHash] = static_cast<int64_t>(before * 6364136223846793005ull + sum);
}
