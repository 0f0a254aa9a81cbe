"""drf: dominant resource fairness."""
