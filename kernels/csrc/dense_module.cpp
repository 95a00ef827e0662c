// The Python face of the dense kernels. Raw facts and addresses only; callers check sizes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "linear.h"
#include "module_names.h"
#include "steps.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freetoken {
namespace {

using Address = uintptr_t;
using Part = std::tuple<std::string, Address, Address, int, int>;

template <class Value>
Value* at(Address address) {
    return reinterpret_cast<Value*>(address);
}

Stored stored_of(const std::string& name) {
    if (name == "bf16") return Stored::bf16;
    if (name == "fp8_block") return Stored::fp8_block;
    if (name == "float32") return Stored::float32;
    throw std::invalid_argument("unknown encoding " + name);
}

std::vector<LinearPart> parts_of(const std::vector<Part>& parts) {
    std::vector<LinearPart> out;
    for (const auto& [encoding, values, scales, rows, group] : parts)
        out.push_back({stored_of(encoding), at<const uint8_t>(values), at<const float>(scales),
                       rows, group});
    return out;
}

void bind_linear(nb::module_& m) {
    nb::class_<Linear>(m, "Linear", "Products with stored weights, for few tokens.")
        .def(
            "__init__",
            [](Linear* self, const std::vector<Part>& parts, int width, const std::string& tier) {
                new (self) Linear(parts_of(parts), width, tier_of(tier));
            },
            "parts"_a, "width"_a, "tier"_a,
            "Parts (encoding, values, scales or 0, rows, group); addresses.")
        .def(
            "run",
            [](const Linear& self, Address x, int tokens, Address out) {
                self.run(at<const float>(x), tokens, at<float>(out));
            },
            "x"_a, "tokens"_a, "out"_a, "x [T, K] -> out [T, N1 + N2 + ..].")
        .def(
            "expand",
            [](const Linear& self, Address out) { self.expand(at<float>(out)); }, "out"_a,
            "All weights as float32, stacked.");
}

void bind_attention(nb::module_& m) {
    using Layer = std::tuple<int, int>;
    using Heads = std::tuple<int, int, int>;
    using Norms = std::tuple<Address, Address, float>;
    using Angles = std::tuple<Address, Address>;
    using Pages = std::tuple<int, Address, Address, int64_t>;
    nb::class_<AttentionStep>(m, "AttentionStep", "Decode's attention half of a layer.")
        .def(
            "__init__",
            [](AttentionStep* self, const Layer& layer, const Heads& heads, const Norms& norms,
               const Linear& qkv, const Linear& output, const std::string& tier) {
                AttentionShape shape{};
                std::tie(shape.layer_id, shape.num_layers) = layer;
                std::tie(shape.num_heads, shape.num_kv_heads, shape.head_dim) = heads;
                shape.norm = at<const float>(std::get<0>(norms));
                shape.head_norms = at<const float>(std::get<1>(norms));
                shape.eps = std::get<2>(norms);
                new (self) AttentionStep(shape, qkv, output, tier_of(tier));
            },
            "layer"_a, "heads"_a, "norms"_a, "qkv"_a, "output"_a, "tier"_a,
            nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(),
            "Layer (id, count), heads (N, Nkv, D), norms (of the layer, of the heads, eps).")
        .def(
            "run",
            [](const AttentionStep& self, Address hidden, Address pool, const Angles& angles,
               const Pages& pages, const std::vector<int64_t>& lengths) {
                AttentionPlaces places{};
                places.tokens = static_cast<int>(lengths.size());
                places.cos = at<const float>(std::get<0>(angles));
                places.sin = at<const float>(std::get<1>(angles));
                places.pool = at<float>(pool);
                places.page_tokens = std::get<0>(pages);
                places.slots = at<const int64_t>(std::get<1>(pages));
                places.tables = at<const int64_t>(std::get<2>(pages));
                places.table_width = static_cast<ptrdiff_t>(std::get<3>(pages));
                places.lengths = lengths.data();
                self.run(at<float>(hidden), places);
            },
            "hidden"_a, "pool"_a, "angles"_a, "pages"_a, "lengths"_a,
            "hidden [B, H] in place; angles (cos, sin), pages (tokens of one, slots, tables, their "
            "width).");
}

void bind_router(nb::module_& m) {
    using Norm = std::tuple<Address, float>;
    using Rule = std::tuple<int, bool, float>;
    nb::class_<RouterStep>(m, "RouterStep", "Norm, logits and the choice of experts.")
        .def(
            "__init__",
            [](RouterStep* self, const Norm& norm, const Linear& gate, const Rule& rule,
               const std::string& tier) {
                RouterShape shape{};
                shape.norm = at<const float>(std::get<0>(norm));
                shape.eps = std::get<1>(norm);
                std::tie(shape.top_k, shape.normalise, shape.scale) = rule;
                new (self) RouterStep(shape, gate, tier_of(tier));
            },
            "norm"_a, "gate"_a, "rule"_a, "tier"_a, nb::keep_alive<1, 3>(),
            "Norm (weight, eps), rule (top_k, normalise, scale).")
        .def(
            "run",
            [](const RouterStep& self, Address hidden, int tokens, Address x, Address ids,
               Address weights) {
                self.run(at<const float>(hidden), tokens, at<float>(x), at<int32_t>(ids),
                         at<float>(weights));
            },
            "hidden"_a, "tokens"_a, "x"_a, "ids"_a, "weights"_a,
            "hidden [T, H] -> x [T, H], ids int32 and weights [T, K].");
}

void bind_functions(nb::module_& m) {
    using Sizes = std::tuple<int, int>;
    using Routes = std::tuple<int, int, int>;
    m.def(
        "rms_norm",
        [](Address x, Address weight, Address out, const Sizes& sizes, float eps,
           const std::string& tier) {
            const DenseTier& functions = dense_tier(tier_of(tier));
            const auto [rows, width] = sizes;
            for (ptrdiff_t row = 0; row < rows; row++)
                functions.norm(at<const float>(x) + row * width, at<const float>(weight), eps,
                               width, at<float>(out) + row * width);
        },
        "x"_a, "weight"_a, "out"_a, "sizes"_a, "eps"_a, "tier"_a,
        "x [rows, width] / rms * weight -> out.");
    m.def(
        "merge_routes",
        [](Address rows, Address weights, Address out, const Routes& sizes) {
            const auto [tokens, top_k, hidden] = sizes;
            merge_routes(at<const float>(rows), at<const float>(weights), tokens, top_k, hidden,
                         at<float>(out));
        },
        "rows"_a, "weights"_a, "out"_a, "sizes"_a,
        "rows [T, K, H], weights [T, K] -> out [T, H]; sizes (T, K, H).");
}

}  // namespace

void bind_dense(nb::module_& m) {
    bind_linear(m);
    bind_attention(m);
    bind_router(m);
    bind_functions(m);
}

}  // namespace freetoken
