// The Python face of the C++ kernels. Raw facts and addresses only; no torch. Callers check sizes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "experts.h"
#include "isa.h"
#include "module_names.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freetoken {

void bind_dense(nb::module_& m);  // dense_module.cpp
void bind_pool(nb::module_& m);   // pool_module.cpp

}

namespace {

using freetoken::encoding_of;
using freetoken::tier_of;

const char* tier_name() { return freetoken::kTierNames[static_cast<int>(freetoken::isa_tier())]; }

using Address = uintptr_t;

// The routes of one call, copied out of Python objects before the interpreter's lock is let go.
struct Routes {
    size_t count;
    std::unique_ptr<freetoken::Route[]> list;

    explicit Routes(size_t count) : count(count), list(new freetoken::Route[count]) {}
};

void run(freetoken::Experts& experts, const Routes& routes, Address x, Address out) {
    nb::gil_scoped_release release;
    experts.run(routes.list.get(), routes.count, reinterpret_cast<const float*>(x),
                reinterpret_cast<float*>(out));
}

const uint8_t* record_at(nb::handle address) {
    return reinterpret_cast<const uint8_t*>(nb::cast<Address>(address));
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "CPU kernels of FreeToken Desktop.";
    m.attr("revision") = 4;  // raise it, and NATIVE_REVISION, with any change of API or record layout
    m.def("isa_tier", tier_name,
          "The highest instruction-set tier that this CPU and system can run.");
    freetoken::bind_dense(m);
    freetoken::bind_pool(m);
    nb::class_<freetoken::Experts>(
        m, "Experts", "Rows of experts in the canonical order; one object per thread.")
        .def(
            "__init__",
            [](freetoken::Experts* self, const std::string& encoding, int hidden, int intermediate,
               int group, bool round_to_bf16, const std::string& tier) {
                new (self) freetoken::Experts(encoding_of(encoding), hidden, intermediate, group,
                                              round_to_bf16, tier_of(tier));
            },
            "encoding"_a, "hidden"_a, "intermediate"_a, "group"_a, "round_to_bf16"_a, "tier"_a)
        .def(
            "each",
            [](freetoken::Experts& self, nb::list records, Address x, Address out) {
                Routes routes(records.size());
                for (size_t i = 0; i < routes.count; i++)
                    routes.list[i] = {record_at(records[i]), 0, static_cast<int64_t>(i)};
                run(self, routes, x, out);
            },
            "records"_a, "x"_a, "out"_a,
            "x [H] through every record (addresses), into out [records, H].")
        .def(
            "routes",
            [](freetoken::Experts& self, nb::list routes_, Address x, Address out) {
                Routes routes(routes_.size());
                for (size_t i = 0; i < routes.count; i++) {
                    const nb::tuple route = nb::cast<nb::tuple>(routes_[i]);
                    routes.list[i] = {record_at(route[0]), nb::cast<int64_t>(route[1]),
                                      nb::cast<int64_t>(route[2])};
                }
                run(self, routes, x, out);
            },
            "routes"_a, "x"_a, "out"_a,
            "Routes (record, row of x [*, H], row of out [*, H]); neighbours that name the same "
            "record read it once.");
}
