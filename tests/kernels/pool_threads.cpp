// The pool under a thread sanitizer, or any other one: a GPU played by this thread publishes random
// calls, takes units from their back while the pool works, and checks every bit of the sums. Bells
// ring from another thread, pools are closed in mid-call. `test_pool_threads.py` builds and runs it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "pool.h"
#include "shared_words.h"

namespace {

using namespace freetoken;

constexpr int kHidden = 80, kIntermediate = 160, kGroup = 16, kRecords = 5, kThreads = 4;
constexpr int kCallsOfAPool = 40, kPools = 24;
constexpr int64_t kAheadBytes = 1 << 16;

void require(bool condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

struct Side {
    alignas(64) uint8_t mail[kMailBytes + kMailRows * kHidden * sizeof(float)] = {};
    alignas(64) uint8_t reply[kReplyBytes + kMailSums * kHidden * sizeof(float)] = {};
};

class Game {
   public:
    explicit Game(Encoding encoding)
        : shape_(make_shape(encoding, kHidden, kIntermediate,
                            encoding == Encoding::bf16 ? 0 : kGroup, false)),
          scratch_(shape_),
          side_(new Side),
          mail_(*reinterpret_cast<Mail*>(side_->mail)),
          reply_(*reinterpret_cast<Reply*>(side_->reply)),
          records_(kRecords * record_bytes()) {
        // Values of about 1: bf16 with exponents near that of 1, any e4m3 code but NaN, scales.
        for (size_t i = 0; i < records_.size(); i++) {
            const uint8_t byte = static_cast<uint8_t>(random_());
            const bool upper = i % 2;
            records_[i] = encoding == Encoding::bf16 && upper ? (byte & 0x80) | 0x3e | (byte & 1)
                                                              : byte & 0xf7;
        }
        if (shape_.group) set_scales();
        mail_.call = UINT32_MAX - kCallsOfAPool * kPools / 2;  // wraps on the way
    }

    void play() {
        for (int round = 0; round < kPools; round++) {
            PoolConfig config{shape_, Tier::scalar, records_.data(),
                              static_cast<int64_t>(record_bytes()), kRecords, &mail_, &reply_,
                              std::vector<int>(1 + round % kThreads, 0), round % 2 == 1,
                              round % 3 ? 20'000 : 0, round % 3 ? 1'000'000 : 0, kAheadBytes};
            Pool pool(config);
            std::atomic<bool> stop{false};
            std::thread ringer([&] {
                while (!stop) {
                    pool.wake();
                    std::this_thread::yield();
                }
            });
            for (int i = 0; i < kCallsOfAPool; i++) {
                fill();
                pool.set_prefetch({1 + static_cast<uint32_t>(i) % kMostGroups, 512});
                if (random_() % 4) guess(random_() % 4);
                publish();
                if (random_() % 2) guess(false);
                steal();
                check();
            }
            require(pool.stats().calls == kCallsOfAPool, "every call is counted");
            units_ += pool.stats().units;
            fetched_ += pool.stats().fetched_units;
            fill();
            const uint32_t call = publish();
            for (uint32_t i = random_() % 64; i; i--) std::this_thread::yield();
            stop = true;
            ringer.join();
            pool.close();
            if (shared_word(reply_.done) == call) check();
        }
        require(units_ > 1000 && fetched_ > 1000, "the pool has its part, fetched or not");
    }

   private:
    size_t record_bytes() const { return shape_.units * shape_.unit_bytes; }

    void set_scales() {
        for (int unit = 0; unit < kRecords * shape_.units; unit++) {
            uint8_t* at = records_.data() + unit * shape_.unit_bytes + shape_.values_bytes;
            for (size_t i = 0; i < shape_.scale_bytes / sizeof(float); i++) {
                const float scale = 0.001f * static_cast<float>(1 + random_() % 100);
                memcpy(at + i * sizeof scale, &scale, sizeof scale);
            }
        }
    }

    float* x() { return reinterpret_cast<float*>(side_->mail + kMailBytes); }
    const float* sums() { return reinterpret_cast<const float*>(side_->reply + kReplyBytes); }

    void fill() {
        mail_.rows = 1 + random_() % kMailRows;
        mail_.jobs = random_() % 7;
        uint8_t base = 0;
        list_ = 0;
        for (uint32_t k = 0; k < mail_.jobs; k++) {
            MailJob& job = mail_.job[k];
            job.record = static_cast<int32_t>(random_() % kRecords);
            job.first = static_cast<int16_t>(random_() % (shape_.units + 1));
            job.rows = static_cast<uint8_t>(1 + random_() % ((1u << mail_.rows) - 1));
            job.base = base;
            for (uint32_t mask = job.rows; mask; mask &= mask - 1) base++;
            list_ += static_cast<uint32_t>(shape_.units - job.first);
        }
        mail_.limit = random_() % 2 ? UINT32_MAX : random_() % (list_ + 1);
        for (uint32_t i = 0; i < mail_.rows * kHidden; i++)
            x()[i] = static_cast<float>(static_cast<int>(random_() % 2001) - 1000) * 0.001f;
    }

    // What the call in hand will miss, or nonsense, written over a guess that threads may be reading.
    void guess(bool right) {
        const uint64_t number = ++guesses_ & 0xffff;
        for (int i = kMailAhead - 1; i >= 0; i--) {
            uint64_t first = random_() % (shape_.units + 2), record = random_() % (kRecords + 1);
            if (right && i < static_cast<int>(mail_.jobs))
                first = mail_.job[i].first, record = mail_.job[i].record;
            shared_word(mail_.ahead[i])
                .store(number << 48 | first << 32 | record, std::memory_order_relaxed);
        }
        for (uint32_t i = random_() % 8; i; i--) std::this_thread::yield();
    }

    uint32_t publish() {
        const uint32_t call = mail_.call + 1;
        shared_word(mail_.call).store(call, std::memory_order_release);
        return call;
    }

    // Takes units until the pool is done, in half the calls none; several workers in turn.
    void steal() {
        uint32_t taken[kMailWorkers] = {}, all = 0;
        const uint32_t most = random_() % 2 ? random_() % (list_ + 1) : 0;
        while (shared_word(reply_.done).load(std::memory_order_acquire) != mail_.call) {
            if (all < most && random_() % 8 == 0) {
                const uint32_t worker = random_() % kMailWorkers;
                all++;
                shared_word(mail_.stolen[worker])
                    .store(static_cast<uint64_t>(mail_.call) << 32 | ++taken[worker],
                           std::memory_order_release);
            }
            std::this_thread::yield();
        }
        require(reply_.units + all >= std::min(mail_.limit, list_), "every unit has an owner");
    }

    void check() {
        require(reply_.error == 0, "no error");
        require(reply_.units <= std::min(mail_.limit, list_), "no unit behind the limit");
        int left = static_cast<int>(reply_.units);
        for (uint32_t k = 0; k < mail_.jobs; k++) {
            const MailJob& job = mail_.job[k];
            const int owned = std::min(left, shape_.units - job.first);
            left -= owned;
            if (owned) check_job(job, owned);
        }
        require(left == 0, "no more units than the list has");
    }

    void check_job(const MailJob& job, int owned) {
        const ExpertTier& tier = expert_tier(Tier::scalar);
        Workspace& work = scratch_.work;
        int tokens = 0;
        for (int row = 0; row < kMailRows; row++)
            if (job.rows >> row & 1) tier.spread(shape_, x() + row * kHidden, work, tokens++);
        const uint8_t* record = records_.data() + job.record * record_bytes();
        for (int i = 0; i < owned; i++) {
            const uint8_t* unit = record + (shape_.units - 1 - i) * shape_.unit_bytes;
            tier.unit(shape_, unit, unit, tokens, i == 0, work);
        }
        float wanted[kHidden];
        for (int token = 0; token < tokens; token++) {
            tier.collect(shape_, work, token, wanted);
            require(memcmp(wanted, sums() + (job.base + token) * kHidden, sizeof wanted) == 0,
                    "sums have the canonical bits");
        }
    }

    Shape shape_;
    Scratch scratch_;
    std::unique_ptr<Side> side_;
    Mail& mail_;
    Reply& reply_;
    std::vector<uint8_t> records_;
    uint32_t list_ = 0;
    uint64_t guesses_ = 0, units_ = 0, fetched_ = 0;
    std::mt19937 random_{1};
};

// By whom a unit is begun, in the order in which they ask.
void check_marks() {
    UnitMarks marks(2);
    for (const uint32_t call : {0u, 1u, UINT32_MAX, 0u}) {
        require(!marks.is_by_parts(call, 0), "another call's mark says nothing");
        require(marks.begin(call, 0, false), "a whole unit is begun");
        require(!marks.begin(call, 0, false), "a whole unit is begun once");
        require(!marks.begin(call, 0, true), "a whole unit has no parts to give away");
        require(marks.begin(call, 1, true) && marks.begin(call, 1, true), "parts are several's");
        require(!marks.begin(call, 1, false), "a shared unit is nobody's as a whole");
        require(!marks.is_by_parts(call, 0) && marks.is_by_parts(call, 1), "who computes what");
    }
}

}  // namespace

int main() {
    check_marks();
    Game(Encoding::bf16).play();
    Game(Encoding::fp8_block).play();
    printf("%d calls\n", 2 * kPools * kCallsOfAPool);
    return 0;
}
