"""Learning more happens as a whole or not at all.

A voter that has taken note of new classes but not learned their images would name other photos wrongly: its scores have
one column per class. So a call that learns more and fails, or is interrupted, leaves the voter as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def atomic(method: Method) -> Method:
    """Make a method of an estimator restore all attributes if it raises; it must not change arrays in place.

    Examples
    --------
    >>> class Voter:
    ...     classes_ = ["sea"]
    ...
    ...     @atomic
    ...     def partial_fit(self, labels):
    ...         self.classes_ = [*self.classes_, *labels]
    ...         raise ValueError("there are no images.")
    >>> voter = Voter()
    >>> voter.partial_fit(["land"])
    Traceback (most recent call last):
    ValueError: there are no images.
    >>> voter.classes_
    ['sea']
    """

    @functools.wraps(method)
    def whole(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *args, **kwargs)
        except BaseException:  # Ctrl-C as well
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Method, whole)
