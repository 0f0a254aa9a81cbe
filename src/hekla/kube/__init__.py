"""Talking to any Kubernetes API server. The only package that knows which server it talks to.

Import names from the module that owns them. Nothing is re-exported here on purpose: `sync_client`
serves the command line, which must not pay for importing asyncio and what hangs on it to print a
table.

    resources    kinds as data: PODS, JOBS, QUEUES ...
    calls        one request as data; URL and body building, shared by both clients
    errors       the error tree
    kubeconfig   which server, and who we are; credentials: how we prove it
    transport    TLS, time limits, retries, on the connections of http1; retries: when, how long
    client       the asynchronous client
    sync_client  the synchronous client of the command line, on sync_transport
    verbs        the verbs of both clients; sync_verbs is generated from it
    answers      decoding what comes back: objects, lists, watch streams
    informers    a list+watch cache; stores: its memory
    workqueue    a keyed queue with back-off
    recorder     Kubernetes Events; correlation: which of them are worth sending
    leases       leader election
"""
