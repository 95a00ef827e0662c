// The Python face of the pool. Addresses and numbers only; the caller has checked them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "module_names.h"
#include "pool.h"
#include "read_rate.h"

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
               int64_t record_bytes, size_t ahead_bytes) {
                Shape shape =
                    make_shape(encoding_of(encoding), hidden, intermediate, group, false);
                if (ahead_bytes > 0) shape.ahead_bytes = ahead_bytes;
                new (self) Layout{shape, record_bytes};
            },
            "encoding"_a, "hidden"_a, "intermediate"_a, "group"_a, "record_bytes"_a,
            "ahead_bytes"_a);
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
        .def_rw("look_ahead_bytes", &PoolConfig::look_ahead_bytes);
    nb::class_<Pool>(m, "Pool", "Threads that serve the mailbox.")
        .def(nb::init<const PoolConfig&>(), "config"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("wake", &Pool::wake)
        .def("close", &Pool::close, nb::call_guard<nb::gil_scoped_release>())
        .def("stats", stats_of);
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
