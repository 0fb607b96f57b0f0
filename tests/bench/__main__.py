"""`make bench`."""

from __future__ import annotations

import sys

from tests.bench.compare import main

sys.exit(main())
