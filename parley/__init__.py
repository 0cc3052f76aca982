"""Parley as an installed package. The wheel has the tree of the repository in this folder.

`project`, `history` and `relay` are common names, so they are not in site-packages itself: only a process that imports
`parley` finds them. In a clone they are beside this package, and it adds nothing.
"""

import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent

if (TREE / "project").is_dir() and str(TREE) not in sys.path:
    sys.path.insert(0, str(TREE))
