#include "pool.h"

#include <string.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "cpu_thread.h"

namespace freetoken {
namespace {

constexpr int64_t kPatrolNs = 10'000'000;  // how often one parked thread looks for a call
constexpr int kLooksPerClock = 32;  // reading the clock is dearer than a look
constexpr int kLooksPerYield = 4096;
constexpr std::align_val_t kAlign{64};

// Words that the GPU writes or reads while the pool runs.
template <class Word>
std::atomic<Word>& shared(Word& word) {
    static_assert(sizeof(std::atomic<Word>) == sizeof(Word), "same memory");
    static_assert(std::atomic<Word>::is_always_lock_free, "no lock that the GPU does not know");
    return reinterpret_cast<std::atomic<Word>&>(word);
}

int count_rows(uint32_t mask) {
    int rows = 0;
    for (; mask; mask &= mask - 1) rows++;
    return rows;
}

// Who takes part in a call, in one word, so that one exchange decides. A thread joins while the gate
// is open; it closes when everyone who has joined has arrived, that is, found no more units.
struct Gate {
    enum Phase : uint32_t { closed, opening, open };

    uint32_t call;
    Phase phase;
    uint32_t joined;
    uint32_t arrived;

    static Gate of(uint64_t word) {
        const uint32_t low = static_cast<uint32_t>(word);
        return {static_cast<uint32_t>(word >> 32), static_cast<Phase>(low >> 24),
                low >> 12 & kMostThreads, low & kMostThreads};
    }
    uint64_t word() const {
        return static_cast<uint64_t>(call) << 32 | phase << 24 | joined << 12 | arrived;
    }
    static constexpr uint32_t kMostThreads = 0xfff;
};

}  // namespace

// Checked, so that nothing in it leads outside the records, the sums or the partial sums.
struct CallPlan {
    struct Job {
        const uint8_t* last_unit;
        uint32_t mask;  // of its rows
        int rows;       // how many
        int base;       // place of the first one in Reply.sums
        int begin;      // place of its first unit in the list
        int vector;     // place of that unit's first row in the partial sums
    };

    CallError error;
    int jobs;
    int units;
    int limit;  // of the list's first units
    Job job[kMailJobs];

    explicit CallPlan(const PoolConfig& config);
    int end(int k) const { return k + 1 < jobs ? job[k + 1].begin : units; }
    // Its unit number `i` of the list; where the sums of that unit begin in the partial sums.
    const uint8_t* unit(const Shape& shape, const Job& of, int i) const {
        return of.last_unit - (i - of.begin) * static_cast<int64_t>(shape.unit_bytes);
    }
    size_t sums(const Shape& shape, const Job& of, int i) const {
        const int vector = of.vector + (i - of.begin) * of.rows;
        return static_cast<size_t>(vector) * static_cast<size_t>(shape.padded);
    }

   private:
    CallError read(const PoolConfig& config);
    CallError read_job(const PoolConfig& config, const MailJob& from, Job& to);

