"""The paper's experiments as commands: a protocol is data, and running it fills a folder of results.

A protocol (`*.toml` here, or a user's own file) says which image set, which splits, which voters and which recipes. A
result is one number with all that is needed to make it again. Tables and plots are made from results alone.
"""

from .protocol import PROTOCOLS, Protocol

__all__ = ["PROTOCOLS", "Protocol"]
