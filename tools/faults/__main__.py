"""`python -m tools.faults AUDIT_LOG`: check a history; exit code 1 if a law is broken."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.faults.history import read_audit
from tools.faults.laws import judge

if __name__ == "__main__":
    report = judge(read_audit(Path(sys.argv[1])))
    print(report)
    sys.exit(bool(report.broken))
