"""Labels and weights of images, and which images to hold out.

Everything here counts images, never descriptors: descriptors of one image must not stand on both sides of a split.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def check_labels(y: Any, count: int) -> npt.NDArray[Any]:
    """Check the labels of images: one per image, all of one type, none missing."""
    if isinstance(y, np.ndarray) and y.shape == (count,) and y.dtype.kind == "U":
        return y
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    labels = column_or_1d(y, warn=True)
    if labels.dtype == object and len({type(label) for label in labels}) > 1:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise ValueError(f"labels must be all of one type, got {kinds}.")
    check_classification_targets(labels)
    if len(labels) != count:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[count, len(labels)]}.")
    return np.asarray(labels)


def labels_of(store: Any, y: Any) -> Any:
    """Return the labels of a store's photos: `y` if given, otherwise its own; none may be missing."""
    y = store.labels if y is None else y
    for name, label in zip(store.names, y, strict=False):  # `check_labels` counts the labels
        if label is None:
            raise ValueError(f"{name} has no label: every training image needs one.")
    return y


def known_labels(target_y: Any, count: int, labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Return which photos of the target have labels (not None), and the labels of these; `labels` are the source's."""
    if target_y is None:
        return np.zeros(count, bool), labels[:0]
    has_label = np.array([label is not None for label in target_y])
    if len(has_label) != count:
        raise ValueError(f"the target has {count} photos, but {len(has_label)} labels.")
    known = [label for label in target_y if label is not None]
    return has_label, check_labels(np.array(known), len(known)) if known else labels[:0]


def check_weights(sample_weight: Any, count: int) -> npt.NDArray[np.float64]:
    """Return the weight of each image, by default 1; none may be negative, and not all may be 0."""
    if sample_weight is None:
        return np.ones(count)
    weight = np.asarray(sample_weight, np.float64)
    weight = np.full(count, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (count,):
        raise ValueError(f"sample_weight.shape == {weight.shape}, expected ({count},): one number per image.")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError("sample_weight must be finite, not negative, and above zero for some image.")
    return weight


def image_weights(
    classes: npt.NDArray[Any], numbers: npt.NDArray[Any], class_weight: Any, sample_weight: Any
) -> npt.NDArray[np.float64]:
    """Return the weight of each image: its sample weight times the weight of its class."""
    weight = check_weights(sample_weight, len(numbers))
    if class_weight is None:
        return weight
    if isinstance(class_weight, dict):  # classes that are not in it have weight 1, as in scikit-learn
        of_class = np.array([class_weight.get(label, 1.0) for label in classes.tolist()])
    else:
        counts = np.bincount(numbers[weight > 0], minlength=len(classes))
        of_class = counts.sum() / (np.maximum(counts, 1) * np.count_nonzero(counts))  # "balanced", as in scikit-learn
    return np.asarray(weight * of_class[numbers])


def hold_out(
    images: Numbers, labels: Numbers, share: float, seed: int, groups: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """Split images into those to keep and those to hold out: a share of each class, keeping at least one.

    Groups are held out as a whole, except those without which a class would have no image left.
    """
    groups = np.arange(len(labels)) if groups is None else groups
    rng = np.random.default_rng(seed)
    _, first, sizes = np.unique(groups[images], return_index=True, return_counts=True)
    order = np.argsort(first)
    leaders, sizes = images[first[order]], sizes[order]
    out: list[int] = []
    for number in np.unique(labels[images]) if share > 0 else ():
        limit = max(1, round(share * int(np.sum(labels[images] == number))))
        class_rows = rng.permutation(np.flatnonzero(labels[leaders] == number))
        count = int(np.searchsorted(np.cumsum(sizes[class_rows]), limit, side="right"))
        out.extend(leaders[class_rows[: min(len(class_rows) - 1, max(1, count))]] if len(class_rows) else [])
    held = np.sort(images[np.isin(groups[images], groups[np.array(out, np.int64)])])
    lost_classes = np.setdiff1d(labels[images], labels[np.setdiff1d(images, held)])
    held = held[~np.isin(groups[held], groups[held[np.isin(labels[held], lost_classes)]])]
    return np.setdiff1d(images, held), held
