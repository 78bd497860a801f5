# SPDX-License-Identifier: Apache-2.0
"""Learning rates of torch optimizers: set, through each kind of schedule, and read back."""

import pytest
import torch
from torch.optim import lr_scheduler

import kajitori
from kajitori import _torch_rates as rates

torch.set_num_threads(1)


def make_optimizer(kind=torch.optim.SGD, lr=0.125, **options):
    """Two parameter groups, the second with half the rate of the first."""
    layer = torch.nn.Linear(2, 2)
    groups = [{"params": [layer.weight]}, {"params": [layer.bias], "lr": lr / 2}]
    return kind(groups, lr=lr, **options)


class Inverse(lr_scheduler.LRScheduler):
    """One that kajitori does not know, in proportion to its base_lrs."""

    def get_lr(self):
        return [base / (self.last_epoch + 1) for base in self.base_lrs]


class Fixed(lr_scheduler.LRScheduler):
    """One that kajitori does not know, and that nothing moves in proportion."""

    def get_lr(self):
        return [base + 0.5 for base in self.base_lrs]


class SlowCosine(lr_scheduler.CosineAnnealingLR):
    """A subclass that computes as torch's own."""


def sequence(optimizer):
    warm_up = lr_scheduler.LinearLR(optimizer, total_iters=4)
    return lr_scheduler.SequentialLR(
        optimizer, [warm_up, lr_scheduler.CosineAnnealingLR(optimizer, 10)], [4]
    )


def chain(optimizer):
    parts = [
        lr_scheduler.ConstantLR(optimizer, total_iters=4),
        lr_scheduler.ExponentialLR(optimizer, 0.9),
    ]
    return lr_scheduler.ChainedScheduler(parts)


SCHEDULES = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [4, 6]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=5),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=6),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 20, power=2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "a subclass of it": lambda o: SlowCosine(o, 8),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 5),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "SequentialLR": sequence,
    "ChainedScheduler": chain,
    "one of the user's": Inverse,
}


def train(make, steps=14, set_before=None, value=0.03125):
    """The rates of both groups after each step of the schedule."""
    optimizer = make_optimizer(momentum=0.9)
    schedule = make(optimizer)
    seen = []
    for step in range(steps):
        if step == set_before:
            lr = rates.parameters({"": optimizer})[0]
            lr.set(value)
            assert lr.get() == value
            assert schedule.get_last_lr()[0] == value
        optimizer.step()
        schedule.step()
        seen.append([rates.get_rate(optimizer, k) for k in (0, 1)])
    return torch.tensor(seen, dtype=torch.float64)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_goes_on_in_proportion_from_the_rate_that_was_set(kind):
    alone, moved = train(SCHEDULES[kind]), train(SCHEDULES[kind], set_before=3)
    torch.testing.assert_close(moved[:3], alone[:3])
    torch.testing.assert_close(moved[3:], alone[3:] * (0.03125 / alone[2, 0]), rtol=1e-9, atol=0)


def test_a_constant_rate_stays_what_was_set_through_a_schedule_of_its_own():
    optimizer = make_optimizer()
    schedule = lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    rates.set_rate([(optimizer, 0)], 0.5)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    assert [rates.get_rate(optimizer, k) for k in (0, 1)] == [0.5, 0.0625]


def test_a_plateau_reduces_what_was_set():
    optimizer = make_optimizer()
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    schedule.step(1.0)
    rates.parameters({"": optimizer})[0].set(0.25)
    schedule.step(1.0)
    assert [rates.get_rate(optimizer, k) for k in (0, 1)] == [0.125, 0.0625]


def test_a_schedule_that_falls_to_a_floor_falls_to_it_from_the_new_rate():
    optimizer = make_optimizer()
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4, eta_min=0.01)
    rates.parameters({"": optimizer})[0].set(0.5)
    seen = []
    for _ in range(3):
        optimizer.step()
        schedule.step()
        seen.append(rates.get_rate(optimizer))
    assert seen == pytest.approx([0.01 + 0.49 * x for x in (0.8535534, 0.5, 0.1464466)])


