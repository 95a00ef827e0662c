// Vectors of kWidth floats for one instruction-set tier. The including file defines
// FREETOKEN_AVX512 or FREETOKEN_AVX2, or neither, and is compiled with that tier's flags.
// Everything is in anonymous namespaces: a function compiled for one tier must never be merged with
// another tier's.
//
// Values unpack "split": neighbours in memory become vectors of the even and the odd ones, or of
// every fourth one, because that takes shifts only and no shuffles.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(FREETOKEN_AVX512) || defined(FREETOKEN_AVX2)
#include <immintrin.h>
#endif

#include "canonical.h"

// AS_IS keeps the compiler from merging two masks into more masks than there are registers.
#if defined(_MSC_VER)
#define FREETOKEN_UNROLL
#define FREETOKEN_INLINE __forceinline
#define FREETOKEN_INLINE_LAMBDA
#define FREETOKEN_LIKELY(condition) (condition)
#define FREETOKEN_CALL __declspec(noinline)
#define FREETOKEN_APART __declspec(noinline)
#define FREETOKEN_AS_IS(vector)
#else
#if defined(__clang__)
#define FREETOKEN_UNROLL _Pragma("unroll")
#else
#define FREETOKEN_UNROLL _Pragma("GCC unroll 16")
#endif
#define FREETOKEN_INLINE inline __attribute__((always_inline))
#define FREETOKEN_INLINE_LAMBDA __attribute__((always_inline))
#define FREETOKEN_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define FREETOKEN_CALL __attribute__((noinline))
#define FREETOKEN_APART __attribute__((noinline, cold))
#define FREETOKEN_AS_IS(vector) __asm__("" : "+x"(vector))
#endif

namespace freetoken {
namespace {

FREETOKEN_INLINE float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FREETOKEN_INLINE uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#if defined(FREETOKEN_AVX512)

constexpr int kWidth = 16;
using Vector = __m512;

FREETOKEN_INLINE Vector zero() { return _mm512_setzero_ps(); }
FREETOKEN_INLINE Vector fill(float value) { return _mm512_set1_ps(value); }
FREETOKEN_INLINE Vector load(const float* p) { return _mm512_loadu_ps(p); }
FREETOKEN_INLINE void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
FREETOKEN_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
FREETOKEN_INLINE Vector sub(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
FREETOKEN_INLINE Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
FREETOKEN_INLINE Vector div(Vector a, Vector b) { return _mm512_div_ps(a, b); }
FREETOKEN_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
FREETOKEN_INLINE Vector fnma(Vector a, Vector b, Vector c) { return _mm512_fnmadd_ps(a, b, c); }
FREETOKEN_INLINE Vector clamp(Vector v, float low, float high) {
    return _mm512_max_ps(_mm512_min_ps(v, fill(high)), fill(low));
}
// The second one if they cannot be compared.
FREETOKEN_INLINE Vector maximum(Vector a, Vector b) { return _mm512_max_ps(a, b); }
// `v`, but NaN where `source` is NaN.
FREETOKEN_INLINE Vector keep_nan(Vector v, Vector source) {
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(source, source, _CMP_UNORD_Q), source);
}
FREETOKEN_INLINE Vector nearest(Vector v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// 2^n for whole n in [-126, 127].
FREETOKEN_INLINE Vector power_of_two(Vector n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}
FREETOKEN_INLINE Vector round_to_bf16(Vector v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512 cut = _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(~0xffff)));
    return _mm512_mask_mov_ps(cut, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v);
}

// A tree over the lanes: l + (l + 8), then + 4, + 2, + 1; narrower vectors start at + 4.
FREETOKEN_INLINE float sum_lanes(Vector v) {
    v = add(v, _mm512_shuffle_f32x4(v, v, 0x4e));
    v = add(v, _mm512_shuffle_f32x4(v, v, 0xb1));
    v = add(v, _mm512_permute_ps(v, 0x4e));
    v = add(v, _mm512_permute_ps(v, 0xb1));
    return _mm512_cvtss_f32(v);
}

// 32 values, even and odd ones.
FREETOKEN_INLINE void unpack_bf16(const uint8_t* p, Vector* out) {
    const __m512i v = _mm512_loadu_si512(p);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(~0xffff)));
}

