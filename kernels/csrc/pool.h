// The threads that serve the mailbox (mailbox.h): they wait for calls, compute units from the front
// of each call's list, and add them up in the canonical order.
//
// There is no coordinator. Every thread watches the mailbox; who sees a call takes part in it, and
// a call ends when all that take part have arrived: a thread that sleeps or was put aside by the
// system delays nobody. Threads touch no Python object.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "experts.h"
#include "look_ahead.h"
#include "mailbox.h"
#include "unit_marks.h"

namespace freetoken {

// Why a call was refused: Reply.error.
enum class CallError : uint32_t {
    none,
    jobs,    // more than kMailJobs
    rows,    // of the step: none, or more than kMailRows
    mask,    // a job has no row, or one that the step has not
    sums,    // the rows of the jobs are more than kMailSums, or lie behind them
    record,  // out of range
    first,   // out of range
};

struct PoolConfig {
    Shape shape;
    Tier tier;
    const uint8_t* records;  // [num_records], record_bytes apart
    int64_t record_bytes;
    int64_t num_records;
    Mail* mail;
    Reply* reply;
    std::vector<int> cpus;  // one thread each
    bool pin;               // keep each thread on its CPU
    int64_t spin_ns;        // without work a thread spins, then yields, then parks
    int64_t park_ns;
    int64_t look_ahead_bytes;  // of a guess, that a thread fetches; less than a unit = none
    Prefetch prefetch = kUsualPrefetch;  // until another one is set
};

// Since the start.
struct PoolStats {
    uint64_t calls;
    uint64_t units;
    uint64_t bytes;  // of records, read
    uint64_t errors;
    uint64_t busy_ns;    // from seeing a call to its end
    uint64_t spread_ns;  // sum over calls: from a thread's last unit, on average, to the last one's
    uint64_t ahead_bytes;  // of records, fetched because the next layer was expected to miss them
    uint64_t fetched_units;  // of `units` and a few more, computed by the thread that had fetched them
};

struct CallPlan;  // a call as one thread has read it

class Pool {
   public:
    explicit Pool(const PoolConfig& config);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // Calls will come soon: parked threads get up, and nobody parks for a while. Without it a call
    // that meets only parked threads is found within kPatrolNs.
    void wake();
    // Lets the threads end the call in hand and joins them.
    void close();
    PoolStats stats() const;
    // For calls that a thread sees from now on.
    void set_prefetch(const Prefetch& prefetch) { prefetch_ = prefetch; }

   private:
    struct Aligned {
        void operator()(float* memory) const;
    };

    void work(size_t thread, uint32_t seen, uint32_t guess);
    bool next_call(bool sentinel, uint32_t& seen, Fetched& fetched);
    void park(bool sentinel, uint32_t seen, uint64_t heard);
    uint32_t number() const;

    int join(uint32_t call);
    bool arrive();
    void serve(Workspace& work, uint32_t call, int place, Fetched& fetched);
    int bound(const CallPlan& plan, uint32_t call) const;
    uint32_t compute_fetched(const CallPlan& plan, uint32_t call, Workspace& work,
                             Fetched& fetched);
    void compute(const CallPlan& plan, uint32_t call, Workspace& work, uint32_t prepared);
    void prepare(uint32_t mask, Workspace& work) const;
    void fetch_columns(const CallPlan& plan, uint32_t call, int place, int joined) const;
    void add_up(const CallPlan& plan, uint32_t call, int place, int joined, Workspace& work);
    void publish(const CallPlan& plan, uint32_t call, int joined);

    const PoolConfig config_;
    const ExpertTier& tier_;
    LookAhead look_ahead_;
    std::atomic<Prefetch> prefetch_;
    UnitMarks marks_;
    std::unique_ptr<float[], Aligned> partial_;  // [kMailSums * units][padded], split: units' sums
    std::unique_ptr<float[], Aligned> activation_;  // [kMailSums * units][kUnitRows], of shared units
    std::vector<std::unique_ptr<Scratch>> scratch_;  // by thread
    std::vector<std::thread> threads_;

    // The call in hand.
    alignas(64) std::atomic<uint64_t> gate_;  // who takes part: see Gate in pool.cpp
    alignas(64) std::atomic<uint32_t> decided_;  // the call that `bound_` belongs to
    int bound_ = 0;       // the list's first units that are the pool's
    int64_t seen_ns_ = 0;
    alignas(64) std::atomic<int> finished_{0};
    std::vector<int64_t> last_unit_ns_;  // by place among those that take part

    // Parking: `bell_` counts wakes; whoever rings it looks at `parked_` afterwards, whoever parks
    // raises `parked_` and looks at `bell_` afterwards.
    alignas(64) std::atomic<uint64_t> bell_{0};
    std::atomic<int> parked_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::condition_variable woken_;

    alignas(64) std::atomic<uint64_t> calls_{0}, units_{0}, bytes_{0}, errors_{0}, busy_ns_{0},
        spread_ns_{0}, fetched_units_{0};
};

}  // namespace freetoken
