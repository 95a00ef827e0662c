// CUDA for tests: kernels compiled by a C++ compiler and run on the CPU, without a GPU.
//
// Each thread of a CTA is a fiber; barriers, shuffles, votes and reductions are where fibers meet.
// CTAs run in order, each to its end, on one host thread or on several. A CTA whose threads wait for
// each other in vain, or meet at different intrinsics, ends the launch with a sentence. Memory is
// the host's: caching hints and fences are plain loads and sequentially consistent fences.
// Included before a .cu source, which is compiled as C++17 with FREETOKEN_EMULATOR defined; PTX must
// stand behind that name. A loop that waits for another CTA or the host must call
// `emulator::pause()`.
#pragma once

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define FREETOKEN_EMULATOR 1

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static thread_local

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

#define EMULATOR_VECTORS(type, name)                                        \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                \
    struct name##3 { type x, y, z; };                                       \
    struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { \
        type x, y, z, w;                                                    \
    };                                                                      \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }        \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATOR_VECTORS(int8_t, char)
EMULATOR_VECTORS(uint8_t, uchar)
EMULATOR_VECTORS(int16_t, short)
EMULATOR_VECTORS(uint16_t, ushort)
EMULATOR_VECTORS(int32_t, int)
EMULATOR_VECTORS(uint32_t, uint)
EMULATOR_VECTORS(float, float)
EMULATOR_VECTORS(double, double)
EMULATOR_VECTORS(long long, longlong)
EMULATOR_VECTORS(unsigned long long, ulonglong)
#undef EMULATOR_VECTORS

namespace emulator {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 256 << 10;

// --- fibers --------------------------------------------------------------------------------------

#if defined(__x86_64__)
// Keeps what a call must keep, swaps stacks, goes on where the other one stopped.
extern "C" void emulator_switch(void** from, void* to);
__asm__(R"(
.text
.local emulator_switch
.type emulator_switch,@function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulator_switch,.-emulator_switch
)");

struct Context {
    void* stack_pointer = nullptr;

    void start(char* stack, void (*entry)()) {
        void** top = reinterpret_cast<void**>(stack + kStackBytes);
        *--top = nullptr;  // where `entry` would return to; also what aligns its stack
        *--top = reinterpret_cast<void*>(entry);
        for (int i = 0; i < 6; i++) *--top = nullptr;
        stack_pointer = top;
    }
    void go(Context& to) { emulator_switch(&stack_pointer, to.stack_pointer); }
};
#else
struct Context {
    ucontext_t context;

