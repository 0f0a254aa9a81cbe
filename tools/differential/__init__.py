"""Send the same requests to hekla's server and kube-apiserver and compare; see __main__.py."""