// What unpack_fp8 takes for normal: exponent 0 reads (1 + m/8) * 2^-15 instead of m/8 * 2^-14, and
// the code 0x7f reads 1.875 instead of NaN.
FREETOKEN_INLINE void mend_fp8(Vector* part) {
    FREETOKEN_UNROLL
    for (int i = 0; i < 4; i++) {
        Vector v = part[i];
        const __m512i bits = _mm512_castps_si512(v);
        const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN));
        const __m512i size = _mm512_xor_si512(bits, sign);
        const __m512i excess = _mm512_or_si512(sign, _mm512_castps_si512(fill(0x1p-14f)));
        const __mmask16 small = _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32(0x38800000));
        const __mmask16 nan = _mm512_cmpeq_epi32_mask(size, _mm512_set1_epi32(0x3ff00000));
        v = _mm512_mask_fmsub_ps(v, small, fill(2.0f), _mm512_castsi512_ps(excess));
        v = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(v), sign));  // of a zero
        part[i] = _mm512_mask_mov_ps(v, nan, fill(NAN));
    }
}

// Whether codes were normal so far, place by place. Twice a code, without its sign, plus 2: of NaN
// that is 0, of zero and the subnormals 2 to 16.
using Normal = __mmask64;
FREETOKEN_INLINE Normal all_so_far() { return ~0ull; }
FREETOKEN_INLINE Normal see(Normal so_far, const uint8_t* p) {
    const __m512i v = _mm512_loadu_si512(p);
    const __m512i order = _mm512_add_epi8(_mm512_add_epi8(v, v), _mm512_set1_epi8(2));
    return _mm512_mask_cmpge_epu8_mask(so_far, order, _mm512_set1_epi8(18));
}
FREETOKEN_INLINE bool all_normal(Normal seen) { return seen == ~0ull; }

// 64 normal codes, by their number modulo 4. s eeee mmm in the upper byte of a word, shifted right
// by 4 with its sign, is the bf16 of 1/256 of the value once the exponent 0111 eeee is completed;
// the lower byte gets there by one product with 16.
FREETOKEN_INLINE void unpack_fp8(const uint8_t* p, Vector* out) {
    const __m512i v = _mm512_loadu_si512(p);
    const __m512i kept = _mm512_set1_epi16(~0x780f), bias = _mm512_set1_epi16(0x3800);
    const __m512i even = _mm512_maddubs_epi16(_mm512_set1_epi16(16), v);
    constexpr int kAndOr = 0xea;
    const __m512i low = _mm512_ternarylogic_epi64(even, kept, bias, kAndOr);
    const __m512i high = _mm512_ternarylogic_epi64(_mm512_srai_epi16(v, 4), kept, bias, kAndOr);
    const __m512i upper = _mm512_set1_epi32(~0xffff);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(low, 16));
    out[1] = _mm512_castsi512_ps(_mm512_slli_epi32(high, 16));
    out[2] = _mm512_castsi512_ps(_mm512_and_si512(low, upper));
    out[3] = _mm512_castsi512_ps(_mm512_and_si512(high, upper));
}

// 2 * kWidth neighbours into the even and the odd ones, and back.
FREETOKEN_INLINE void split(Vector low, Vector high, Vector& even, Vector& odd) {
    const __m512i first =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = _mm512_permutex2var_ps(low, first, high);
    odd = _mm512_permutex2var_ps(low, _mm512_add_epi32(first, _mm512_set1_epi32(1)), high);
}
FREETOKEN_INLINE void interleave(Vector even, Vector odd, Vector& low, Vector& high) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    low = _mm512_permutex2var_ps(even, first, odd);
    high = _mm512_permutex2var_ps(even, _mm512_add_epi32(first, _mm512_set1_epi32(8)), odd);
}

#elif defined(FREETOKEN_AVX2)

constexpr int kWidth = 8;
using Vector = __m256;