    int vectors_;
    int sums_;
    uint32_t rows_;
};

CallPlan::CallPlan(const PoolConfig& config)
    : error(CallError::none), jobs(0), units(0), limit(0), vectors_(0), sums_(0), rows_(0) {
    error = read(config);
    if (error != CallError::none) jobs = units = limit = 0;
}

CallError CallPlan::read(const PoolConfig& config) {
    const Mail& mail = *config.mail;
    const uint32_t count = mail.jobs;
    rows_ = mail.rows;
    if (count > static_cast<uint32_t>(kMailJobs)) return CallError::jobs;
    if (rows_ < 1 || rows_ > static_cast<uint32_t>(kMailRows)) return CallError::rows;
    jobs = static_cast<int>(count);
    for (int k = 0; k < jobs; k++) {
        const CallError wrong = read_job(config, mail.job[k], job[k]);
        if (wrong != CallError::none) return wrong;
    }
    limit = static_cast<int>(std::min(mail.limit, static_cast<uint32_t>(units)));
    return CallError::none;
}

CallError CallPlan::read_job(const PoolConfig& config, const MailJob& from, Job& to) {
    MailJob job;
    memcpy(&job, &from, sizeof job);
    const Shape& shape = config.shape;
    if (job.record < 0 || job.record >= config.num_records) return CallError::record;
    if (job.first < 0 || job.first > shape.units) return CallError::first;
    if (job.rows == 0 || job.rows >> rows_) return CallError::mask;
    to.mask = job.rows;
    to.rows = count_rows(job.rows);
    to.base = job.base;
    sums_ += to.rows;
    if (sums_ > kMailSums || to.base + to.rows > kMailSums) return CallError::sums;
    to.last_unit = config.records + job.record * config.record_bytes +
                   (shape.units - 1) * static_cast<int64_t>(shape.unit_bytes);
    to.begin = units;
    to.vector = vectors_;
    const int missing = shape.units - job.first;
    units += missing;
    vectors_ += missing * to.rows;
    return CallError::none;
}

// --- life ----------------------------------------------------------------------------------------

void Pool::Aligned::operator()(float* memory) const { ::operator delete[](memory, kAlign); }

Pool::Pool(const PoolConfig& config)
    : config_(config),
      tier_(expert_tier(config.tier)),
      last_unit_ns_(config.cpus.size()) {
    const size_t vectors = static_cast<size_t>(kMailSums) * config.shape.units;
    const size_t bytes = vectors * config.shape.padded * sizeof(float);
    partial_.reset(static_cast<float*>(::operator new[](bytes, kAlign)));
    const uint32_t seen = number();
    gate_ = Gate{seen, Gate::closed, 0, 0}.word();
    decided_ = seen;
    shared(config_.reply->claim) = static_cast<uint64_t>(seen + 1) << 32;
    for (size_t i = 0; i < config_.cpus.size(); i++)
        scratch_.push_back(std::make_unique<Scratch>(config_.shape));
    try {
        for (size_t i = 0; i < config_.cpus.size(); i++)
            threads_.emplace_back([this, i, seen] { work(i, seen); });
    } catch (...) {
        close();
        throw;
    }
}

Pool::~Pool() { close(); }

void Pool::close() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    woken_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

PoolStats Pool::stats() const { return {calls_, units_, bytes_, errors_, busy_ns_, spread_ns_}; }

void Pool::work(size_t thread, uint32_t seen) {
    use_default_arithmetic();
    if (config_.pin) pin_to(config_.cpus[thread]);
    const bool sentinel = thread == 0;
    while (next_call(sentinel, seen)) {
        const int place = join(seen);
        if (place >= 0) serve(scratch_[thread]->work, seen, place);
    }
}

// --- waiting -------------------------------------------------------------------------------------

uint32_t Pool::number() const { return shared(config_.mail->call).load(std::memory_order_acquire); }

// Waits for a number other than `seen` and puts it there; false if the pool is closed.
bool Pool::next_call(bool sentinel, uint32_t& seen) {
    uint64_t heard = bell_;
    int64_t begin = nanoseconds();
    bool spin = true;
    for (int look = 1;; look++) {
        const uint32_t call = number();
        if (stop_.load(std::memory_order_relaxed)) return false;
        if (call != seen) {
            seen = call;
            return true;
        }
        spin ? pause() : std::this_thread::yield();
        if (spin && look % kLooksPerClock) continue;
        const int64_t idle = nanoseconds() - begin;
        spin = idle < config_.spin_ns;
        if (idle < config_.park_ns) continue;
        if (heard == bell_) park(sentinel, seen, heard);
        heard = bell_;
        begin = nanoseconds();
    }
}

// Sleeps until the bell rings. One thread, the sentinel, also looks for calls that nobody announced,
// and rings itself.
void Pool::park(bool sentinel, uint32_t seen, uint64_t heard) {
    std::unique_lock<std::mutex> lock(mutex_);
    parked_++;
    const auto up = [&] { return stop_ || bell_ != heard || number() != seen; };
    if (sentinel) {
        while (!woken_.wait_for(lock, std::chrono::nanoseconds(kPatrolNs), up)) continue;
    } else {
        woken_.wait(lock, up);
    }
    parked_--;
    const bool unannounced = bell_ == heard && !stop_;
    lock.unlock();
    if (unannounced) wake();
}

void Pool::wake() {
    bell_++;
    if (parked_ == 0) return;
    { const std::lock_guard<std::mutex> lock(mutex_); }  // whoever has looked at the bell now waits
    woken_.notify_all();
}

// --- a call --------------------------------------------------------------------------------------

// Takes part in a call; the first thread opens it. Returns the place among those that take part, or
// -1 if the call is over.
int Pool::join(uint32_t call) {
    uint64_t word = gate_.load(std::memory_order_acquire);
    for (;;) {
        const Gate gate = Gate::of(word);
        if (gate.call == call && gate.phase == Gate::closed) return -1;
        // Looked at after the gate: a call that was over long ago must not be opened again.
        if (number() != call) return -1;
        if (gate.call == call && gate.phase == Gate::open) {
            const Gate more{call, Gate::open, gate.joined + 1, gate.arrived};
            if (gate_.compare_exchange_weak(word, more.word(), std::memory_order_acq_rel,
                                            std::memory_order_acquire))
                return static_cast<int>(gate.joined);
        } else if (gate.phase == Gate::closed) {
            const Gate mine{call, Gate::opening, 1, 0};
            if (gate_.compare_exchange_weak(word, mine.word(), std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
                seen_ns_ = nanoseconds();
                shared(config_.reply->claim)
                    .store(static_cast<uint64_t>(call) << 32, std::memory_order_relaxed);
                gate_.store(Gate{call, Gate::open, 1, 0}.word(), std::memory_order_release);
                return 0;
            }
        } else {
            pause();
            word = gate_.load(std::memory_order_acquire);
        }
    }
}

// No more units for this thread. True for the last one: from then on nobody joins.
bool Pool::arrive() {
    uint64_t word = gate_.load(std::memory_order_relaxed);
    for (;;) {
        Gate gate = Gate::of(word);
        gate.arrived++;
        if (gate.arrived == gate.joined) gate.phase = Gate::closed;
        if (gate_.compare_exchange_weak(word, gate.word(), std::memory_order_acq_rel,
                                        std::memory_order_relaxed))
            return gate.phase == Gate::closed;
    }
}

void Pool::serve(Workspace& work, uint32_t call, int place) {
    const CallPlan plan(config_);
    compute(plan, call, work);
    last_unit_ns_[static_cast<size_t>(place)] = nanoseconds();
    if (arrive()) {
        bound_ = bound(plan, call);
        finished_.store(0, std::memory_order_relaxed);
        decided_.store(call, std::memory_order_release);
    } else {
        // A thread that was put aside keeps the others waiting for a time slice: yield then.
        for (int look = 1; decided_.load(std::memory_order_acquire) != call; look++)
            look % kLooksPerYield ? pause() : std::this_thread::yield();
    }
    const int joined = static_cast<int>(Gate::of(gate_.load(std::memory_order_relaxed)).joined);
    add_up(plan, place, joined);
    if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == joined)
        publish(plan, call, joined);
}

// The list's first units that the GPU has left to the pool so far; never grows during a call.
int Pool::bound(const CallPlan& plan, uint32_t call) const {
    int64_t left = plan.units;
    for (uint64_t& word : config_.mail->stolen) {
        const uint64_t stolen = shared(word).load(std::memory_order_acquire);
        if (stolen >> 32 == call) left -= static_cast<uint32_t>(stolen);
    }
    return static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(plan.limit, left)));
}

