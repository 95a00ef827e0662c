// What every decode kernel shares: loads, waits, warp sums, number formats, the last-CTA ticket.
//
// PTX stands here and nowhere else, always with a plain form beside it: tests compile the kernels
// for the CPU (FREETOKEN_EMULATOR). Also compiled by NVRTC, which has no host headers. Sums are as
// written: everything is compiled without contraction, and fused only where __fmaf_rn stands.
#pragma once

#ifdef __CUDACC_RTC__
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
using size_t = decltype(sizeof(0));
#else
#include <stddef.h>
#include <stdint.h>
#endif

#if defined(FREETOKEN_EMULATOR)
// Dynamic shared memory: FT_DYNAMIC_SHARED(float, rows); then rows[i].
#define FT_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(emulator::dynamic_shared())
#else
#define FT_DYNAMIC_SHARED(type, name)                            \
    extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    type* const name = reinterpret_cast<type*>(name##_bytes)
#endif

namespace freetoken {

constexpr int kWarpLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// --- order between kernels, CTAs and the host ------------------------------------------------------

// Whether a kernel's CTAs start while the kernel before it still runs.
#if !defined(FREETOKEN_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kStartsEarly = true;
#else
constexpr bool kStartsEarly = false;
#endif

// Waits until the kernel before this one has ended and its stores are seen. Every thread that reads
// or writes what another kernel writes or reads calls it first; before it only constants are read:
// weights, step inputs, keys and values of earlier tokens.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if !defined(FREETOKEN_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's CTAs start as soon as there is room; they wait by themselves.
__device__ __forceinline__ void start_next_kernel() {
#if !defined(FREETOKEN_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Release and acquire, for the device and for the host as well: of this thread's accesses, and behind
// a barrier of its CTA's. __threadfence also puts all fences in one order, which nobody needs here.
__device__ __forceinline__ void device_fence() {
#if defined(FREETOKEN_EMULATOR)
    __threadfence();
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

__device__ __forceinline__ void system_fence() {
#if defined(FREETOKEN_EMULATOR)
    __threadfence_system();
#else
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}

// Stands in every loop that waits for another CTA or for the host.
__device__ __forceinline__ void spin_hint() {
#if defined(FREETOKEN_EMULATOR)
    emulator::pause();
#endif
}

// A clock of the whole card, in nanoseconds; it may advance in steps of a microsecond.
__device__ __forceinline__ uint64_t nanoseconds() {
#if defined(FREETOKEN_EMULATOR)
    return emulator::nanoseconds();
#else
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
#endif
}

// Whether the calling CTA is the last of `count` that arrive; the same answer for all its threads.
// What the others wrote before arriving is visible to the last one. The ticket starts at 0 and is 0
// again afterwards. All threads of the CTA must call it.
__device__ __forceinline__ bool arrives_last(unsigned* ticket, unsigned count) {
    __shared__ unsigned is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        device_fence();
        is_last = atomicAdd(ticket, 1u) == count - 1;
        if (is_last) {
            *ticket = 0;
            device_fence();
        }
    }
    __syncthreads();
    return is_last;
}

// --- loads and stores ------------------------------------------------------------------------------

// Read-only data that is used once, 16, 8 or 4 bytes: past the L1 cache, which it would only flush.
// kEarly: ahead of wait_for_previous_kernel(). What a compiler knows to be read-only it may move
// behind the wait, where its registers are wanted; this it leaves in place.
template <bool kEarly = false>
__device__ __forceinline__ uint4 stream16(const void* from) {
#if defined(FREETOKEN_EMULATOR)
    return *static_cast<const uint4*>(from);
#else
    uint4 v;
    if (kEarly) {
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from)
                     : "memory");
    } else {
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from));
    }
    return v;
#endif
}

__device__ __forceinline__ uint2 stream8(const void* from) {
#if defined(FREETOKEN_EMULATOR)
    return *static_cast<const uint2*>(from);
#else
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(from));
    return v;
#endif
}

__device__ __forceinline__ uint32_t stream4(const void* from) {
#if defined(FREETOKEN_EMULATOR)
    return *static_cast<const uint32_t*>(from);
#else
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
#endif
}

// A number ahead of the wait, see stream16.
__device__ __forceinline__ float early4(const float* from) {
#if defined(FREETOKEN_EMULATOR)
    return *from;
#else
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
#endif
}

