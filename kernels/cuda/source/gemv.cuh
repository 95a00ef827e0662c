// Matrix times up to 8 vectors: weights are read once for all rows of a step.
//
// A warp owns kRows rows of the matrix. A lane takes 16 bytes of each of them at a time, 32 lanes a
// step of kStep columns, and keeps kDepth steps on their way in registers. Inputs are staged in
// shared memory as fp32, ordered so that a lane's values lie 32 float4 apart. A sum runs over a
// lane's columns in rising order, then over lanes 16, 8, 4, 2, 1 apart: its bits depend on the
// weights and the input alone, not on the grid or on the other rows.
#pragma once

#include "common.cuh"

namespace freetoken {

constexpr int kMaxSegments = 3;

// Mirrored by `kernels.cuda.dense_arguments`. Segments are matrices one below the other (q, k, v).
struct GemvArguments {
    const void* weights[kMaxSegments];
    const float* scales[kMaxSegments];  // [ceil(rows / G), ceil(K / G)], or null
    const float* input;                 // [R][K]
    const float* norm;                  // [K]; only read where the kernel norms its input
    float* output;                      // [R][N]
    int rows[kMaxSegments];
    float eps;
};
static_assert(sizeof(GemvArguments) == 88, "kernels.cuda.dense_arguments mirrors it");

__host__ __device__ constexpr int power_of_two_from(int value) {
    int power = 1;
    while (power < value) power *= 2;
    return power;
}

// Sums each of the first kCount (a power of two up to 32) values over the warp. Lane l ends with the
// total number l * kCount / 32: in each step, half of the values go to the other half of the lanes.
template <int kCount, int kStep = kWarpLanes / 2, int kSize>
__device__ __forceinline__ float scattered_sums(float (&values)[kSize], int lane) {
    static_assert(kCount <= kWarpLanes && (kCount & (kCount - 1)) == 0, "lanes share evenly");
    constexpr int kHalf = kCount / 2;
    if constexpr (kStep == 0) {
        return values[0];
    } else if constexpr (kHalf == 0) {
        values[0] += __shfl_xor_sync(kAllLanes, values[0], kStep);
        return scattered_sums<1, kStep / 2>(values, lane);
    } else {
        const bool upper = lane & kStep;
#pragma unroll
        for (int i = 0; i < kHalf; i++) {
            const float kept = upper ? values[i + kHalf] : values[i];
            const float given = upper ? values[i] : values[i + kHalf];
            values[i] = kept + __shfl_xor_sync(kAllLanes, given, kStep);
        }
        return scattered_sums<kHalf, kStep / 2>(values, lane);
    }
}

// 16 bytes of weights as floats. kEncoding: 0 bf16, 1 e4m3 with a scale, 2 float32.
template <int kEncoding>
struct Weights;

template <>
struct Weights<0> {
    static constexpr int kValues = 8;
    __device__ static void quarter(const uint4& bytes, int part, float, float (&out)[4]) {
        const uint32_t first = part ? bytes.z : bytes.x, second = part ? bytes.w : bytes.y;
        out[0] = bf16_low(first), out[1] = bf16_high(first);
        out[2] = bf16_low(second), out[3] = bf16_high(second);
    }
};

template <>
struct Weights<1> {
    static constexpr int kValues = 16;
    __device__ static void quarter(const uint4& bytes, int part, float scale, float (&out)[4]) {
        e4m3_values(part < 2 ? (part ? bytes.y : bytes.x) : (part == 2 ? bytes.z : bytes.w), out);
#pragma unroll
        for (int i = 0; i < 4; i++) out[i] *= scale;
    }
};

template <>
struct Weights<2> {
    static constexpr int kValues = 4;
    __device__ static void quarter(const uint4& bytes, int, float, float (&out)[4]) {
        out[0] = __uint_as_float(bytes.x), out[1] = __uint_as_float(bytes.y);
        out[2] = __uint_as_float(bytes.z), out[3] = __uint_as_float(bytes.w);
    }
};

// One matrix product. `kernels.cuda.dense` chooses the sizes; see `GemvPlan` there.
//   kColumns K; kWarps of a CTA; kRows matrix rows of a warp; kDepth steps in registers, kBlocks
//   times kDepth steps cover K; kStaged blocks lie in shared memory at a time.
template <int kEncoding, int kColumns, int kGroup, int kWarps, int kRows, int kDepth, int kBlocks,
          int kStaged>
struct Gemv {
    static constexpr int kValues = Weights<kEncoding>::kValues;
    static constexpr int kQuarters = kValues / 4;
    static constexpr int kStep = kWarpLanes * kValues;
    static constexpr int kVectors = kStaged * kDepth * kStep / 4;  // float4 of a staged row
    static constexpr int kRowBytes = kColumns / kValues * 16;
    static constexpr int kThreads = kWarps * kWarpLanes;
    static constexpr int kPaddedRows = power_of_two_from(FT_ROWS);
    static constexpr int kSums = kRows * kPaddedRows;
    static constexpr bool kExact = kColumns == kBlocks * kDepth * kStep;
    static constexpr bool kScaled = kEncoding == 1;
    static constexpr int kSide = kScaled ? kGroup : 1;  // of a scale block
    static constexpr int kScales = (kColumns + kSide - 1) / kSide;  // of a row of blocks

