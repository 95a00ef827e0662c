// What a thread of the pool asks of the processor and the system.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace freetoken {

// Tells the processor that this is a loop that waits.
inline void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__) && !defined(_MSC_VER)
    __asm__ volatile("yield");
#endif
}

// Asks for a line that will be read; past the end of memory it does nothing.
inline void prefetch_line(const void* p) {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
#elif defined(__GNUC__)
    __builtin_prefetch(p);
#else
    (void)p;
#endif
}

// The same, into the second cache: for what will be read somewhat later, perhaps by another thread.
inline void prefetch_second(const void* p) {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
#elif defined(__GNUC__)
    __builtin_prefetch(p, 0, 2);
#else
    (void)p;
#endif
}

inline int64_t nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Keeps the calling thread on one logical CPU; a wish. On Windows number 64 g + i is CPU i of
// processor group g.
void pin_to(int cpu);

// Default rounding, and nothing is flushed to zero, whatever the starting thread has set.
void use_default_arithmetic();

}  // namespace freetoken
