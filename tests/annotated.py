"""The parts of AnnData and MuData that the package looks at, so that tests need neither."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass
class AnnData:
    X: Any
    obs_names: pd.Index
    var_names: pd.Index
    obs: pd.DataFrame = field(init=False)
    obsm: dict = field(default_factory=dict)

    def __post_init__(self):
        self.obs = pd.DataFrame(index=self.obs_names)


@dataclass
class MuData:
    mod: dict
    obs_names: pd.Index
    obs: pd.DataFrame = field(init=False)
    obsm: dict = field(default_factory=dict)

    def __post_init__(self):
        self.obs = pd.DataFrame(index=self.obs_names)


def anndata(matrix, samples, prefix="f"):
    return AnnData(matrix, pd.Index(list(samples)), pd.Index([f"{prefix}{j}" for j in range(matrix.shape[1])]))


def mudata(**modalities):
    samples = dict.fromkeys(sample for one in modalities.values() for sample in one.obs_names)
    return MuData(modalities, pd.Index(list(samples)))
