"""Whether an app fills the screen, as the desktop says. The one place that asks it.

Windows: the notification state. Linux: the active window's hints over the X protocol (also that of
games under XWayland), through libxcb, whose errors are answers; Xlib's would end the process.
Wayland itself tells nobody. GameMode is not asked: it knows only programs that were started with
it, which the list of programs knows as well.
"""

import ctypes
import os
import struct
import sys
from typing import Protocol

_BUSY, _D3D_FULL_SCREEN, _PRESENTATION = 2, 3, 4  # QUERY_USER_NOTIFICATION_STATE
_ANY, _MAX_WORDS = 0, 64


class FullScreen(Protocol):
    """Answers on the thread that made it."""

    def read(self) -> bool | None:
        """Return whether an app fills the screen; None = the desktop does not say."""

    def close(self) -> None:
        """Let go of the desktop."""


def open_full_screen() -> FullScreen:
    """Return what can be asked on this platform."""
    if sys.platform == "win32":
        return _Windows()
    if sys.platform == "linux":
        return _X11()
    return _Silent()


class _Silent:
    """Nobody to ask."""

    def read(self) -> bool | None:
        return None

    def close(self) -> None:
        return


class _Windows:
    """Source: SHQueryUserNotificationState, shellapi.h."""

    def read(self) -> bool | None:
        if sys.platform != "win32":
            return None
        state = ctypes.c_int(0)
        if ctypes.windll.shell32.SHQueryUserNotificationState(ctypes.byref(state)) != 0:
            return None
        return state.value in (_BUSY, _D3D_FULL_SCREEN, _PRESENTATION)

    def close(self) -> None:
        return


class _Cookie(ctypes.Structure):
    _fields_ = [("sequence", ctypes.c_uint)]


class _Screens(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("rem", ctypes.c_int), ("index", ctypes.c_int)]


class _X11:
    """Source: EWMH, _NET_ACTIVE_WINDOW and _NET_WM_STATE; structs of xcb/xproto.h."""

    def __init__(self) -> None:
        self._xcb, self._libc, self._server = _load(), ctypes.CDLL(None), None
        if self._xcb is None:
            return
        server = self._xcb.xcb_connect(None, None)
        if self._xcb.xcb_connection_has_error(server):
            self._xcb.xcb_disconnect(server)
            return
        self._server = server
        screens = self._xcb.xcb_setup_roots_iterator(self._xcb.xcb_get_setup(server))
        self._root = ctypes.c_uint32.from_address(screens.data).value if screens.rem else 0
        self._active, self._pid = self._atom(b"_NET_ACTIVE_WINDOW"), self._atom(b"_NET_WM_PID")
        self._state = self._atom(b"_NET_WM_STATE")
        self._full = self._atom(b"_NET_WM_STATE_FULLSCREEN")

    def read(self) -> bool | None:
        xcb = self._xcb
        if xcb is None or self._server is None or xcb.xcb_connection_has_error(self._server):
            return None
        active = self._words(self._root, self._active)
        if not active:
            return None  # no window manager, or no X window has the focus
        if self._full not in self._words(active[0], self._state):
            return False
        return os.getpid() not in self._words(active[0], self._pid)  # our own window needs none

    def close(self) -> None:
        if self._xcb is not None and self._server is not None:
            self._xcb.xcb_disconnect(self._server)
            self._server = None

    def _atom(self, name: bytes) -> int:
        assert self._xcb is not None
        cookie = self._xcb.xcb_intern_atom(self._server, 0, len(name), name)
        reply = self._xcb.xcb_intern_atom_reply(self._server, cookie, None)
        return int(struct.unpack("=8xI", self._taken(reply, 12))[0]) if reply else 0

    def _words(self, window: int, name: int) -> tuple[int, ...]:
        """Return a property's 32-bit values; () if the window or the property is gone."""
        if self._xcb is None or not window:
            return ()
        cookie = self._xcb.xcb_get_property(self._server, 0, window, name, _ANY, 0, _MAX_WORDS)
        reply = self._xcb.xcb_get_property_reply(self._server, cookie, None)
        if not reply:
            return ()
        count = ctypes.c_uint32.from_address(reply + 16).value  # value_len, in units of `format`
        width = ctypes.c_uint8.from_address(reply + 1).value
        count = min(count, _MAX_WORDS) if width == 32 else 0
        return struct.unpack(f"={count}I", self._taken(reply, 32 + 4 * count)[32:])

    def _taken(self, reply: int, size: int) -> bytes:
        """Return the first bytes of a reply and free it, as xcb wants."""
        data = ctypes.string_at(reply, size)
        self._libc.free(ctypes.c_void_p(reply))
        return data


def _load() -> ctypes.CDLL | None:
    """Return libxcb with the types of what is called; None without it."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")  # find_library would start a compiler to look for it
    except OSError:
        return None
    pointer, word = ctypes.c_void_p, ctypes.c_uint32
    types: dict[str, tuple[object, list[object]]] = {
        "xcb_connect": (pointer, [ctypes.c_char_p, pointer]),
        "xcb_disconnect": (None, [pointer]),
        "xcb_connection_has_error": (ctypes.c_int, [pointer]),
        "xcb_get_setup": (pointer, [pointer]),
        "xcb_setup_roots_iterator": (_Screens, [pointer]),
        "xcb_intern_atom": (_Cookie, [pointer, ctypes.c_uint8, ctypes.c_uint16, ctypes.c_char_p]),
        "xcb_intern_atom_reply": (pointer, [pointer, _Cookie, pointer]),
        "xcb_get_property": (_Cookie, [pointer, ctypes.c_uint8, word, word, word, word, word]),
        "xcb_get_property_reply": (pointer, [pointer, _Cookie, pointer]),
    }
    for function, (result, arguments) in types.items():
        getattr(xcb, function).restype = result
        getattr(xcb, function).argtypes = arguments
    return xcb
