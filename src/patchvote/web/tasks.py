"""Task: what a job has to learn, as the server hands it to the process that learns."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
    """What to learn.

    Parameters
    ----------
    photos : str
        Folder of the photos, which are named by their ids.
    run : str
        Folder to write into.
    bags : str
        Folder of the cache.
    labelled : list
        Id, name and class of every labelled photo.
    unlabelled : list
        Id and name of every unlabelled photo.
    base : str or None
        Model to add to; None starts anew.
    network : str or None
        Network of that model, if its file does not tell it.
    voter : str
        Voter, as for `ImageClassifier`.
    budget : float
        Seconds for trying settings and training.
    suggest : int
        Number of unlabelled photos to suggest.
    jobs : int or None
        Number of threads.
    device : str
        Device on which the network runs.
    """

    photos: str
    run: str
    bags: str
    labelled: list[list[str]]
    unlabelled: list[list[str]]
    base: str | None = None
    network: str | None = None
    voter: str = "auto"
    budget: float = 60.0
    suggest: int = 12
    jobs: int | None = None
    device: str = "cpu"
