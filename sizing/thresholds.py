"""Numbers that several rules share."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from elasticjob.sizing.measures import GIB

PAYS: Final = 0.2
"""The least speed of an added node, as a share of that of a node before."""
TARGET: Final = 0.85
"""The share of its cores that a parameter server should use."""
HOT: Final = 0.8
"""The share of its cores beyond which Brain gives a server more, up to which it can serve more workers."""
AT_LIMIT: Final = 0.95
"""The share of its cores at which a server has too many workers."""
CROWDED: Final = 0.9
"""The share of its memory beyond which a server gets more."""
STEP: Final = 8 * GIB
"""The most memory that one change adds to a node."""
MARGIN: Final = 4
"""Cores beyond what a parameter server uses."""
ROOMY: Final = 1.2
"""Memory of a parameter server, of what it used at most."""
WIDEST: Final = 32
"""Cores of a node at most."""
MOST_SERVERS: Final = 15
MOST_WORKERS: Final = 60
AT_ONCE: Final = 4
"""Workers that one change adds beside parameter servers."""
SHORT: Final = timedelta(seconds=1800)
"""A job that takes no longer is a short one."""