// Claims units and computes them.
void Pool::compute(const CallPlan& plan, uint32_t call, Workspace& work) {
    const Shape& shape = config_.shape;
    const int ahead = static_cast<int>(config_.cpus.size());
    uint32_t prepared = 0;
    for (int k = 0, after = 0;;) {
        const uint64_t claimed =
            shared(config_.reply->claim).fetch_add(1, std::memory_order_relaxed);
        const int most = bound(plan, call), i = static_cast<int>(claimed & INT32_MAX);
        if (i >= most) return;
        while (i >= plan.end(k)) k++;
        const CallPlan::Job& job = plan.job[k];
        if (prepared != job.mask) prepare(job.mask, work);
        prepared = job.mask;
        // What this thread may well get next is fetched; to claim it already would hoard.
        const uint8_t *unit = plan.unit(shape, job, i), *next = unit;
        if (i + ahead < most) {
            while (i + ahead >= plan.end(after)) after++;
            next = plan.unit(shape, plan.job[after], i + ahead);
        }
        work.y = partial_.get() + plan.sums(shape, job, i);
        tier_.unit(shape, unit, next, job.rows, true, work);
    }
}

// Lays out the inputs of some rows.
void Pool::prepare(uint32_t mask, Workspace& work) const {
    const float* x =
        reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(config_.mail) + kMailBytes);
    for (int token = 0; mask; mask >>= 1, x += config_.shape.hidden)
        if (mask & 1) tier_.spread(config_.shape, x, work, token++);
}

