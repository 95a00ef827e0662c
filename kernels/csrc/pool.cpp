#include "pool.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>

#include "call_plan.h"
#include "canonical.h"
#include "claimed.h"
#include "cpu_thread.h"
#include "gate.h"
#include "shared_words.h"

namespace freetoken {
namespace {

constexpr int64_t kPatrolNs = 10'000'000;  // how often one parked thread looks for a call
constexpr int kLooksPerClock = 32;  // reading the clock is dearer than a look
constexpr int kLooksPerYield = 4096;
constexpr std::align_val_t kAlign{64};
constexpr size_t kLine = 64;  // bytes that memory gives at once

// A test lets others run between a look at the claims and the claim that follows from it.
#ifndef FREETOKEN_CLAIM_GAP
#define FREETOKEN_CLAIM_GAP
#endif

}  // namespace

// --- life ----------------------------------------------------------------------------------------

void Pool::Aligned::operator()(float* memory) const { ::operator delete[](memory, kAlign); }

Pool::Pool(const PoolConfig& config)
    : config_(config),
      tier_(expert_tier(config.tier)),
      look_ahead_(config_),
      prefetch_(config.prefetch),
      marks_(static_cast<size_t>(kMailJobs) * config.shape.units),
      last_unit_ns_(config.cpus.size()) {
    const int64_t threads = static_cast<int64_t>(config.cpus.size());
    const int64_t parts = (int64_t{kMailJobs} * config.shape.units + 2 * threads) * kUnitParts;
    if (parts >> kPassedBits || threads * 2 * Fetched::kMostUnits >> (32 - kPassedBits))
        throw std::invalid_argument("units or threads are more than the mailbox counts");
    const size_t vectors = static_cast<size_t>(kMailSums) * config.shape.units;
    const auto floats = [&](size_t each) {
        return static_cast<float*>(::operator new[](vectors * each * sizeof(float), kAlign));
    };
    partial_.reset(floats(static_cast<size_t>(config.shape.padded)));
    activation_.reset(floats(kUnitRows));
    const uint32_t seen = number(), guess = look_ahead_.number();
    gate_ = Gate{seen, Gate::closed, 0, 0}.word();
    decided_ = seen;
    shared_word(config_.reply->claim) = static_cast<uint64_t>(seen + 1) << 32;
    for (size_t i = 0; i < config_.cpus.size(); i++)
        scratch_.push_back(std::make_unique<Scratch>(config_.shape));
    try {
        for (size_t i = 0; i < config_.cpus.size(); i++)
            threads_.emplace_back([this, i, seen, guess] { work(i, seen, guess); });
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

PoolStats Pool::stats() const {
    return {calls_,   units_,     bytes_, errors_,
            busy_ns_, spread_ns_, look_ahead_.bytes(), fetched_units_};
}

void Pool::work(size_t thread, uint32_t seen, uint32_t guess) {
    use_default_arithmetic();
    if (config_.pin) pin_to(config_.cpus[thread]);
    const bool sentinel = thread == 0;
    Fetched fetched;
    fetched.guess = guess;
    while (next_call(sentinel, seen, fetched)) {
        const int place = join(seen);
        if (place >= 0) serve(scratch_[thread]->work, seen, place, fetched);
    }
}

// --- waiting -------------------------------------------------------------------------------------

uint32_t Pool::number() const {
    return shared_word(config_.mail->call).load(std::memory_order_acquire);
}

// Waits for a number other than `seen` and puts it there; false if the pool is closed. Meanwhile
// helps with guesses at later calls.
bool Pool::next_call(bool sentinel, uint32_t& seen, Fetched& fetched) {
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
        look_ahead_.fetch(seen, fetched);
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
                shared_word(config_.reply->claim)
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

void Pool::serve(Workspace& work, uint32_t call, int place, Fetched& fetched) {
    const CallPlan plan(config_);
    work.prefetch = prefetch_.load(std::memory_order_relaxed);
    uint32_t prepared = compute_fetched(plan, call, work, fetched);
    compute(plan, call, work, prepared);
    last_unit_ns_[static_cast<size_t>(place)] = nanoseconds();
    if (arrive()) {
        bound_ = bound(plan, call);
        finished_.store(0, std::memory_order_relaxed);
        decided_.store(call, std::memory_order_release);
    } else {
        const int so_far = static_cast<int>(Gate::of(gate_.load(std::memory_order_relaxed)).joined);
        fetch_columns(plan, call, place, so_far);
        // A thread that was put aside keeps the others waiting for a time slice: yield then.
        for (int look = 1; decided_.load(std::memory_order_acquire) != call; look++)
            look % kLooksPerYield ? pause() : std::this_thread::yield();
    }
    const int joined = static_cast<int>(Gate::of(gate_.load(std::memory_order_relaxed)).joined);
    add_up(plan, call, place, joined, work);
    if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == joined)
        publish(plan, call, joined);
}

// The list's first units that the GPU has left to the pool so far; never grows during a call.
int Pool::bound(const CallPlan& plan, uint32_t call) const {
    int64_t left = plan.units;
    for (uint64_t& word : config_.mail->stolen) {
        const uint64_t stolen = shared_word(word).load(std::memory_order_acquire);
        if (stolen >> 32 == call) left -= static_cast<uint32_t>(stolen);
    }
    return static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(plan.limit, left)));
}

// Computes units that lie in this thread's cache and that nobody has begun, wherever in the list they
// are. Returns the rows whose inputs are laid out.
uint32_t Pool::compute_fetched(const CallPlan& plan, uint32_t call, Workspace& work,
                               Fetched& fetched) {
    const Shape& shape = config_.shape;
    std::atomic<uint64_t>& claim = shared_word(config_.reply->claim);
    uint32_t prepared = 0;
    uint64_t units = 0;
    for (int n = 0; n < fetched.units; n++) {
        const uint8_t* unit = fetched.unit[n].first;
        const int k = plan.job_of(shape, unit);
        if (k < 0) continue;
        if (fetched.unit[n].guess == fetched.guess) fetched.end();
        if (!fetched.has(n, shape.unit_bytes)) continue;
        const CallPlan::Job& job = plan.job[k];
        const int i = plan.place(shape, job, unit);
        if (i >= bound(plan, call)) continue;
        claim.fetch_add(kAheadUnit, std::memory_order_relaxed);  // before anybody can pass it
        FREETOKEN_CLAIM_GAP;
        if (!marks_.begin(call, i, false)) {
            claim.fetch_sub(kAheadUnit, std::memory_order_relaxed);
            continue;
        }
        if (prepared != job.mask) prepare(job.mask, work);
        prepared = job.mask;
        work.y = partial_.get() + plan.sums(shape, job, i);
        const uint8_t* next = n + 1 < fetched.units ? fetched.unit[n + 1].first : unit;
        tier_.unit(shape, unit, next, job.rows, true, work);
        units++;
    }
    if (units) fetched_units_.fetch_add(units, std::memory_order_relaxed);
    return prepared;
}

// Claims units and computes them. As long as there is another unit for each thread, a claim is a
// whole one; then it is a part, rows only, and the unit's columns are left to `add_up`. Nobody
// knows how many units the GPU will still take, so the choice follows what is left right now; what
// others claim meanwhile can turn a whole unit into four parts of two.
void Pool::compute(const CallPlan& plan, uint32_t call, Workspace& work, uint32_t prepared) {
    constexpr int kPartRows = kUnitRows / kUnitParts;
    const Shape& shape = config_.shape;
    const int threads = static_cast<int>(config_.cpus.size());
    std::atomic<uint64_t>& claim = shared_word(config_.reply->claim);
    for (int k = 0, after = 0;;) {
        const Claimed before(claim.load(std::memory_order_relaxed));
        const int begun = before.parts / kUnitParts + before.ahead;
        const int wanted = bound(plan, call) - begun > threads ? kUnitParts : 1;
        FREETOKEN_CLAIM_GAP;
        const int first = Claimed(claim.fetch_add(wanted, std::memory_order_relaxed)).parts;
        const bool whole = wanted == kUnitParts && first % kUnitParts == 0;
        for (int part = first; part < first + wanted; part += whole ? kUnitParts : 1) {
            const int most = bound(plan, call), i = part / kUnitParts;
            if (i >= most) return;
            if (!marks_.begin(call, i, !whole)) {  // another thread has it in its cache
                if (part % kUnitParts == 0)
                    claim.fetch_sub(kAheadUnit, std::memory_order_relaxed);  // passed now
                continue;
            }
            while (i >= plan.end(k)) k++;
            const CallPlan::Job& job = plan.job[k];
            if (prepared != job.mask) prepare(job.mask, work);
            prepared = job.mask;
            // What this thread may well get next is fetched; to claim it already would hoard.
            const int then = whole ? i + threads : (part + threads) / kUnitParts;
            const uint8_t *unit = plan.unit(shape, job, i), *next = unit;
            if (then < most) {
                while (then >= plan.end(after)) after++;
                next = plan.unit(shape, plan.job[after], then);
            }
            if (whole) {
                work.y = partial_.get() + plan.sums(shape, job, i);
                tier_.unit(shape, unit, next, job.rows, true, work);
                continue;
            }
            next += (part + threads) % kUnitParts * 2 * kPartRows * shape.row_bytes;
            tier_.unit_rows(shape, unit, next, part % kUnitParts * kPartRows, kPartRows, job.rows,
                            activation_.get() + plan.activations(job, i), work);
        }
    }
}

// Lays out the inputs of some rows.
void Pool::prepare(uint32_t mask, Workspace& work) const {
    const float* x =
        reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(config_.mail) + kMailBytes);
    for (int token = 0; mask; mask >>= 1, x += config_.shape.hidden)
        if (mask & 1) tier_.spread(config_.shape, x, work, token++);
}

