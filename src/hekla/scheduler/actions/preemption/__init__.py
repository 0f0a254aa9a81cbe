"""The victim search shared by preempt, reclaim, gangpreempt and gangreclaim."""
