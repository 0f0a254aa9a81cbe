"""rescheduling: move pods off overloaded nodes."""
