"""A package that adds a voter and a network to patchvote; pyproject.toml names both."""

from my_package.class_mean import ClassMean

__all__ = ["ClassMean"]
