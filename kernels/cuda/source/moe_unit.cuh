// One unit of an expert for the rows that use it, in the canonical order (canonical.h).
//
// A lane holds 8 neighbours of every 256 values, so that its 8 accumulators are those of the
// canonical order and a chain never leaves its lane. A warp computes two gate and two up rows, then
// each thread 8 columns of down. Weights are read once for kRowsAtOnce rows.
#pragma once

#include "canonical.h"
#include "moe_state.cuh"

namespace freetoken {

constexpr int kLaneValues = 8;                    // of a chunk of 256
constexpr int kChunks = (kHidden + 255) / 256;    // of a row; the last may be shorter
constexpr int kLinesOfWarp = 2 * kUnitRows / kWarps;  // gate r, gate r + 1, up r, up r + 1
// Bytes of weights on their way to one lane, from slots and over the link.
#ifndef FT_HELD_BYTES
#define FT_HELD_BYTES (FT_ROWS == 1 ? 64 : 256)
#endif
#ifndef FT_LINK_BYTES
#define FT_LINK_BYTES (FT_ROWS == 1 ? 128 : 256)
#endif

// Eight stored weights.
#if FT_ENCODING == 0
struct alignas(16) Weights {
    uint4 raw;
};
__device__ __forceinline__ Weights stream_weights(const uint8_t* from) { return {stream16(from)}; }
__device__ __forceinline__ Weights reread_weights(const uint8_t* from) {
    return {__ldcg(reinterpret_cast<const uint4*>(from))};
}
// The first or the second four.
__device__ __forceinline__ void unpack(const Weights& w, int half, float (&out)[4]) {
    const uint32_t first = half ? w.raw.z : w.raw.x, second = half ? w.raw.w : w.raw.y;
    out[0] = bf16_low(first), out[1] = bf16_high(first);
    out[2] = bf16_low(second), out[3] = bf16_high(second);
}
constexpr bool kHasScales = false;
#elif FT_ENCODING == 1
struct alignas(8) Weights {
    uint2 raw;
};
__device__ __forceinline__ Weights stream_weights(const uint8_t* from) { return {stream8(from)}; }
__device__ __forceinline__ Weights reread_weights(const uint8_t* from) {
    return {__ldcg(reinterpret_cast<const uint2*>(from))};
}
__device__ __forceinline__ void unpack(const Weights& w, int half, float (&out)[4]) {
    e4m3_quotients(half ? w.raw.y : w.raw.x, out);
}
constexpr bool kHasScales = true;
#else
#error "experts are bf16 or fp8_block"
#endif

constexpr size_t kLineBytes = kHidden / kLaneValues * sizeof(Weights);
constexpr size_t kValuesBytes = 3 * kUnitRows * kLineBytes;
constexpr int kGroup = kHasScales ? FT_GROUP : kHidden;
constexpr int kScales = kHasScales ? (kHidden + kGroup - 1) / kGroup : 1;  // along a row

static_assert(kLinesOfWarp == 4, "two rows of gate and of up");

// What a lane has in flight: whole lines of the warp's four if they fit, else pieces of one.
template <int kHeldBytes>
struct Cut {
    static constexpr int kWeights = kHeldBytes / static_cast<int>(sizeof(Weights));
    static constexpr int kLines = kChunks * kLinesOfWarp <= kWeights ? 4
                                  : kChunks * 2 <= kWeights          ? 2
                                                                     : 1;
    static constexpr int kLinesAtOnce = kLines < 2 ? 1 : 2;  // of one dot, with the same input
    static constexpr int kChunksHeld = kChunks < kWeights ? kChunks : kWeights;
    static constexpr int kPieces = (kChunks + kChunksHeld - 1) / kChunksHeld;
    // Lanes may hold nothing of a chunk.
    static constexpr bool kRagged = kPieces > 1 || kHidden % 256 != 0;
    // Rows of down that a thread has in flight; all, where their accumulators are many.
    static constexpr int kDownRows = kRowsAtOnce > 1 || kWeights > kUnitRows ? kUnitRows : kWeights;
    static_assert(kUnitRows % kDownRows == 0, "whole parts");
    static_assert(kPieces == 1 || kRowsAtOnce == 1, "a row's accumulators outlive a piece");
};
template <bool Through>
using CutOf = Cut<Through ? FT_LINK_BYTES : FT_HELD_BYTES>;

// Shared memory of a CTA that computes units.
struct UnitScratch {
    alignas(16) float x[kRowsAtOnce][kHidden];
    alignas(16) float sums[kRowsAtOnce][2 * kUnitRows];  // gate rows, then up rows
    alignas(16) float act[kRowsAtOnce][kUnitRows];
    float scales[3][kScales];  // of gate, up, down, times kFp8Scale
};

struct UnitWork {
    const uint8_t* source;  // the unit
    uint8_t* target;        // copy of it to make on the way, or null
    int rows;               // mask; not 0
    int base;               // pair of its first row
    int unit;
};

__device__ __forceinline__ float exponential(float t) {
    constexpr float p[7] = {kExpPolynomial[0], kExpPolynomial[1], kExpPolynomial[2],
                            kExpPolynomial[3], kExpPolynomial[4], kExpPolynomial[5],
                            kExpPolynomial[6]};
    t = t > kExpHigh ? kExpHigh : t;  // a NaN stays one
    t = t < kExpLow ? kExpLow : t;
    const float n = rintf(__fmul_rn(t, kLog2e));
    float r = __fmaf_rn(-n, kLn2High, t);
    r = __fmaf_rn(-n, kLn2Low, r);
    float out = p[6];
#pragma unroll
    for (int i = 5; i >= 0; i--) out = __fmaf_rn(out, r, p[i]);
    return __fmul_rn(out, __int_as_float((__float2int_rn(n) + 127) << 23));
}

__device__ __forceinline__ float activation(float gate, float up) {
    return __fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, exponential(-gate))), up);
}

