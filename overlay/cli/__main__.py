"""``python -m engine_overlay.cli``: the same as the command ``engine-overlay``."""

import sys

from engine_overlay.cli.main import main

sys.exit(main())
