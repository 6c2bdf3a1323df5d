"""Parameters: what scikit-learn asks of an estimator, for classes that must not import scikit-learn.

Whoever predicts with a model should not wait for scikit-learn's import, so classes that it may clone, search over or
put into a pipeline have its methods without inheriting from it.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Self

from ..errors import PatchvoteError
from .terminal import nearest


class Parameters:
    """Base of estimators whose constructor stores every argument under its name.

    Examples
    --------
    >>> class Brush(Parameters):
    ...     def __init__(self, width=1, *, colour="red"):
    ...         self.width, self.colour = width, colour
    >>> Brush(3).get_params()
    {'width': 3, 'colour': 'red'}
    >>> Brush(3).set_params(colour="blue").get_params()
    {'width': 3, 'colour': 'blue'}
    >>> Brush(3)
    Brush(width=3)
    """

    estimator_type: ClassVar[str]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor by name; `deep` is there for scikit-learn, and changes nothing."""
        return {name: getattr(self, name) for name in _arguments(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Set arguments of the constructor. What was learned is forgotten, unless the constructor refuses a value."""
        for name in params:
            if name not in _arguments(type(self)):
                raise PatchvoteError(
                    f"{type(self).__name__} has no parameter {name!r}.{nearest(name, _arguments(type(self)))}"
                )
        if params:
            before, arguments = dict(vars(self)), {**self.get_params(), **params}
            vars(self).clear()
            try:
                type(self).__init__(self, **arguments)
            except BaseException:
                vars(self).clear()
                vars(self).update(before)
                raise
        return self

    def __repr__(self) -> str:
        given = inspect.signature(type(self)).parameters
        values = {name: getattr(self, name, given[name].default) for name in _arguments(type(self))}
        differing = [f"{name}={value!r}" for name, value in values.items() if repr(value) != repr(given[name].default)]
        return f"{type(self).__name__}({', '.join(differing)})"

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags, TransformerTags

        is_classifier = self.estimator_type == "classifier"
        return Tags(
            estimator_type=self.estimator_type,
            target_tags=TargetTags(required=is_classifier),
            classifier_tags=ClassifierTags() if is_classifier else None,
            transformer_tags=None if is_classifier else TransformerTags(),
            input_tags=InputTags(two_d_array=False, string=True),
        )


def _arguments(owner: type) -> list[str]:
    return list(inspect.signature(owner).parameters)