__device__ __forceinline__ float other_lane(float value, int lanes) {
    return __shfl_xor_sync(kAllLanes, value, lanes);
}

// The tree over 256 accumulators, 8 a lane; every lane gets the sum of line `lane / 16` of the two.
// Lanes send what they do not keep, so that two lines cost 11 exchanges.
__device__ __forceinline__ float tree(const float (&acc)[2][kLaneValues]) {
    const int lane = threadIdx.x % kWarpLanes;
    const bool b4 = lane & 16, b3 = lane & 8, b2 = lane & 4;
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float a = __fadd_rn(acc[0][2 * j], acc[0][2 * j + 1]);
        const float b = __fadd_rn(acc[1][2 * j], acc[1][2 * j + 1]);
        v[j] = __fadd_rn(b4 ? b : a, other_lane(b4 ? a : b, 16));
    }
    const float w0 = __fadd_rn(b3 ? v[2] : v[0], other_lane(b3 ? v[0] : v[2], 8));
    const float w1 = __fadd_rn(b3 ? v[3] : v[1], other_lane(b3 ? v[1] : v[3], 8));
    float z = __fadd_rn(b2 ? w1 : w0, other_lane(b2 ? w0 : w1, 4));
    z = __fadd_rn(z, other_lane(z, 2));
    z = __fadd_rn(z, other_lane(z, 1));
    z = __fadd_rn(z, other_lane(z, 8));
    return __fadd_rn(z, other_lane(z, 4));
}

__device__ __forceinline__ float tree(const float (&acc)[1][kLaneValues]) {
    const int lane = threadIdx.x % kWarpLanes;
    const bool b4 = lane & 16, b3 = lane & 8;
    float t[4];
#pragma unroll
    for (int j = 0; j < 4; j++) t[j] = __fadd_rn(acc[0][2 * j], acc[0][2 * j + 1]);
    const float w0 = __fadd_rn(b4 ? t[2] : t[0], other_lane(b4 ? t[0] : t[2], 16));
    const float w1 = __fadd_rn(b4 ? t[3] : t[1], other_lane(b4 ? t[1] : t[3], 16));
    float z = __fadd_rn(b3 ? w1 : w0, other_lane(b3 ? w0 : w1, 8));
    z = __fadd_rn(z, other_lane(z, 4));
    z = __fadd_rn(z, other_lane(z, 2));
    z = __fadd_rn(z, other_lane(z, 1));
    z = __fadd_rn(z, other_lane(z, 16));
    return __fadd_rn(z, other_lane(z, 8));
}

// Adds chunks [first, first + C::kChunksHeld) of C::kLinesAtOnce lines to their accumulators.
template <class C>
__device__ __forceinline__ void multiply(const Weights (&w)[C::kLinesAtOnce][C::kChunksHeld],
                                         int first, const float* x, const float* scales,
                                         float (&acc)[C::kLinesAtOnce][kLaneValues]) {
    const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
    for (int c = 0; c < C::kChunksHeld; c++) {
        const int at = (first + c) * 256 + lane * kLaneValues;
        if (C::kRagged && at >= kHidden) break;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 in = *reinterpret_cast<const float4*>(x + at + 4 * half);
            if (kHasScales) {
                const float scale = scales[at / kGroup];
                in.x = __fmul_rn(in.x, scale), in.y = __fmul_rn(in.y, scale);
                in.z = __fmul_rn(in.z, scale), in.w = __fmul_rn(in.w, scale);
            }
#pragma unroll
            for (int l = 0; l < C::kLinesAtOnce; l++) {
                float value[4];
                unpack(w[l][c], half, value);
                float* sum = acc[l] + 4 * half;
                sum[0] = __fmaf_rn(value[0], in.x, sum[0]);
                sum[1] = __fmaf_rn(value[1], in.y, sum[1]);
                sum[2] = __fmaf_rn(value[2], in.z, sum[2]);
                sum[3] = __fmaf_rn(value[3], in.w, sum[3]);
            }
        }
    }
}

