# SPDX-License-Identifier: Apache-2.0
"""Parameters and optimizers on the workers, in the job's checkpoints."""
from __future__ import annotations

import collections
import io
import logging
import pickle
import zlib
from typing import Any, Callable, Optional

import torch

from .. import _engine
from .._job import Job
from .._optimizers import Sum
from .._program_state import LENGTH as _LENGTH
from .._program_state import REST as _REST
from .._program_state import InSlot as _InSlot  # earlier checkpoints have these by the names that they have here
from .._program_state import Packed as _Packed
from .._program_state import from_numbers
from ._placement import Setup, unique_names
from ._tensors import DTYPES

_REST_BYTES = 1 << 20  # and as much as an L-BFGS may keep


class _Slot:
    """A tensor of the job whose memory is pushed in the steps before a checkpoint, and received in a job that begins from one."""

    def __init__(self, name: str, values: torch.Tensor) -> None:
        self.name = name
        self.values = values
        self._bound: Optional[_engine.BoundPush] = None
        self._handle: Optional[_engine.Handle] = None

    def register(self, job: Job) -> None:
        job.store.register(self.name, self.values, optimizer=Sum(), reduce="max", keeps_value=False)  # of equal values

    def is_as_registered(self) -> bool:
        """Whether it has no value yet: all elements are -0.0, which no trained tensor is."""
        return not bool(self.values.any()) and bool(self.values.signbit().all())

    def bind(self, engine: _engine.EngineJob) -> None:
        self._bound = engine.bind(self.name, self.values, None)

    def fits(self, tensor: torch.Tensor) -> bool:
        return tensor.shape == self.values.shape and tensor.dtype == self.values.dtype and bool(tensor.isfinite().all())

    def push(self, has_values: bool) -> None:
        assert self._bound is not None
        self._handle = self._bound.push(1.0, 0.0, has_values)

    def wait(self, timeout: Optional[float]) -> None:
        if self._handle is not None:
            self._handle.wait(timeout)
            self._handle = None


