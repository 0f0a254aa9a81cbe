"""deviceshare: share GPUs and NPUs between pods."""
