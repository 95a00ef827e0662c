// A call as a thread of the pool has read it from the mailbox, and what of it falls to whom.
#pragma once

#include <cstddef>
#include <cstdint>

#include "canonical.h"
#include "pool.h"

namespace freetoken {

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
    // Jobs that begin within the list's first `count` units.
    int jobs_within(int count) const {
        int within = 0;
        while (within < jobs && job[within].begin < count) within++;
        return within;
    }
    // The job whose units in the list include this one of the records, or -1.
    int job_of(const Shape& shape, const uint8_t* unit) const;
    // Its unit number `i` of the list; where the sums of that unit begin in the partial sums, and
    // its activations.
    const uint8_t* unit(const Shape& shape, const Job& of, int i) const {
        return of.last_unit - (i - of.begin) * static_cast<int64_t>(shape.unit_bytes);
    }
    // The unit's place in the list again.
    int place(const Shape& shape, const Job& of, const uint8_t* unit) const {
        return of.begin + static_cast<int>((of.last_unit - unit) /
                                           static_cast<int64_t>(shape.unit_bytes));
    }
    size_t sums(const Shape& shape, const Job& of, int i) const {
        return vector(of, i) * static_cast<size_t>(shape.padded);
    }
    size_t activations(const Job& of, int i) const { return vector(of, i) * kUnitRows; }

   private:
    size_t vector(const Job& of, int i) const {
        return static_cast<size_t>(of.vector + (i - of.begin) * of.rows);
    }
    CallError read(const PoolConfig& config);
    CallError read_job(const PoolConfig& config, const MailJob& from, Job& to);

    int vectors_;
    int sums_;
    uint32_t rows_;
};

// The blocks of columns that fall to a thread, of all jobs: numbers block * jobs + job.
struct Pieces {
    int jobs;
    int64_t begin, end;

    Pieces(const Shape& shape, int jobs, int place, int joined) : jobs(jobs) {
        const int64_t all = static_cast<int64_t>(jobs) * (shape.padded / kBlockColumns);
        begin = all * place / joined;
        end = all * (place + 1) / joined;
    }
};

}  // namespace freetoken
