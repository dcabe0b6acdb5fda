"""The closed form of the speedup, computed in the page as the sliders move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._base import Sliders, page_script, position, slider

NAMES = ("k", "alpha", "draft_cost", "slope")


class SpeedupExplorer(Sliders):
    """Tokens per call, speedup and best k for what four sliders say.

    k
        draft length at the start, in 0 .. ``max_k``.
    alpha
        chance that a guess is accepted, in 0 .. 1 and rounded to hundredths.
    draft_cost
        c, the time of a draft call over that of a target call, in 0 .. 1 and rounded to
        hundredths.
    slope
        what each further token adds to a target call: T(n) / T(1) = 1 + slope (n - 1);
        in 0 .. 1 and rounded to hundredths.
    measured
        acceptance rates by temperature. Where given, the second slider is the
        temperature, ``temperature`` is where it starts, and ``alpha`` is not given.
    max_k
        the largest k, 1 to 64; the best k is looked for in 0 .. ``max_k``.

    The page computes what :mod:`specdec_lib.theory` computes, by the same sums:
    ``expected_tokens``, ``speedup`` and ``best_k`` with that T. No kernel is needed.
    ``values()`` tells in Python where the sliders stand.
    """

    _esm = page_script("explorer.js")

    def __init__(
        self,
        *,
        k: int = 4,
        alpha: float | None = None,
        draft_cost: float = 0.1,
        slope: float = 0.0,
        measured: Mapping[float, float] | None = None,
        temperature: float | None = None,
        max_k: int = 16,
    ) -> None:
        if not 1 <= max_k <= 64:
            raise ValueError(f"max_k must be inside 1 .. 64, got {max_k}")
        ks = list(range(max_k + 1))
        if k not in ks:
            raise ValueError(f"k must be inside 0 .. max_k = {max_k}, got {k}")
        sliders = [slider("Draft length k", ks, str, values=ks)]
        indices = [ks.index(k)]
        if measured is None:
            if temperature is not None:
                raise ValueError("temperature needs measured, a table of rates by it")
            start = _hundredths("alpha", 0.8 if alpha is None else alpha)
            sliders.append(_shares("Acceptance rate α"))
        else:
            if alpha is not None:
                raise ValueError("give alpha or measured, not both")
            table = dict(sorted(measured.items()))
            start = position("measured", list(table), temperature)
            for at, rate in table.items():
                if not 0 <= rate <= 1:
                    raise ValueError(
                        f"measured must be rates in [0, 1], got {rate} at {at}"
                    )
            sliders.append(
                slider(
                    "Temperature T",
                    list(table),
                    lambda at: f"{at:g} (α = {table[at]:.2f})",
                    values=[float(rate) for rate in table.values()],
                )
            )
        sliders += [_shares("Draft cost c"), _shares("Verification slope")]
        indices += [
            start,
            _hundredths("draft_cost", draft_cost),
            _hundredths("slope", slope),
        ]
        super().__init__(sliders=sliders, indices=indices)

    def values(self) -> dict[str, Any]:
        """k, alpha, draft_cost and slope as the sliders stand now."""
        return {
            name: slider["values"][index]
            for name, slider, index in zip(
                NAMES, self.sliders, self.indices, strict=True
            )
        }


def _shares(label: str) -> dict[str, Any]:
    values = [i / 100 for i in range(101)]
    return slider(label, values, "{:.2f}".format, values=values)


def _hundredths(name: str, value: float) -> int:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be inside 0 .. 1, got {value}")
    return round(100 * value)
