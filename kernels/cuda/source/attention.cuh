// Attention of one new token per row over paged keys and values.
//
// A CTA takes one part of a row's context for up to 8 query heads that share a head of keys, a warp
// a query head, in tiles of 32 tokens with a running softmax. The last CTA of these heads combines
// the parts in rising order. How a context is cut follows from its length alone, so an output's bits
// depend on the row's own tokens and length.
#pragma once

#include "common.cuh"

namespace freetoken {

// Mirrored by `kernels.cuda.dense_arguments`.
struct AttentionArguments {
    const float* qkv;         // [R][(N + 2 Nkv) D]
    const float* query_norm;  // [D]
    const float* key_norm;    // [D]
    const float2* rotary;     // [positions][D / 2], cosine and sine
    const int* positions;     // [R]
    const int* pages;         // [R][pages_of_a_row]
    uint16_t* pool;           // page -> layer -> keys, values -> 16 tokens -> heads -> D
    float* sums;              // [R][N][parts][D]: weighted values, before the division
    float2* stats;            // [R][N][parts]: highest score, sum of weights
    unsigned* tickets;        // [R][Nkv * blocks], all 0
    float* output;            // [R][N D]
    int pages_of_a_row;
    int layer;
    float eps;
};
static_assert(sizeof(AttentionArguments) == 104, "kernels.cuda.dense_arguments mirrors it");

constexpr int kHeadDim = FT_HEAD_DIM;
constexpr int kShare = FT_HEADS / FT_KV_HEADS;  // query heads of a head of keys
constexpr int kHeadBlocks = (kShare + 7) / 8;   // CTAs that share them
constexpr int kBlockHeads = (kShare + kHeadBlocks - 1) / kHeadBlocks;
constexpr int kAttentionWarps = kBlockHeads < 4 ? 4 : kBlockHeads;
constexpr int kAttentionThreads = kAttentionWarps * kWarpLanes;
constexpr int kTile = 32;               // tokens: a lane scores one
constexpr int kPitch = kHeadDim + 8;    // shared rows are shifted by 16 bytes: no bank conflicts
constexpr int kChunks = kHeadDim / 8;   // 16 bytes of a row
constexpr int kTileChunks = 2 * kTile * kChunks;
constexpr int kTileLoads = (kTileChunks + kAttentionThreads - 1) / kAttentionThreads;
constexpr int kWidth = kHeadDim % 128 == 0 ? 4 : kHeadDim % 64 == 0 ? 2 : 1;  // values of a lane
constexpr int kRuns = kHeadDim / (kWidth * kWarpLanes);
constexpr int kOwn = kHeadDim / kWarpLanes;      // values of a head that a lane has
constexpr int kTurns = (kOwn + 1) / 2;           // angles of a head that a lane has
constexpr int kPartsAhead = 64 / kOwn;           // parts on their way while they are combined
constexpr int kPartRuns = (FT_SPLITS + kWarpLanes - 1) / kWarpLanes;  // parts that a lane weighs
constexpr int kQueryWidth = FT_HEADS * kHeadDim, kKeyWidth = FT_KV_HEADS * kHeadDim;
constexpr float kLowest = -1e30f;  // below every score; a difference of two is finite

struct AttentionShared {
    alignas(16) uint16_t keys[kTile][kPitch];
    alignas(16) uint16_t values[kTile][kPitch];
    alignas(16) float queries[kBlockHeads][kHeadDim];
    alignas(16) float fresh[2][kHeadDim];  // the new token's key and value
};

struct Attention {
    const AttentionArguments& a;
    AttentionShared& shared;
    int row, kv_head, head_block, position;  // of this CTA; `position` is the new token's
    uint4 tile[kTileLoads];

    // Where a token's keys (which = 0) or values (1) of this CTA's head lie.
    __device__ uint16_t* cell(int token, int which) const {
        const int page = __ldg(a.pages + row * a.pages_of_a_row + token / FT_PAGE_TOKENS);
        const size_t block = (size_t(page) * FT_MOE_LAYERS + a.layer) * 2 + which;
        const size_t cells = block * FT_PAGE_TOKENS + token % FT_PAGE_TOKENS;
        return a.pool + cells * kKeyWidth + kv_head * kHeadDim;
    }

    // Requests a tile's keys and values; `store` drops what lies in the new token's cell.
    __device__ void load(int begin, int end) {
#pragma unroll
        for (int i = 0; i < kTileLoads; i++) {
            const int chunk = threadIdx.x + i * kAttentionThreads;
            const int token = begin + chunk / kChunks % kTile;
            tile[i] = make_uint4(0, 0, 0, 0);
            if (chunk < kTileChunks && token < end) {
                const uint16_t* from = cell(token, chunk / (kTile * kChunks));
                tile[i] = __ldcg(reinterpret_cast<const uint4*>(from) + chunk % kChunks);
            }
        }
    }

