"""`python -m agoq_comm.activation`; see `agoq_comm.activation.cli`."""

import sys

from agoq_comm.activation.cli import main

sys.exit(main())
