#include "cpu_thread.h"

#include <cfenv>

#if defined(_WIN32)
#define NOMINMAX
#include <windows.h>
#elif defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace freetoken {

void pin_to(int cpu) {
#if defined(_WIN32)
    constexpr int kGroupCpus = 64;
    GROUP_AFFINITY affinity{};
    affinity.Group = static_cast<WORD>(cpu / kGroupCpus);
    affinity.Mask = static_cast<KAFFINITY>(1) << cpu % kGroupCpus;
    SetThreadGroupAffinity(GetCurrentThread(), &affinity, nullptr);
#elif defined(__linux__)
    if (cpu < 0 || cpu >= CPU_SETSIZE) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
    (void)cpu;
#endif
}

void use_default_arithmetic() { std::fesetenv(FE_DFL_ENV); }

}  // namespace freetoken
