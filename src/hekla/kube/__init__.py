"""Clients of any Kubernetes API server, and what controllers build on them.

Nothing is re-exported here: `sync_client` serves the command line, which must not import asyncio to
print a table.

    resources    kinds as data: PODS, JOBS, QUEUES ...
    calls        one request as data; URLs and bodies, shared by both clients
    errors       the error tree
    kubeconfig   server address and user; credentials: tokens, plugins and certificates
    transport    TLS, timeouts and retries on the connections of http1; retries: the policy
    client       the asynchronous client
    sync_client  the synchronous client of the command line, on sync_transport
    verbs        the verbs of both clients; sync_verbs is generated from it
    responses    decoding of objects, lists and watch streams
    informers    a list+watch cache; stores: its objects and indexes
    workqueue    a keyed queue with back-off
    recorder     Kubernetes Events; correlation: aggregation and rate limits
    leases       leader election
"""
