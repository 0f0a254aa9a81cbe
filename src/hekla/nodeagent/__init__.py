"""The node agent: runs pods as processes on this machine, as the kubelet runs containers."""
