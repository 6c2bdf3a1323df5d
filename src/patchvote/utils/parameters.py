"""What scikit-learn asks of an estimator, for classes that must not import it: predicting does not wait for that."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Self

from ..errors import PatchvoteError
from .terminal import nearest


class Parameters:
    """Base of estimators whose constructor stores every argument under its name."""

    estimator_type: ClassVar[str]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor by name; `deep` is there for scikit-learn, and changes nothing."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set arguments of the constructor. What was learned is forgotten, unless the constructor refuses a value."""
        known = list(inspect.signature(type(self)).parameters)
        for name in params:
            if name not in known:
                raise PatchvoteError(f"{type(self).__name__} has no parameter {name!r}.{nearest(name, known)}")
        if params:
            changed = vars(type(self)(**{**self.get_params(), **params}))
            vars(self).clear()
            vars(self).update(changed)
        return self

    def __repr__(self) -> str:
        given = inspect.signature(type(self)).parameters
        values = {name: getattr(self, name, given[name].default) for name in given}
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
