// What a decode step on the GPU and the CPU pool say to each other, in pinned, mapped memory.
//
// One call is one layer of one step. The GPU writes a Mail and then its number; the pool computes
// units from the front of the call's list, those first that lie in its caches, and writes a Reply; GPU workers meanwhile compute units
// from the back of the list. Nothing is ever reset and no atomic crosses the link: each side counts
// its own units in words that carry the call's number. A unit that both sides computed has the same
// bits (canonical.h), so a race costs time only.
//
// The list: the units that are missing on the device. Jobs follow each other; a job's units go from
// the expert's last unit down to `first`. The pool owns the list's first `Reply.units` units and
// returns, for each row of each job, the sum of its own units in the canonical order; the GPU
// continues each sum with the units behind them. Included by nvcc, NVRTC and every C++ compiler.
//
// A thread takes a whole unit, but near the end of a list only a part of one, kUnitParts to a unit:
// the last units would else keep some threads busy while all others wait.
#pragma once

#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif

namespace freetoken {

constexpr int kMailRows = 8;      // rows of a step
constexpr int kMailJobs = 64;     // distinct experts of a call: rows times top-k at most
constexpr int kMailSums = 64;     // (job, row) pairs of a call
constexpr int kMailWorkers = 16;  // GPU workers
constexpr int kMailAhead = 16;    // experts that the next layer is expected to miss
constexpr int kUnitParts = 4;     // what the pool's threads may share a unit by
constexpr int kPassedBits = 20;   // of Reply.claim, for parts

struct MailJob {
    int32_t record;  // of the pool
    int16_t first;   // the list holds the expert's units [first, units)
    uint8_t rows;    // bit r: row r uses this expert
    uint8_t base;    // place of the job's first row in Reply.sums; rows follow in order of number
};

// GPU -> CPU. `call` is stored last, with release order; all up to `job` belongs to that call.
struct alignas(64) Mail {
    uint32_t call;
    uint32_t jobs;
    uint32_t rows;   // of the step; x holds as many
    uint32_t limit;  // the pool may take the list's units [0, limit)
    uint32_t unused[12];
    uint64_t stolen[kMailWorkers];  // per GPU worker: call << 32 | units it has taken
    MailJob job[kMailJobs];
    // A guess at the next layer's list, in its order, for whoever has time to fetch it. Each word says
    // which guess it belongs to, so that nothing has to be stored last: a torn guess is a worse one.
    uint64_t ahead[kMailAhead];  // record | first << 32 | the guess's number << 48
    // float x[rows][hidden] follows at kMailBytes, each row the expert's input
};

// CPU -> GPU. `done` is stored last, with release order; the first 16 bytes are read at once.
struct alignas(64) Reply {
    uint32_t done;   // number of the last call that is complete
    uint32_t units;  // the list's first `units` are in the sums
    uint32_t nanoseconds;  // from seeing the call to its end
    uint32_t error;  // not 0: the pool could not compute this call
    uint32_t unused[12];
    // call << 32 | units that threads have begun further back << kPassedBits | parts of units that were
    // begun from the front on; a later call's number: all. GPU workers keep away from both.
    uint64_t claim;
    uint32_t padding[14];
    // float sums[kMailSums][hidden] follow at kReplyBytes, plain column order
};

constexpr int kMailBytes = 4096;
constexpr int kReplyBytes = 4096;

static_assert(sizeof(MailJob) == 8, "read as one word");
static_assert(sizeof(Mail) <= kMailBytes && sizeof(Reply) <= kReplyBytes, "one page each");

}  // namespace freetoken