    // Tokens past the end become zeros: weight 0 times a stray NaN would be NaN.
    __device__ void store(int begin) {
#pragma unroll
        for (int i = 0; i < kTileLoads; i++) {
            const int chunk = threadIdx.x + i * kAttentionThreads;
            const int token = chunk / kChunks % kTile;
            if (chunk >= kTileChunks || begin + token == position) continue;
            uint16_t* to = chunk < kTile * kChunks ? shared.keys[token] : shared.values[token];
            reinterpret_cast<uint4*>(to)[chunk % kChunks] = tile[i];
        }
    }

    // Requests a lane's values of a head, kWarpLanes apart: 0 and kWarpLanes and so on.
    __device__ static void request(const float* from, float (&value)[kOwn]) {
        const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
        for (int i = 0; i < kOwn; i++) value[i] = __ldcg(from + lane + i * kWarpLanes);
    }

    // Requests the new token's angles: constants as the norms are.
    __device__ void request_turns(float2 (&turns)[kTurns]) const {
        const float2* const from = a.rotary + size_t(position) * (kHeadDim / 2);
        const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
        for (int i = 0; i < kTurns; i++) {
            const int at = lane + i * kWarpLanes;
            turns[i] = at < kHeadDim / 2 ? __ldg(from + at) : make_float2(1.0f, 0.0f);
        }
    }

