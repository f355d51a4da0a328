"""Results written into the data that they come from: AnnData and MuData, recognised by what they offer."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

__all__ = ["Annotated", "Fitted", "annotate"]


@runtime_checkable
class Annotated(Protocol):
    """What is written to of an AnnData or a MuData."""

    obs: Any
    """A DataFrame with one row per sample."""
    obsm: Any
    """Arrays by name, one row per sample."""
    obs_names: Any
    """Ids of the samples."""


@runtime_checkable
class Fitted(Protocol):
    """What is read of a fitted estimator."""

    labels_: np.ndarray
    embedding_: np.ndarray
    sample_ids_: np.ndarray


def annotate(data: Annotated, model: Fitted, *, key: str = "jpltd") -> None:
    """Write labels to ``data.obs[key]`` and the embedding to ``data.obsm["X_" + key]``, matched by sample id.

    Labels are written as categories, "0", "1", ..., as scanpy has them. Nothing is written if there is an error.

    Parameters
    ----------
    data
        AnnData or MuData; all its samples must be among those that were clustered.
    model
        A fitted :class:`jpltd_jax.JPLTD` or :class:`jpltd_jax.Clusterer`.
    key
        Name of the column.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from types import SimpleNamespace
    >>> from jpltd_jax.annotate import annotate
    >>> data = SimpleNamespace(obs=pd.DataFrame(index=["b", "a"]), obsm={}, obs_names=["b", "a"])
    >>> ids = np.array(["a", "b"], object)
    >>> annotate(data, SimpleNamespace(labels_=np.array([0, 1]), embedding_=np.eye(2), sample_ids_=ids))
    >>> data.obs["jpltd"].tolist(), data.obsm["X_jpltd"].tolist()
    (['1', '0'], [[0.0, 1.0], [1.0, 0.0]])
    """
    if not isinstance(data, Annotated):
        raise TypeError(f"data must be an AnnData or a MuData, got {type(data).__name__}")
    if not isinstance(model, Fitted):
        raise ValueError("the model is not fitted: call fit first")
    place = {sample: i for i, sample in enumerate(model.sample_ids_.tolist())}
    unknown = [sample for sample in data.obs_names if sample not in place]
    if unknown:
        raise ValueError(f"{len(unknown)} samples of the data were not clustered, the first is {unknown[0]!r}")
    rows = [place[sample] for sample in data.obs_names]
    column = data.obs.index.to_series().map(dict(zip(data.obs_names, model.labels_[rows].astype(str), strict=True)))
    names = [str(label) for label in range(int(model.labels_.max()) + 1)]
    embedding = model.embedding_[rows]
    data.obs[key] = column.astype("category").cat.set_categories(names)
    data.obsm[f"X_{key}"] = embedding