    void start(char* stack, void (*entry)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = kStackBytes;
        makecontext(&context, entry, 0);
    }
    void go(Context& to) { swapcontext(&context, &to.context); }
};
#endif

// --- one CTA -------------------------------------------------------------------------------------

enum class Meet { sync, shuffle, shuffle_xor, shuffle_up, shuffle_down, vote, reduce };

// Lanes of one mask that meet again and again. Values lie in two sets: a lane may bring its next one
// while others still read the last.
struct Meeting {
    uint32_t mask;
    uint32_t arrived = 0;
    uint32_t present[2] = {0, 0};
    Meet kind = Meet::sync;
    int turn = 0;
    uint64_t values[2][kWarp] = {};
};

struct Warp {
    uint32_t live = 0;
    std::deque<Meeting> meetings;  // one for each mask that was used; addresses stay
};

struct Barrier {
    unsigned arrived = 0;
    unsigned number = 0;
    int any[2] = {0, 0}, all[2] = {1, 1}, count[2] = {0, 0};
};

struct Fiber {
    Context context;
    dim3 thread;
    int lane = 0, warp = 0;
    bool in_barrier = false;
};

class Cta {
   public:
    Cta() {
        void* memory = mmap(nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        stacks_ = memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
        fibers_.resize(kMaxThreads);
    }
    ~Cta() {
        if (stacks_) munmap(stacks_, kMaxThreads * kStackBytes);
    }
    Cta(const Cta&) = delete;
    Cta& operator=(const Cta&) = delete;

    dim3 grid, block, index;
    std::vector<char> dynamic_shared;
    Fiber* self = nullptr;

    // Runs all threads to their end. Returns "" or why it could not.
    template <class Body>
    std::string run(unsigned threads, const Body& body) {
        if (!stacks_) return "no memory for stacks";
        call_ = [](const void* context) { (*static_cast<const Body*>(context))(); };
        body_ = &body;
        live_ = threads;
        barrier_ = {};
        error_.clear();
        ready_.clear();
        warps_.clear();
        warps_.resize((threads + kWarp - 1) / kWarp);
        for (unsigned i = 0; i < threads; i++) {
            Fiber& fiber = fibers_[i];
            fiber.thread = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
            fiber.lane = static_cast<int>(i % kWarp);
            fiber.warp = static_cast<int>(i / kWarp);
            fiber.in_barrier = false;
            fiber.context.start(stacks_ + i * kStackBytes, &Cta::main_of_a_fiber);
            warps_[i / kWarp].live |= 1u << i % kWarp;
            ready_.push_back(&fiber);
        }
        switch_to_next(home_);
        return error_;
    }

    void barrier(int predicate, int& any, int& all, int& count) {
        const int turn = static_cast<int>(barrier_.number & 1);
        if (barrier_.arrived == 0) {
            barrier_.any[turn] = 0;
            barrier_.all[turn] = 1;
            barrier_.count[turn] = 0;
        }
        barrier_.any[turn] |= predicate != 0;
        barrier_.all[turn] &= predicate != 0;
        barrier_.count[turn] += predicate != 0;
        barrier_.arrived++;
        self->in_barrier = true;
        if (!end_barrier_if_complete()) block_self();
        any = barrier_.any[turn];
        all = barrier_.all[turn];
        count = barrier_.count[turn];
    }

    // Brings a value and waits for the other lanes of the mask. Returns all values; `present` says
    // whose are from this meeting.
    const uint64_t* meet(uint32_t mask, Meet kind, uint64_t value, uint32_t& present) {
        Meeting& m = meeting(warps_[self->warp], mask);
        if (!(mask >> self->lane & 1)) fail("a lane is not in its own mask");
        if (m.arrived && m.kind != kind) fail("lanes of a warp meet at different intrinsics");
        m.kind = kind;
        const int turn = m.turn;
        m.values[turn][self->lane] = value;
        m.arrived |= 1u << self->lane;
        if (!end_meeting_if_complete(self->warp, m)) block_self();
        present = m.present[turn];
        return m.values[turn];
    }

    // Lets the other fibers and host threads run.
    void pause() {
        ready_.push_back(self);
        sched_yield();
        block_self();
    }

    static Cta& current() {
        static thread_local Cta cta;
        return cta;
    }

   private:
    static Meeting& meeting(Warp& warp, uint32_t mask) {
        for (Meeting& m : warp.meetings)
            if (m.mask == mask) return m;
        warp.meetings.push_back({mask});
        return warp.meetings.back();
    }

    bool end_barrier_if_complete() {
        if (barrier_.arrived == 0 || barrier_.arrived < live_) return false;
        barrier_.arrived = 0;
        barrier_.number++;
        for (Fiber& fiber : fibers_) {
            if (fiber.in_barrier && &fiber != self) ready_.push_back(&fiber);
            fiber.in_barrier = false;
        }
        return true;
    }

    bool end_meeting_if_complete(int warp, Meeting& m) {
        if (m.arrived == 0 || m.arrived != (m.mask & warps_[warp].live)) return false;
        for (int lane = 0; lane < kWarp; lane++) {
            Fiber& fiber = fibers_[warp * kWarp + lane];
            if (m.arrived >> lane & 1 && &fiber != self) ready_.push_back(&fiber);
        }
        m.present[m.turn] = m.arrived;
        m.turn ^= 1;
        m.arrived = 0;
        return true;
    }

    static void main_of_a_fiber() {
        Cta& cta = current();
        cta.call_(cta.body_);
        cta.end_of_self();
    }

    void end_of_self() {
        Fiber& gone = *self;
        self = nullptr;
        live_--;
        warps_[gone.warp].live &= ~(1u << gone.lane);
        end_barrier_if_complete();  // threads that have ended are not waited for
        for (Meeting& m : warps_[gone.warp].meetings) end_meeting_if_complete(gone.warp, m);
        if (live_ == 0)
            gone.context.go(home_);
        else
            switch_to_next(gone.context);
    }

    void block_self() { switch_to_next(self->context); }

    void switch_to_next(Context& from) {
        if (ready_.empty()) {
            if (error_.empty()) error_ = "deadlock: " + std::to_string(live_) + " threads wait";
            from.go(home_);
            return;
        }
        self = ready_.front();
        ready_.pop_front();
        if (&self->context != &from) from.go(self->context);
    }

    void fail(const char* why) {
        error_ = why;
        self->context.go(home_);
    }

    char* stacks_;
    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    std::deque<Fiber*> ready_;
    Barrier barrier_;
    Context home_;
    unsigned live_ = 0;
    std::string error_;
    void (*call_)(const void*) = nullptr;
    const void* body_ = nullptr;
};

inline void pause() { Cta::current().pause(); }

// What a kernel's `extern __shared__` would be.
inline void* dynamic_shared() { return Cta::current().dynamic_shared.data(); }

// --- launching -----------------------------------------------------------------------------------

struct Launch {
    dim3 grid, block;
    unsigned shared_bytes, host_threads;
};

template <class Body>
std::string run_grid(const Launch& launch, const Body& body) {
    const unsigned ctas = launch.grid.x * launch.grid.y * launch.grid.z;
    const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
    if (ctas == 0 || threads == 0 || threads > kMaxThreads) return "a grid or block out of bounds";
    std::atomic<unsigned> next{0};
    std::vector<std::string> errors(launch.host_threads);
    const auto work = [&](unsigned worker) {
        Cta& cta = Cta::current();
        cta.grid = launch.grid;
        cta.block = launch.block;
        for (unsigned i; errors[worker].empty() && (i = next++) < ctas;) {
            cta.index = {i % launch.grid.x, i / launch.grid.x % launch.grid.y,
                         i / (launch.grid.x * launch.grid.y)};
            cta.dynamic_shared.assign(launch.shared_bytes, static_cast<char>(0xa5));
            errors[worker] = cta.run(threads, body);
            if (!errors[worker].empty()) errors[worker] += " (CTA " + std::to_string(i) + ")";
        }
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < launch.host_threads; i++) others.emplace_back(work, i);
    work(0);
    for (std::thread& other : others) other.join();
    for (const std::string& error : errors)
        if (!error.empty()) return error;
    return "";
}

// Reads a kernel's arguments from where their addresses say, as cuLaunchKernel does.
template <class... Arguments, size_t... Numbers>
std::string launch_with(void (*kernel)(Arguments...), void** arguments, const Launch& launch,
                        std::index_sequence<Numbers...>) {
    const std::tuple<Arguments...> values{*static_cast<Arguments*>(arguments[Numbers])...};
    (void)arguments;
    return run_grid(launch, [&] { std::apply(kernel, values); });
}

template <class... Arguments>
int launch(void (*kernel)(Arguments...), void** arguments, const unsigned* sizes, char* error,
           size_t error_bytes) {
    const Launch how{{sizes[0], sizes[1], sizes[2]}, {sizes[3], sizes[4], sizes[5]}, sizes[6],
                     sizes[7]};
    const std::string problem =
        launch_with(kernel, arguments, how, std::index_sequence_for<Arguments...>{});
    snprintf(error, error_bytes, "%s", problem.c_str());
    return problem.empty() ? 0 : 1;
}

// --- what intrinsics share -----------------------------------------------------------------------

template <class Value>
uint64_t pack(Value value) {
    static_assert(sizeof(Value) <= 8, "a lane brings up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class Value>
Value unpack(uint64_t bits) {
    Value value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The value of lane `from`, or the own one where `from` leaves the group of `width` lanes.
template <class Value>
Value shuffle(uint32_t mask, Meet kind, Value value, int from, bool inside) {
    uint32_t present;
    const uint64_t* values = Cta::current().meet(mask, kind, pack(value), present);
    return inside ? unpack<Value>(values[from]) : value;
}

template <class Value, class Combine>
Value reduce(uint32_t mask, Value value, Combine combine) {
    uint32_t present;
    const uint64_t* values = Cta::current().meet(mask, Meet::reduce, pack(value), present);
    bool first = true;
    Value total = value;
    for (int lane = 0; lane < kWarp; lane++) {
        if (!(present >> lane & 1)) continue;
        const Value other = unpack<Value>(values[lane]);
        total = first ? other : combine(total, other);
        first = false;
    }
    return total;
}

inline int lane() { return Cta::current().self->lane; }

inline uint64_t nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace emulator

// One for each kernel that tests launch by name.
#define EMULATE(kernel)                                                                           \
    extern "C" __global__ int launch_##kernel(void** arguments, const unsigned* sizes,            \
                                              char* error, size_t error_bytes) {                  \
        return emulator::launch(kernel, arguments, sizes, error, error_bytes);                    \
    }

#define threadIdx (::emulator::Cta::current().self->thread)
#define blockIdx (::emulator::Cta::current().index)
#define blockDim (::emulator::Cta::current().block)
#define gridDim (::emulator::Cta::current().grid)
constexpr int warpSize = emulator::kWarp;

// --- barriers, votes, shuffles -------------------------------------------------------------------

inline int emulator_barrier(int predicate, int which) {
    int result[3];
    emulator::Cta::current().barrier(predicate, result[0], result[1], result[2]);
    return result[which];
}
inline void __syncthreads() { emulator_barrier(0, 0); }
inline int __syncthreads_or(int predicate) { return emulator_barrier(predicate, 0); }
inline int __syncthreads_and(int predicate) { return emulator_barrier(predicate, 1); }
inline int __syncthreads_count(int predicate) { return emulator_barrier(predicate, 2); }

inline void __syncwarp(uint32_t mask = ~0u) {
    uint32_t present;
    emulator::Cta::current().meet(mask, emulator::Meet::sync, 0, present);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
    uint32_t present, votes = 0;
    const uint64_t* values =
        emulator::Cta::current().meet(mask, emulator::Meet::vote, predicate != 0, present);
    for (int lane = 0; lane < emulator::kWarp; lane++)
        if (present >> lane & 1 && values[lane]) votes |= 1u << lane;
    return votes;
}
inline int __any_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(uint32_t mask, int predicate) {
    return __ballot_sync(mask, !predicate) == 0;
}

template <class Value>
Value __shfl_sync(uint32_t mask, Value value, int source, int width = 32) {
    const int from = (emulator::lane() & ~(width - 1)) | (source & (width - 1));
    return emulator::shuffle(mask, emulator::Meet::shuffle, value, from, true);
}
template <class Value>
Value __shfl_xor_sync(uint32_t mask, Value value, int lanes, int width = 32) {
    const int from = emulator::lane() ^ lanes;
    const bool inside = from < (emulator::lane() & ~(width - 1)) + width;
    return emulator::shuffle(mask, emulator::Meet::shuffle_xor, value, from, inside);
}
template <class Value>
Value __shfl_up_sync(uint32_t mask, Value value, unsigned lanes, int width = 32) {
    const int from = emulator::lane() - static_cast<int>(lanes);
    const bool inside = from >= (emulator::lane() & ~(width - 1));
    return emulator::shuffle(mask, emulator::Meet::shuffle_up, value, inside ? from : 0, inside);
}
template <class Value>
Value __shfl_down_sync(uint32_t mask, Value value, unsigned lanes, int width = 32) {
    const int from = emulator::lane() + static_cast<int>(lanes);
    const bool inside = from < (emulator::lane() & ~(width - 1)) + width;
    return emulator::shuffle(mask, emulator::Meet::shuffle_down, value, inside ? from : 0, inside);
}

#define EMULATOR_REDUCE(type)                                                                     \
    inline type __reduce_add_sync(uint32_t mask, type value) {                                    \
        return emulator::reduce(mask, value, [](type a, type b) { return static_cast<type>(       \
            static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); });                             \
    }                                                                                             \
    inline type __reduce_min_sync(uint32_t mask, type value) {                                    \
        return emulator::reduce(mask, value, [](type a, type b) { return a < b ? a : b; });       \
    }                                                                                             \
    inline type __reduce_max_sync(uint32_t mask, type value) {                                    \
        return emulator::reduce(mask, value, [](type a, type b) { return a > b ? a : b; });       \
    }
EMULATOR_REDUCE(int)
EMULATOR_REDUCE(unsigned)
#undef EMULATOR_REDUCE
inline unsigned __reduce_and_sync(uint32_t mask, unsigned value) {
    return emulator::reduce(mask, value, [](unsigned a, unsigned b) { return a & b; });
}
inline unsigned __reduce_or_sync(uint32_t mask, unsigned value) {
    return emulator::reduce(mask, value, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_xor_sync(uint32_t mask, unsigned value) {
    return emulator::reduce(mask, value, [](unsigned a, unsigned b) { return a ^ b; });
}

// --- memory --------------------------------------------------------------------------------------

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }

#define EMULATOR_LOAD(name)                \
    template <class Value>                 \
    inline Value name(const Value* from) { \
        return *from;                      \
    }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldcv)
EMULATOR_LOAD(__ldlu)
#undef EMULATOR_LOAD
#define EMULATOR_STORE(name)                     \
    template <class Value>                       \
    inline void name(Value* target, Value value) { \
        *target = value;                         \
    }
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE

namespace emulator {

template <class Value>
struct Same {
    using type = Value;
};
template <class Value>
using Given = typename Same<Value>::type;  // takes part in no deduction

template <class Value, class Change>
Value change(Value* at, Change next) {
    Value before, after;
    __atomic_load(at, &before, __ATOMIC_SEQ_CST);
    do {
        after = next(before);
    } while (!__atomic_compare_exchange(at, &before, &after, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
    return before;
}

}  // namespace emulator

#define EMULATOR_ATOMIC(name, expression)                                            \
    template <class Value>                                                           \
    Value name(Value* at, emulator::Given<Value> value) {                            \
        return emulator::change(at, [=](Value before) -> Value { return expression; }); \
    }
EMULATOR_ATOMIC(atomicAdd, before + value)
EMULATOR_ATOMIC(atomicSub, before - value)
EMULATOR_ATOMIC(atomicMax, before > value ? before : value)
EMULATOR_ATOMIC(atomicMin, before < value ? before : value)
EMULATOR_ATOMIC(atomicAnd, before & value)
EMULATOR_ATOMIC(atomicOr, before | value)
EMULATOR_ATOMIC(atomicXor, before ^ value)
EMULATOR_ATOMIC(atomicExch, (static_cast<void>(before), value))
#undef EMULATOR_ATOMIC
template <class Value>
Value atomicCAS(Value* at, emulator::Given<Value> compare, emulator::Given<Value> value) {
    __atomic_compare_exchange(at, &compare, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return compare;
}

// --- arithmetic ----------------------------------------------------------------------------------

inline float __uint_as_float(unsigned bits) { return emulator::unpack<float>(bits); }
inline float __int_as_float(int bits) { return emulator::unpack<float>(static_cast<uint32_t>(bits)); }
inline unsigned __float_as_uint(float value) { return static_cast<unsigned>(emulator::pack(value)); }
inline int __float_as_int(float value) { return static_cast<int>(emulator::pack(value)); }
inline long long __double_as_longlong(double value) {
    return static_cast<long long>(emulator::pack(value));
}
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float __log2f(float a) { return log2f(a); }
inline float __saturatef(float a) { return a > 0.0f ? a < 1.0f ? a : 1.0f : 0.0f; }
inline int __float2int_rn(float a) { return static_cast<int>(lrintf(a)); }
inline int __float2int_rz(float a) { return static_cast<int>(a); }
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline int __clz(int a) { return a ? __builtin_clz(static_cast<unsigned>(a)) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll(static_cast<unsigned long long>(a)) : 64; }
inline unsigned __brev(unsigned a) {
    unsigned out = 0;
    for (int bit = 0; bit < 32; bit++) out |= (a >> bit & 1u) << (31 - bit);
    return out;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned choice = selector >> (4 * i) & 0xfu;
        unsigned byte = static_cast<unsigned>(both >> (8 * (choice & 7u))) & 0xffu;
        if (choice & 8u) byte = byte & 0x80u ? 0xffu : 0u;
        out |= byte << (8 * i);
    }
    return out;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    using Common = std::common_type_t<A, B>;
    return static_cast<Common>(b) < static_cast<Common>(a) ? static_cast<Common>(b)
                                                           : static_cast<Common>(a);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    using Common = std::common_type_t<A, B>;
    return static_cast<Common>(a) < static_cast<Common>(b) ? static_cast<Common>(b)
                                                           : static_cast<Common>(a);
}
inline void __nanosleep(unsigned) { emulator::pause(); }
inline long long clock64() { return static_cast<long long>(emulator::nanoseconds()); }
[[noreturn]] inline void __trap() { __builtin_trap(); }
