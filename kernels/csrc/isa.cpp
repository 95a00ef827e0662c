#include "isa.h"

#include <cstdint>

#if defined(_MSC_VER) && defined(_M_X64)
#include <immintrin.h>
#include <intrin.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace freetoken {

#if defined(__x86_64__) || defined(_M_X64)
namespace {

struct Registers {
    uint32_t a, b, c, d;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
    Registers r{};
#if defined(_MSC_VER)
    int out[4];
    __cpuidex(out, static_cast<int>(leaf), static_cast<int>(subleaf));
    r = {static_cast<uint32_t>(out[0]), static_cast<uint32_t>(out[1]),
         static_cast<uint32_t>(out[2]), static_cast<uint32_t>(out[3])};
#else
    __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
#endif
    return r;
}

// Register state that the operating system saves; an instruction set it does not save is unusable.
uint64_t saved_state() {
#if defined(_MSC_VER)
    return _xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<uint64_t>(high) << 32) | low;
#endif
}

bool has(uint32_t word, int bit) { return (word >> bit) & 1u; }

Tier detect() {
    if (cpuid(0, 0).a < 7) return Tier::scalar;
    const Registers one = cpuid(1, 0);
    if (!has(one.c, 27)) return Tier::scalar;  // OSXSAVE: XGETBV may be used
    const uint64_t state = saved_state();
    const Registers seven = cpuid(7, 0);
    // FMA, F16C and AVX2, with XMM and YMM state saved.
    const bool avx2 = has(one.c, 12) && has(one.c, 29) && has(seven.b, 5) && (state & 0x6) == 0x6;
    if (!avx2) return Tier::scalar;
    // AVX-512 F, BW and VL, with opmask and ZMM state saved; DQ and CD because MSVC's flag implies
    // them.
    const bool avx512 = has(seven.b, 16) && has(seven.b, 30) && has(seven.b, 31) &&
                        has(seven.b, 17) && has(seven.b, 28) && (state & 0xe6) == 0xe6;
    return avx512 ? Tier::avx512 : Tier::avx2;
}

}  // namespace

// Asked once: under a hypervisor each CPUID leaves the virtual machine.
Tier isa_tier() {
    static const Tier tier = detect();
    return tier;
}
#else
Tier isa_tier() { return Tier::scalar; }
#endif

}  // namespace freetoken
