// Everything of a decode step but the experts: embedding, projections, attention, logits, report.
//
// Sizes are defines (`kernels.cuda.shape`), tuning too (`kernels.cuda.dense`); R rows are R tokens
// of as many sequences. The residual stream is fp32 [R][H], weights are as stored.
#include "attention.cuh"
#include "gemv.cuh"

using namespace freetoken;

// --- projections -----------------------------------------------------------------------------------

using Qkv = Gemv<FT_DENSE, FT_HIDDEN, FT_DENSE_GROUP, FT_QKV_WARPS, FT_QKV_ROWS, FT_QKV_DEPTH,
                 FT_QKV_BLOCKS, FT_QKV_STAGED>;
using Output = Gemv<FT_DENSE, FT_HEADS * FT_HEAD_DIM, FT_DENSE_GROUP, FT_OUT_WARPS, FT_OUT_ROWS,
                    FT_OUT_DEPTH, FT_OUT_BLOCKS, FT_OUT_STAGED>;
using Logits = Gemv<FT_HEAD, FT_HIDDEN, FT_DENSE_GROUP, FT_LOGITS_WARPS, FT_LOGITS_ROWS, FT_LOGITS_DEPTH,
                    FT_LOGITS_BLOCKS, FT_LOGITS_STAGED>;
constexpr int kQkvThreads = Qkv::kThreads, kOutputThreads = Output::kThreads;
constexpr int kLogitsThreads = Logits::kThreads;

// qkv = [q; k; v] rms_norm(x)
extern "C" __global__ void __launch_bounds__(kQkvThreads, FT_QKV_CTAS)
qkv_projection(GemvArguments a) {
    Qkv work;
    work.run<true, false>(a);
}

// x += o attended
extern "C" __global__ void __launch_bounds__(kOutputThreads, FT_OUT_CTAS)
output_projection(GemvArguments a) {
    Output work;
    work.run<false, true>(a);
}

// logits = head rms_norm(x)
extern "C" __global__ void __launch_bounds__(kLogitsThreads, FT_LOGITS_CTAS)
head_logits(GemvArguments a) {
    Logits work;
    work.run<true, false>(a);
}

// --- attention -------------------------------------------------------------------------------------

// Grid: (parts, key heads times blocks of query heads, rows).
extern "C" __global__ void __launch_bounds__(kAttentionThreads)
attention_decode(AttentionArguments a) {
    attend(a);
}

// --- embedding -------------------------------------------------------------------------------------

// Mirrored by `kernels.cuda.dense_arguments`, as the structs below.
struct EmbedArguments {
    const void* table;     // [V][H]
    const int* token_ids;  // [R]
    float* x;              // [R][H]
};
static_assert(sizeof(EmbedArguments) == 24, "kernels.cuda.dense_arguments mirrors it");
static_assert(FT_EMBEDDING != 1, "a row of scaled blocks is not read here");

// A CTA copies one row. An id that is none (a sampler that met NaN) reads row 0: no stray access.
extern "C" __global__ void embed(EmbedArguments a) {
    const int row = blockIdx.x;
    start_next_kernel();
    wait_for_previous_kernel();
    const int id = __ldcg(a.token_ids + row);
    const size_t from = size_t(id >= 0 && id < FT_VOCAB ? id : 0) * FT_HIDDEN;
    for (int i = threadIdx.x; i < FT_HIDDEN / 4; i += blockDim.x) {
        float4 x;
        if (FT_EMBEDDING == 0) {
            const uint2 pairs = stream8(static_cast<const uint16_t*>(a.table) + from + 4 * i);
            x = make_float4(bf16_low(pairs.x), bf16_high(pairs.x), bf16_low(pairs.y),
                            bf16_high(pairs.y));
        } else {
            const uint4 bits = stream16(static_cast<const float*>(a.table) + from + 4 * i);
            x = make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y),
                            __uint_as_float(bits.z), __uint_as_float(bits.w));
        }
        __stcg(reinterpret_cast<float4*>(a.x + size_t(row) * FT_HIDDEN) + i, x);
    }
}