// Brings the 128 bytes around an address into the L2 cache.
__device__ __forceinline__ void prefetch_l2(const void* from) {
#if defined(FREETOKEN_EMULATOR)
    (void)from;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

// Words that the host or another CTA changes meanwhile. Reads of one host address are served one
// after another, about a microsecond each: let one thread poll, and 16 bytes at once.
__device__ __forceinline__ uint4 poll16(const void* from) {
#if defined(FREETOKEN_EMULATOR)
    const volatile uint32_t* word = static_cast<const volatile uint32_t*>(from);
    uint4 v;
    v.x = word[0];  // first: it says whether the others are valid
    __threadfence();
    v.y = word[1], v.z = word[2], v.w = word[3];
    return v;
#else
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
#endif
}

__device__ __forceinline__ uint64_t poll8(const uint64_t* from) {
    return *reinterpret_cast<const volatile unsigned long long*>(from);
}

__device__ __forceinline__ uint32_t poll4(const uint32_t* from) {
    return *static_cast<const volatile uint32_t*>(from);
}

__device__ __forceinline__ void post8(uint64_t* to, uint64_t value) {
    *reinterpret_cast<volatile unsigned long long*>(to) = value;
}

__device__ __forceinline__ void post4(uint32_t* to, uint32_t value) {
    *static_cast<volatile uint32_t*>(to) = value;
}

// --- numbers ---------------------------------------------------------------------------------------

// The two bf16 of a word.
__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

// Rounds to nearest even; NaN stays NaN.
__device__ __forceinline__ uint32_t bf16_bits(float value) {
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
    return bf16_bits(low) | bf16_bits(high) << 16;
}

// The four e4m3 of a word, exact; codes 0x7f and 0xff are NaN.
__device__ __forceinline__ void e4m3_values(uint32_t codes, float (&out)[4]) {
#if !defined(FREETOKEN_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("{\n"
        ".reg .b16 low, high, a, b, c, d;\n"
        ".reg .b32 first, second;\n"
        "mov.b32 {low, high}, %4;\n"
        "cvt.rn.f16x2.e4m3x2 first, low;\n"
        "cvt.rn.f16x2.e4m3x2 second, high;\n"
        "mov.b32 {a, b}, first;\n"
        "mov.b32 {c, d}, second;\n"
        "cvt.f32.f16 %0, a;\n"
        "cvt.f32.f16 %1, b;\n"
        "cvt.f32.f16 %2, c;\n"
        "cvt.f32.f16 %3, d;\n"
        "}"
        : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
        : "r"(codes));
#else
    constexpr float kBias = 1.329227995784916e36f;  // 2^(127 - 7): the exponents' biases
    out[0] = __uint_as_float((codes << 24 & 0x80000000u) | (codes << 20 & 0x07f00000u)) * kBias;
    out[1] = __uint_as_float((codes << 16 & 0x80000000u) | (codes << 12 & 0x07f00000u)) * kBias;
    out[2] = __uint_as_float((codes << 8 & 0x80000000u) | (codes << 4 & 0x07f00000u)) * kBias;
    out[3] = __uint_as_float((codes & 0x80000000u) | (codes >> 4 & 0x07f00000u)) * kBias;
    if (((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) {
        for (int i = 0; i < 4; i++)
            if ((codes >> (8 * i) & 0x7fu) == 0x7fu) out[i] = __uint_as_float(0x7fc00000u);
    }
#endif
}

// The same divided by 256, also exact: an expert's weight in the canonical order.
__device__ __forceinline__ void e4m3_quotients(uint32_t codes, float (&out)[4]) {
#if !defined(FREETOKEN_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("{\n"
        ".reg .b16 low, high, a, b, c, d;\n"
        ".reg .b32 first, second, scale;\n"
        "mov.b32 {low, high}, %4;\n"
        "mov.b32 scale, 0x1c001c00;\n"  // two halves of 2^-8
        "cvt.rn.f16x2.e4m3x2 first, low;\n"
        "cvt.rn.f16x2.e4m3x2 second, high;\n"
        "mul.rn.f16x2 first, first, scale;\n"
        "mul.rn.f16x2 second, second, scale;\n"
        "mov.b32 {a, b}, first;\n"
        "mov.b32 {c, d}, second;\n"
        "cvt.f32.f16 %0, a;\n"
        "cvt.f32.f16 %1, b;\n"
        "cvt.f32.f16 %2, c;\n"
        "cvt.f32.f16 %3, d;\n"
        "}"
        : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
        : "r"(codes));
#else
    e4m3_values(codes, out);
    for (int i = 0; i < 4; i++) out[i] = __fmul_rn(out[i], 0.00390625f);
#endif
}

// 2^x to about 2 units in the last place; results below the normal numbers may be 0.
__device__ __forceinline__ float exp2_fast(float x) {
#if defined(FREETOKEN_EMULATOR)
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// --- a warp together -------------------------------------------------------------------------------

// The sum over the lanes, the same bits in every lane: neighbours 16, 8, 4, 2, 1 apart add.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(kAllLanes, value, step);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int step = 16; step; step >>= 1)
        value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
    return value;
}

}  // namespace freetoken
