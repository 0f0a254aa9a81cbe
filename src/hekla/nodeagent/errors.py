"""Errors that keep a container waiting."""

from __future__ import annotations


class AllocationError(Exception):
    """Devices or CPUs of this machine cannot be allocated; the message says why."""
