"""`vcctl` and its one-purpose kin: Volcano's command line, kept word for word and made kinder.

    main.py        the tree of commands, loaded when named; entry points of every script
    commands.py    click bent to Volcano's manners: flag spelling, exit codes, the failure line
    options.py     the flags that many commands share; who is meant by -n and -N
    output.py      tables, and -o wide|json|yaml|name|jsonpath
    jsonpath.py    kubectl's jsonpath templates
    errors.py      failures with a next step, and "did you mean"
    manifests.py   files in, checked before they are sent
    watching.py    lists that stay: --watch
    jobs.py submission.py job_view.py job_life.py explain.py     `vcctl job`
    queues.py queue_top.py flows.py templates.py pods.py podgroups.py version.py completion.py
    registration.py  the same nouns under `hekla`
    shortcuts.py   vsub, vjobs, vqueues, vcancel, vsuspend, vresume

What a newcomer gets wrong: stdout belongs to scripts. What Volcano prints there is printed there,
to the letter and the blank; every kindness goes to stderr.
"""
