"""``python -m specdec_lib`` is the command line."""

from .cli import main

raise SystemExit(main())
