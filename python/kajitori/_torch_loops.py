# SPDX-License-Identifier: Apache-2.0
"""The loops of a `kajitori.torch.Run`: over epochs, over the batches of a training, and of a validation.

The next step begins behind the body of the loop, before its batch is fetched, so that a stop at a step
that is the first of an epoch ends the training with the epoch before it. A loader is iterated as always:
its workers go on while the training is paused, and are gone when the loop ends.

`Place` is where in the training one is, for checkpoints, and how the loops get back to it. A checkpoint of
the middle of an epoch goes on there: the loop draws the same order of batches anew, from the random numbers
that it began with, and passes over those that were trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kajitori._errors import ArgumentError
from kajitori._torch_checkpoint import random_state, set_random_state
from kajitori._values import count

if TYPE_CHECKING:
    from kajitori.torch import Run


class Place:
    """The epoch, the loop over steps within it, and the batches that this one has given."""

    def __init__(
        self, state: Mapping[str, int] | None = None, randoms: Mapping[str, Any] | None = None
    ) -> None:
        state = state or {}
        self.initial_epoch = state.get("epoch", 0)
        self.total_epochs = 0  # of a loop over epochs
        self.is_without_epochs = True  # no loop has said what one is
        self._extended = state.get("extended", 0)
        self._epoch = self.initial_epoch
        self._loop = 0
        self._behind: Mapping[str, Any] = state if randoms else {}  # where to get to
        self._randoms = randoms or {}
        self._first = 0  # step that the loop began with
        self._passed = 0  # batches before it
        self._size = 1  # batches of a step
        self._begin: Mapping[str, Any] | None = None  # random numbers of the loop's beginning
        self._since: Mapping[str, Any] | None = None  # where an epoch is gone on with between loops

    @property
    def epoch(self) -> int:
        """The one that is to be gone on with; -1 before the first."""
        return self._epoch if self._behind else -1

    @property
    def epoch_to_be(self) -> int:
        """The number of the epoch that runs, or of the next one."""
        return self._epoch

    def begin_epochs(self, n: int) -> None:
        self.total_epochs = n + self._extended
        self.is_without_epochs = False

    def extend(self, epochs: int) -> None:
        self.total_epochs += epochs
        self._extended += epochs

    def begin_epoch(self, epoch: int) -> None:
        self._epoch, self._loop = epoch, 0
        if self._behind and not self._behind["loop"] and not self._behind["batch"]:
            self.arrive()
        self._since = random_state()

    def end_epoch(self) -> None:
        if self._begin is None:  # else a stop has cut it
            self._epoch, self._loop, self._behind = self._epoch + 1, 0, {}
            self._since = None

    def begin_loop(self, step: int, size: int) -> int | None:
        """How many batches to pass over; None: this loop was over."""
        self._first, self._size, self._passed = step, size, 0
        behind = self._behind
        if behind and self._loop < behind["loop"]:
            self._loop += 1
            if self._loop == behind["loop"] and not behind["batch"]:
                self.arrive()
            return None
        if behind and behind["batch"]:
            set_random_state(self._randoms["loop"])
            self._passed = behind["batch"]
        else:
            self.arrive()
        self._begin = random_state()
        return self._passed

    def arrive(self) -> None:
        """What the checkpoint is of has been reached."""
        if self._behind:
            self._behind = {}
            set_random_state(self._randoms["now"])

    def end_loop(self) -> None:
        self._loop += 1
        self._begin = None
        self._since = random_state()

    def state(self, step: int) -> dict[str, int]:
        behind = self._behind if self._is_at_checkpoint(step) else None
        is_inside = self._begin is not None
        batch = self._passed + (step - self._first) * self._size if is_inside else 0
        return {
            "step": step,
            "epoch": self._epoch,
            "loop": behind["loop"] if behind else self._loop,
            "batch": behind["batch"] if behind else batch,
            "extended": self._extended,
        }

    def random_states(self, step: int) -> Mapping[str, Any]:
        if self._is_at_checkpoint(step):
            return self._randoms
        if self._begin is not None:
            return {"now": random_state(), "loop": self._begin}
        now = self._since or random_state()  # what stands behind the last loop runs anew
        return {"now": now, "loop": now}

    def _is_at_checkpoint(self, step: int) -> bool:
        """Nothing has been trained since, and the place is still to be got to."""
        return bool(self._behind) and step == self._behind["step"]


class Epochs:
    """What `Run.epochs` gives."""

    def __init__(self, run: Run, n: int) -> None:
        self._run, self._n = run, count("epochs", n)

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[int]:
        run = self._run
        if not run._training:
            run._start()
        place = run._place
        place.begin_epochs(self._n)
        run.run.set_totals(epochs=place.total_epochs)
        epoch = place.initial_epoch
        try:
            while epoch < place.total_epochs and not run._is_over:
                if run.run.begin_epoch(epoch):
                    break
                place.begin_epoch(epoch)
                yield epoch
                place.end_epoch()
                run.run.end_epoch(epoch)
                epoch += 1
        finally:
            if not run._is_held:
                run._finish()
        if not run._is_held:
            run.raise_if_pruned()


class Steps:
    """What `Run.steps` gives."""

    def __init__(self, run: Run, loader: Iterable[Any], accumulate: int) -> None:
        if count("accumulate", accumulate) < 1:
            raise ArgumentError("accumulate: at least 1")
        self._run, self._loader, self._size = run, loader, accumulate

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        run = self._run
        if not run._training:
            run._start()
        run._count_no_steps()
        place = run._place
        is_epoch = place.is_without_epochs
        epoch = place.epoch_to_be
        if is_epoch:
            place.begin_epoch(epoch)
            run.run.begin_epoch(epoch)
        passed = place.begin_loop(run._next_step - 1, self._size)
        if passed is None or run._act(run._next_step - 1):
            return
        yield from self._batches(passed)
        if is_epoch:
            place.end_epoch()
            run.run.end_epoch(epoch)

    def _batches(self, passed: int) -> Iterator[Any]:
        run, size = self._run, self._size
        next_step, left = run.next_step, size
        batches = iter(self._loader)
        for _ in zip(range(passed), batches, strict=False):
            pass
        run._place.arrive()
        try:
            for batch in batches:
                yield batch
                left -= 1
                if not left:
                    left = size
                    if next_step():
                        return
        except GeneratorExit:  # a break
            run._place.end_loop()
            run.run._publish(run._next_step, run.run.epoch)
            run._next_step += 1
            raise
        run._place.end_loop()
        if left != size:
            next_step()


class Validation:
    """What `Run.validate` gives."""

    def __init__(self, run: Run, loader: Iterable[Any]) -> None:
        self._run, self._loader = run, loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        run = self._run
        if not run._training:
            yield from self._loader
            return
        run._set_phase("validation")
        try:
            for batch in self._loader:
                yield batch
                if run.run.poll() and run.skips_validation:
                    break
        finally:
            if run._training:
                run._set_phase("train")
