"""Whether the exceptions of the environment or the system let a server be asked without its proxy.

Runs on the window's thread, so no name is resolved: `urllib.request.proxy_bypass` does that on
Windows for exceptions of the registry, and may wait for a name server that is gone.
"""

import re
import sys
import urllib.request
from urllib.parse import SplitResult

_LOCAL = "<local>"
_KEY = r"Software\Microsoft\Windows\CurrentVersion\Internet Settings"
_PORTS = {"http": 80, "https": 443}
_RULE = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<host>\[[^]]*\]|[^:]*)(?::(?P<port>\d+))?")


def is_passed_by(server: SplitResult) -> bool:
    """Whether an exception holds for a server."""
    if sys.platform == "win32" and not urllib.request.getproxies_environment():
        return holds(_exceptions(), server)
    return bool(urllib.request.proxy_bypass(server.netloc.rpartition("@")[2]))


def holds(exceptions: str, server: SplitResult) -> bool:
    """Whether one of the exceptions, as Windows keeps them, names a server as it is written.

    Args:
        exceptions: separated by ";" or spaces: "[scheme://]host[:port]" with "*" for any letters
            and "?" for one, or "<local>" for names without a dot.
        server: what is asked.
    """
    host = (server.hostname or "").lower()
    port = server.port or _PORTS.get(server.scheme, 0)
    return any(_names(rule, server.scheme, host, port) for rule in re.split(r"[;\s]+", exceptions))


def _names(rule: str, scheme: str, host: str, port: int) -> bool:
    if rule == _LOCAL:
        return "." not in host and ":" not in host
    parts = _RULE.fullmatch(rule.lower())
    if not rule or parts is None:
        return False
    pattern = re.escape(parts["host"].strip("[]")).replace(r"\*", ".*").replace(r"\?", ".")
    return (
        parts["scheme"] in (None, scheme)
        and parts["port"] in (None, str(port))
        and re.fullmatch(pattern, host) is not None
    )


def _exceptions() -> str:
    """Return the exceptions in the registry; "" if there are none, or no proxy is in force."""
    if sys.platform != "win32":
        return ""
    import winreg

    try:
        with winreg.OpenKey(winreg.HKEY_CURRENT_USER, _KEY) as key:
            is_on = winreg.QueryValueEx(key, "ProxyEnable")[0]
            return str(winreg.QueryValueEx(key, "ProxyOverride")[0]) if is_on else ""
    except OSError:
        return ""