FREETOKEN_INLINE Vector zero() { return _mm256_setzero_ps(); }
FREETOKEN_INLINE Vector fill(float value) { return _mm256_set1_ps(value); }
FREETOKEN_INLINE Vector load(const float* p) { return _mm256_loadu_ps(p); }
FREETOKEN_INLINE void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
FREETOKEN_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
FREETOKEN_INLINE Vector sub(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
FREETOKEN_INLINE Vector mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
FREETOKEN_INLINE Vector div(Vector a, Vector b) { return _mm256_div_ps(a, b); }
FREETOKEN_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
FREETOKEN_INLINE Vector fnma(Vector a, Vector b, Vector c) { return _mm256_fnmadd_ps(a, b, c); }
FREETOKEN_INLINE Vector clamp(Vector v, float low, float high) {
    return _mm256_max_ps(_mm256_min_ps(v, fill(high)), fill(low));
}
FREETOKEN_INLINE Vector maximum(Vector a, Vector b) { return _mm256_max_ps(a, b); }
FREETOKEN_INLINE Vector keep_nan(Vector v, Vector source) {
    return _mm256_blendv_ps(v, source, _mm256_cmp_ps(source, source, _CMP_UNORD_Q));
}
FREETOKEN_INLINE Vector nearest(Vector v) {
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
FREETOKEN_INLINE Vector power_of_two(Vector n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
FREETOKEN_INLINE Vector round_to_bf16(Vector v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256 cut = _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(~0xffff)));
    return _mm256_blendv_ps(cut, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
FREETOKEN_INLINE float sum_lanes(Vector w) {
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    v = _mm_add_ps(v, _mm_permute_ps(v, 0x4e));
    v = _mm_add_ps(v, _mm_permute_ps(v, 0xb1));
    return _mm_cvtss_f32(v);
}
FREETOKEN_INLINE void unpack_bf16(const uint8_t* p, Vector* out) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(~0xffff)));
}
FREETOKEN_INLINE void mend_fp8(Vector* part) {
    FREETOKEN_UNROLL
    for (int i = 0; i < 4; i++) {
        Vector v = part[i];
        const __m256i bits = _mm256_castps_si256(v);
        const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN));
        const __m256i size = _mm256_xor_si256(bits, sign);
        const __m256i excess = _mm256_or_si256(sign, _mm256_castps_si256(fill(0x1p-14f)));
        const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x38800000), size);
        const __m256i nan = _mm256_cmpeq_epi32(size, _mm256_set1_epi32(0x3ff00000));
        const Vector mended = _mm256_fmsub_ps(v, fill(2.0f), _mm256_castsi256_ps(excess));
        v = _mm256_blendv_ps(v, mended, _mm256_castsi256_ps(small));
        v = _mm256_or_ps(v, _mm256_castsi256_ps(sign));  // of a zero
        part[i] = _mm256_blendv_ps(v, fill(NAN), _mm256_castsi256_ps(nan));
    }
}
using Normal = __m256i;  // the least order, as a signed number from -128 on
FREETOKEN_INLINE Normal all_so_far() { return _mm256_set1_epi8(127); }
FREETOKEN_INLINE Normal see(Normal least, const uint8_t* p) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i order = _mm256_add_epi8(_mm256_add_epi8(v, v), _mm256_set1_epi8(2 - 128));
    return _mm256_min_epi8(least, order);
}
FREETOKEN_INLINE bool all_normal(Normal least) {
    const __m256i rare = _mm256_cmpgt_epi8(_mm256_set1_epi8(18 - 128), least);
    return _mm256_testz_si256(rare, rare) != 0;
}
FREETOKEN_INLINE void unpack_fp8(const uint8_t* p, Vector* out) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i kept = _mm256_set1_epi16(~0x780f), bias = _mm256_set1_epi16(0x3800);
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 4);
    __m256i low = _mm256_or_si256(_mm256_and_si256(even, kept), bias);
    __m256i high = _mm256_or_si256(_mm256_and_si256(_mm256_srai_epi16(v, 4), kept), bias);
    FREETOKEN_AS_IS(low);
    FREETOKEN_AS_IS(high);
    const __m256i upper = _mm256_set1_epi32(~0xffff);
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(low, 16));
    out[1] = _mm256_castsi256_ps(_mm256_slli_epi32(high, 16));
    out[2] = _mm256_castsi256_ps(_mm256_and_si256(low, upper));
    out[3] = _mm256_castsi256_ps(_mm256_and_si256(high, upper));
}
FREETOKEN_INLINE Vector swap_middle(Vector v) {
    return _mm256_castsi256_ps(_mm256_permute4x64_epi64(_mm256_castps_si256(v), 0xd8));
}
FREETOKEN_INLINE void split(Vector low, Vector high, Vector& even, Vector& odd) {
    even = swap_middle(_mm256_shuffle_ps(low, high, 0x88));
    odd = swap_middle(_mm256_shuffle_ps(low, high, 0xdd));
}
FREETOKEN_INLINE void interleave(Vector even, Vector odd, Vector& low, Vector& high) {
    const Vector a = _mm256_unpacklo_ps(even, odd), b = _mm256_unpackhi_ps(even, odd);
    low = _mm256_permute2f128_ps(a, b, 0x20);
    high = _mm256_permute2f128_ps(a, b, 0x31);
}

#else

// Plain C++: for tests, and for CPUs without AVX2 once something chooses it there.
constexpr int kWidth = 8;

struct Vector {
    float lane[kWidth];
};