// Adds up the columns that fall to this thread, for all jobs.
void Pool::add_up(const CallPlan& plan, int place, int joined) {
    const Shape& shape = config_.shape;
    const size_t row = static_cast<size_t>(shape.padded);
    float* sums =
        reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(config_.reply) + kReplyBytes);
    int jobs = 0;
    while (jobs < plan.jobs && plan.job[jobs].begin < bound_) jobs++;
    const int64_t pieces = static_cast<int64_t>(jobs) * (shape.padded / kBlockColumns);
    for (int64_t p = pieces * place / joined; p < pieces * (place + 1) / joined; p++) {
        const int k = static_cast<int>(p % jobs), block = static_cast<int>(p / jobs);
        const CallPlan::Job& job = plan.job[k];
        const int units = std::min(bound_, plan.end(k)) - job.begin;
        if (units <= 0) continue;
        for (int r = 0; r < job.rows; r++) {
            const float* first = partial_.get() + plan.sums(shape, job, job.begin) + r * row;
            float* out = sums + static_cast<size_t>(job.base + r) * shape.hidden;
            tier_.sum(shape, first, units, job.rows * row, block, out);
        }
    }
}

void Pool::publish(const CallPlan& plan, uint32_t call, int joined) {
    const int64_t now = nanoseconds(), busy = now - seen_ns_;
    Reply& reply = *config_.reply;
    reply.units = static_cast<uint32_t>(bound_);
    reply.nanoseconds = static_cast<uint32_t>(std::min<int64_t>(busy, UINT32_MAX));
    reply.error = static_cast<uint32_t>(plan.error);
    const auto count = [](std::atomic<uint64_t>& total, int64_t more) {
        total.fetch_add(static_cast<uint64_t>(more), std::memory_order_relaxed);
    };
    const auto begin = last_unit_ns_.begin(), end = begin + joined;
    const int64_t mean = std::accumulate(begin, end, int64_t{0}, [&](int64_t sum, int64_t at) {
        return sum + (at - seen_ns_);
    }) / joined;
    count(calls_, 1);
    count(units_, bound_);
    count(bytes_, bound_ * static_cast<int64_t>(config_.shape.unit_bytes));
    count(errors_, plan.error != CallError::none);
    count(busy_ns_, busy);
    count(spread_ns_, *std::max_element(begin, end) - seen_ns_ - mean);
    shared(reply.claim).store(static_cast<uint64_t>(call + 1) << 32, std::memory_order_relaxed);
    shared(reply.done).store(call, std::memory_order_release);
}

}  // namespace freetoken