// Where the warp's line `l` begins in a unit; lines of one input follow each other.
__device__ __forceinline__ int line_of_warp(int l) {
    const int row = static_cast<int>(threadIdx.x) / kWarpLanes * 2 + l % 2;
    return 2 * row + l / 2;  // g0 u0 g1 u1 ..
}

// Copies a group of rows of the normed input to shared memory; all threads.
__device__ __forceinline__ void take_rows(const float* normed, int rows, int skip, int count,
                                          float (*x)[kHidden]) {
    for (int n = 0; n < skip; n++) rows &= rows - 1;
    for (int n = 0; n < count; n++, rows &= rows - 1) {
        const float4* from =
            reinterpret_cast<const float4*>(normed + (__ffs(rows) - 1) * kHidden);
        for (int i = threadIdx.x; i < kHidden / 4; i += kThreads)
            reinterpret_cast<float4*>(x[n])[i] = __ldcg(from + i);
    }
}

// Scales to shared memory and to the copy; all threads.
__device__ __forceinline__ void take_scales(const uint8_t* unit, uint8_t* target, UnitScratch& s) {
    for (int i = threadIdx.x; kHasScales && i < 3 * kScales; i += kThreads) {
        const size_t place = kValuesBytes + i * sizeof(float);
        const float scale = __ldcg(reinterpret_cast<const float*>(unit + place));
        s.scales[i / kScales][i % kScales] = __fmul_rn(scale, kFp8Scale);
        if (target) *reinterpret_cast<float*>(target + place) = scale;
    }
}

__device__ __forceinline__ Weights load_weights(const uint8_t* from, bool again) {
    return again ? reread_weights(from) : stream_weights(from);
}

// Gate and up: sums of all 32 lines for `count` rows that lie in shared memory. `prepare` is done
// while the first weights are on their way. `again` says that `source` was written by this thread.
template <bool Through, class Prepare>
__device__ __forceinline__ void gate_and_up(const uint8_t* source, uint8_t* target, bool again,
                                            int count, UnitScratch& s, Prepare prepare) {
    using C = CutOf<Through>;
    const int lane = threadIdx.x % kWarpLanes;
    bool prepared = false;
#pragma unroll 1
    for (int group = 0; group < kLinesOfWarp; group += C::kLines) {
        float acc[C::kLinesAtOnce][kLaneValues];
#pragma unroll 1
        for (int piece = 0; piece < C::kPieces; piece++) {
            const int first = piece * C::kChunksHeld;
            Weights w[C::kLines / C::kLinesAtOnce][C::kLinesAtOnce][C::kChunksHeld];
#pragma unroll
            for (int l = 0; l < C::kLines; l++) {
                const size_t line = line_of_warp(group + l) * kLineBytes;
#pragma unroll
                for (int c = 0; c < C::kChunksHeld; c++) {
                    const int block = (first + c) * kWarpLanes + lane;
                    if (C::kRagged && block >= kHidden / kLaneValues) break;
                    const size_t at = line + block * sizeof(Weights);
                    w[l / C::kLinesAtOnce][l % C::kLinesAtOnce][c] =
                        load_weights(source + at, again);
                }
            }
            if (!prepared) prepare();
            prepared = true;
            if (Through && target) {
#pragma unroll
                for (int l = 0; l < C::kLines; l++) {
                    const size_t line = line_of_warp(group + l) * kLineBytes;
#pragma unroll
                    for (int c = 0; c < C::kChunksHeld; c++) {
                        const int block = (first + c) * kWarpLanes + lane;
                        if (C::kRagged && block >= kHidden / kLaneValues) break;
                        const size_t at = line + block * sizeof(Weights);
                        *reinterpret_cast<Weights*>(target + at) =
                            w[l / C::kLinesAtOnce][l % C::kLinesAtOnce][c];
                    }
                }
            }
#pragma unroll 1
            for (int n = 0; n < count; n++) {
#pragma unroll
                for (int l = 0; l < C::kLines; l += C::kLinesAtOnce) {
                    const int line = line_of_warp(group + l);
                    if (piece == 0) {
#pragma unroll
                        for (int i = 0; i < C::kLinesAtOnce * kLaneValues; i++)
                            acc[i / kLaneValues][i % kLaneValues] = 0.0f;
                    }
                    multiply<C>(w[l / C::kLinesAtOnce], first, s.x[n], s.scales[line % 2], acc);
                    if (piece + 1 < C::kPieces) continue;
                    const float sum = tree(acc);
                    const int half = lane / 16;
                    if (lane % 16 == 0 && half < C::kLinesAtOnce)
                        s.sums[n][line % 2 * kUnitRows + line / 2 + half] = sum;
                }
            }
        }
    }
}

