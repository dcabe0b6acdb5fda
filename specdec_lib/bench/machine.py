"""What something was measured on: no figure of speed without it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np

SAME = ("processor", "cores", "python", "numpy")  # what makes two machines one


def machine() -> dict[str, Any]:
    """Processor, cores, system, versions, and the threads of the linear algebra.

    ``threads`` and ``kernels`` are None without threadpoolctl, which knows them.

    >>> sorted(machine())
    ['cores', 'kernels', 'numpy', 'processor', 'python', 'system', 'threads']
    """
    threads = kernels = None
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        pass
    else:
        pools = threadpool_info()
        threads = max((pool["num_threads"] for pool in pools), default=None)
        names = {pool["architecture"] for pool in pools if "architecture" in pool}
        kernels = ", ".join(sorted(names)) or None
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "threads": threads,
        "kernels": kernels,
    }


def describe(found: dict[str, Any]) -> str:
    """``found``, as :func:`machine` gives it, on one line."""
    text = (
        f"{found['processor']}, {found['cores']} cores, {found['system']}, "
        f"Python {found['python']}, NumPy {found['numpy']}"
    )
    if found["threads"] is not None:
        kernels = f"{found['kernels']}, " if found["kernels"] else ""
        text += f" ({kernels}threads: {found['threads']})"
    return text


def _processor() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        info = ""
    name = re.search(r"model name\s*:\s*(.+)", info)
    if not name:
        return platform.processor() or platform.machine()
    # Names of processors in the cloud say little; these two tell generations apart.
    kind = re.findall(r"^(cpu family|model)\s*:\s*(\d+)", info, re.M)[:2]
    return f"{name[1]} ({', '.join(f'{what} {n}' for what, n in kind)})"