    static_assert(kColumns % kValues == 0, "rows are whole 16 bytes");
    static_assert(kBlocks * kDepth * kStep >= kColumns, "all columns are covered");
    static_assert(!kScaled || (kSide % 16 == 0 && kSide % kRows == 0), "one scale a step");

    // What a warp multiplies next: where its rows begin in memory, and where in the output.
    struct Place {
        const char* weights;
        const float* scales;
        int row, rows;  // first row of all segments; how many of kRows there are
    };

    uint4 bytes[kRows][kDepth];
    float scale[kScaled ? kDepth : 1];

    __device__ static Place place(const GemvArguments& a, int group, int total) {
        int row = group * kRows;
        const int first = row;
        const void* weights = a.weights[0];
        const float* scales = a.scales[0];
#pragma unroll
        for (int i = 0; i + 1 < kMaxSegments; i++) {  // indices must be constants: a is no array
            if (row < a.rows[i] || a.weights[i + 1] == nullptr) break;
            row -= a.rows[i];
            weights = a.weights[i + 1];
            scales = a.scales[i + 1];
        }
        Place at;
        at.weights = static_cast<const char*>(weights) + size_t(row) * kRowBytes;
        at.scales = kScaled ? scales + size_t(row / kSide) * kScales : nullptr;
        at.row = first;
        at.rows = min(kRows, total - first);
        return at;
    }

    // Requests step `depth` of a block of steps; kEarly: ahead of the wait.
    template <bool kEarly>
    __device__ __forceinline__ void load(const Place& at, int block, int depth, int lane) {
        const int step = block * kDepth + depth, column = step * kStep + lane * kValues;
        const bool inside = kExact || column < kColumns;
#pragma unroll
        for (int i = 0; i < kRows; i++) {
            const size_t row = i < at.rows ? i : 0;
            const char* from = at.weights + row * kRowBytes + (size_t(step) * kWarpLanes + lane) * 16;
            bytes[i][depth] = inside ? stream16<kEarly>(from) : make_uint4(0, 0, 0, 0);
        }
        if (!kScaled) return;
        const float* from = at.scales + column / kSide;
        scale[depth] = !inside ? 0.0f : kEarly ? early4(from) : __ldg(from);
    }

    // Has what follows in a warp's rows come closer while the wait lasts; where there is no wait, it
    // would only displace. At most 26 MB at once on a card with 132 multiprocessors.
    __device__ static void prefetch_rest(const Place& at, int lane) {
        if (!kStartsEarly) return;
        constexpr int kFirst = kDepth * kWarpLanes * 16, kLine = 128, kMost = 4096;  // bytes
        constexpr int kEnd = kRowBytes < kFirst + kMost ? kRowBytes : kFirst + kMost;
        for (int i = 0; i < at.rows; i++)
            for (int byte = kFirst + lane * kLine; byte < kEnd; byte += kWarpLanes * kLine)
                prefetch_l2(at.weights + size_t(i) * kRowBytes + byte);
    }