// Down: this thread's columns of `count` rows, into the partial sums of the pairs from `pair` on.
// Activations are made while its first weights are on their way.
template <bool Through>
__device__ __forceinline__ void down(const uint8_t* source, uint8_t* target, bool again, int count,
                                     float* partial, UnitScratch& s) {
    using C = CutOf<Through>;
    bool active = false;
#pragma unroll 1
    for (int first = 0; first < kHidden / kLaneValues; first += kThreads) {
        const int block = first + static_cast<int>(threadIdx.x);
        const bool mine = block < kHidden / kLaneValues;
        Weights w[C::kDownRows];
        const size_t place = 2 * kUnitRows * kLineBytes + block * sizeof(Weights);
        const auto take = [&](int row) {
#pragma unroll
            for (int r = 0; r < C::kDownRows; r++)
                w[r] = load_weights(source + place + (row + r) * kLineBytes, again);
            if (Through && target) {
#pragma unroll
                for (int r = 0; r < C::kDownRows; r++)
                    *reinterpret_cast<Weights*>(target + place + (row + r) * kLineBytes) = w[r];
            }
        };
        if (mine) take(0);
        if (!active) {
            active = true;
            __syncthreads();  // all sums are there
            for (int i = threadIdx.x; i < count * kUnitRows; i += kThreads) {
                const float* sums = s.sums[i / kUnitRows];
                const int r = i % kUnitRows;
                s.act[i / kUnitRows][r] = activation(sums[r], sums[kUnitRows + r]);
            }
            __syncthreads();
        }
        if (!mine) continue;
#pragma unroll 1
        for (int n = 0; n < count; n++) {
            float acc[kLaneValues] = {};
#pragma unroll
            for (int r = 0; r < kUnitRows; r++) {
                if (r > 0 && r % C::kDownRows == 0) take(r);
                const float a = s.act[n][r];
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float value[4];
                    unpack(w[r % C::kDownRows], half, value);
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        acc[4 * half + i] = __fmaf_rn(a, value[i], acc[4 * half + i]);
                }
            }
            if (kHasScales) {
                const float scale = s.scales[2][block * kLaneValues / kGroup];
#pragma unroll
                for (int i = 0; i < kLaneValues; i++) acc[i] = __fmul_rn(acc[i], scale);
            }
            float4* out = reinterpret_cast<float4*>(
                partial + static_cast<size_t>(n) * kUnits * kHidden + block * kLaneValues);
            out[0] = make_float4(acc[0], acc[1], acc[2], acc[3]);
            out[1] = make_float4(acc[4], acc[5], acc[6], acc[7]);
        }
    }
}

// A whole unit for all its rows, by a CTA of kThreads; the scratch is free again afterwards.
// `Through` reads the host's memory and may leave a copy. More rows than fit at once take another
// reading, from the copy if there is one.
template <bool Through>
__device__ __forceinline__ void compute_unit(const MoeArguments& a, const UnitWork& work,
                                             UnitScratch& s) {
    constexpr bool kOnePass = kRowsAtOnce >= kRows;
    const int all = kRows == 1 ? 1 : __popc(static_cast<unsigned>(work.rows));
    if (!Through) {
        const uint8_t* columns = work.source + 2 * kUnitRows * kLineBytes;
        for (size_t at = threadIdx.x * 128; at < kUnitRows * kLineBytes; at += kThreads * 128)
            prefetch_l2(columns + at);
    }
    int done = 0;
    do {
        const int left = all - done, count = left < kRowsAtOnce ? left : kRowsAtOnce;
        const bool again = !kOnePass && Through && done > 0 && work.target;
        const uint8_t* source = again ? work.target : work.source;
        uint8_t* target = done > 0 ? nullptr : work.target;
        gate_and_up<Through>(source, target, again, count, s, [&] {
            take_scales(source, target, s);
            take_rows(a.normed, work.rows, done, count, s.x);
            __syncthreads();
        });
        const size_t pair = static_cast<size_t>(work.base + done);
        float* partial = a.partial + (pair * kUnits + work.unit) * kHidden;
        down<Through>(source, target, again, count, partial, s);
        __syncthreads();
        done += count;
    } while (!kOnePass && done < all);
}

}  // namespace freetoken
