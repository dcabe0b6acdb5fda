"""A sweep whose cells say in a file which process began them, and take a while."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

import specdec_lib as sd
from specdec_lib.experiments import Sweep

P, Q = np.random.default_rng(3).dirichlet(np.full(4, 0.7), size=(2, 4))


class Rows:
    """Logits by the token before; a cell's first call is noted as "pid prompt".

    With ``deadly``, cells whose prompt begins with this token kill their process in
    the midst of their work; with ``once``, a path, only the first of them does.
    """

    def __init__(self, table, notes=None, wait=0.0, deadly=None, once=None):
        self.table, self.notes, self.wait = np.log(table), notes, wait
        self.deadly, self.once = deadly, once

    def __call__(self, sequence):
        if self.notes is not None and len(sequence) == 2:
            with open(self.notes, "a") as file:
                file.write(f"{os.getpid()} {sequence[0]}\n")
        if len(sequence) == 6 and sequence[0] == self.deadly and self._first():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.wait)
        return self.table[sequence[-1]]

    def _first(self):
        try:
            if self.once is not None:
                open(self.once, "x").close()
        except FileExistsError:
            return False
        return True


def small_sweep(
    notes=None, wait=0.0, deadly=None, once=None, seeds=(0, 1, 2), **settings
):
    """24 cells, of prompts of two tokens: 0 x, 1 x, 2 x, 3 x."""
    target = sd.FunctionModel(Rows(P, notes, wait, deadly, once), 4, bos_id=0)
    draft = sd.FunctionModel(Rows(Q), 4)
    prompts = {f"p{i}": (i, 3 - i) for i in range(4)}
    return Sweep(
        target,
        {"model": draft},
        prompts,
        ks=(1, 3),
        seeds=seeds,
        max_new_tokens=10,
        **settings,
    )


def began(notes: Path) -> list[int]:
    """The processes that began a cell, one entry for each time; not this one."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    pids = [int(line.split()[0]) for line in lines]
    return [pid for pid in pids if pid != os.getpid()]


def ended(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process is gone, or is so soon."""
    until = time.monotonic() + seconds
    while True:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except OSError:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
