# SPDX-License-Identifier: Apache-2.0
"""Parameters and work of well-known models, layer by layer in the order of the forward pass, for images of 224 x 224."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    values: int
    multiplications: int  # of its layer, for one image; 0 for what comes with another tensor


def vgg19() -> list[Tensor]:
    """Simonyan and Zisserman, 2015, configuration E: 143,667,240 parameters."""
    tensors, channels, side = [], 3, 224
    for stage, (layers, width) in enumerate(((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)), start=1):
        for layer in range(1, layers + 1):
            weights = 9 * channels * width
            tensors += [Tensor(f"conv{stage}_{layer}.weight", weights, weights * side * side), Tensor(f"conv{stage}_{layer}.bias", width, 0)]
            channels = width
        side //= 2
    for layer, (inputs, width) in enumerate(((channels * side * side, 4096), (4096, 4096), (4096, 1000)), start=6):
        tensors += [Tensor(f"fc{layer}.weight", inputs * width, inputs * width), Tensor(f"fc{layer}.bias", width, 0)]
    return tensors


def resnet50() -> list[Tensor]:
    """He et al., 2015, table 1: 25,557,032 parameters."""
    tensors: list[Tensor] = []

    def convolution(name: str, inputs: int, width: int, size: int, side: int) -> None:
        weights = size * size * inputs * width
        tensors.append(Tensor(f"{name}.weight", weights, weights * side * side))
        tensors.extend(Tensor(f"{name}.norm.{what}", width, 0) for what in ("weight", "bias"))

    convolution("conv1", 3, 64, 7, 112)
    channels = 64
    for stage, (blocks, width, side) in enumerate(((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)), start=2):
        for block in range(blocks):
            name = f"conv{stage}.{block}"
            convolution(f"{name}.1", channels, width, 1, side)
            convolution(f"{name}.2", width, width, 3, side)
            convolution(f"{name}.3", width, 4 * width, 1, side)
            if block == 0:
                convolution(f"{name}.shortcut", channels, 4 * width, 1, side)
            channels = 4 * width
    tensors += [Tensor("fc.weight", channels * 1000, channels * 1000), Tensor("fc.bias", 1000, 0)]
    return tensors
