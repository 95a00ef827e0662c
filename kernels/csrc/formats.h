// How rows of each encoding are read, and the dot of a row, over simd.h. For one tier, like simd.h.
//
// Loops reorder work only where the canonical order leaves it free: rows, tokens, accumulators.
#pragma once

#include <stddef.h>

#include "canonical.h"
#include "simd.h"

namespace freetoken {
namespace {

constexpr int kCacheLineBytes = 64;
constexpr bool kWide = kWidth == 16;

// A test counts what plain C++ would fetch.
#ifndef FREETOKEN_FETCHED
#define FREETOKEN_FETCHED(p) (void)(p)
#endif

// Into the first level of the cache, or into the second one.
FREETOKEN_INLINE void prefetch(const void* p) {
#if defined(FREETOKEN_AVX512) || defined(FREETOKEN_AVX2)
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
#else
    (void)p;
#endif
}
FREETOKEN_INLINE void prefetch_far(const void* p) {
#if defined(FREETOKEN_AVX512) || defined(FREETOKEN_AVX2)
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
#else
    FREETOKEN_FETCHED(p);
#endif
}

// A format says how a part of a row, kValues neighbours, becomes kVectors vectors: value i becomes
// lane i / kVectors of vector i % kVectors. kSums accumulators and kTokens tokens at a time leave
// registers for the rest. `look` gathers whether some parts are plain, that is, unpack by the short
// way.
struct Bf16 {
    static constexpr int kBytes = 2, kVectors = 2, kValues = kVectors * kWidth;
    static constexpr int kSums = kWide ? 16 : 8, kTokens = kWide ? 8 : 4;
    static constexpr bool kHasScales = false;
    using Look = bool;
    static FREETOKEN_INLINE Look nothing_seen() { return true; }
    static FREETOKEN_INLINE Look look(Look seen, const uint8_t*) { return seen; }
    static FREETOKEN_INLINE bool is_plain(Look) { return true; }
    template <bool Plain>
    static FREETOKEN_INLINE void unpack(const uint8_t* p, Vector* out) {
        unpack_bf16(p, out);
    }
    static FREETOKEN_INLINE void spread(const float* x, Vector* out) {
        split(load(x), load(x + kWidth), out[0], out[1]);
    }
    static FREETOKEN_INLINE void collect(const Vector* in, float* out) {
        Vector part[2];
        interleave(in[0], in[1], part[0], part[1]);
        for (int i = 0; i < 2; i++) store(out + i * kWidth, part[i]);
    }
};

// float32 as it is; even and odd ones apart, as Bf16.
struct Float32 {
    static constexpr int kBytes = 4, kVectors = 2, kValues = kVectors * kWidth;
    static constexpr int kSums = Bf16::kSums, kTokens = Bf16::kTokens;
    static constexpr bool kHasScales = false;
    using Look = bool;
    static FREETOKEN_INLINE Look nothing_seen() { return true; }
    static FREETOKEN_INLINE Look look(Look seen, const uint8_t*) { return seen; }
    static FREETOKEN_INLINE bool is_plain(Look) { return true; }
    template <bool Plain>
    static FREETOKEN_INLINE void unpack(const uint8_t* p, Vector* out) {
        spread(reinterpret_cast<const float*>(p), out);
    }
    static FREETOKEN_INLINE void spread(const float* x, Vector* out) { Bf16::spread(x, out); }
    static FREETOKEN_INLINE void collect(const Vector* in, float* out) { Bf16::collect(in, out); }
};

struct Fp8 {
    static constexpr int kBytes = 1, kVectors = 4, kValues = kVectors * kWidth;
    static constexpr int kSums = kWide ? 16 : 8, kTokens = kWide ? 4 : 2;
    static constexpr bool kHasScales = true;
    using Look = Normal;
    static FREETOKEN_INLINE Look nothing_seen() { return all_so_far(); }
    static FREETOKEN_INLINE Look look(Look seen, const uint8_t* p) { return see(seen, p); }
    static FREETOKEN_INLINE bool is_plain(Look seen) { return all_normal(seen); }
    template <bool Plain>
    static FREETOKEN_INLINE void unpack(const uint8_t* p, Vector* out) {
        unpack_fp8(p, out);
        if constexpr (!Plain)
            if (!is_plain(look(nothing_seen(), p))) mend_fp8(out);
    }
    static FREETOKEN_INLINE void spread(const float* x, Vector* out) {
        Vector half[4];  // even, odd, even, odd
        split(load(x), load(x + kWidth), half[0], half[1]);
        split(load(x + 2 * kWidth), load(x + 3 * kWidth), half[2], half[3]);
        split(half[0], half[2], out[0], out[2]);
        split(half[1], half[3], out[1], out[3]);
    }
    static FREETOKEN_INLINE void collect(const Vector* in, float* out) {
        Vector half[4], part[4];
        interleave(in[0], in[2], half[0], half[2]);
        interleave(in[1], in[3], half[1], half[3]);
        interleave(half[0], half[1], part[0], part[1]);
        interleave(half[2], half[3], part[2], part[3]);
        for (int i = 0; i < 4; i++) store(out + i * kWidth, part[i]);
    }
};

// Stands for x past H: times a weight of 0 it adds nothing to any sum, not even a sign to a zero.
constexpr float kNothing = -0.0f;

template <int Number>
struct Count {
    static constexpr int value = Number;
};

// Calls `function(first token, Count)` for `Most`, then half of that at a time, down to 1.
template <int Most, class Function>
FREETOKEN_INLINE void by_tokens(int tokens, int first, Function function) {
    for (; tokens - first >= Most; first += Most) function(first, Count<Most>{});
    if constexpr (Most > 1) by_tokens<Most / 2>(tokens, first, function);
}

// Where value `i` of a row lies when the row is split.
template <class Format>
FREETOKEN_INLINE int split_place(int i) {
    const int within = i % Format::kValues;
    return i - within + within % Format::kVectors * kWidth + within / Format::kVectors;
}

// Puts x [width] into the order in which a row is read; the rest of its last part is kNothing.
template <class Format>
FREETOKEN_INLINE void spread_as(int width, const float* x, float* out) {
    constexpr int kValues = Format::kValues;
    for (int at = 0; at < width; at += kValues) {
        float part[kValues];
        const float* from = x + at;
        if (at + kValues > width) {
            for (int i = 0; i < kValues; i++) part[i] = at + i < width ? from[i] : kNothing;
            from = part;
        }
        Vector v[Format::kVectors];
        Format::spread(from, v);
        for (int k = 0; k < Format::kVectors; k++) store(out + at + k * kWidth, v[k]);
    }
}

// Sizes of a row and of its inputs.
struct RowShape {
    int width;           // values
    ptrdiff_t padded;    // floats from one token's input to the next
    size_t ahead_bytes;  // from a line of the row to the one that is fetched with it, and
    size_t near_bytes;   // to the one that comes close
};

// The inputs of a dot as they lie.
struct AsTheyLie {
    FREETOKEN_INLINE Vector get(const float* x, ptrdiff_t, int) const { return load(x); }
};

// The inputs of a dot as `raw` times one factor a part, each product kept where the next dot finds
// it.
struct Scaling {
    const float* raw;
    const float* factors;
    FREETOKEN_INLINE Vector get(float* x, ptrdiff_t place, int part) const {
        const Vector product = mul(load(raw + place), fill(factors[part]));
        store(x, product);
        return product;
    }
};

// One row against `Tokens` inputs x [Tokens][padded], split; sum t goes to sums[t * stride]. The
// order is that of `Lines` lines of accumulators. A call, so that registers are its own.
template <class Format, int Tokens, int Lines, class Float, class Input>
FREETOKEN_CALL void dot(const RowShape& s, const uint8_t* row, Float* x, const Input& input,
                        float* sums, ptrdiff_t stride) {
    constexpr int kVectors = Format::kVectors, kBytes = Format::kValues * Format::kBytes;
    constexpr int kParts = Lines * kLineValues / Format::kValues;
    constexpr int kFit = Format::kSums / kVectors / Tokens;
    constexpr int kAtOnce = kFit < 1 ? 1 : kFit < kParts ? kFit : kParts;
    const int parts = (s.width + Format::kValues - 1) / Format::kValues;
    Vector total[Tokens][kParts][kVectors / 2];
    FREETOKEN_UNROLL
    for (int first = 0; first < kParts; first += kAtOnce) {
        Vector acc[Tokens][kAtOnce][kVectors];
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++)
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++)
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors; k++) acc[t][i][k] = zero();
        int part = first;
        const uint8_t* p = row + first * kBytes;
        Float* v = x + first * Format::kValues;
        const auto take = [&](int i, auto plain) FREETOKEN_INLINE_LAMBDA {
            if (i * kBytes % kCacheLineBytes == 0) {
                prefetch_far(p + i * kBytes + s.ahead_bytes);
                prefetch(p + i * kBytes + s.near_bytes);
            }
            Vector w[kVectors];
            Format::template unpack<decltype(plain)::value != 0>(p + i * kBytes, w);
            FREETOKEN_UNROLL
            for (int t = 0; t < Tokens; t++) {
                Float* at = v + t * s.padded + i * Format::kValues;
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors; k++) {
                    Float* place = at + k * kWidth;
                    acc[t][i][k] = fma(w[k], input.get(place, place - x, part + i), acc[t][i][k]);
                }
            }
        };
        const auto take_all = [&](int count) FREETOKEN_INLINE_LAMBDA {
            auto seen = Format::nothing_seen();
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++)
                if (i < count) seen = Format::look(seen, p + i * kBytes);
            if (FREETOKEN_LIKELY(Format::is_plain(seen))) {
                FREETOKEN_UNROLL
                for (int i = 0; i < kAtOnce; i++)
                    if (i < count) take(i, Count<1>{});
            } else {
                FREETOKEN_UNROLL
                for (int i = 0; i < kAtOnce; i++)
                    if (i < count) take(i, Count<0>{});
            }
        };
        int left = parts - first;
        for (; left >= kAtOnce; left -= kParts) {
            take_all(kAtOnce);
            part += kParts;
            p += kParts * kBytes;
            v += kParts * Format::kValues;
        }
        if (kAtOnce > 1 && left > 0) take_all(left);
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++)
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++)
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors; k += 2)
                    total[t][first + i][k / 2] = add(acc[t][i][k], acc[t][i][k + 1]);
    }
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++) {
        FREETOKEN_UNROLL
        for (int half = kParts / 2; half > 0; half /= 2)
            FREETOKEN_UNROLL
            for (int i = 0; i < half; i++)
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors / 2; k++)
                    total[t][i][k] = add(total[t][i][k], total[t][i + half][k]);
        float sum = sum_lanes(total[t][0][0]);
        if constexpr (kVectors == 4) sum += sum_lanes(total[t][0][1]);
        sums[t * stride] = sum;
    }
}

FREETOKEN_INLINE Vector exponential(Vector t) {
    t = clamp(t, kExpLow, kExpHigh);
    const Vector n = nearest(mul(t, fill(kLog2e)));
    const Vector r = fnma(n, fill(kLn2Low), fnma(n, fill(kLn2High), t));
    Vector p = fill(kExpPolynomial[6]);
    for (int i = 5; i >= 0; i--) p = fma(p, r, fill(kExpPolynomial[i]));
    return mul(p, power_of_two(n));
}

}  // namespace
}  // namespace freetoken
