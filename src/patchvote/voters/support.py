"""Support: how much each training image adds to the score that a linear SVM gives a photo.

The weights of an SVM with the squared hinge loss (the problem is written down in `many_svms`) are a sum over the
training images: at the minimum, w = sum_i a_i y_i x_i with a_i = 2 C c_i max(0, 1 - y_i f(x_i)). So the score of a
photo x is a sum as well, apart from the intercept: image i adds a_i y_i x_i.x to it. Images of the class itself add
most where the photo looks like them and where they lie near the border to other classes. The factors a_i are not
stored: they follow from the images and the weights that a model has. Nothing here needs more than numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def added_by(
    images: Floats,
    scores: Floats,
    weight: npt.NDArray[Any],
    photo: Floats,
    *,
    two: bool,
) -> Floats:
    """Return what images of a class add to the score of a photo for that class, up to a factor that all share.

    Parameters
    ----------
    images : array of shape (images, features)
        Vectors of training images of the class, centred and scaled as in the training.
    scores : array of shape (images,)
        Scores of these images for the class.
    weight : array of shape (images,)
        Weights of these images in the training.
    photo : array of shape (features,)
        Vector of the photo, centred and scaled likewise.
    two : bool
        Whether there are two classes: one function then separates them, of which each class has half.

    Examples
    --------
    >>> images = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    >>> added_by(images, np.array([0.5, 0.5, 1.5]), np.ones(3), np.array([2.0, 1.0]), two=False).tolist()
    [1.0, 0.5, 0.0]
    """
    missing = np.maximum(0.0, 1.0 - (2 if two else 1) * scores)  # of the margin; 0 for images far inside their class
    return np.asarray(weight * missing * (images @ photo))
