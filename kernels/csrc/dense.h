// The dense operations of a decode step as tables of functions, one table for each tier. Every
// function follows the canonical order (canonical.h), so tiers agree bit for bit. Plain data: what
// is inline here would be compiled for every tier and merged by the linker.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "isa.h"

namespace freetoken {

enum class Stored { bf16, fp8_block, float32 };

constexpr int kDenseTokens = 8;   // that share one reading of a row
constexpr int kDensePadding = 64;  // values: the widest part of a tier

// Rows of one weight against the inputs of some tokens.
struct DenseRows {
    Stored stored;
    int width;
    const uint8_t* values;  // [count][width]
    int count;
    const float* x;         // [tokens][padded], from `spread`
    ptrdiff_t padded;
    int tokens;             // up to kDenseTokens
    uint8_t* copy;          // [padded] values: scratch for a row that is no whole number of parts
    float* out;             // out[token * stride + row]
    ptrdiff_t stride;
};

// One head of keys and values of a paged sequence; the token of position c is at
// pages[c / page_tokens] * page_floats + c % page_tokens * token_floats.
struct PagedHead {
    const float* keys;
    const float* values;
    const int64_t* pages;
    ptrdiff_t page_floats;
    ptrdiff_t token_floats;
    int page_tokens;
    int head_dim;
};

struct DenseTier {
    // Puts x [width] into the order in which rows are read.
    void (*spread)(Stored stored, int width, const float* x, float* out);
    void (*dots)(const DenseRows& rows);
    // One row [width] as float32. With scales, one for each `group` values, a value counts code *
    // scale, rounded once.
    void (*expand)(Stored stored, int width, const uint8_t* row, const float* scales, int group,
                   float* out);
    // out = x / rms(x) * weight, all [width].
    void (*norm)(const float* x, const float* weight, float eps, int width, float* out);
    // The same for a head, in place, and then its rotation; cos and sin [width].
    void (*norm_rotary)(float* x, const float* weight, float eps, const float* cos,
                        const float* sin, int width);
    // `heads` queries [heads][head_dim] that share a head of keys attend to `length` tokens;
    // scores [heads][length] is scratch, out [heads][head_dim].
    void (*attend)(const PagedHead& kv, const float* queries, int heads, int length, float scale,
                   float* scores, float* out);
    // Turns logits [count] into their softmax, in place.
    void (*softmax)(float* logits, int count);
};

const DenseTier& dense_tier_scalar();
const DenseTier& dense_tier_avx2();
const DenseTier& dense_tier_avx512();

// The functions of a tier; the caller has checked that the CPU can run it.
const DenseTier& dense_tier(Tier tier);

}  // namespace freetoken
