// The Python face of the C++ kernels. Raw facts and addresses only; no torch.
#include <nanobind/nanobind.h>

#include "isa.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
    m.doc() = "CPU kernels of FreeToken Desktop.";
    m.def(
        "isa_tier",
        [] {
            switch (freetoken::isa_tier()) {
                case freetoken::Tier::avx512: return "avx512";
                case freetoken::Tier::avx2: return "avx2";
                default: return "scalar";
            }
        },
        "The highest instruction-set tier that this CPU and system can run.");
}
