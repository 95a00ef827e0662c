"""The driver's calls and errors, on a library that only remembers; real ones need a GPU."""

import ctypes
from ctypes import c_float, c_int, c_uint, c_void_p

import pytest

from kernels.cuda import driver
from kernels.cuda.driver import Driver, Module, architecture
from kernels.device.base import DeviceLostError, DeviceMemoryError, KernelError

WORDS = {2: b"out of memory", 400: b"invalid resource handle", 700: b"an illegal memory access"}
COMPUTE = {75: 9, 76: 0, 16: 132, 97: 232448}


class Config(ctypes.Structure):
    """CUlaunchConfig, read back."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(c_int * 18)),
        ("num_attributes", c_uint),
    )


SHARED_BYTES, OWN_SHARED_BYTES, INVALID = 48 << 10, 64, 1


class FakeLibrary:
    """Remembers calls; `fails` maps a function to the code that it returns.

    A kernel has 48 KiB of shared memory, some of which it declares itself, unless it asks for more.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        self.launches: list[dict[str, object]] = []
        self.compute = dict(COMPUTE)
        self.room = SHARED_BYTES - OWN_SHARED_BYTES

    def __getitem__(self, name):
        def call(*arguments):
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            return getattr(self, f"_{name}", lambda *_: None)(*arguments) or 0

        return call

    def cuGetErrorString(self, code, words):
        words._obj.value = WORDS.get(code)

    def _cuDeviceGetAttribute(self, value, which, device):
        value._obj.value = self.compute[which]

    def _cuModuleGetFunction(self, handle, module, name):
        handle._obj.value = 77

    def _cuModuleLoadData(self, handle, image):
        handle._obj.value = 55

    def _cuFuncSetAttribute(self, handle, which, value):
        self.launches.append({"allowed": value, "attribute": which})
        self.room = value

    def _cuLaunchKernelEx(self, config, handle, addresses, extra):
        seen = Config.from_address(ctypes.addressof(config._obj))
        if seen.shared_bytes > self.room:
            return INVALID
        self.launches.append(
            {
                "grid": tuple(seen.grid),
                "block": tuple(seen.block),
                "shared": seen.shared_bytes,
                "stream": seen.stream,
                "overlap": seen.num_attributes and list(seen.attributes.contents)[:3],
                "values": (
                    ctypes.cast(addresses[0], ctypes.POINTER(c_int)).contents.value,
                    ctypes.cast(addresses[1], ctypes.POINTER(c_float)).contents.value,
                ),
            }
        )
        return 0


@pytest.fixture
def library(monkeypatch):
    fake = FakeLibrary()
    opened = Driver(fake)
    monkeypatch.setattr(driver, "open_driver", lambda: opened)
    return fake


def launch(function, **more):
    function.launch((3, 2, 1), 256, (c_int(5), c_float(0.5)), 4096, **more)


def test_launch_when_called_passes_sizes_stream_and_values(library):
    """What the driver's structures hold, read back byte by byte."""
    launch(Module(b"cubin").function("kernel"), shared_bytes=100)
    assert library.launches[1:] == [
        {
            "grid": (3, 2, 1),
            "block": (256, 1, 1),
            "shared": 100,
            "stream": 4096,
            "overlap": 0,
            "values": (5, 0.5),
        }
    ]


def test_launch_when_overlapping_sets_the_attribute_where_cards_know_it(library):
    """Programmatic launch is attribute 6, its value stands 8 bytes in; older cards get none."""
    launch(Module(b"cubin").function("kernel"), overlap=True)
    library.compute[75] = 8
    launch(Module(b"cubin").function("kernel"), overlap=True)
    assert [seen["overlap"] for seen in library.launches] == [[6, 0, 1], 0]


def test_launch_when_it_needs_shared_memory_asks_for_what_it_needs(library):
    """48 KiB hold what a kernel declares itself, too; asked again only for more."""
    function = Module(b"cubin").function("kernel")
    for size in (0, 48 << 10, 64 << 10, 64 << 10, 50 << 10):
        launch(function, shared_bytes=size)
    allowed = [seen["allowed"] for seen in library.launches if "allowed" in seen]
    assert allowed == [48 << 10, 64 << 10]


def test_launch_when_repeated_then_the_library_is_asked_for_the_function_once(library, monkeypatch):
    """It makes a new object for each name; a prompt launches hundreds of kernels."""
    function, asked, found = Module(b"cubin").function("kernel"), [], FakeLibrary.__getitem__
    monkeypatch.setattr(FakeLibrary, "__getitem__", lambda s, n: (asked.append(n), found(s, n))[1])
    for size in (10, 20, 30):
        launch(function, shared_bytes=size)
    assert [seen["shared"] for seen in library.launches if "shared" in seen] == [10, 20, 30]
    assert asked.count("cuLaunchKernelEx") == 1


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (2, DeviceMemoryError, "out of memory"),
        (700, DeviceLostError, "illegal memory access"),
        (400, KernelError, "invalid resource handle"),
        (12345, KernelError, "unknown error"),
    ],
)
def test_launch_when_the_driver_refuses_raises_its_words(library, code, error, words):
    """A lost card ends the process, a wrong launch does not: their errors differ."""
    function = Module(b"cubin").function("kernel")
    library.fails["cuLaunchKernelEx"] = code
    with pytest.raises(error, match=words) as caught:
        launch(function)
    assert caught.type is error


def test_module_when_its_image_is_refused_gives_the_context_back(library):
    """Retained and released the same number of times, in every case."""
    library.fails["cuModuleLoadData"] = 209
    with pytest.raises(KernelError, match="cuModuleLoadData"):
        Module(b"wrong")
    assert library.calls.count("cuDevicePrimaryCtxRetain") == 1
    assert library.calls.count("cuDevicePrimaryCtxRelease_v2") == 1


def test_module_when_closed_twice_unloads_once(library):
    """Owners may close after an error of theirs."""
    module = Module(b"cubin")
    module.close()
    module.close()
    assert library.calls.count("cuModuleUnload") == 1
    assert library.calls.count("cuDevicePrimaryCtxRelease_v2") == 1


def test_architecture_when_asked_is_the_compilers_word(library):
    """What `compile_source` builds for."""
    library.compute.update({75: 12, 76: 0})
    assert architecture() == "sm_120"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("cuModuleGetFunction", KernelError),
        ("cuFuncSetAttribute", KernelError),
        ("cuMemHostGetDevicePointer_v2", KernelError),
        ("cuMemAddressReserve", RuntimeError),
        ("cuDevicePrimaryCtxRetain", RuntimeError),
    ],
)
def test_call_when_refused_then_only_what_is_about_kernels_says_so(library, call, error):
    """Case E-06: another way to run a model helps against those and no others."""
    library.fails[call] = 1
    with pytest.raises(error, match=call) as caught:
        driver.open_driver().call(call)
    assert caught.type is error