// --- the end of a step -----------------------------------------------------------------------------

constexpr int kReportRows = 8;
constexpr int kReportCounters = 32;
constexpr int kFinishThreads = 256;

// In host memory. `step` is stored last: the rest belongs to it.
struct StepReport {
    int64_t step;
    int64_t errors;
    int32_t ids[kReportRows];
    int64_t counters[kReportCounters];
};
static_assert(sizeof(StepReport) == 304, "kernels.cuda.dense mirrors it");

struct FinishArguments {
    const float* logits;      // [R][V]
    uint64_t* bests;          // [gridDim.x][R]
    unsigned* ticket;         // 0
    int* ids;                 // [R]: the highest logit's token, the lowest id among equals; -1: NaN
    int* positions;           // [R]; each one more, for the next step
    const int64_t* counters;  // [num_counters], copied to the report
    const int64_t* errors;    // one
    int64_t* step;            // one; this step's number is one more
    StepReport* report;
    int num_counters;
};
static_assert(sizeof(FinishArguments) == 80, "kernels.cuda.dense_arguments mirrors it");

constexpr uint64_t kNanKey = ~uint64_t(0);

// Orders by value, then by falling id; NaN is above all.
__device__ __forceinline__ uint64_t order_key(float value, int id) {
    if (value != value) return kNanKey;
    const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 becomes +0: they are equal
    const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return uint64_t(order) << 32 | (0xffffffffu - uint32_t(id));
}

__device__ __forceinline__ uint64_t warp_highest(uint64_t key) {
    for (int step = kWarpLanes / 2; step; step >>= 1) {
        const unsigned long long other =
            __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(key), step);
        key = other > key ? other : key;
    }
    return key;
}

// Takes each row's best token and tells the host: its ids, errors and counters, then its number.
extern "C" __global__ void __launch_bounds__(kFinishThreads) finish_step(FinishArguments a) {
    __shared__ uint64_t bests[kFinishThreads / kWarpLanes];
    const int lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
    start_next_kernel();
    wait_for_previous_kernel();
    for (int row = 0; row < FT_ROWS; row++) {
        uint64_t best = 0;
        for (int i = blockIdx.x * kFinishThreads + threadIdx.x; i < FT_VOCAB;
             i += gridDim.x * kFinishThreads)
            best = max(best, order_key(__ldcg(a.logits + size_t(row) * FT_VOCAB + i), i));
        best = warp_highest(best);
        if (lane == 0) bests[warp] = best;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 1; i < kFinishThreads / kWarpLanes; i++) best = max(best, bests[i]);
            a.bests[blockIdx.x * FT_ROWS + row] = best;
        }
        __syncthreads();
    }
    if (!arrives_last(a.ticket, gridDim.x)) return;
    if (warp < FT_ROWS) {
        uint64_t best = 0;
        for (int i = lane; i < int(gridDim.x); i += kWarpLanes)
            best = max(best, *static_cast<volatile uint64_t*>(a.bests + i * FT_ROWS + warp));
        best = warp_highest(best);
        if (lane == 0) {
            const int id = best == kNanKey ? -1 : int(0xffffffffu - uint32_t(best));
            a.ids[warp] = id;
            a.report->ids[warp] = id;
            a.positions[warp]++;
        }
    }
    for (int i = threadIdx.x; i < a.num_counters; i += kFinishThreads)
        a.report->counters[i] = __ldcg(reinterpret_cast<const long long*>(a.counters) + i);
    if (threadIdx.x == 0)
        a.report->errors = __ldcg(reinterpret_cast<const long long*>(a.errors));
    __syncthreads();
    if (threadIdx.x == 0) {
        const int64_t step = *a.step + 1;
        *a.step = step;
        system_fence();
        post8(reinterpret_cast<uint64_t*>(&a.report->step), static_cast<uint64_t>(step));
    }
}
