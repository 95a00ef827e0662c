#include "call_plan.h"

#include <string.h>

#include <algorithm>

namespace freetoken {
namespace {

int count_rows(uint32_t mask) {
    int rows = 0;
    for (; mask; mask &= mask - 1) rows++;
    return rows;
}

}  // namespace

CallPlan::CallPlan(const PoolConfig& config)
    : error(CallError::none), jobs(0), units(0), limit(0), vectors_(0), sums_(0), rows_(0) {
    error = read(config);
    if (error != CallError::none) jobs = units = limit = 0;
}

int CallPlan::job_of(const Shape& shape, const uint8_t* unit) const {
    for (int k = 0; k < jobs; k++) {
        const int64_t listed = (end(k) - job[k].begin) * static_cast<int64_t>(shape.unit_bytes);
        if (unit <= job[k].last_unit && job[k].last_unit - unit < listed) return k;
    }
    return -1;
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

}  // namespace freetoken
