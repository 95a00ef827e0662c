// The Python face of the C++ kernels. Raw facts and addresses only; no torch. Callers check sizes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "experts.h"
#include "isa.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

constexpr const char* kTiers[] = {"scalar", "avx2", "avx512"};  // in the order of the enum

const char* tier_name() { return kTiers[static_cast<int>(freetoken::isa_tier())]; }

freetoken::Tier tier_of(const std::string& name) {
    for (int i = 0; i <= static_cast<int>(freetoken::isa_tier()); i++)
        if (name == kTiers[i]) return static_cast<freetoken::Tier>(i);
    throw std::invalid_argument("this CPU cannot run the tier " + name);
}

freetoken::Encoding encoding_of(const std::string& name) {
    if (name == "bf16") return freetoken::Encoding::bf16;
    if (name == "fp8_block") return freetoken::Encoding::fp8_block;
    throw std::invalid_argument("unknown encoding " + name);
}

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
    m.attr("revision") = 1;  // raise it, and NATIVE_REVISION, with any change of API or record layout
    m.def("isa_tier", tier_name,
          "The highest instruction-set tier that this CPU and system can run.");
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