@pytest.mark.parametrize(
    ("make", "value", "reason"),
    [
        (Fixed, 0.25, "Fixed would replace it at its next step"),
        (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: epoch), 0.25, "LambdaLR gives 0 now"),
        (SCHEDULES["OneCycleLR"], 0.0, "OneCycleLR would give 0 for ever"),
    ],
)
def test_what_a_schedule_would_not_have_is_refused_and_nothing_changed(make, value, reason):
    optimizer = make_optimizer(momentum=0.9)
    schedule = make(optimizer)
    before = [dict(group) for group in optimizer.param_groups], schedule.state_dict()
    with pytest.raises(kajitori.UnsupportedError, match=reason):
        rates.parameters({"": optimizer}, [schedule])[0].set(value)
    assert ([dict(group) for group in optimizer.param_groups], schedule.state_dict()) == before


def test_what_is_no_schedule_of_torch_is_refused():
    class Other:
        def step(self): ...

    with pytest.raises(kajitori.UnsupportedError, match=r"Other is none of torch\.optim"):
        rates.set_rate([(make_optimizer(), 0)], 0.5, [Other()])


def test_groups_keep_their_ratio_and_have_parameters_of_their_own():
    optimizer = make_optimizer()
    params = {param.name: param for param in rates.parameters({"": optimizer})}
    assert list(params) == ["lr", "lr.0", "lr.1"]
    params["lr"].set(0.5)
    assert [params[name].get() for name in params] == [0.5, 0.5, 0.25]
    params["lr.1"].set(0.125)
    assert [params[name].get() for name in params] == [0.5, 0.5, 0.125]


def test_a_group_that_comes_later_has_part_in_it():
    optimizer = make_optimizer()
    lr = rates.parameters({"": optimizer})[0]
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.5})
    lr.set(0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.125, 1.0]


def test_several_optimizers():
    generator, critic = make_optimizer(), torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], 0.5)
    found = rates.parameters({"generator": generator, "critic": critic})
    params = {param.name: param for param in found}
    assert list(params) == ["lr", "lr.generator", "lr.generator.0", "lr.generator.1", "lr.critic"]
    params["lr"].set(0.25)
    assert [params[name].get() for name in params] == [0.25, 0.25, 0.25, 0.125, 1.0]
    params["lr.critic"].set(0.125)
    assert [params[name].get() for name in params] == [0.25, 0.25, 0.25, 0.125, 0.125]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_rate_in_a_tensor_is_written_in_place(dtype):
    """As fused, capturable and compiled optimizers have it."""
    rate = torch.tensor(0.125, dtype=dtype)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=rate)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    lr = rates.parameters({"": optimizer})[0]
    lr.set(0.003)
    assert optimizer.param_groups[0]["lr"] is rate
    assert lr.get() == 0.003
    optimizer.step()
    schedule.step()
    assert lr.get() == 0.003


def test_more_than_a_precision_can_hold():
    rate = torch.tensor(0.125, dtype=torch.float16)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=rate)
    with pytest.raises(kajitori.OutOfRangeError, match="float16"):
        rates.set_rate([(optimizer, 0)], 1e6)
    assert rates.get_rate(optimizer) == 0.125


def test_schedules_are_told_of_a_later_end():
    """Those that end with the training are stretched; the others say what they do."""
    optimizer = make_optimizer(momentum=0.9)
    kinds = [
        lr_scheduler.CosineAnnealingLR(optimizer, 10),
        lr_scheduler.PolynomialLR(optimizer, 40),
        lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=450),
        lr_scheduler.StepLR(optimizer, 3),
    ]
    assert rates.stretch(kinds, 10, 12) == {
        "CosineAnnealingLR": "T_max 10 -> 12",
        "PolynomialLR": "total_iters 40 -> 48",
        "OneCycleLR": "total_steps 450 -> 540",
        "StepLR": "goes on as it is",
    }
    assert kinds[0].T_max == 12
    said = rates.stretch([lr_scheduler.CosineAnnealingLR(optimizer, 7)], 10, 12)
    assert said == {"CosineAnnealingLR": "goes on as it is: after T_max 7 its rate rises again"}


def test_a_one_cycle_that_was_told_goes_on_to_the_later_end():
    optimizer = make_optimizer(momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    rates.stretch([schedule], 5, 8)
    for _ in range(15):
        optimizer.step()
        schedule.step()
    assert schedule.get_last_lr()[0] == pytest.approx(optimizer.param_groups[0]["min_lr"])
    with pytest.raises(kajitori.UnsupportedError, match="ends the training by an exception"):
        rates.stretch([schedule], 3, 4)