    // A head's RMS norm and rotation, by one warp; value d turns with value d + D/2.
    __device__ void norm_and_rotate(const float (&value)[kOwn], const float (&norm)[kOwn],
                                    const float2 (&turns)[kTurns], float scale, float* to) {
        const int lane = threadIdx.x % kWarpLanes;
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < kOwn; i++) squares = __fmaf_rn(value[i], value[i], squares);
        const float inverse = rsqrtf(warp_sum(squares) / kHeadDim + a.eps);
#pragma unroll
        for (int i = 0; i < kOwn; i++) to[lane + i * kWarpLanes] = value[i] * inverse * norm[i];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kTurns; i++) {
            const int at = lane + i * kWarpLanes;
            if (at >= kHeadDim / 2) break;
            const float low = to[at], high = to[at + kHeadDim / 2];
            to[at] = (low * turns[i].x - high * turns[i].y) * scale;
            to[at + kHeadDim / 2] = (high * turns[i].x + low * turns[i].y) * scale;
        }
        __syncwarp();
    }

    // Where the new token's key (which = 0) or value (1) comes from.
    __device__ const float* fresh(int which) const {
        const float* mine = a.qkv + size_t(row) * (kQueryWidth + 2 * kKeyWidth) + kQueryWidth;
        return mine + which * kKeyWidth + kv_head * kHeadDim;
    }

    // The new token's key and value, rounded, to the tile and (by one CTA of the head) the pool: by
    // the warp that has them in `shared.fresh`.
    __device__ void append(int begin) {
        const int lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
        if (warp > 1) return;
        uint16_t* to = warp == 0 ? shared.keys[position - begin] : shared.values[position - begin];
        uint32_t* pool = reinterpret_cast<uint32_t*>(cell(position, warp));
        for (int i = lane; i < kHeadDim / 2; i += kWarpLanes) {
            const float* const from = shared.fresh[warp] + 2 * i;
            const uint32_t pair = bf16_pair(from[0], from[1]);
            reinterpret_cast<uint32_t*>(to)[i] = pair;
            if (head_block == 0) pool[i] = pair;
        }
    }

    // The score of the lane's token, in powers of two.
    __device__ float score(const float* query) const {
        const int lane = threadIdx.x % kWarpLanes;
        const uint4* key = reinterpret_cast<const uint4*>(shared.keys[lane]);
        float s[4] = {};
#pragma unroll 4
        for (int i = 0; i < kChunks; i++) {
            const uint4 k = key[i];
            const float4 q = reinterpret_cast<const float4*>(query)[2 * i];
            const float4 p = reinterpret_cast<const float4*>(query)[2 * i + 1];
            s[0] = __fmaf_rn(bf16_high(k.x), q.y, __fmaf_rn(bf16_low(k.x), q.x, s[0]));
            s[1] = __fmaf_rn(bf16_high(k.y), q.w, __fmaf_rn(bf16_low(k.y), q.z, s[1]));
            s[2] = __fmaf_rn(bf16_high(k.z), p.y, __fmaf_rn(bf16_low(k.z), p.x, s[2]));
            s[3] = __fmaf_rn(bf16_high(k.w), p.w, __fmaf_rn(bf16_low(k.w), p.z, s[3]));
        }
        return (s[0] + s[1]) + (s[2] + s[3]);
    }

    // Adds one token's value, weighted; a lane holds kRuns runs of kWidth neighbours.
    __device__ void add_value(float (&sum)[kOwn], int token, float weight) const {
        const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
        for (int run = 0; run < kRuns; run++) {
            const uint16_t* at = shared.values[token] + (run * kWarpLanes + lane) * kWidth;
            float* const s = sum + run * kWidth;
            if constexpr (kWidth == 4) {
                const uint2 v = *reinterpret_cast<const uint2*>(at);
                s[0] = __fmaf_rn(weight, bf16_low(v.x), s[0]);
                s[1] = __fmaf_rn(weight, bf16_high(v.x), s[1]);
                s[2] = __fmaf_rn(weight, bf16_low(v.y), s[2]);
                s[3] = __fmaf_rn(weight, bf16_high(v.y), s[3]);
            } else if constexpr (kWidth == 2) {
                const uint32_t v = *reinterpret_cast<const uint32_t*>(at);
                s[0] = __fmaf_rn(weight, bf16_low(v), s[0]);
                s[1] = __fmaf_rn(weight, bf16_high(v), s[1]);
            } else {
                s[0] = __fmaf_rn(weight, bf16_low(*at), s[0]);
            }
        }
    }

    // A lane's runs of a head: kWidth neighbours, kWidth times 32 values apart.
    __device__ static void take(const float* from, float (&to)[kOwn]) {
        from += threadIdx.x % kWarpLanes * kWidth;
#pragma unroll
        for (int run = 0; run < kRuns; run++, from += kWidth * kWarpLanes) {
            float* const t = to + run * kWidth;
            if constexpr (kWidth == 4) {
                const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
                t[0] = v.x, t[1] = v.y, t[2] = v.z, t[3] = v.w;
            } else if constexpr (kWidth == 2) {
                const float2 v = __ldcg(reinterpret_cast<const float2*>(from));
                t[0] = v.x, t[1] = v.y;
            } else {
                t[0] = __ldcg(from);
            }
        }
    }
    __device__ static void put(float* to, const float (&from)[kOwn]) {
        to += threadIdx.x % kWarpLanes * kWidth;
#pragma unroll
        for (int run = 0; run < kRuns; run++, to += kWidth * kWarpLanes) {
            const float* const f = from + run * kWidth;
            if constexpr (kWidth == 4) {
                __stcg(reinterpret_cast<float4*>(to), make_float4(f[0], f[1], f[2], f[3]));
            } else if constexpr (kWidth == 2) {
                __stcg(reinterpret_cast<float2*>(to), make_float2(f[0], f[1]));
            } else {
                __stcg(to, f[0]);
            }
        }
    }

    // Requests a head's sums of parts [first, end), as many as are on their way at once.
    __device__ static void take_parts(const float* sums, int first, int end,
                                      float (&part)[kPartsAhead][kOwn]) {
#pragma unroll
        for (int k = 0; k < kPartsAhead; k++)
            if (first + k < end) take(sums + size_t(first + k) * kHeadDim, part[k]);
    }

    // Combines the parts of this warp's head, in rising order.
    __device__ void combine(int head, int parts) const {
        const int lane = threadIdx.x % kWarpLanes;
        const size_t place = size_t(row) * FT_HEADS + head;
        const float2* const stats = a.stats + place * FT_SPLITS;
        const float* const sums = a.sums + place * FT_SPLITS * kHeadDim;
        float2 of[kPartRuns];
        float part[kPartsAhead][kOwn];
#pragma unroll
        for (int i = 0; i < kPartRuns; i++) {
            const int mine = i * kWarpLanes + lane;
            of[i] = mine < parts ? __ldcg(&stats[mine]) : make_float2(kLowest, 0.0f);
        }
        take_parts(sums, 0, min(parts, kWarpLanes), part);  // on their way with the stats
        float highest = kLowest, total = 0.0f, sum[kOwn] = {};
#pragma unroll
        for (int i = 0; i < kPartRuns; i++) highest = fmaxf(highest, of[i].x);
        highest = warp_max(highest);
#pragma unroll
        for (int i = 0; i < kPartRuns; i++) {
            const int first = i * kWarpLanes, end = min(parts, first + kWarpLanes);
            if (first >= parts) break;
            const float factor = first + lane < parts ? exp2_fast(of[i].x - highest) : 0.0f;
            total += warp_sum(factor * of[i].y);
            for (int begin = first; begin < end; begin += kPartsAhead) {
                if (begin > 0) take_parts(sums, begin, end, part);
#pragma unroll
                for (int k = 0; k < kPartsAhead; k++) {
                    const float share = __shfl_sync(kAllLanes, factor, (begin + k) % kWarpLanes);
                    if (begin + k >= end) continue;
#pragma unroll
                    for (int j = 0; j < kOwn; j++) sum[j] = __fmaf_rn(share, part[k][j], sum[j]);
                }
            }
        }
#pragma unroll
        for (float& value : sum) value /= total;
        put(a.output + size_t(row) * kQueryWidth + head * kHeadDim, sum);
    }
};