template <class Function>
FREETOKEN_INLINE Vector each_lane(Function function) {
    Vector out;
    for (int i = 0; i < kWidth; i++) out.lane[i] = function(i);
    return out;
}
FREETOKEN_INLINE Vector fill(float value) {
    return each_lane([&](int) { return value; });
}
FREETOKEN_INLINE Vector zero() { return fill(0.0f); }
FREETOKEN_INLINE Vector load(const float* p) {
    return each_lane([&](int i) { return p[i]; });
}
FREETOKEN_INLINE void store(float* p, Vector v) { memcpy(p, v.lane, sizeof v.lane); }
FREETOKEN_INLINE Vector add(Vector a, Vector b) {
    return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
FREETOKEN_INLINE Vector sub(Vector a, Vector b) {
    return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
FREETOKEN_INLINE Vector mul(Vector a, Vector b) {
    return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
FREETOKEN_INLINE Vector div(Vector a, Vector b) {
    return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
FREETOKEN_INLINE Vector fma(Vector a, Vector b, Vector c) {
    return each_lane([&](int i) { return fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
FREETOKEN_INLINE Vector fnma(Vector a, Vector b, Vector c) {
    return each_lane([&](int i) { return fmaf(-a.lane[i], b.lane[i], c.lane[i]); });
}
FREETOKEN_INLINE Vector clamp(Vector v, float low, float high) {
    return each_lane([&](int i) {
        const float most = v.lane[i] < high ? v.lane[i] : high;
        return most > low ? most : low;
    });
}
FREETOKEN_INLINE Vector maximum(Vector a, Vector b) {
    return each_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
FREETOKEN_INLINE Vector keep_nan(Vector v, Vector source) {
    return each_lane(
        [&](int i) { return source.lane[i] != source.lane[i] ? source.lane[i] : v.lane[i]; });
}
FREETOKEN_INLINE Vector nearest(Vector v) {
    return each_lane([&](int i) { return nearbyintf(v.lane[i]); });
}
FREETOKEN_INLINE Vector power_of_two(Vector n) {
    return each_lane([&](int i) {
        return from_bits(static_cast<uint32_t>(static_cast<int>(n.lane[i]) + 127) << 23);
    });
}
FREETOKEN_INLINE Vector round_to_bf16(Vector v) {
    return each_lane([&](int i) {
        if (v.lane[i] != v.lane[i]) return v.lane[i];
        const uint32_t bits = to_bits(v.lane[i]);
        return from_bits((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
    });
}
FREETOKEN_INLINE float sum_lanes(Vector t) {
    float four[4];
    for (int i = 0; i < 4; i++) four[i] = t.lane[i] + t.lane[i + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}
FREETOKEN_INLINE float from_bf16(const uint8_t* p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return from_bits(static_cast<uint32_t>(bits) << 16);
}
FREETOKEN_INLINE void unpack_bf16(const uint8_t* p, Vector* out) {
    for (int k = 0; k < 2; k++)
        out[k] = each_lane([&](int i) { return from_bf16(p + 2 * (2 * i + k)); });
}

// e4m3 / 256: exponent e - 7 - 8; subnormals are m * 2^-9 / 256.
FREETOKEN_INLINE float from_fp8(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
    const uint32_t exponent = (code >> 3) & 0xf, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f) return NAN;
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | mantissa << 20);
    const float small = static_cast<float>(mantissa) * 0x1p-17f;
    return sign ? -small : small;
}
using Normal = bool;
FREETOKEN_INLINE Normal all_so_far() { return true; }
FREETOKEN_INLINE Normal see(Normal so_far, const uint8_t*) { return so_far; }
FREETOKEN_INLINE bool all_normal(Normal seen) { return seen; }
FREETOKEN_INLINE void mend_fp8(Vector*) {}
FREETOKEN_INLINE void unpack_fp8(const uint8_t* p, Vector* out) {
    for (int k = 0; k < 4; k++) out[k] = each_lane([&](int i) { return from_fp8(p[4 * i + k]); });
}
FREETOKEN_INLINE void split(Vector low, Vector high, Vector& even, Vector& odd) {
    const auto value = [&](int i) { return i < kWidth ? low.lane[i] : high.lane[i - kWidth]; };
    even = each_lane([&](int i) { return value(2 * i); });
    odd = each_lane([&](int i) { return value(2 * i + 1); });
}
FREETOKEN_INLINE void interleave(Vector even, Vector odd, Vector& low, Vector& high) {
    const auto value = [&](int i) { return i % 2 ? odd.lane[i / 2] : even.lane[i / 2]; };
    low = each_lane([&](int i) { return value(i); });
    high = each_lane([&](int i) { return value(kWidth + i); });
}

#endif

}  // namespace
}  // namespace freetoken
