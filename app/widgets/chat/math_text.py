r"""LaTeX as text that can be read: `\frac{a}{b} \le x_1^2` becomes `(a)/(b) ≤ x₁²`.

Covers what chat models write often; anything else keeps its source. Pure.
"""

import re

_NAMES = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ",
    "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ",
    "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ",
    "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ",
    "Omega": "Ω", "times": "×", "cdot": "·", "div": "÷", "pm": "±", "mp": "∓", "le": "≤",
    "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈", "equiv": "≡",
    "sim": "∼", "propto": "∝", "infty": "∞", "sum": "∑", "prod": "∏", "int": "∫",
    "partial": "∂", "nabla": "∇", "in": "∈", "notin": "∉", "subset": "⊂", "subseteq": "⊆",
    "cup": "∪", "cap": "∩", "emptyset": "∅", "forall": "∀", "exists": "∃", "neg": "¬",
    "land": "∧", "lor": "∨", "to": "→", "rightarrow": "→", "leftarrow": "←", "Rightarrow": "⇒",
    "Leftarrow": "⇐", "iff": "⇔", "implies": "⇒", "mapsto": "↦", "ldots": "…", "cdots": "⋯",
    "dots": "…", "degree": "°", "circ": "∘", "oplus": "⊕", "otimes": "⊗", "ll": "≪", "gg": "≫",
    "langle": "⟨", "rangle": "⟩", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉",
    "quad": "  ", "qquad": "    ", "log": "log", "ln": "ln", "exp": "exp", "sin": "sin",
    "cos": "cos", "tan": "tan", "max": "max", "min": "min", "lim": "lim", "arg": "arg",
    "mid": "|", "prime": "′", "hbar": "ℏ", "ell": "ℓ", "left": "", "right": "", "bigl": "",
    "bigr": "", "big": "", "Big": "", "displaystyle": "",
}  # fmt: skip
_UP_LETTERS = "0123456789+-=()niabcdefghjklmoprstuvwxyzT"
_UP_SIGNS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵃᵇᶜᵈᵉᶠᵍʰʲᵏˡᵐᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ"
_DOWN_LETTERS = "0123456789+-=()aehijklmnoprstuvx"
_DOWN_SIGNS = "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ"
_UP = dict(zip(_UP_LETTERS, _UP_SIGNS, strict=True))
_DOWN = dict(zip(_DOWN_LETTERS, _DOWN_SIGNS, strict=True))
_GROUP = r"\{([^{}]*)\}"
_PLAIN = ("text", "mathrm", "mathbf", "mathit", "mathcal", "mathbb", "operatorname", "boxed")
_ROUNDS = 8  # nesting depth of braces that is followed


def readable(source: str) -> str:
    """Return LaTeX math as readable text, on as many lines as it has."""
    text = source.strip()
    for _ in range(_ROUNDS):
        before = text
        text = re.sub(r"\\d?t?frac\s*" + _GROUP + r"\s*" + _GROUP, _fraction, text)
        text = re.sub(r"\\sqrt\s*" + _GROUP, r"√(\1)", text)
        text = re.sub(r"\\(?:" + "|".join(_PLAIN) + r")\s*" + _GROUP, r"\1", text)
        text = re.sub(r"\^\s*" + _GROUP, lambda m: _script(m[1], _UP, "^"), text)
        text = re.sub(r"_\s*" + _GROUP, lambda m: _script(m[1], _DOWN, "_"), text)
        if text == before:
            break
    text = re.sub(r"\\([A-Za-z]+)", lambda m: _NAMES.get(m[1], m[0]), text)
    text = re.sub(r"\^(\w|[+\-*])", lambda m: _script(m[1], _UP, "^"), text)
    text = re.sub(r"_(\w)", lambda m: _script(m[1], _DOWN, "_"), text)
    text = text.replace("\\\\", "\n").replace("\\,", " ").replace("\\;", " ").replace("\\!", "")
    text = re.sub(r"\\([{}%$#&_|])", r"\1", text)
    return re.sub(r"[ \t]+", " ", text).strip()


def _fraction(match: re.Match[str]) -> str:
    top, bottom = match[1].strip(), match[2].strip()
    return "/".join(
        part if len(part) == 1 or part.isalnum() else f"({part})" for part in (top, bottom)
    )


def _script(inside: str, table: dict[str, str], mark: str) -> str:
    """Return a super- or subscript; what has no such letters keeps its mark."""
    if inside and all(letter in table for letter in inside):
        return "".join(table[letter] for letter in inside)
    return f"{mark}{inside}" if len(inside) == 1 else f"{mark}({inside})"