// While others still compute: fetches what this thread will probably read of shared units.
void Pool::fetch_columns(const CallPlan& plan, uint32_t call, int place, int joined) const {
    const Shape& shape = config_.shape;
    const int most = bound(plan, call);
    const size_t value_bytes = shape.row_bytes / static_cast<size_t>(shape.hidden);
    const size_t block_bytes = kBlockColumns * value_bytes;
    const int jobs = plan.jobs_within(most);
    const Pieces pieces(shape, jobs, place, joined);
    for (int k = 0; k < jobs; k++) {
        const CallPlan::Job& job = plan.job[k];
        for (int i = job.begin; i < std::min(most, plan.end(k)); i++) {
            if (!marks_.is_by_parts(call, i)) continue;
            if (decided_.load(std::memory_order_relaxed) == call) return;
            const uint8_t* down = plan.unit(shape, job, i) + 2 * kUnitRows * shape.row_bytes;
            const size_t from = (pieces.begin + jobs - 1 - k) / jobs * block_bytes;
            const size_t to = (pieces.end + jobs - 1 - k) / jobs * block_bytes;
            for (int r = 0; r < kUnitRows; r++)
                for (size_t at = from; at < std::min(to, shape.row_bytes); at += kLine)
                    prefetch_line(down + r * shape.row_bytes + at);
        }
    }
}

