// The Python face of the pool. Addresses and numbers only; the caller has checked them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "module_names.h"
#include "pool.h"
#include "read_rate.h"
#include "trial.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freetoken {
namespace {

struct Layout {
    Shape shape;
    int64_t record_bytes;
};

template <class Type>
Type* at(uintptr_t address) {
    return reinterpret_cast<Type*>(address);
}

Prefetch prefetch_of(uint32_t rows, uint32_t near_bytes) {
    const uint32_t groups = rows / kAheadRows;
    if (rows % kAheadRows || groups < 1 || groups > kMostGroups || near_bytes > kMostNearBytes)
        throw std::invalid_argument("rows are 8, 16 or 24, near bytes at most 4096");
    return {groups, near_bytes};
}

nb::dict stats_of(const Pool& pool) {
    const PoolStats stats = pool.stats();
    nb::dict out;
    out["calls"] = stats.calls;
    out["units"] = stats.units;
    out["num_bytes"] = stats.bytes;
    out["errors"] = stats.errors;
    out["busy_ns"] = stats.busy_ns;
    out["spread_ns"] = stats.spread_ns;
    out["ahead_bytes"] = stats.ahead_bytes;
    out["fetched_units"] = stats.fetched_units;
    return out;
}

}  // namespace

void bind_pool(nb::module_& m) {
    nb::class_<Layout>(m, "PoolLayout", "How records lie, and how they are read.")
        .def(
            "__init__",
            [](Layout* self, const std::string& encoding, int hidden, int intermediate, int group,
               int64_t record_bytes) {
                new (self) Layout{
                    make_shape(encoding_of(encoding), hidden, intermediate, group, false),
                    record_bytes};
            },
            "encoding"_a, "hidden"_a, "intermediate"_a, "group"_a, "record_bytes"_a);
    nb::class_<PoolConfig>(m, "PoolConfig", "What threads a pool has, and what they work on.")
        .def(
            "__init__",
            [](PoolConfig* self, const Layout& layout, const std::string& tier, uintptr_t records,
               int64_t num_records, uintptr_t mail, uintptr_t reply) {
                new (self) PoolConfig{};
                self->shape = layout.shape;
                self->tier = tier_of(tier);
                self->records = at<const uint8_t>(records);
                self->record_bytes = layout.record_bytes;
                self->num_records = num_records;
                self->mail = at<Mail>(mail);
                self->reply = at<Reply>(reply);
            },
            "layout"_a, "tier"_a, "records"_a, "num_records"_a, "mail"_a, "reply"_a)
        .def_rw("cpus", &PoolConfig::cpus)
        .def_rw("pin", &PoolConfig::pin)
        .def_rw("spin_ns", &PoolConfig::spin_ns)
        .def_rw("park_ns", &PoolConfig::park_ns)
        .def_rw("look_ahead_bytes", &PoolConfig::look_ahead_bytes)
        .def(
            "set_prefetch",
            [](PoolConfig& self, uint32_t rows, uint32_t near_bytes) {
                self.prefetch = prefetch_of(rows, near_bytes);
            },
            "rows"_a, "near_bytes"_a);
    nb::class_<Pool>(m, "Pool", "Threads that serve the mailbox.")
        .def(nb::init<const PoolConfig&>(), "config"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("wake", &Pool::wake)
        .def("close", &Pool::close, nb::call_guard<nb::gil_scoped_release>())
        .def("stats", stats_of);
    nb::class_<Trial>(m, "Trial", "A pool with a mailbox of its own, to measure prefetch with.")
        .def(nb::init<const PoolConfig&>(), "config"_a, nb::call_guard<nb::gil_scoped_release>())
        .def(
            "run",
            [](Trial& self, const std::vector<int32_t>& records, uint32_t rows,
               uint32_t near_bytes, int64_t patience_ns) {
                const Prefetch prefetch = prefetch_of(rows, near_bytes);
                nb::gil_scoped_release release;
                return self.run(records, prefetch, patience_ns);
            },
            "records"_a, "rows"_a, "near_bytes"_a, "patience_ns"_a,
            "Nanoseconds of one call, 0 if it was not over in time: no more calls then.");
    m.def(
        "read_rate",
        [](uintptr_t data, size_t bytes, const std::vector<int>& cpus, bool pin, int passes) {
            return read_rate(at<const uint8_t>(data), bytes, cpus, pin, passes);
        },
        "data"_a, "num_bytes"_a, "cpus"_a, "pin"_a, "passes"_a,
        nb::call_guard<nb::gil_scoped_release>(),
        "Bytes per second at which threads read memory, one thread for each of `cpus`.");
}

}  // namespace freetoken
