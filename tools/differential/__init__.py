"""The same requests to hekla's server and to kube-apiserver, answers compared; see __main__.py."""