// Adds up the columns that fall to this thread, for all jobs.
void Pool::add_up(const CallPlan& plan, uint32_t call, int place, int joined, Workspace& work) {
    const Shape& shape = config_.shape;
    const size_t row = static_cast<size_t>(shape.padded);
    float* sums =
        reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(config_.reply) + kReplyBytes);
    const int jobs = plan.jobs_within(bound_);
    const Pieces pieces(shape, jobs, place, joined);
    for (int64_t p = pieces.begin; p < pieces.end; p++) {
        const int k = static_cast<int>(p % jobs), block = static_cast<int>(p / jobs);
        const CallPlan::Job& job = plan.job[k];
        const int end = std::min(bound_, plan.end(k)), units = end - job.begin;
        if (units <= 0) continue;
        for (int i = job.begin; i < end; i++)
            if (marks_.is_by_parts(call, i))
                tier_.unit_columns(shape, plan.unit(shape, job, i),
                                   activation_.get() + plan.activations(job, i), job.rows, block,
                                   partial_.get() + plan.sums(shape, job, i), work);
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
    shared_word(reply.claim)
        .store(static_cast<uint64_t>(call + 1) << 32, std::memory_order_relaxed);
    shared_word(reply.done).store(call, std::memory_order_release);
}

}  // namespace freetoken
