"""Pods as real processes on this machine."""