    // Brings `kStaged` blocks of the input into shared memory, times the norm's weights. With
    // `squares`, every warp adds up its part of each row's squares, too.
    template <bool kNorm>
    __device__ static void stage(const GemvArguments& a, float4* staged, int block,
                                 float (*squares)[FT_ROWS]) {
        float sums[FT_ROWS] = {};
        for (int i = threadIdx.x; i < kVectors; i += kThreads) {
            const int column = block * kDepth * kStep + 4 * i;
            const int step = 4 * i / kStep, inside = 4 * i % kStep;
            const int target = step * (kStep / 4) + inside % kValues / 4 * kWarpLanes + inside / kValues;
            float4 x[FT_ROWS], g = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
            const bool there = column < kColumns;
            if (kNorm && there) g = __ldg(reinterpret_cast<const float4*>(a.norm + column));
#pragma unroll
            for (int r = 0; r < FT_ROWS; r++) {
                const float* from = a.input + size_t(r) * kColumns + column;
                x[r] = there ? __ldcg(reinterpret_cast<const float4*>(from))
                             : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
#pragma unroll
            for (int r = 0; r < FT_ROWS; r++) {
                if (kNorm) {
                    sums[r] = __fmaf_rn(x[r].x, x[r].x, sums[r]);
                    sums[r] = __fmaf_rn(x[r].y, x[r].y, sums[r]);
                    sums[r] = __fmaf_rn(x[r].z, x[r].z, sums[r]);
                    sums[r] = __fmaf_rn(x[r].w, x[r].w, sums[r]);
                    x[r].x *= g.x, x[r].y *= g.y, x[r].z *= g.z, x[r].w *= g.w;
                }
                staged[r * kVectors + target] = x[r];
            }
        }
        if constexpr (kNorm) {
            if (squares == nullptr) return;
#pragma unroll
            for (int r = 0; r < FT_ROWS; r++) {
                const float sum = warp_sum(sums[r]);
                float& part = squares[threadIdx.x / kWarpLanes][r];
                if (threadIdx.x % kWarpLanes == 0) part = block ? part + sum : sum;
            }
        }
    }

    // Multiplies a block of steps and requests the same steps of `next`, if there is one.
    __device__ __forceinline__ void multiply(float (&sums)[kSums], const float4* staged, int block,
                                             const Place& next, int next_block, int lane) {
#pragma unroll
        for (int depth = 0; depth < kDepth; depth++) {
            const int step = block % kStaged * kDepth + depth;
#pragma unroll
            for (int quarter = 0; quarter < kQuarters; quarter++) {
                float w[kRows][4];
#pragma unroll
                for (int i = 0; i < kRows; i++)
                    Weights<kEncoding>::quarter(bytes[i][depth], quarter,
                                                scale[kScaled ? depth : 0], w[i]);
#pragma unroll
                for (int r = 0; r < FT_ROWS; r++) {
                    const float4 x =
                        staged[r * kVectors + step * (kStep / 4) + quarter * kWarpLanes + lane];
#pragma unroll
                    for (int i = 0; i < kRows; i++) {
                        float& sum = sums[i * kPaddedRows + r];
                        sum = __fmaf_rn(w[i][0], x.x, sum);
                        sum = __fmaf_rn(w[i][1], x.y, sum);
                        sum = __fmaf_rn(w[i][2], x.z, sum);
                        sum = __fmaf_rn(w[i][3], x.w, sum);
                    }
                }
            }
            if (next.rows > 0) load<false>(next, next_block, depth, lane);
        }
    }

    // output[r][n] (+)= sum over k of weights[n][k] * input[r][k], the input RMS-normed if kNorm.
    template <bool kNorm, bool kAdd>
    __device__ void run(const GemvArguments& a) {
        FT_DYNAMIC_SHARED(float4, staged);
        __shared__ float squares[kWarps][FT_ROWS];
        const int lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
        const int total = a.rows[0] + a.rows[1] + a.rows[2], groups = (total + kRows - 1) / kRows;
        const int mine = lane / (kWarpLanes / kSums), row = mine / kPaddedRows;  // lane's sum
        const int r = mine % kPaddedRows;
        const bool writes = lane % (kWarpLanes / kSums) == 0 && r < FT_ROWS;

        Place at = place(a, min(int(blockIdx.x * kWarps) + warp, groups - 1), total);
        start_next_kernel();
#pragma unroll
        for (int depth = 0; depth < kDepth; depth++) load<true>(at, 0, depth, lane);
        prefetch_rest(at, lane);
        if (kNorm && threadIdx.x < (kColumns + 31) / 32) prefetch_l2(a.norm + 32 * threadIdx.x);
        wait_for_previous_kernel();
        if (kStaged == kBlocks) {
            stage<kNorm>(a, staged, 0, squares);
            __syncthreads();
        }

        // Every warp makes the CTA's number of rounds: they meet where inputs are staged.
        for (int first = blockIdx.x * kWarps; first < groups; first += gridDim.x * kWarps) {
            const bool is_first = first == int(blockIdx.x * kWarps);
            const bool is_real = first + warp < groups;
            Place next = {nullptr, nullptr, 0, 0};
            if (first + int(gridDim.x) * kWarps + warp < groups)
                next = place(a, first + gridDim.x * kWarps + warp, total);
            float* const target = a.output + size_t(r) * total + at.row + row;
            const bool stores = writes && is_real && row < at.rows;
            float sums[kSums] = {};
            const float before = kAdd && stores ? __ldcg(target) : 0.0f;
#pragma unroll 1
            for (int block = 0; block < kBlocks; block++) {
                if (kStaged < kBlocks && block % kStaged == 0) {
                    if (!is_first || block) __syncthreads();  // all warps are done with the last
                    stage<kNorm>(a, staged, block, is_first ? squares : nullptr);
                    __syncthreads();
                }
                const bool ends = block + 1 == kBlocks;
                if (ends) at = next;
                multiply(sums, staged, block, at, ends ? 0 : block + 1, lane);
            }
            float value = scattered_sums<kSums>(sums, lane);
            if (stores) {
                if (kNorm) value *= inverse_root(squares, r, a.eps);
                __stcg(target, before + value);
            }
        }
    }

   private:
    __device__ static float inverse_root(const float (&shared)[kWarps][FT_ROWS], int r, float eps) {
        float sum = 0.0f;
        for (int warp = 0; warp < kWarps; warp++) sum += shared[warp][r];
        return rsqrtf(sum / kColumns + eps);
    }
};

}  // namespace freetoken