class SavedState:
    """What the program has beside the job's tensors: its parameters, and the state and settings of its optimizers.

    Each parameter, and each tensor of an optimizer that is as large as one, has a tensor of its own in checkpoints; one more has the
    rest, pickled, as numbers of 16 bits. They are pushed when a checkpoint is made, and otherwise cost a header each.
    """

    def __init__(self, job: Job, setups: list[Setup], parameters: dict[str, torch.Tensor], counters: dict[str, torch.Tensor]) -> None:
        self._job = job
        self._setups = setups
        self._parameters = parameters
        self._counters = counters
        self._slots: list[_Slot] = []
        self._of_tensors: dict[str, int] = {}
        self._of_state: dict[tuple[int, int, int], int] = {}  # by optimizer, its parameter, and the tensor's place among those kept

    def register(self) -> None:
        taken = list(self._job.store.names)
        for name, parameter in self._parameters.items():
            self._of_tensors[name] = self._add(name, parameter, taken)
        rest_bytes = _REST_BYTES
        for number, setup in enumerate(self._setups):
            names = {id(parameter): name for name, parameter in setup.named.items()}
            ordered = [each for group in setup.optimizer.param_groups for each in group["params"]]
            state = _state_to_come(setup.optimizer, ordered)
            for index, parameter in enumerate(ordered):
                for place, (key, tensor) in enumerate(_large(state.get(index, {}) if state is not None else _two_like(parameter))):
                    self._of_state[number, index, place] = self._add(f"{names[id(parameter)]}.{key}", tensor, taken)
            rest_bytes += sum(_history_bytes(setup.optimizer, group) for group in setup.optimizer.param_groups)
        self._add(_REST, torch.empty(_LENGTH + rest_bytes // 2, dtype=torch.float32), taken)
        for slot in self._slots:
            slot.register(self._job)
        self._job._engine.use_state()

    def bind(self, engine: _engine.EngineJob) -> None:
        for slot in self._slots:
            slot.bind(engine)

    def push(self, step: int, is_wanted: bool, counters: dict[str, torch.Tensor], timeout: Optional[float]) -> None:
        """Pushes what the program has after `step`, for a checkpoint if one is wanted."""
        self.wait(timeout)
        filled = self._fill(step, counters) if is_wanted else set()
        for number, slot in enumerate(self._slots):
            slot.push(number in filled)

    def wait(self, timeout: Optional[float]) -> None:
        for slot in self._slots:
            slot.wait(timeout)

    def restore(self, step: int) -> bool:
        """Gives parameters and optimizers the values of the checkpoint that the job began from. False: that has none of this step."""
        content = from_numbers(self._slots[-1].values.numpy())
        state = unpack(content) if content else {}
        if state.get("step") != step:
            return False
        load(self._setups, {**self._parameters, **self._counters}, state,
             lambda each: self._slots[each.number].values if isinstance(each, _InSlot) else each)
        return True

    def take_values(self) -> None:
        """At step 0: gives the parameters the values of a checkpoint, if the job begins with those of one (spec.checkpoint.restore)."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                slot = self._slots[self._of_tensors[name]]
                if not slot.is_as_registered():
                    parameter.copy_(slot.values)

    def _add(self, name: str, like: torch.Tensor, taken: list[str]) -> int:
        unique = unique_names([name], taken)[name]
        taken.append(unique)
        self._slots.append(_Slot(unique, torch.full(like.shape, -0.0, dtype=like.dtype, device="cpu")))
        return len(self._slots) - 1

    def _fill(self, step: int, counters: dict[str, torch.Tensor]) -> set[int]:
        """Writes everything into the slots. Returns the numbers of those that are in use."""
        filled: set[int] = set()

        def put(number: Optional[int], tensor: Any) -> Any:
            if number is None or not isinstance(tensor, torch.Tensor) or not self._slots[number].fits(tensor):
                return tensor
            self._slots[number].values.copy_(tensor.detach())
            filled.add(number)
            return _InSlot(number)

        state = state_of(self._setups, self._parameters, counters)
        state["step"] = step + 1
        state["tensors"] = {name: put(self._of_tensors.get(name), each) for name, each in state["tensors"].items()}
        for number, of_optimizer in enumerate(state["optimizers"]):
            for index, kept in of_optimizer["state"].items():
                if isinstance(kept, dict):
                    places = {key: self._of_state.get((number, index, place)) for place, (key, _) in enumerate(_large(kept))}
                    of_optimizer["state"][index] = {key: put(places.get(key), value) for key, value in kept.items()}
        packed, rest = pack(state), self._slots[-1]
        if not _to_numbers(packed, rest.values):
            logging.getLogger("pushpull").warning(
                "step %d: the optimizers have %d bytes of state besides tensors of a parameter's shape, and a checkpoint has room for %d: "
                "the one that is being made lacks their state, and no job can begin from it", step, len(packed),
                2 * (rest.values.numel() - _LENGTH))
        filled.add(len(self._slots) - 1)
        return filled


def pack(state: Any) -> bytes:
    """Equal bytes in all workers whose state is equal: torch.save's depend on which objects are the same one."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=4)
    pickler.fast = True
    pickler.dump(_replace_tensors(state))
    return file.getvalue()


def unpack(content: bytes) -> Any:
    return _replace_packed(pickle.loads(content))


def _replace_tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        return _Packed(str(plain.dtype).partition(".")[2], tuple(plain.shape), bytes(plain.reshape(-1).view(torch.uint8).numpy()))
    return map_elements(value, _replace_tensors)


def _replace_packed(value: Any) -> Any:
    if isinstance(value, _Packed):
        return torch.frombuffer(bytearray(value.content), dtype=getattr(torch, value.dtype)).reshape(value.shape)
    return map_elements(value, _replace_packed)


def map_elements(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same with each element changed: dictionaries, lists and tuples as optimizers have them."""
    if isinstance(value, dict):
        return {key: change(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(each) for each in value)
    return value


def state_of(setups: list[Setup], parameters: dict[str, torch.Tensor], counters: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The parameters, counters and optimizers: the program's own tensors, not copies."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    return {"classes": [type(setup.optimizer).__name__ for setup in setups],
            "names": [[names.get(id(each), "") for group in setup.optimizer.param_groups for each in group["params"]] for setup in setups],
            "optimizers": [setup.optimizer.state_dict() for setup in setups], "steps": [setup.num_steps for setup in setups],
            "tensors": {name: tensor.detach() for name, tensor in [*parameters.items(), *counters.items()]}}


def load(setups: list[Setup], tensors: dict[str, torch.Tensor], state: dict[str, Any], tensor_of: Any = lambda each: each) -> None:
    """Gives parameters and optimizers what `state_of` has returned, in which `tensor_of` replaces values."""
    with torch.no_grad():
        for name, value in state["tensors"].items():
            tensors[name].copy_(tensor_of(value))
    for setup, of_optimizer, steps in zip(setups, state["optimizers"], state["steps"]):
        setup.num_steps = steps
        of_optimizer["param_groups"] = setup.optimizer.state_dict()["param_groups"]  # lr and the like are those of this program's schedule
        of_optimizer["state"] = {
            index: {key: tensor_of(value) for key, value in of_parameter.items()} if isinstance(of_parameter, dict) else of_parameter
            for index, of_parameter in of_optimizer["state"].items()}
        setup.optimizer.load_state_dict(of_optimizer)


def _large(kept: dict[Any, Any]) -> list[tuple[Any, torch.Tensor]]:
    """Of what an optimizer keeps for a parameter, what gets a tensor of its own in a checkpoint."""
    return [(key, value) for key, value in kept.items()
            if isinstance(value, torch.Tensor) and value.dtype in DTYPES and value.numel() > 1]


def _two_like(parameter: torch.Tensor) -> dict[Any, Any]:
    return {f"state{number}": torch.empty_like(parameter, device="cpu") for number in range(2)}


def _state_to_come(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> Optional[dict[int, dict[Any, Any]]]:
    """What the optimizer keeps for each of its parameters, by index. None: not known, because it is not of torch, and a step may do
    anything.

    What a step from zeros leaves in a copy of one that has made no step.
    """
    if optimizer.state:
        return {index: optimizer.state[each] for index, each in enumerate(parameters) if each in optimizer.state}
    if not type(optimizer).__module__.startswith("torch.optim"):
        return None
    stand_ins = [torch.nn.Parameter(torch.zeros(each.shape, dtype=each.dtype, device="cpu")) for each in parameters]
    replaced = {id(each): stand_in for each, stand_in in zip(parameters, stand_ins)}
    alone = object.__new__(type(optimizer))  # not copy.copy, which leaves attributes out
    alone.__dict__.update(optimizer.__dict__)
    alone.param_groups = [{**group, "params": [replaced[id(each)] for each in group["params"]]} for group in optimizer.param_groups]
    alone.state = collections.defaultdict(dict)
    alone.__dict__.update(_optimizer_step_pre_hooks=collections.OrderedDict(), _optimizer_step_post_hooks=collections.OrderedDict())
    for each in stand_ins:
        each.grad = torch.zeros_like(each)
    try:
        with torch.random.fork_rng(devices=[]):
            type(optimizer).step(alone, lambda: torch.zeros(()))
    except (RuntimeError, AssertionError):  # settings for a device, such as capturable
        return None
    return {index: alone.state[each] for index, each in enumerate(stand_ins) if each in alone.state}


def _history_bytes(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> int:
    """What an optimizer keeps that grows with its steps, as L-BFGS does: two vectors for each of the last `history_size`."""
    num_bytes = sum(each.numel() * each.element_size() for each in group["params"])
    return int((2 * group.get("history_size", 0) + 8) * num_bytes) if "history_size" in group else 0


def _to_numbers(content: bytes, numbers: torch.Tensor) -> bool:
    """Writes bytes as numbers that every float32 can have, two of them in each. False: there is no room, and none are written."""
    padded = content + bytes(len(content) % 2)
    room = numbers.numel() - _LENGTH
    length = len(content) if len(padded) // 2 <= room else 0
    numbers.zero_()
    head = length | zlib.crc32(content) << 64
    numbers[:_LENGTH] = torch.tensor([float(head >> shift & 0xFFFF) for shift in range(0, 16 * _LENGTH, 16)], dtype=torch.float32)
    if length:
        pairs = torch.frombuffer(bytearray(padded), dtype=torch.int16)
        numbers[_LENGTH:_LENGTH + pairs.numel()] = pairs.to(torch.int32) & 0xFFFF
    return length > 0
