"""Hardware tables: the MIG geometries of GPUs, and the templates of NPUs.

Both are the vendors' facts, as in the default configuration of the device plugins. That has no H100
and H200; their instances are as `nvidia-smi mig -lgip` lists them.

Note: the order of geometries and instances is part of the contract. A pod is annotated with name
and position, `[group2-3]`, and the device plugin looks these up in its own table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Geometry = tuple[tuple[int, int], ...]
"""Instances that a device can have at the same time: (memory in MiB, number)."""

_SMALL: Final = (((5120, 7),), ((10240, 3), (5120, 1)), ((20480, 2),), ((40960, 1),))
_LARGE: Final = (((9728, 7),), ((19968, 3), (9728, 1)), ((40192, 2),), ((80896, 1),))
_H100: Final = (((9984, 7),), ((20090, 3), (9984, 1)), ((40448, 2),), ((81152, 1),))
# 3g.71gb has at least as much memory as two of 2g.35gb.
_H200: Final = (((16384, 7),), ((33280, 3), (16384, 1)), ((66560, 2),), ((143360, 1),))
_GEOMETRIES: Final[tuple[tuple[tuple[str, ...], tuple[Geometry, ...]], ...]] = (
    (("A30",), (((6144, 4),), ((12288, 2),), ((24576, 1),))),
    (("A100-SXM4-40GB", "A100-40GB-PCIe", "A100-PCIE-40GB"), _SMALL),
    (("A100-SXM4-80GB", "A100-80GB-PCIe", "A100-PCIE-80GB"), _LARGE),
    (("H100-80GB-HBM3", "H100-PCIe"), _H100),
    (("H200",), _H200),
)


def geometries(model: str) -> tuple[Geometry, ...]:
    """Return the MIG geometries of a model; empty for an unknown model."""
    words = f"-{model.replace(' ', '-')}-"  # whole words: a GH200 is not an H200
    for names, found in _GEOMETRIES:
        if any(f"-{name}-" in words for name in names):
            return found
    return ()


@dataclass(frozen=True, slots=True)
class Chip:
    """A kind of NPU: its resources, and its templates as (name, memory, cores)."""

    word: str
    memory: int
    cores: int
    templates: tuple[tuple[str, int, int], ...]

    @property
    def resource(self) -> str:
        return f"huawei.com/{self.word}"

    @property
    def memory_resource(self) -> str:
        return f"huawei.com/{self.word}-memory"

    def part(self, memory: int) -> tuple[str, int, int]:
        """Return the smallest template with enough memory; the whole chip has no name."""
        for name, size, cores in self.templates:
            if memory <= size:
                return name, size, cores * 100 // self.cores
        return "", self.memory, 100


_B3: Final = (("vir05_1c_16g", 16384, 5), ("vir10_3c_32g", 32768, 10))
CHIPS: Final[tuple[Chip, ...]] = (
    Chip(
        "Ascend910A",
        32768,
        30,
        (("vir02", 2184, 2), ("vir04", 4369, 4), ("vir08", 8738, 8), ("vir16", 17476, 16)),
    ),
    Chip(
        "Ascend910B2",
        65536,
        24,
        (("vir03_1c_8g", 8192, 3), ("vir06_1c_16g", 16384, 6), ("vir12_3c_32g", 32768, 12)),
    ),
    Chip("Ascend910B", 65536, 20, _B3),
    Chip("Ascend910B3", 65536, 20, _B3),
    Chip("Ascend910B4-1", 65536, 20, _B3),
    Chip("Ascend910B4", 32768, 20, (("vir05_1c_8g", 8192, 5), ("vir10_3c_16g", 16384, 10))),
    Chip("Ascend310P", 21527, 8, (("vir01", 3072, 1), ("vir02", 6144, 2), ("vir04", 12288, 4))),
)
CHIP_OF: Final = {chip.word: chip for chip in CHIPS}