__device__ __forceinline__ void attend(const AttentionArguments& a) {
    __shared__ AttentionShared shared;
    const int part = blockIdx.x, row = blockIdx.z, position = __ldcg(a.positions + row);
    const int lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
    const int context = position + 1;
    const int tiles = ((context + FT_SPLITS - 1) / FT_SPLITS + kTile - 1) / kTile;  // of a part
    const int parts = (context + tiles * kTile - 1) / (tiles * kTile);
    const int begin = part * tiles * kTile, end = min(begin + tiles * kTile, context);
    start_next_kernel();
    if (part >= parts) return;  // the others of this grid wait for the kernel before it

    Attention work{a, shared, row, int(blockIdx.y) / kHeadBlocks, int(blockIdx.y) % kHeadBlocks,
                   position, {}};
    const int of_share = work.head_block * kBlockHeads + warp;
    const bool has_head = warp < kBlockHeads && of_share < kShare;
    const int head = work.kv_head * kShare + of_share;
    const bool appends = begin <= position && position < end && warp < 2;
    work.load(begin, end);
    float2 turns[kTurns];
    float query_norm[kOwn], key_norm[kOwn], query[kOwn], fresh[kOwn];
    work.request_turns(turns);
    work.request(a.query_norm, query_norm);
    if (appends && warp == 0) work.request(a.key_norm, key_norm);
    wait_for_previous_kernel();
    if (has_head)
        work.request(a.qkv + size_t(row) * (kQueryWidth + 2 * kKeyWidth) + head * kHeadDim, query);
    if (appends) work.request(work.fresh(warp), fresh);
    if (has_head) {
        // Scores in powers of two: exp(s) = exp2(s log2 e).
        const float scale = 1.44269504f / sqrtf(float(kHeadDim));
        work.norm_and_rotate(query, query_norm, turns, scale, shared.queries[warp]);
    }
    if (appends && warp == 0)
        work.norm_and_rotate(fresh, key_norm, turns, 1.0f, shared.fresh[0]);
    if (appends && warp == 1) {
#pragma unroll
        for (int i = 0; i < kOwn; i++) shared.fresh[1][lane + i * kWarpLanes] = fresh[i];
        __syncwarp();
    }
    float highest = kLowest, total = 0.0f, sum[kOwn] = {};
    for (int first = begin; first < end; first += kTile) {
        if (first > begin) __syncthreads();  // all warps are done with the tile before
        work.store(first);
        if (position < first + kTile && position >= first) work.append(first);
        __syncthreads();
        if (first + kTile < end) work.load(first + kTile, end);
        if (!has_head) continue;
        const float score = first + lane < end ? work.score(shared.queries[warp]) : kLowest;
        const float before = highest;
        highest = fmaxf(highest, warp_max(score));
        const float weight = first + lane < end ? exp2_fast(score - highest) : 0.0f;
        const float shrink = exp2_fast(before - highest);
        total = __fmaf_rn(total, shrink, warp_sum(weight));
#pragma unroll
        for (float& value : sum) value *= shrink;
        const int count = min(kTile, end - first);
#pragma unroll 8
        for (int token = 0; token < count; token++)
            work.add_value(sum, token, __shfl_sync(kAllLanes, weight, token));
    }
    if (has_head) {
        const size_t place = (size_t(row) * FT_HEADS + head) * FT_SPLITS + part;
        work.put(a.sums + place * kHeadDim, sum);
        if (lane == 0) __stcg(a.stats + place, make_float2(highest, total));
    }
    unsigned* const ticket = a.tickets + row * FT_KV_HEADS * kHeadBlocks + blockIdx.y;
    if (arrives_last(ticket, parts) && has_head) work.combine(head, parts);
}

}  // namespace freetoken
