"""`vcctl` and the `v…` tools: Volcano's command line, with additions.

    main.py            the tree of commands, imported on demand; entry points of all scripts
    commands.py        click with Volcano's flag syntax, exit codes and failure line
    options.py         flags that many commands share, and the meaning of -n and -N
    output.py          tables, and -o wide|json|yaml|name|jsonpath
    jsonpath.py        kubectl's jsonpath templates
    errors.py          failures with a hint, and "did you mean"
    manifests.py       manifest files, validated before they are sent
    list_watch.py      lists with --watch
    verbs.py           create, delete, list, get and describe for one kind
    fairshare.py       usage over time, as the scheduler records it
    jobs.py submission.py job_view.py job_runtime.py explain.py     `vcctl job`
    queues.py queue_top.py flows.py templates.py pods.py podgroups.py version.py completion.py
    registration.py    the same commands under `hekla`
    shortcuts.py       vsub, vjobs, vqueues, vcancel, vsuspend, vresume

Note: scripts read stdout. It contains exactly what Volcano prints, blanks included; everything
added goes to stderr.
"""
