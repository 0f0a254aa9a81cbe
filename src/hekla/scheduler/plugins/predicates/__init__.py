"""predicates: kube-scheduler's filters."""
