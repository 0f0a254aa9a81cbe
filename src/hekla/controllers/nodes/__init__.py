"""Lost nodes, and the pods on them. Only on the embedded cluster: Kubernetes has its own."""
