"""`make chaos`."""

from __future__ import annotations

import sys

from tests.chaos.chaos import main

sys.exit(main())
